//! The memory of a workload: cache lines whose contents are known from the seed and the place.
//!
//! Of a line's eight words the first is read when the line is *visited*, the second counts *updates*, the others are there
//! to be found unchanged at the end. No word but a counter is zero, so that no kernel takes a page for an empty one.

use super::random::mix;
use crate::BenchError;
use crate::sys::words::{Backing, Words};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::Bytes;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words of a cache line.
pub const WORDS_PER_LINE: usize = 8;
/// Bytes of it.
pub const LINE: Bytes = Bytes(64);
/// Which of them counts updates.
const COUNTER: usize = 1;

/// What a look over lines found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Sum of the counters: updates that the memory remembers.
    pub updates: u64,
    /// Words that are not what they must be.
    pub wrong: u64,
}

/// Lines of memory from the start of a slot on.
#[derive(Debug)]
pub struct Arena {
    words: Words,
    first: usize,
    lines: u64,
    seed: u64,
}

impl Arena {
    /// Maps `lines` lines, nothing of them present.
    ///
    /// # Errors
    /// If the kernel has no room, or no 1 GiB page.
    pub fn map(lines: u64, seed: u64, backing: Backing) -> Result<Self, BenchError> {
        let bytes = Bytes(lines * LINE.0);
        let slack = match backing {
            Backing::Ordinary => Geometry::X86_64.slot(),
            Backing::Gigantic => Bytes::ZERO,
        };
        let words =
            Words::private(index((bytes + slack).0), backing).map_err(|source| match backing {
                Backing::Ordinary => BenchError::Map { bytes, source },
                Backing::Gigantic => BenchError::NoGiganticPage { source },
            })?;
        let aligned = words
            .address()
            .next_multiple_of(index(Geometry::X86_64.slot().0));
        Ok(Self {
            first: (aligned - words.address()) / size_of::<AtomicU64>(),
            words,
            lines,
            seed,
        })
    }

    /// How many lines it has.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        let first = self.words.address() + self.first * size_of::<AtomicU64>();
        let first = u64::try_from(first).expect("x86-64 addresses");
        first..first + self.lines * LINE.0
    }

    /// Writes lines for the first time.
    pub fn fill(&self, lines: Range<u64>) {
        for line in lines {
            for (place, word) in self.line(line).iter().enumerate() {
                word.store(self.expected(line, place), Relaxed);
            }
        }
    }

    /// Reads a line: one access. What it read, and whether that is right.
    #[inline]
    #[must_use]
    pub fn visit(&self, line: u64) -> (u64, bool) {
        let word = self.line(line)[0].load(Relaxed);
        (word, word == self.expected(line, 0))
    }

    /// Counts an update of a line that nobody else updates meanwhile: two accesses.
    #[inline]
    pub fn update(&self, line: u64) {
        let counter = &self.line(line)[COUNTER];
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts an update of a line that others update too: one access.
    #[inline]
    pub fn update_shared(&self, line: u64) {
        self.line(line)[COUNTER].fetch_add(1, Relaxed);
    }

    /// Writes a line's first word and nothing else: one access.
    #[inline]
    pub fn write(&self, line: u64, salt: u64) {
        self.line(line)[0].store(mix(self.expected(line, 0) ^ salt), Relaxed);
    }

    /// Reads what [`Self::write`] wrote: one access.
    #[inline]
    #[must_use]
    pub fn read(&self, line: u64, salt: u64) -> (u64, bool) {
        let word = self.line(line)[0].load(Relaxed);
        (word, word == mix(self.expected(line, 0) ^ salt))
    }

    /// Compares every word of filled lines.
    #[must_use]
    pub fn verify(&self, lines: Range<u64>) -> Found {
        let mut found = Found::default();
        for line in lines {
            for (place, word) in self.line(line).iter().enumerate() {
                let word = word.load(Relaxed);
                if place == COUNTER {
                    found.updates = found.updates.wrapping_add(word);
                } else {
                    found.wrong += u64::from(word != self.expected(line, place));
                }
            }
        }
        found
    }

    /// Gives the lines' memory back; whole pages only.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn give_back(&self, lines: Range<u64>) -> Result<(), BenchError> {
        let word = |line: u64| self.first + index(line) * WORDS_PER_LINE;
        let given = self.words.give_back(word(lines.start)..word(lines.end));
        given.map_err(|error| BenchError::Io {
            what: "giving memory back",
            source: error.into(),
        })
    }

    #[inline]
    fn line(&self, line: u64) -> &[AtomicU64] {
        assert!(line < self.lines, "line {line} of {}", self.lines);
        let first = self.first + index(line) * WORDS_PER_LINE;
        &self.words[first..first + WORDS_PER_LINE]
    }

    #[inline]
    fn expected(&self, line: u64, place: usize) -> u64 {
        if place == COUNTER {
            return 0;
        }
        let place = u64::try_from(place).expect("of a line's words");
        mix(self.seed ^ (line << 3 | place)) | 1
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a 64-bit machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Arena {
        let arena = Arena::map(128, 5, Backing::Ordinary).expect("two pages");
        arena.fill(0..128);
        arena
    }

    #[test]
    fn updates_are_remembered_and_nothing_else_changes() {
        let arena = filled();
        arena.update(3);
        arena.update(3);
        arena.update_shared(127);
        assert_eq!(
            arena.verify(0..128),
            Found {
                updates: 3,
                wrong: 0
            }
        );
        assert!(arena.visit(3).1);
    }

    #[test]
    fn one_wrong_word_is_found_wherever_it_is() {
        for place in [0, 2, 7] {
            let arena = filled();
            arena.line(9)[place].store(0, Relaxed);
            assert_eq!(arena.verify(0..128).wrong, 1, "word {place}");
            assert_eq!(arena.visit(9).1, place != 0);
        }
    }

    #[test]
    fn memory_that_was_given_back_is_not_what_it_was() {
        let arena = filled();
        arena.give_back(64..128).expect("one page");
        assert_eq!(arena.verify(0..64).wrong, 0);
        assert!(!arena.visit(64).1);
    }

    #[test]
    fn it_starts_with_a_slot() {
        assert_eq!(filled().addresses().start % Geometry::X86_64.slot().0, 0);
    }

    #[test]
    fn what_one_round_wrote_is_wrong_in_the_next() {
        let arena = filled();
        arena.write(1, 10);
        assert!(arena.read(1, 10).1);
        assert!(!arena.read(1, 11).1);
    }
}
