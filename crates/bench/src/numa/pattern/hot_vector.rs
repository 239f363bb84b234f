//! A hot vector of a few huge pages, gathered at random by all, beside large private streams.
//!
//! **Shape.** `q = A p` of a sparse matrix: each thread streams through its own rows of `A`, which it touched first, and
//! reads `p` at random. The threads touched `p` in equal shares. In base pages it is spread evenly; in huge pages there
//! are half as many pages of it as nodes, so that no placement of whole huge pages can balance them.
//! **Counterpart.** CG.D of NPB: on the paper's machine B an imbalance of 1 in base pages and 59 in huge ones, LAR 40 and
//! 36; there `p` has six huge pages. Two gathers for one stream access: the share of `p` that CG's own LAR of 40 % on
//! eight nodes implies (0.69) within 2 points.

use super::{Pattern, Step, Who, share, slots};
use crate::BenchError;
use std::ops::Range;

/// Gathers for one access to the stream.
const GATHERS: u32 = 2;

/// The pattern.
#[derive(Debug)]
pub struct HotVector {
    vector: u64,
    slots_each: u64,
    threads: u32,
}

impl HotVector {
    /// Over so many slots.
    pub fn new(slots: u64, threads: u32, nodes: u32) -> Self {
        let vector = u64::from(nodes / 2).max(1);
        Self {
            vector,
            slots_each: (slots - vector) / u64::from(threads),
            threads,
        }
    }

    fn vector(&self) -> Range<u64> {
        slots(0, self.vector)
    }

    fn stream(&self, thread: u32) -> Range<u64> {
        slots(
            self.vector + u64::from(thread) * self.slots_each,
            self.slots_each,
        )
    }
}

impl Pattern for HotVector {
    fn lines(&self) -> u64 {
        self.stream(self.threads - 1).end
    }

    /// One for the streams, then one a thread for the vector: a huge page of it is where its first share's thread is.
    fn rounds(&self) -> u32 {
        1 + self.threads
    }

    fn touched(&self, who: Who, round: u32) -> Vec<Range<u64>> {
        match round.checked_sub(1) {
            None => vec![self.stream(who.thread)],
            Some(turn) if turn == who.thread => vec![share(&self.vector(), turn, who.threads)],
            Some(_) => Vec::new(),
        }
    }

    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError> {
        let (vector, stream) = (self.vector(), self.stream(step.who.thread));
        // Each interval goes on through the stream where the one before ended.
        let passed = u64::from(step.interval) * step.accesses / u64::from(GATHERS + 1);
        let mut at = passed % (stream.end - stream.start);
        step.repeat(|step| {
            step.visit(stream.start + at);
            at = (at + 1) % (stream.end - stream.start);
            for _ in 0..GATHERS {
                let line = step.any(&vector);
                step.visit(line);
            }
        });
        Ok(())
    }
}
