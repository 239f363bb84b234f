//! The one table.

use super::load::{DEPTH, Filled, OBJECT};
use hugepilot_bench::latency::LatencySummary;
use hugepilot_bench::report::{MachineFacts, ManagerFigures};
use hugepilot_bench::schedule::Mode;
use hugepilot_bench::table;
use hugepilot_core::units::{Bytes, Ratio, Span};
use serde::Serialize;

/// Version of the JSON: raised when a key changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// Memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// Charged to the cgroup, page cache apart.
    pub charged_bytes: Bytes,
    /// Of the server's anonymous memory.
    pub huge_share: Ratio,
}

/// A BGSAVE.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Saved {
    /// The fork itself: the server answers nobody meanwhile.
    pub fork_ns: Span,
    /// From the command to the end of the save.
    pub took_ns: Span,
    /// Writes meanwhile, from the time that each was due.
    pub writes: LatencySummary,
    /// Charged to the cgroup before, page cache apart.
    pub before_bytes: Bytes,
    /// The most that was charged meanwhile, page cache apart.
    pub peak_bytes: Bytes,
    /// The peak over that of `never`, where `never` ran too.
    pub peak_vs_never: Option<f64>,
}

/// One mode's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Who decided.
    pub mode: Mode,
    /// The fill.
    pub filled: Filled,
    /// After it and a wait.
    pub after_fill: Memory,
    /// The save.
    pub saved: Saved,
    /// Objects deleted.
    pub deleted: u32,
    /// After the deletion and a wait.
    pub after_delete: Memory,
    /// The manager, where there was one.
    pub manager: Option<ManagerFigures>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    schema: u32,
    server: String,
    keys: u32,
    object_bytes: usize,
    pipeline_depth: usize,
    settle_s: u64,
    machine: MachineFacts,
    modes: Vec<Row>,
}

impl Report {
    /// From the rows.
    pub fn new(
        keys: u32,
        settle_s: u64,
        server: String,
        machine: MachineFacts,
        mut modes: Vec<Row>,
    ) -> Self {
        compare_peaks(&mut modes);
        Self {
            schema: SCHEMA,
            server,
            keys,
            object_bytes: OBJECT,
            pipeline_depth: DEPTH,
            settle_s,
            machine,
            modes,
        }
    }

    /// As text.
    pub fn render(&self) -> String {
        let mut head = vec![String::new()];
        head.extend(self.modes.iter().map(|row| row.mode.to_string()));
        let line = |(title, figure): &Line| {
            let mut line = vec![(*title).to_owned()];
            line.extend(self.modes.iter().map(figure));
            line
        };
        let lines: Vec<Vec<String>> = LINES.iter().map(line).collect();
        let machine = &self.machine;
        format!(
            "{}\n{} objects of {} bytes, {} requests in flight. Linux {}, {} × {}, {}, THP {}\n\n{}\n{}",
            self.server,
            self.keys,
            self.object_bytes,
            self.pipeline_depth,
            machine.kernel,
            machine.processors,
            machine.processor,
            machine.memory_bytes,
            machine.thp,
            table::render(&head, &lines),
            self.notes(),
        )
    }

    fn notes(&self) -> String {
        format!(
            "Memory is what the cgroup is charged, page cache apart, {} s after the fill and {} s after three quarters of the\n\
             objects were deleted at random (and MEMORY PURGE). Redis allocates by jemalloc, which keeps four of these objects\n\
             in 20 KiB and can give back only what is empty. mega and ingens run with faults on base pages and without\n\
             compaction; no switch of the system was changed under them.\n",
            self.settle_s, self.settle_s,
        )
    }
}

/// Fills in how each mode's peak compares with that of `never`.
fn compare_peaks(modes: &mut [Row]) {
    let never = modes.iter().find(|row| row.mode == Mode::Never);
    let Some(never) = never.map(|row| row.saved.peak_bytes) else {
        return;
    };
    for row in modes {
        row.saved.peak_vs_never = Some(ratio(row.saved.peak_bytes, never));
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
fn ratio(part: Bytes, whole: Bytes) -> f64 {
    part.0 as f64 / whole.0 as f64
}

const NONE: &str = "-";

/// A line's title, and its figure of a mode.
type Line = (&'static str, fn(&Row) -> String);

const LINES: &[Line] = &[
    ("fill, requests/s", |row| format!("{:.0}", row.filled.per_s)),
    ("fill p99", |row| row.filled.latency.p99_ns.to_string()),
    ("fill p99.9", |row| row.filled.latency.p999_ns.to_string()),
    ("fill max", |row| row.filled.latency.max_ns.to_string()),
    ("memory after fill", |row| mib(row.after_fill.charged_bytes)),
    ("huge share after fill", |row| {
        row.after_fill.huge_share.to_string()
    }),
    ("fork at BGSAVE", |row| row.saved.fork_ns.to_string()),
    ("save took", |row| row.saved.took_ns.to_string()),
    ("writes while saving p99", |row| {
        row.saved.writes.p99_ns.to_string()
    }),
    ("writes while saving p99.9", |row| {
        row.saved.writes.p999_ns.to_string()
    }),
    ("writes while saving max", |row| {
        row.saved.writes.max_ns.to_string()
    }),
    ("peak memory while saving", |row| mib(row.saved.peak_bytes)),
    ("peak over never's", |row| {
        let ratio = row.saved.peak_vs_never;
        ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("×{ratio:.2}"))
    }),
    ("memory after delete", |row| {
        mib(row.after_delete.charged_bytes)
    }),
    ("huge share after delete", |row| {
        row.after_delete.huge_share.to_string()
    }),
    ("manager CPU", |row| {
        managed(row, |manager| manager.cpu_ns.to_string())
    }),
    ("manager CPU of one core", |row| {
        managed(row, |manager| {
            Ratio::of(manager.cpu_ns.0, manager.wall_ns.0).to_string()
        })
    }),
    ("collapses", |row| {
        managed(row, |manager| manager.collapses.to_string())
    }),
    ("splits", |row| {
        managed(row, |manager| manager.splits.to_string())
    }),
];

fn managed(row: &Row, figure: impl Fn(&ManagerFigures) -> String) -> String {
    row.manager.as_ref().map_or_else(|| NONE.to_owned(), figure)
}

/// One unit for all modes, so that they can be compared at a glance.
fn mib(bytes: Bytes) -> String {
    format!("{} MiB", bytes.0 >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mode: Mode, manager: Option<ManagerFigures>) -> Row {
        let latency = LatencySummary {
            p999_ns: Span::micros(250),
            ..LatencySummary::default()
        };
        let memory = Memory {
            charged_bytes: Bytes::mib(1_600),
            huge_share: Ratio::new(0.5),
        };
        Row {
            mode,
            filled: Filled {
                latency,
                took_ns: Span::secs(4),
                per_s: 75_000.0,
            },
            after_fill: memory,
            saved: Saved {
                fork_ns: Span::millis(12),
                took_ns: Span::secs(2),
                writes: latency,
                before_bytes: Bytes::mib(1_600),
                peak_bytes: Bytes::mib(if mode == Mode::Never { 1_600 } else { 1_680 }),
                peak_vs_never: None,
            },
            deleted: 3,
            after_delete: memory,
            manager,
        }
    }

    fn report() -> Report {
        let manager = ManagerFigures {
            cpu_ns: Span::millis(30),
            wall_ns: Span::secs(30),
            collapses: 700,
            ..ManagerFigures::default()
        };
        let rows = vec![row(Mode::Never, None), row(Mode::Mega, Some(manager))];
        Report::new(4, 10, "Redis".to_owned(), MachineFacts::default(), rows)
    }

    #[test]
    fn every_mode_has_a_column_and_a_baseline_no_manager() {
        let text = report().render();
        let line = |title: &str| {
            let line = text.lines().find(|line| line.starts_with(title));
            line.expect("a line of the table")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line("collapses"), "collapses - 700");
        assert_eq!(line("fill p99.9"), "fill p99.9 250.0 µs 250.0 µs");
        assert_eq!(
            line("manager CPU of one core"),
            "manager CPU of one core - 0.1 %"
        );
        assert_eq!(line("peak over"), "peak over never's ×1.00 ×1.05");
        assert!(text.contains("jemalloc"));
    }

    #[test]
    fn json_keys_are_stable() {
        let json = serde_json::to_value(report()).expect("plain data");
        assert_eq!(json["schema"], 1);
        assert_eq!(json["modes"][1]["mode"], "mega");
        assert_eq!(json["modes"][0]["saved"]["fork_ns"], 12_000_000);
        assert_eq!(
            json["modes"][0]["after_fill"]["charged_bytes"],
            1_677_721_600_u64
        );
        assert_eq!(json["modes"][1]["manager"]["collapses"], 700);
        assert!(json["modes"][0]["manager"].is_null());
    }
}
