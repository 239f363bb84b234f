//! The paper's own table of page-fault latency, to print beside ours.
//!
//! Source: MEGA slides, "Evaluation - Page fault latency": 2 million `set` requests with 4 KiB objects on Redis, Linux
//! 4.16.8, a 2.3 GHz Intel i7 with 16 GiB of DDR3.

use crate::table;
use serde::Serialize;

/// What the paper timed is not what we time.
pub const NOTE: &str = "The paper timed the kernel's fault handler (__do_page_fault, by ftrace, in Redis on Linux \
4.16.8). We time a touch as the program sees it: entry, exit, and waiting for locks included. Compare the ratios to \
base pages, not the microseconds.";

/// One column of the paper's table, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaperColumn {
    /// What ran.
    pub name: &'static str,
    /// Mean.
    pub mean_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// The paper's table.
pub const FAULT_LATENCY: [PaperColumn; 4] = [
    PaperColumn {
        name: "THP disabled",
        mean_us: 0.9,
        p90_us: 1.5,
        p99_us: 2.8,
        p999_us: 4.2,
    },
    PaperColumn {
        name: "THP enabled",
        mean_us: 2.9,
        p90_us: 1.8,
        p99_us: 118.2,
        p999_us: 123.8,
    },
    PaperColumn {
        name: "MEGA",
        mean_us: 2.5,
        p90_us: 3.1,
        p99_us: 6.1,
        p999_us: 15.1,
    },
    PaperColumn {
        name: "Ingens",
        mean_us: 1.6,
        p90_us: 1.7,
        p99_us: 4.5,
        p999_us: 400.8,
    },
];

/// The paper's table as text, with its note.
#[must_use]
pub fn render() -> String {
    let mut head = vec!["paper's fault handler".to_owned()];
    head.extend(FAULT_LATENCY.map(|column| column.name.to_owned()));
    let rows = [
        row("mean", |column| column.mean_us),
        row("p90", |column| column.p90_us),
        row("p99", |column| column.p99_us),
        row("p99.9", |column| column.p999_us),
    ];
    format!("{}{NOTE}\n", table::render(&head, &rows))
}

fn row(name: &str, figure: impl Fn(&PaperColumn) -> f64) -> Vec<String> {
    let base = figure(&FAULT_LATENCY[0]);
    let cell = |column: &PaperColumn| {
        let us = figure(column);
        format!("{us:.1} µs ×{:.2}", us / base)
    };
    std::iter::once(name.to_owned())
        .chain(FAULT_LATENCY.iter().map(cell))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_are_the_ones_that_the_slide_prints() {
        let text = render();
        for factor in ["×3.22", "×42.21", "×29.48", "×2.78", "×3.60", "×95.43"] {
            assert!(text.contains(factor), "{factor} is not in\n{text}");
        }
        assert!(text.contains("fault handler"));
    }
}
