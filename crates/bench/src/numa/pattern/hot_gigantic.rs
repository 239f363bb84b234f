//! Hot spots all over one 1 GiB page.
//!
//! **Shape.** 64 spots of 512 KiB, 16 MiB apart, touched by the threads in turn and read at random by all. In base pages
//! and in 2 MiB pages the spots are spread over the nodes; in one 1 GiB page they are all on one, and neither moving nor
//! splitting helps: the kernel splits no such page.
//! **Counterpart.** Carrefour-LP 4.4: SSCA 34 % slower and streamcluster four times as slow on 1 GiB pages, neither harmed
//! by 2 MiB pages.

use super::{Pattern, Step, Who, lines_in};
use crate::BenchError;
use hugepilot_core::units::Bytes;
use std::ops::Range;

const REGION: Bytes = Bytes::gib(1);
const SPOTS: u32 = 64;
const SPOT: Bytes = Bytes::kib(512);
const SPOT_LINES: u64 = lines_in(SPOT);
const DISTANCE_LINES: u64 = lines_in(REGION) / SPOTS as u64;

/// The pattern.
#[derive(Debug)]
pub struct HotGigantic {
    threads: u32,
}

impl HotGigantic {
    /// For so many threads.
    pub const fn new(threads: u32) -> Self {
        Self { threads }
    }
}

fn spot(number: u32) -> Range<u64> {
    let first = u64::from(number) * DISTANCE_LINES;
    first..first + SPOT_LINES
}

impl Pattern for HotGigantic {
    fn lines(&self) -> u64 {
        lines_in(REGION)
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn touched(&self, who: Who, _: u32) -> Vec<Range<u64>> {
        (0..SPOTS)
            .filter(|number| number % self.threads == who.thread)
            .map(spot)
            .collect()
    }

    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError> {
        step.repeat(|step| {
            let number = step.random.below(u64::from(SPOTS));
            let first = number * DISTANCE_LINES;
            let line = step.any(&(first..first + SPOT_LINES));
            step.visit(line);
        });
        Ok(())
    }
}
