//! Data of each thread alone, interleaved at less than a huge page.
//!
//! **Shape.** Elements of a mesh are dealt to the threads in runs of 256 KiB. In base pages each run is on its thread's
//! node. A huge page holds eight runs, of as many threads as there are up to eight, and is on the node of the one that
//! touched it first; the threads take turns at that. A tenth of the accesses go to the next run: mortar points are
//! used by the neighbours too. In the variant with phases the runs change hands every few intervals.
//! **Counterpart.** UA.B and UA.C of NPB: LAR 90 and 88 in base pages, 61 and 66 in huge pages, accesses to pages that
//! several threads use 16 and 70 %; a huge page there holds six to eight threads' elements. It refines its mesh as it
//! goes, so that elements change hands.

use super::{LINES_PER_SLOT, Pattern, Step, Who, lines_in, slots};
use crate::BenchError;
use hugepilot_core::units::Bytes;
use std::ops::Range;

/// Bytes of a run: two megabytes hold 2,100 elements of UA.B, those of six to eight of 24 threads.
const RUN: Bytes = Bytes::kib(256);
const RUN_LINES: u64 = lines_in(RUN);
const RUNS_PER_SLOT: u64 = LINES_PER_SLOT / RUN_LINES;
/// Visits of own lines, an update (two accesses), and one visit at the neighbour's: a tenth of all.
const VISITS_OWN: u32 = 7;

/// The pattern.
#[derive(Debug)]
pub struct FalseSharing {
    slots: u64,
    threads: u32,
    phase_intervals: Option<u32>,
}

impl FalseSharing {
    /// Over so many slots; with owners that change every so many intervals, or never.
    pub const fn new(slots: u64, threads: u32, phase_intervals: Option<u32>) -> Self {
        Self {
            slots,
            threads,
            phase_intervals,
        }
    }

    const fn runs(&self) -> u64 {
        self.slots * RUNS_PER_SLOT
    }

    fn phase(&self, interval: u32) -> u32 {
        self.phase_intervals.map_or(0, |length| interval / length)
    }

    /// The first run of a thread; its others follow at the distance of the number of threads.
    fn first_run(&self, thread: u32, phase: u32) -> u64 {
        u64::from((thread + phase) % self.threads)
    }

    /// Runs that a thread has.
    fn runs_of(&self, first: u64) -> u64 {
        (self.runs() - first).div_ceil(u64::from(self.threads))
    }
}

impl Pattern for FalseSharing {
    fn lines(&self) -> u64 {
        slots(0, self.slots).end
    }

    /// In each round, another thread is the first in a slot.
    fn rounds(&self) -> u32 {
        self.threads
    }

    fn touched(&self, who: Who, round: u32) -> Vec<Range<u64>> {
        let threads = u64::from(who.threads);
        let turn = |run: u64| (run / RUNS_PER_SLOT + u64::from(who.thread)) % threads;
        (self.first_run(who.thread, 0)..self.runs())
            .step_by(usize::try_from(who.threads).expect("at most 63"))
            .filter(|run| turn(*run) == u64::from(round))
            .map(|run| run * RUN_LINES..(run + 1) * RUN_LINES)
            .collect()
    }

    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError> {
        let first = self.first_run(step.who.thread, self.phase(step.interval));
        let (own, threads, runs) = (self.runs_of(first), u64::from(self.threads), self.runs());
        let any_run = |step: &mut Step<'_>| first + step.random.below(own) * threads;
        let any_line =
            |step: &mut Step<'_>, run: u64| step.any(&(run * RUN_LINES..(run + 1) * RUN_LINES));
        step.repeat(|step| {
            for _ in 0..VISITS_OWN {
                let run = any_run(step);
                let line = any_line(step, run);
                step.visit(line);
            }
            let run = any_run(step);
            let line = any_line(step, run);
            step.update(line);
            let line = any_line(step, (run + 1) % runs);
            step.visit(line);
        });
        Ok(())
    }
}
