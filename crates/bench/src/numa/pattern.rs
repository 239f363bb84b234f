//! Who touches and uses which lines: the shape of a workload, and nothing else of it.
//!
//! A pattern is pure arithmetic on lines; memory is reached through [`Step`] alone, which counts. Touching is done in
//! *rounds* and working in *stages*: between two rounds or stages all threads wait for one another, within one they run
//! freely. So whatever must be in order is in different ones.

mod false_sharing;
mod first_touch;
mod hash_table;
mod hot_gigantic;
mod hot_vector;
mod map_reduce;

use super::arena::{Arena, LINE};
use super::name::Name;
use super::random::Random;
use super::spec::Spec;
use crate::BenchError;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::Bytes;
use std::fmt::Debug;
use std::ops::Range;

/// Lines of a slot.
const LINES_PER_SLOT: u64 = Geometry::X86_64.slot().0 / LINE.0;

/// One thread among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    /// Its number, from 0.
    pub thread: u32,
    /// How many there are.
    pub threads: u32,
}

/// The shape of a workload.
pub trait Pattern: Debug + Send + Sync {
    /// Lines of memory that it needs.
    fn lines(&self) -> u64;

    /// Rounds of first touches.
    fn rounds(&self) -> u32;

    /// Lines that this thread touches first in this round.
    fn touched(&self, who: Who, round: u32) -> Vec<Range<u64>>;

    /// Stages of an interval.
    fn stages(&self) -> u32 {
        1
    }

    /// One thread's work in one stage.
    ///
    /// # Errors
    /// If memory cannot be given back.
    fn work(&self, step: &mut Step<'_>) -> Result<(), BenchError>;

    /// Lines that hold what was filled and updated to the end, as this thread's share of the comparison.
    fn kept(&self, who: Who) -> Vec<Range<u64>> {
        (0..self.rounds())
            .flat_map(|round| self.touched(who, round))
            .collect()
    }
}

/// One thread in one stage: what it may do, and what it did.
#[derive(Debug)]
pub struct Step<'a> {
    /// The memory.
    pub arena: &'a Arena,
    /// Which thread.
    pub who: Who,
    /// Which interval, from 0.
    pub interval: u32,
    /// Which stage of it.
    pub stage: u32,
    /// Accesses to do.
    pub accesses: u64,
    /// This thread's own randomness.
    pub random: Random,
    /// What was done.
    pub tally: Tally,
}

/// What a thread did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accesses.
    pub accesses: u64,
    /// Updates.
    pub updates: u64,
    /// Words read that were not what they must be.
    pub wrong: u64,
    /// Of all words read.
    pub checksum: u64,
}

impl Step<'_> {
    /// Reads a line.
    #[inline]
    pub fn visit(&mut self, line: u64) {
        let read = self.arena.visit(line);
        self.saw(read);
    }

    /// Updates a line that is this thread's alone.
    #[inline]
    pub fn update(&mut self, line: u64) {
        self.arena.update(line);
        self.tally.updates += 1;
        self.tally.accesses += 2;
    }

    /// Updates a line that others update too.
    #[inline]
    pub fn update_shared(&mut self, line: u64) {
        self.arena.update_shared(line);
        self.tally.updates += 1;
        self.tally.accesses += 1;
    }

    /// Writes a line anew.
    #[inline]
    pub fn write(&mut self, line: u64, salt: u64) {
        self.arena.write(line, salt);
        self.tally.accesses += 1;
    }

    /// Reads what was written with this salt.
    #[inline]
    pub fn read(&mut self, line: u64, salt: u64) {
        let read = self.arena.read(line, salt);
        self.saw(read);
    }

    /// A random one of `lines`.
    #[inline]
    pub fn any(&mut self, lines: &Range<u64>) -> u64 {
        lines.start + self.random.below(lines.end - lines.start)
    }

    /// Does `once` until the accesses of the stage are done.
    fn repeat(&mut self, mut once: impl FnMut(&mut Self)) {
        let until = self.tally.accesses + self.accesses;
        while self.tally.accesses < until {
            once(self);
        }
    }

    #[inline]
    fn saw(&mut self, (word, right): (u64, bool)) {
        self.tally.accesses += 1;
        self.tally.checksum = self.tally.checksum.wrapping_add(word);
        self.tally.wrong += u64::from(!right);
    }
}

/// The pattern of a workload.
#[must_use]
pub fn of(spec: &Spec) -> Box<dyn Pattern> {
    let slots = spec.bytes.0 / Geometry::X86_64.slot().0;
    let threads = spec.threads();
    match spec.name {
        Name::FirstTouch => Box::new(first_touch::FirstTouch::new(slots, threads)),
        Name::HotVector => Box::new(hot_vector::HotVector::new(slots, threads, spec.nodes())),
        Name::FalseSharing => Box::new(false_sharing::FalseSharing::new(slots, threads, None)),
        Name::FalseSharingPhases => {
            let phase = Some(spec.phase_intervals);
            Box::new(false_sharing::FalseSharing::new(slots, threads, phase))
        }
        Name::HashTable => Box::new(hash_table::HashTable::new(slots, threads)),
        Name::MapReduce => Box::new(map_reduce::MapReduce::new(slots, threads, spec.accesses)),
        Name::HotGigantic => Box::new(hot_gigantic::HotGigantic::new(threads)),
    }
}

/// Part number `part` of `parts` equal ones of `whole`.
fn share(whole: &Range<u64>, part: u32, parts: u32) -> Range<u64> {
    let length = whole.end - whole.start;
    let border = |part: u32| whole.start + length * u64::from(part) / u64::from(parts);
    border(part)..border(part + 1)
}

/// The lines of `count` slots from slot `first` on.
const fn slots(first: u64, count: u64) -> Range<u64> {
    first * LINES_PER_SLOT..(first + count) * LINES_PER_SLOT
}

/// Lines in so many bytes.
const fn lines_in(bytes: Bytes) -> u64 {
    bytes.0 / LINE.0
}

#[cfg(test)]
mod tests;
