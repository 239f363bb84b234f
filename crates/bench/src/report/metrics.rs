//! The figures of a run, by name: the keys of the JSON and the lines of the table.

use super::{Benchmark, Run};
use hugepilot_core::units::Span;

/// How a figure is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds, printed in a fitting unit.
    Time,
    /// From 0 to 1, printed in per cent.
    Share,
    /// A number.
    Count,
}

/// A figure of a run.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its key in JSON; ends with its unit.
    pub key: &'static str,
    /// Its name in the table.
    pub title: &'static str,
    /// How it is printed.
    pub unit: Unit,
    /// Where it stands.
    pub of: fn(&Run) -> Option<f64>,
}

/// A figure in its unit.
#[must_use]
pub fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Time => Span::from_secs_f64(value / 1e9).to_string(),
        Unit::Share => format!("{:.2} %", value * 100.0),
        Unit::Count => format!("{value:.0}"),
    }
}

/// The metrics of a benchmark, in the order of the table.
#[must_use]
pub fn metrics(benchmark: Benchmark) -> &'static [Metric] {
    match benchmark {
        Benchmark::Faults => FAULTS,
        Benchmark::Access => ACCESS,
    }
}

/// A figure of one of the loops, or of the whole run, as a function pointer.
macro_rules! metric {
    ($key:literal, $title:literal, $unit:ident, |$run:ident| $of:expr) => {
        Metric {
            key: $key,
            title: $title,
            unit: Unit::$unit,
            of: |$run| $of,
        }
    };
}

const FAULTS: &[Metric] = &[
    metric!("closed_p50_ns", "closed loop p50", Time, |run| Some(ns(
        run.worker.closed?.latency.p50_ns
    ))),
    metric!("closed_p90_ns", "closed loop p90", Time, |run| Some(ns(
        run.worker.closed?.latency.p90_ns
    ))),
    metric!("closed_p99_ns", "closed loop p99", Time, |run| Some(ns(
        run.worker.closed?.latency.p99_ns
    ))),
    metric!("closed_p999_ns", "closed loop p99.9", Time, |run| Some(ns(
        run.worker.closed?.latency.p999_ns
    ))),
    metric!("closed_max_ns", "closed loop max", Time, |run| Some(ns(
        run.worker.closed?.latency.max_ns
    ))),
    metric!("closed_total_ns", "closed loop in all", Time, |run| Some(
        ns(run.worker.closed?.total_ns)
    )),
    metric!("closed_stalls", "closed loop stalls", Count, |run| Some(
        count(run.worker.closed?.stalls.count)
    )),
    metric!(
        "closed_stall_share",
        "closed loop stall share",
        Share,
        |run| Some(run.worker.closed?.stalls.share.get())
    ),
    metric!("closed_huge_share", "huge share at its end", Share, |run| {
        Some(run.worker.closed?.huge_share_end.get())
    }),
    metric!(
        "closed_collapses",
        "collapses within it",
        Count,
        |run| Some(count(run.manager.as_ref()?.collapses_in_closed))
    ),
    metric!("open_p50_ns", "open loop p50", Time, |run| Some(ns(run
        .worker
        .open?
        .latency
        .p50_ns))),
    metric!("open_p99_ns", "open loop p99", Time, |run| Some(ns(run
        .worker
        .open?
        .latency
        .p99_ns))),
    metric!("open_p999_ns", "open loop p99.9", Time, |run| Some(ns(run
        .worker
        .open?
        .latency
        .p999_ns))),
    metric!("open_max_ns", "open loop max", Time, |run| Some(ns(run
        .worker
        .open?
        .latency
        .max_ns))),
    metric!("open_stalls", "open loop stalls", Count, |run| Some(count(
        run.worker.open?.stalls.count
    ))),
    metric!(
        "open_longest_stall_ns",
        "open loop longest touch",
        Time,
        |run| Some(ns(run.worker.open?.stalls.longest_ns))
    ),
    metric!("open_stall_share", "open loop stall share", Share, |run| {
        Some(run.worker.open?.stalls.share.get())
    }),
    metric!("open_huge_share", "huge share at its end", Share, |run| {
        Some(run.worker.open?.huge_share_end.get())
    }),
    metric!("open_collapses", "collapses within it", Count, |run| Some(
        count(run.manager.as_ref()?.collapses_in_open)
    )),
    SETTLED_SHARE,
    MOSTLY_HUGE_AFTER,
    MMAP_P999,
    MANAGER_CPU,
    MANAGER_CORE_SHARE,
];

const ACCESS: &[Metric] = &[
    metric!("read_dependent_ns", "dependent read", Time, |run| Some(
        run.worker.reads?.dependent.ns_per_access
    )),
    metric!("read_independent_ns", "independent read", Time, |run| Some(
        run.worker.reads?.independent.ns_per_access
    )),
    metric!(
        "touch_huge_share",
        "huge share after touching",
        Share,
        |run| Some(run.worker.closed.or(run.worker.open)?.huge_share_end.get())
    ),
    SETTLED_SHARE,
    MOSTLY_HUGE_AFTER,
    MMAP_P999,
    metric!("collapses", "collapses", Count, |run| Some(count(
        run.manager.as_ref()?.collapses
    ))),
    MANAGER_CPU,
    MANAGER_CORE_SHARE,
];

const SETTLED_SHARE: Metric = metric!(
    "settled_huge_share",
    "huge share after settling",
    Share,
    |run| Some(run.worker.settle.huge_share_end.get())
);
const MOSTLY_HUGE_AFTER: Metric =
    metric!("mostly_huge_after_ns", "90 % huge after", Time, |run| Some(
        ns(run.worker.settle.mostly_huge_after_ns?)
    ));
const MMAP_P999: Metric = metric!("mmap_p999_ns", "own mmap+munmap p99.9", Time, |run| Some(
    ns(run.worker.mmap?.p999_ns)
));
const MANAGER_CPU: Metric = metric!("manager_cpu_ns", "manager CPU", Time, |run| Some(ns(run
    .manager
    .as_ref()?
    .cpu_ns)));
const MANAGER_CORE_SHARE: Metric = metric!(
    "manager_core_share",
    "manager CPU of one core",
    Share,
    |run| {
        let manager = run.manager.as_ref()?;
        Some(ns(manager.cpu_ns) / ns(manager.wall_ns))
    }
);

fn ns(span: Span) -> f64 {
    count(span.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures are shown to a few digits"
)]
fn count(n: u64) -> f64 {
    n as f64
}
