//! A table that all threads look up and count in at random.
//!
//! **Shape.** Buckets of a cache line; the threads took turns by slot at touching it. Every page is everybody's, in base
//! pages as in huge ones: LAR is one over the number of nodes whatever one does, controllers are balanced, and huge pages
//! only save page walks. A policy that splits here errs.
//! **Counterpart.** SSCA.20 and SPECjbb: LAR 25 and 26 on four nodes with either page size. The paper's reactive component
//! predicted 59 for SSCA after splitting and got 25: with few samples almost every base page looks like one node's.

use super::{Pattern, Step, Who, slots};
use crate::BenchError;
use std::ops::Range;

/// Lookups for one that counts.
const LOOKUPS: u32 = 3;

/// The pattern.
#[derive(Debug)]
pub struct HashTable {
    slots: u64,
    threads: u32,
}

impl HashTable {
    /// Over so many slots, as many for each thread.
    pub fn new(slots: u64, threads: u32) -> Self {
        Self {
            slots: slots / u64::from(threads) * u64::from(threads),
            threads,
        }
    }
}

impl Pattern for HashTable {
    fn lines(&self) -> u64 {
        slots(0, self.slots).end
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn touched(&self, who: Who, _: u32) -> Vec<Range<u64>> {
        (u64::from(who.thread)..self.slots)
            .step_by(usize::try_from(self.threads).expect("at most 63"))
            .map(|slot| slots(slot, 1))
            .collect()
    }

    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError> {
        let table = 0..self.lines();
        step.repeat(|step| {
            for _ in 0..LOOKUPS {
                let line = step.any(&table);
                step.visit(line);
            }
            let line = step.any(&table);
            step.visit(line);
            step.update_shared(line);
        });
        Ok(())
    }
}
