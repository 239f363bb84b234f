//! Private buffers, filled in fresh memory, read by all, and given back.
//!
//! **Shape.** *Map*: each thread fills a buffer of its own, a line at a time, in memory that it had given back. *Reduce*:
//! it reads its share of every buffer. Then it gives its buffer back, and all begins anew. So every page is touched
//! first again and again: with huge pages one fault does the work of 512.
//! **Counterpart.** Metis (WC, WR): 37.6 % of the time in page faults in base pages, where THP doubled the speed; half of
//! the accesses are local with either page size.

use super::{LINES_PER_SLOT, Pattern, Step, Who, share, slots};
use crate::BenchError;
use hugepilot_core::units::Bytes;
use std::ops::Range;

/// Map, reduce, give back.
const STAGES: u32 = 3;
/// Reads and writes of a line in one turn.
const ACCESSES_PER_LINE: u64 = 2;
/// A buffer at least, so that giving it back frees whole slots.
const BUFFER_MIN: Bytes = Bytes::mib(2);

/// The pattern.
#[derive(Debug)]
pub struct MapReduce {
    slots_each: u64,
    threads: u32,
    turns: u32,
}

impl MapReduce {
    /// Over so many slots, with about so many accesses of a thread in an interval.
    pub fn new(slots: u64, threads: u32, accesses: u64) -> Self {
        let slots_of_accesses = (accesses / ACCESSES_PER_LINE).div_ceil(LINES_PER_SLOT);
        let buffer_min = BUFFER_MIN.0 / (LINES_PER_SLOT * super::LINE.0);
        let slots_each = (slots / u64::from(threads))
            .min(slots_of_accesses)
            .max(buffer_min);
        let turns = accesses / (slots_each * LINES_PER_SLOT * ACCESSES_PER_LINE);
        Self {
            slots_each,
            threads,
            turns: u32::try_from(turns.max(1)).unwrap_or(u32::MAX / STAGES),
        }
    }

    /// Reads this thread's share of every buffer.
    fn reduce(&self, step: &mut Step<'_>, salt: u64) {
        for of in 0..self.threads {
            for line in share(&self.buffer(of), step.who.thread, self.threads) {
                step.read(line, salt);
            }
        }
    }

    fn buffer(&self, thread: u32) -> Range<u64> {
        slots(u64::from(thread) * self.slots_each, self.slots_each)
    }
}

impl Pattern for MapReduce {
    fn lines(&self) -> u64 {
        self.buffer(self.threads - 1).end
    }

    fn rounds(&self) -> u32 {
        0
    }

    fn touched(&self, _: Who, _: u32) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn stages(&self) -> u32 {
        STAGES * self.turns
    }

    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError> {
        let own = self.buffer(step.who.thread);
        let salt = u64::from(step.interval) << u32::BITS | u64::from(step.stage / STAGES);
        match step.stage % STAGES {
            0 => own.for_each(|line| step.write(line, salt)),
            1 => self.reduce(step, salt),
            _ => step.arena.give_back(own)?,
        }
        Ok(())
    }
}
