//! What a PMU would count for a thread, by the plugin's models.
//!
//! One row for each entry of the table of threads, at the same index, since the thread was
//! published. The plugin renews a row every few thousand accesses of its thread.

use std::sync::atomic::{Ordering, fence};

use crate::{Layout, Published, Slot, word};

const ROW_WORDS: usize = 8;

/// Places of the words of a row.
mod row {
    pub const GENERATION: usize = 0;
    pub const ACCESSES: usize = 1;
    pub const DRAM: usize = 2;
    pub const L2_MISSES: usize = 3;
    pub const L2_MISSES_BY_WALKS: usize = 4;
}

/// Since the thread was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Accesses of the thread to what counts of its memory.
    pub accesses: u64,
    /// Those that no cache of the model served.
    pub dram: u64,
    /// Misses of the second-level cache of the model, those of page walks included.
    pub l2_misses: u64,
    /// Those of page walks alone.
    pub l2_misses_by_walks: u64,
}

impl Layout<'_> {
    /// The published threads that have counters already, with them (guest).
    #[must_use]
    pub fn counters(&self) -> Vec<(Published, Counters)> {
        let with_counters = |published: Published| {
            let counters = self.row(published.slot)?;
            Some((published, counters))
        };
        self.threads()
            .into_iter()
            .filter_map(with_counters)
            .collect()
    }

    /// Renews the row of a thread (plugin; one writer a row).
    pub fn set_counters(&self, slot: Slot, counters: Counters) {
        self.set_row(slot, row::GENERATION, 0);
        fence(Ordering::Release);
        for (place, value) in [
            (row::ACCESSES, counters.accesses),
            (row::DRAM, counters.dram),
            (row::L2_MISSES, counters.l2_misses),
            (row::L2_MISSES_BY_WALKS, counters.l2_misses_by_walks),
        ] {
            self.set_row(slot, place, value);
        }
        self.set_row(slot, row::GENERATION, slot.generation());
    }

    /// `None` while it is being written, and as long as it is of another thread.
    fn row(&self, slot: Slot) -> Option<Counters> {
        let get = |place| self.read(word::COUNTERS + slot.index() * ROW_WORDS + place);
        let before = get(row::GENERATION);
        let counters = Counters {
            accesses: get(row::ACCESSES),
            dram: get(row::DRAM),
            l2_misses: get(row::L2_MISSES),
            l2_misses_by_walks: get(row::L2_MISSES_BY_WALKS),
        };
        fence(Ordering::Acquire);
        let whole = before == slot.generation() && get(row::GENERATION) == before;
        whole.then_some(counters)
    }

    fn set_row(&self, slot: Slot, place: usize, value: u64) {
        self.write(word::COUNTERS + slot.index() * ROW_WORDS + place, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{MACHINE, blank};
    use crate::{Kind, Thread};

    fn thread(tid: u32) -> Thread {
        Thread {
            cpu: 1,
            pid: 100,
            tid,
            addresses: 0..0,
            kind: Kind::Workload,
        }
    }

    #[test]
    fn counters_belong_to_one_life_of_an_entry() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        let counted = Counters {
            accesses: 40,
            dram: 30,
            l2_misses: 20,
            l2_misses_by_walks: 10,
        };
        let slot = layout.publish_thread(&thread(1)).unwrap();
        assert_eq!(layout.counters(), []);
        layout.set_counters(slot, counted);
        assert_eq!(layout.counters()[0].1, counted);
        layout.withdraw(slot);
        layout.publish_thread(&thread(2)).unwrap();
        assert_eq!(layout.counters(), []);
    }
}
