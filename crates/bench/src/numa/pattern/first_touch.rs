//! One thread touches all, then each thread uses a part of its own.
//!
//! **Shape.** A program that sets its data up before it starts its threads. All pages are on the first thread's node, with
//! either page size: LAR is one over the number of nodes, and one controller serves all.
//! **Counterpart.** SP.B, pca and EPC, in figure 5 of Carrefour-LP: NUMA trouble that huge pages did not make, and that
//! placing whole huge pages cures. Parts are whole slots, so no huge page is shared.

use super::{Pattern, Step, Who, slots};
use crate::BenchError;
use std::ops::Range;

/// Visits for one update.
const VISITS: u32 = 4;

/// The pattern.
#[derive(Debug)]
pub struct FirstTouch {
    slots_each: u64,
    threads: u32,
}

impl FirstTouch {
    /// Over so many slots.
    pub fn new(slots: u64, threads: u32) -> Self {
        Self {
            slots_each: slots / u64::from(threads),
            threads,
        }
    }

    fn part(&self, thread: u32) -> Range<u64> {
        slots(u64::from(thread) * self.slots_each, self.slots_each)
    }
}

impl Pattern for FirstTouch {
    fn lines(&self) -> u64 {
        self.part(self.threads - 1).end
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn touched(&self, who: Who, _: u32) -> Vec<Range<u64>> {
        let all = 0..self.lines();
        std::iter::once(all).filter(|_| who.thread == 0).collect()
    }

    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError> {
        let own = self.part(step.who.thread);
        step.repeat(|step| {
            for _ in 0..VISITS {
                let line = step.any(&own);
                step.visit(line);
            }
            let line = step.any(&own);
            step.update(line);
        });
        Ok(())
    }
}
