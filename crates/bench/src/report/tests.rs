use super::*;
use crate::clock::ClockKind;
use crate::latency::LatencySummary;
use crate::worker::read::{ReadResult, Reads};
use crate::worker::settle::SettleResult;
use crate::worker::touch::{Stalls, TouchResult};
use hugepilot_core::units::{Instant, Ratio};

fn touches(p999_us: u64) -> TouchResult {
    TouchResult {
        latency: LatencySummary {
            count: 1_000,
            mean_ns: 600.0,
            p50_ns: Span(500),
            p90_ns: Span(700),
            p99_ns: Span::micros(2),
            p999_ns: Span::micros(p999_us),
            max_ns: Span::millis(1),
        },
        stalls: Stalls::default(),
        began_ns: Instant(1),
        ended_ns: Instant(2),
        total_ns: Span(1),
        huge_share_end: Ratio::ZERO,
    }
}

fn run(round: u32, cell: Cell, p999_us: u64, read_ns: f64) -> Run {
    let reads = Reads {
        accesses: 1,
        ns_per_access: read_ns,
        accesses_per_s: 1e9 / read_ns,
    };
    let manager = (!cell.mode.is_baseline()).then(|| ManagerFigures {
        cpu_ns: Span::millis(20),
        wall_ns: Span::secs(10),
        collapses_in_open: 900,
        ..ManagerFigures::default()
    });
    Run {
        round,
        cell,
        worker: WorkerResult {
            clock: ClockKind::TimeStamp,
            clock_overhead_ns: Span(8),
            memory_locked: true,
            closed: Some(touches(p999_us)),
            open: Some(touches(p999_us)),
            settle: SettleResult::default(),
            mmap: None,
            reads: Some(ReadResult {
                dependent: reads,
                independent: reads,
            }),
        },
        manager,
    }
}

fn report(benchmark: Benchmark) -> Report {
    let runs = (0..3).flat_map(|round| {
        let drift = u64::from(round) + 1;
        [
            run(round, Cell::first(Mode::Never), 10 * drift, 100.0),
            run(round, Cell::first(Mode::Always), 200 * drift, 80.0),
            run(round, Cell::first(Mode::Mega), 12 * drift, 81.0),
            run(round, Cell::again(Mode::Never), 11 * drift, 100.0),
        ]
    });
    Report::new(
        benchmark,
        "hugepilot bench".to_owned(),
        MachineFacts::default(),
        Bytes::gib(2),
        runs.collect(),
    )
}

#[test]
fn ratios_are_those_within_rounds() {
    let report = report(Benchmark::Faults);
    let p999 = &report.figures["closed_p999_ns"];
    let ratio = |cell: &str| p999[cell].vs_never.expect("never ran in each round");
    assert!((ratio("always") - 20.0).abs() < 1e-9);
    assert!((ratio("mega") - 1.2).abs() < 1e-9);
    assert!((ratio("never_again") - 1.1).abs() < 1e-9);
    assert!((p999["mega"].stats.median - 24_000.0).abs() < 1e-9);
}

#[test]
fn the_text_shows_medians_noise_extremes_the_paper_and_the_verdicts() {
    let text = report(Benchmark::Faults).render();
    for part in [
        "24.0 µs ×1.20",
        "never/never",
        "×1.10",
        "12.0 µs - 36.0 µs",
        "×29.48",
        "mega: met: closed loop p99.9 is 1.20 × never's (at most 1.5 ×); never/never is 1.10",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn reads_are_compared_with_always() {
    let report = report(Benchmark::Access);
    let judged: Vec<&str> = report.targets.iter().map(|judged| judged.target).collect();
    assert_eq!(judged, ["mostly_huge_after_s", "read_speed_vs_always"]);
    assert!(
        report
            .render()
            .contains("mega: met: dependent reads at 0.988")
    );
}

#[test]
fn json_keys_are_stable() {
    let json = serde_json::to_value(report(Benchmark::Faults)).expect("plain data");
    assert_eq!(json["schema"], 1);
    assert!(
        (json["figures"]["closed_p999_ns"]["mega"]["vs_never"]
            .as_f64()
            .expect("a number")
            - 1.2)
            .abs()
            < 1e-9
    );
    assert_eq!(json["runs"][2]["manager"]["collapses_in_open"], 900);
    assert_eq!(
        json["runs"][0]["worker"]["closed"]["latency"]["p999_ns"],
        10_000
    );
    assert_eq!(json["targets"][0]["verdict"], "met");
}

#[test]
fn keys_are_unique_and_a_missing_manager_leaves_a_gap() {
    for benchmark in [Benchmark::Faults, Benchmark::Access] {
        let keys: std::collections::BTreeSet<&str> =
            metrics(benchmark).iter().map(|metric| metric.key).collect();
        assert_eq!(keys.len(), metrics(benchmark).len());
    }
    let report = report(Benchmark::Faults);
    assert!(!report.figures["manager_cpu_ns"].contains_key("never"));
}
