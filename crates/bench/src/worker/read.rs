//! Random reads over all cache lines: what the page size does to a program that misses its TLB.
//!
//! *Dependent*: the next address needs the word just read, so that a read waits for the one before it: a linked list.
//! *Independent*: the processor has as many reads in flight as it likes: a hash join.

use super::{SlotMemory, WorkerSpec};
use crate::clock::Clock;
use hugepilot_core::units::Span;
use serde::{Deserialize, Serialize};

/// Reads between two looks at the clock: about half a millisecond.
const BATCH: u64 = 4_096;

/// One kind of reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// Words read, each from a random cache line.
    pub accesses: u64,
    /// For each.
    pub ns_per_access: f64,
    /// In a second.
    pub accesses_per_s: f64,
}

/// Both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReadResult {
    /// Each address needs the word before.
    pub dependent: Reads,
    /// No address needs any word.
    pub independent: Reads,
}

/// Does the next address need the word just read?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    Dependent,
    Independent,
}

/// Reads as `spec` says, half of the time each.
#[must_use]
pub fn read(memory: &SlotMemory, spec: &WorkerSpec, clock: &Clock) -> ReadResult {
    let each = Span(spec.read_ns.0 / 2);
    let mut random = Xorshift::new(spec.seed);
    ReadResult {
        dependent: read_for(memory, each, clock, &mut random, Chain::Dependent),
        independent: read_for(memory, each, clock, &mut random, Chain::Independent),
    }
}

fn read_for(
    memory: &SlotMemory,
    time: Span,
    clock: &Clock,
    random: &mut Xorshift,
    chain: Chain,
) -> Reads {
    let lines = memory.lines();
    let mut accesses = 0;
    let from = clock.now();
    let took = loop {
        let read = match chain {
            Chain::Dependent => dependent_batch(memory, lines, random),
            Chain::Independent => independent_batch(memory, lines, random),
        };
        std::hint::black_box(read);
        accesses += BATCH;
        let took = clock.span(from, clock.now());
        if took >= time {
            break took;
        }
    };
    rates(accesses, took)
}

fn dependent_batch(memory: &SlotMemory, lines: u64, random: &mut Xorshift) -> u64 {
    let mut word = 0;
    for _ in 0..BATCH {
        word = memory.read_line(random.line_after(word, lines));
    }
    word
}

fn independent_batch(memory: &SlotMemory, lines: u64, random: &mut Xorshift) -> u64 {
    let mut sum = 0u64;
    for _ in 0..BATCH {
        sum = sum.wrapping_add(memory.read_line(random.line_after(0, lines)));
    }
    sum
}

#[expect(clippy::cast_precision_loss, reason = "a rate to a few digits")]
fn rates(accesses: u64, took: Span) -> Reads {
    Reads {
        accesses,
        ns_per_access: took.0 as f64 / accesses as f64,
        accesses_per_s: accesses as f64 / took.as_secs_f64(),
    }
}

/// Marsaglia's xorshift with 64 bits of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Xorshift(u64);

impl Xorshift {
    const fn new(seed: u64) -> Self {
        // Zero would stay zero: it gets another odd number.
        Self(if seed == 0 {
            0x9E37_79B9_7F4A_7C15
        } else {
            seed
        })
    }

    /// The next of `lines` lines; `word` enters into which it is, by its highest bit only, so that all words below
    /// 2^63 give one sequence and yet none is known before it is read.
    #[inline]
    fn line_after(&mut self, word: u64, lines: u64) -> u64 {
        self.0 ^= word >> 63;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let line = (u128::from(self.0) * u128::from(lines)) >> 64;
        u64::try_from(line).expect("below the number of lines")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_within_the_memory_and_spread() {
        let mut random = Xorshift::new(7);
        let mut seen = [0u32; 16];
        for _ in 0..16_000 {
            let line = random.line_after(0, 16);
            seen[usize::try_from(line).expect("below 16")] += 1;
        }
        assert!(
            seen.iter().all(|count| (700..1_300).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn both_kinds_read_the_same_lines() {
        let (mut one, mut other) = (Xorshift::new(5), Xorshift::new(5));
        for word in 0..100 {
            assert_eq!(one.line_after(word, 1 << 30), other.line_after(0, 1 << 30));
        }
    }

    #[test]
    fn a_zero_seed_does_not_stand_still() {
        let mut random = Xorshift::new(0);
        let first = random.line_after(0, 1 << 40);
        assert_ne!(first, random.line_after(0, 1 << 40));
    }

    #[test]
    fn rates_are_two_views_of_one_number() {
        let reads = rates(1_000, Span::micros(100));
        assert!((reads.ns_per_access - 100.0).abs() < 1e-9);
        assert!((reads.accesses_per_s - 1e7).abs() < 1e-3);
    }
}
