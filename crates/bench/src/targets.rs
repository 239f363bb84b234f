//! What is promised of a managed process, and whether a run kept it.
//!
//! A machine on which huge pages gain nothing cannot show that we keep their gain: there the verdict is "inconclusive",
//! neither kept nor missed.

use crate::report::{Benchmark, Figure};
use crate::schedule::{Cell, Mode};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::{Bytes, Span};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Closed loop: p99.9 of a touch, at most this many times that of `never`.
pub const P999_VS_NEVER_MAX: f64 = 1.5;
/// Open loop: share of the time in stalls, at most.
pub const STALL_SHARE_MAX: f64 = 0.005;
/// The stall share counts where at least this share of the slots was collapsed while touching.
pub const COLLAPSED_INSIDE_MIN: f64 = 0.5;
/// 90 % huge within this time after the last touch.
pub const MOSTLY_HUGE_WITHIN: Span = Span::secs(60);
/// Random reads: at least this share of `always`'s speed.
pub const READ_SPEED_MIN: f64 = 0.97;
/// Reads under `never` must be at least this many times as slow as under `always`, or the comparison shows nothing.
pub const READ_GAIN_MIN: f64 = 1.10;

/// How a promise fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Kept.
    Met,
    /// Not kept.
    Missed,
    /// This run cannot tell.
    Inconclusive,
}

/// One promise, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Of which mode.
    pub mode: Mode,
    /// Its key.
    pub target: &'static str,
    /// The bound.
    pub bound: f64,
    /// What was measured; none where there was nothing to measure.
    pub value: Option<f64>,
    /// Kept?
    pub verdict: Verdict,
    /// In words.
    pub words: String,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Inconclusive => "inconclusive",
        };
        write!(f, "{}: {verdict}: {}", self.mode, self.words)
    }
}

/// By metric, then by mode.
type Figures = BTreeMap<&'static str, BTreeMap<String, Figure>>;

/// Every promise of the managed modes that `benchmark` can judge.
#[must_use]
pub fn judge(benchmark: Benchmark, touched: Bytes, figures: &Figures) -> Vec<Judged> {
    let managed = Mode::ALL.into_iter().filter(|mode| !mode.is_baseline());
    let judged = managed.flat_map(|mode| match benchmark {
        Benchmark::Faults => [
            closed_p999(mode, figures),
            stall_share(mode, touched, figures),
        ],
        Benchmark::Access => [mostly_huge(mode, figures), read_speed(mode, figures)],
    });
    judged.flatten().collect()
}

fn of(figures: &Figures, key: &str, mode: Mode) -> Option<Figure> {
    figures.get(key)?.get(mode.name()).copied()
}

fn closed_p999(mode: Mode, figures: &Figures) -> Option<Judged> {
    let ratio = of(figures, "closed_p999_ns", mode)?.vs_never?;
    Some(Judged {
        mode,
        target: "closed_p999_vs_never",
        bound: P999_VS_NEVER_MAX,
        value: Some(ratio),
        verdict: met(ratio <= P999_VS_NEVER_MAX),
        words: format!(
            "closed loop p99.9 is {ratio:.2} × never's (at most {P999_VS_NEVER_MAX} ×){}",
            noise(figures, "closed_p999_ns", Mode::Never)
        ),
    })
}

fn stall_share(mode: Mode, touched: Bytes, figures: &Figures) -> Option<Judged> {
    let share = of(figures, "open_stall_share", mode)?.stats.median;
    let collapses = of(figures, "open_collapses", mode)?.stats.median;
    let slots = slots(touched);
    let verdict = if collapses < COLLAPSED_INSIDE_MIN * slots {
        Verdict::Inconclusive
    } else {
        met(share <= STALL_SHARE_MAX)
    };
    Some(Judged {
        mode,
        target: "open_stall_share",
        bound: STALL_SHARE_MAX,
        value: Some(share),
        verdict,
        words: format!(
            "open loop stall share is {:.2} % (at most {:.1} %), with {collapses:.0} of {slots:.0} slots collapsed \
             while touching (counts from {:.0} %)",
            share * 100.0,
            STALL_SHARE_MAX * 100.0,
            COLLAPSED_INSIDE_MIN * 100.0,
        ),
    })
}

fn mostly_huge(mode: Mode, figures: &Figures) -> Option<Judged> {
    let settled = of(figures, "settled_huge_share", mode)?.stats.median;
    let after = of(figures, "mostly_huge_after_ns", mode).map(|figure| figure.stats.median / 1e9);
    let bound = MOSTLY_HUGE_WITHIN.as_secs_f64();
    let words = match after {
        Some(after) => {
            format!("90 % huge {after:.1} s after the last touch (at most {bound:.0} s)")
        }
        None => format!(
            "{:.1} % huge after settling, never 90 % (wanted within {bound:.0} s)",
            settled * 100.0
        ),
    };
    Some(Judged {
        mode,
        target: "mostly_huge_after_s",
        bound,
        value: after,
        verdict: met(after.is_some_and(|after| after <= bound)),
        words,
    })
}

fn read_speed(mode: Mode, figures: &Figures) -> Option<Judged> {
    let speed = 1.0 / of(figures, "read_dependent_ns", mode)?.vs_always?;
    let gain = of(figures, "read_dependent_ns", Mode::Never)?.vs_always?;
    let (verdict, beside) = if gain < READ_GAIN_MIN {
        (
            Verdict::Inconclusive,
            format!(
                ": never is only {gain:.2} × as slow as always here, and needs {READ_GAIN_MIN:.2} ×"
            ),
        )
    } else {
        (
            met(speed >= READ_SPEED_MIN),
            format!("; never is {gain:.2} × as slow"),
        )
    };
    Some(Judged {
        mode,
        target: "read_speed_vs_always",
        bound: READ_SPEED_MIN,
        value: Some(speed),
        verdict,
        words: format!(
            "dependent reads at {speed:.3} of always's speed (at least {READ_SPEED_MIN}){beside}{}",
            noise(figures, "read_dependent_ns", Mode::Always)
        ),
    })
}

/// What two runs of one baseline differ by, in words: a verdict within it rests on luck.
fn noise(figures: &Figures, key: &str, baseline: Mode) -> String {
    let again = figures
        .get(key)
        .and_then(|of| of.get(&Cell::again(baseline).to_string()));
    let ratio = again.and_then(|figure| match baseline {
        Mode::Always => figure.vs_always,
        Mode::Never | Mode::Mega | Mode::Ingens => figure.vs_never,
    });
    ratio.map_or_else(String::new, |ratio| {
        format!("; {baseline}/{baseline} is {ratio:.2}")
    })
}

const fn met(kept: bool) -> Verdict {
    if kept { Verdict::Met } else { Verdict::Missed }
}

#[expect(clippy::cast_precision_loss, reason = "a number of slots")]
fn slots(touched: Bytes) -> f64 {
    (touched.0 >> Geometry::X86_64.slot_shift()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Stats;

    fn figure(median: f64, vs_never: f64, vs_always: f64) -> Figure {
        Figure {
            stats: Stats {
                count: 7,
                median,
                min: median,
                max: median,
            },
            vs_never: Some(vs_never),
            vs_always: Some(vs_always),
        }
    }

    fn figures(entries: &[(&'static str, Mode, Figure)]) -> Figures {
        let mut figures = Figures::new();
        for (key, mode, figure) in entries {
            let of_key = figures.entry(key).or_default();
            of_key.insert(mode.name().to_owned(), *figure);
        }
        figures
    }

    fn reads(never_vs_always: f64, mega_vs_always: f64) -> Verdict {
        let figures = figures(&[
            (
                "read_dependent_ns",
                Mode::Never,
                figure(1.0, 1.0, never_vs_always),
            ),
            (
                "read_dependent_ns",
                Mode::Mega,
                figure(1.0, 1.0, mega_vs_always),
            ),
        ]);
        read_speed(Mode::Mega, &figures)
            .expect("both are there")
            .verdict
    }

    #[test]
    fn reads_are_judged_only_where_huge_pages_gain_something() {
        assert_eq!(reads(1.40, 1.02), Verdict::Met);
        assert_eq!(reads(1.40, 1.08), Verdict::Missed);
        assert_eq!(reads(1.05, 1.02), Verdict::Inconclusive);
        assert_eq!(reads(1.05, 1.50), Verdict::Inconclusive);
    }

    fn stalls(share: f64, collapses: f64) -> Verdict {
        let figures = figures(&[
            ("open_stall_share", Mode::Mega, figure(share, 1.0, 1.0)),
            ("open_collapses", Mode::Mega, figure(collapses, 1.0, 1.0)),
        ]);
        let judged = stall_share(Mode::Mega, Bytes::gib(2), &figures);
        judged.expect("both are there").verdict
    }

    #[test]
    fn a_stall_share_without_collapses_shows_nothing() {
        assert_eq!(stalls(0.004, 600.0), Verdict::Met);
        assert_eq!(stalls(0.006, 600.0), Verdict::Missed);
        assert_eq!(stalls(0.001, 100.0), Verdict::Inconclusive);
    }

    #[test]
    fn the_tail_is_judged_against_never() {
        for (ratio, verdict) in [(1.4, Verdict::Met), (3.6, Verdict::Missed)] {
            let figures = figures(&[("closed_p999_ns", Mode::Mega, figure(9.0, ratio, 1.0))]);
            let judged = closed_p999(Mode::Mega, &figures).expect("is there");
            assert_eq!(judged.verdict, verdict);
        }
    }

    #[test]
    fn memory_that_never_gets_huge_misses() {
        let figures = figures(&[("settled_huge_share", Mode::Ingens, figure(0.4, 1.0, 0.4))]);
        let judged = judge(Benchmark::Access, Bytes::gib(2), &figures);
        assert_eq!(judged.len(), 1);
        assert_eq!(judged[0].verdict, Verdict::Missed);
        assert_eq!(judged[0].value, None);
    }
}
