// SPDX-License-Identifier: GPL-2.0-or-later

//! How often a thread accessed each base page in the current window.
//!
//! Two tables take turns: the CPU of the thread writes one, while the other, of the window that just
//! closed, is read and emptied by whoever closes it. Both are of fixed size: no memory is allocated
//! while a guest runs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many accesses there were to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub accesses: u64,
    /// Those that no cache served.
    pub dram: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// The page and 1; 0: free.
    key: AtomicU64,
    accesses: AtomicU64,
    dram: AtomicU64,
}

impl Entry {
    fn empty(&self) -> Count {
        Count {
            accesses: self.accesses.swap(0, Ordering::Relaxed),
            dram: self.dram.swap(0, Ordering::Relaxed),
        }
    }
}

/// The pages of one thread in one window: open addressing.
#[derive(Debug)]
pub struct Pages {
    entries: Box<[Entry]>,
    /// The places that are in use, so that reading and emptying need not look at all.
    used: Box<[AtomicU32]>,
    used_len: AtomicU32,
    lost: AtomicU64,
}

/// Places that are looked at before a page is given up.
const PROBES_MAX: usize = 64;

impl Pages {
    /// Room for fewer than so many pages, a power of two.
    pub fn new(capacity: u32) -> Self {
        Self {
            entries: (0..capacity).map(|_| Entry::default()).collect(),
            used: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
            used_len: AtomicU32::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Counts one access. Only the CPU of the thread may call this.
    pub fn count(&self, page: u64, from_dram: bool) {
        let Some(entry) = self.find(page) else {
            add(&self.lost, 1);
            return;
        };
        add(&entry.accesses, 1);
        if from_dram {
            add(&entry.dram, 1);
        }
    }

    fn find(&self, page: u64) -> Option<&Entry> {
        let key = page + 1;
        let mask = self.entries.len() - 1;
        let mut place = scatter(page) & mask;
        for _ in 0..PROBES_MAX.min(self.entries.len()) {
            let entry = &self.entries[place];
            let held = entry.key.load(Ordering::Relaxed);
            if held == key {
                return Some(entry);
            }
            if held == 0 {
                return self.take(place, key);
            }
            place = (place + 1) & mask;
        }
        None
    }

    fn take(&self, place: usize, key: u64) -> Option<&Entry> {
        let used = self.used_len.load(Ordering::Relaxed);
        let next = self.used.get(usize::try_from(used).ok()?)?;
        next.store(u32::try_from(place).ok()?, Ordering::Relaxed);
        let entry = &self.entries[place];
        entry.empty();
        entry.key.store(key, Ordering::Relaxed);
        self.used_len.store(used + 1, Ordering::Release);
        Some(entry)
    }

    /// What was counted, and how many accesses found no room; empties it. Whoever closes a window
    /// may call this, while the CPU writes the other table.
    pub fn drain(&self) -> (Vec<(u64, Count)>, u64) {
        let used = self.used_len.swap(0, Ordering::AcqRel);
        let used = usize::try_from(used).expect("at most the capacity");
        let mut drained = Vec::with_capacity(used);
        for place in &self.used[..used] {
            let place = usize::try_from(place.load(Ordering::Relaxed)).expect("32 bits");
            let entry = &self.entries[place];
            let key = entry.key.swap(0, Ordering::Relaxed);
            let count = entry.empty();
            // A CPU that came too late may have listed a place twice: it is empty by now.
            if key > 0 {
                drained.push((key - 1, count));
            }
        }
        (drained, self.lost.swap(0, Ordering::Relaxed))
    }
}

/// Adds to a counter that only one thread writes.
pub fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

/// Neighbouring pages far from each other.
fn scatter(page: u64) -> usize {
    let mixed = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).expect("32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(pages: &Pages) -> Vec<(u64, Count)> {
        let (mut counts, lost) = pages.drain();
        assert_eq!(lost, 0);
        counts.sort_by_key(|(page, _)| *page);
        counts
    }

    #[test]
    fn pages_are_counted_apart_and_forgotten_when_read() {
        let pages = Pages::new(64);
        for page in [3, 4, 3, 0, 3] {
            pages.count(page, page == 4);
        }
        let count = |accesses, dram| Count { accesses, dram };
        let expected = [(0, count(1, 0)), (3, count(3, 0)), (4, count(1, 1))];
        assert_eq!(drained(&pages), expected);
        assert_eq!(drained(&pages), []);
        pages.count(3, true);
        assert_eq!(drained(&pages), [(3, count(1, 1))]);
    }

    #[test]
    fn many_pages_are_all_found_again() {
        let pages = Pages::new(4096);
        for round in 0..3 {
            for page in 0..2000 {
                pages.count(0x7f12_3456 + page * 512, round == 0);
            }
        }
        let counts = drained(&pages);
        assert_eq!(counts.len(), 2000);
        let as_expected = |(_, count): &(u64, Count)| (count.accesses, count.dram) == (3, 1);
        assert!(counts.iter().all(as_expected));
    }

    #[test]
    fn what_finds_no_room_is_counted_as_lost() {
        let pages = Pages::new(64);
        for page in 0..100 {
            pages.count(page, false);
        }
        let (counts, lost) = pages.drain();
        assert_eq!((counts.len(), lost), (64, 36));
        assert_eq!(pages.drain().1, 0);
    }
}
