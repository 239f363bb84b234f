//! The table of published threads.
//!
//! A thread that is pinned to a CPU publishes itself there, with the range of its addresses that
//! counts for it. All that runs in user space on that CPU and touches that range is taken for this
//! thread: nobody else may share the CPU and the range.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use crate::{Layout, word};

/// Threads published at a time.
pub const THREADS_MAX: usize = 64;
const ENTRY_WORDS: usize = 8;
/// Attempts to read an entry that is being written, before it is left out.
const READ_ATTEMPTS_MAX: u32 = 64;

/// Places of the words of an entry.
mod entry {
    pub const GENERATION: usize = 0;
    pub const CPU: usize = 1;
    pub const PID: usize = 2;
    pub const TID: usize = 3;
    pub const START: usize = 4;
    pub const END: usize = 5;
    pub const KIND: usize = 6;
}

/// What a thread is to a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Its accesses are what the metrics are about.
    Workload,
    /// It manages the workload: shown, but in no metric, and never sampled.
    Manager,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Self::Workload => 1,
            Self::Manager => 2,
        }
    }

    const fn of(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Workload),
            2 => Some(Self::Manager),
            _ => None,
        }
    }
}

/// A thread and what of its memory counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thread {
    /// To which it is pinned.
    pub cpu: u32,
    /// As the guest's root sees it.
    pub pid: u32,
    /// As the guest's root sees it.
    pub tid: u32,
    /// The virtual addresses that count; empty: all of user memory.
    pub addresses: Range<u64>,
    /// What it is.
    pub kind: Kind,
}

/// An entry that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Which.
    pub slot: Slot,
    /// Who.
    pub thread: Thread,
}

/// An entry of the table, in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    index: usize,
    generation: u64,
}

impl Slot {
    /// From 0 to [`THREADS_MAX`].
    #[must_use]
    pub fn index(self) -> usize {
        self.index
    }

    /// Never 0, and never twice the same at one index.
    #[must_use]
    pub fn generation(self) -> u64 {
        self.generation
    }
}

/// [`THREADS_MAX`] threads are published already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFull;

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{THREADS_MAX} threads are published: withdraw those that ended"
        )
    }
}

impl std::error::Error for TableFull {}

impl Layout<'_> {
    /// Publishes a thread (guest).
    ///
    /// # Errors
    ///
    /// No entry is free.
    pub fn publish_thread(&self, thread: &Thread) -> Result<Slot, TableFull> {
        let slot = (0..THREADS_MAX)
            .find_map(|index| self.fill(index, thread))
            .ok_or(TableFull)?;
        self.table_changed();
        Ok(slot)
    }

    /// Takes a thread back (guest). Nothing happens if somebody did already.
    pub fn withdraw(&self, slot: Slot) {
        if self.lock(slot.index, slot.generation) {
            self.set(slot.index, entry::KIND, 0);
            self.unlock(slot.index, slot.generation);
            self.table_changed();
        }
    }

    /// Takes back all threads of a process, as after its death (guest).
    pub fn withdraw_process(&self, pid: u32) {
        for published in self.threads() {
            if published.thread.pid == pid {
                self.withdraw(published.slot);
            }
        }
    }

    /// All published threads.
    #[must_use]
    pub fn threads(&self) -> Vec<Published> {
        (0..THREADS_MAX)
            .filter_map(|index| self.published(index))
            .collect()
    }

    /// Changes whenever the table did.
    #[must_use]
    pub fn threads_generation(&self) -> u64 {
        self.read(word::GENERATION)
    }

    /// Takes the entry if it is free.
    fn fill(&self, index: usize, thread: &Thread) -> Option<Slot> {
        let before = self.get(index, entry::GENERATION);
        if before % 2 != 0
            || Kind::of(self.get(index, entry::KIND)).is_some()
            || !self.lock(index, before)
        {
            return None;
        }
        for (place, value) in [
            (entry::CPU, u64::from(thread.cpu)),
            (entry::PID, u64::from(thread.pid)),
            (entry::TID, u64::from(thread.tid)),
            (entry::START, thread.addresses.start),
            (entry::END, thread.addresses.end),
            (entry::KIND, thread.kind.code()),
        ] {
            self.set(index, place, value);
        }
        Some(self.unlock(index, before))
    }

    fn published(&self, index: usize) -> Option<Published> {
        (0..READ_ATTEMPTS_MAX).find_map(|_| self.consistent(index))?
    }

    /// `None`: it is being written. `Some(None)`: it is free.
    fn consistent(&self, index: usize) -> Option<Option<Published>> {
        let generation = self.get(index, entry::GENERATION);
        let thread = self.thread(index);
        fence(Ordering::Acquire);
        let same = self.get(index, entry::GENERATION) == generation;
        (same && generation % 2 == 0).then(|| {
            thread.map(|thread| Published {
                slot: Slot { index, generation },
                thread,
            })
        })
    }

    fn thread(&self, index: usize) -> Option<Thread> {
        let number = |place| u32::try_from(self.get(index, place)).ok();
        Some(Thread {
            cpu: number(entry::CPU)?,
            pid: number(entry::PID)?,
            tid: number(entry::TID)?,
            addresses: self.get(index, entry::START)..self.get(index, entry::END),
            kind: Kind::of(self.get(index, entry::KIND))?,
        })
    }

    /// Marks the entry as being written, if it is in this life.
    fn lock(&self, index: usize, generation: u64) -> bool {
        let place = word::THREADS + index * ENTRY_WORDS + entry::GENERATION;
        let locked = self.words[place]
            .compare_exchange(
                generation,
                generation + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok();
        // Nothing written from here on may be seen before the mark.
        fence(Ordering::Release);
        locked
    }

    fn unlock(&self, index: usize, locked_at: u64) -> Slot {
        let generation = locked_at + 2;
        self.set(index, entry::GENERATION, generation);
        Slot { index, generation }
    }

    fn table_changed(&self) {
        self.words[word::GENERATION].fetch_add(1, Ordering::AcqRel);
    }

    fn get(&self, index: usize, place: usize) -> u64 {
        self.read(word::THREADS + index * ENTRY_WORDS + place)
    }

    fn set(&self, index: usize, place: usize, value: u64) {
        self.write(word::THREADS + index * ENTRY_WORDS + place, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{MACHINE, blank};

    fn thread(tid: u32) -> Thread {
        Thread {
            cpu: tid % 8,
            pid: 100,
            tid,
            addresses: 0x1000..0x2000 + u64::from(tid),
            kind: Kind::Workload,
        }
    }

    #[test]
    fn what_is_published_is_read_and_what_is_withdrawn_is_not() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        let first = layout.publish_thread(&thread(1)).unwrap();
        layout.publish_thread(&thread(2)).unwrap();
        assert_eq!(layout.threads().len(), 2);
        assert_eq!(layout.threads()[0].thread, thread(1));
        layout.withdraw(first);
        assert_eq!(layout.threads().len(), 1);
        assert_eq!(layout.threads()[0].thread, thread(2));
    }

    #[test]
    fn an_old_slot_does_not_withdraw_its_successor() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        let old = layout.publish_thread(&thread(1)).unwrap();
        layout.withdraw(old);
        let new = layout.publish_thread(&thread(2)).unwrap();
        assert_eq!(old.index(), new.index());
        assert_ne!(old.generation(), new.generation());
        layout.withdraw(old);
        assert_eq!(layout.threads()[0].thread, thread(2));
    }

    #[test]
    fn every_change_shows_in_the_generation() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        let before = layout.threads_generation();
        let slot = layout.publish_thread(&thread(1)).unwrap();
        let between = layout.threads_generation();
        layout.withdraw(slot);
        assert!(before < between && between < layout.threads_generation());
    }

    #[test]
    fn a_full_table_says_so_and_a_dead_process_makes_room() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        for tid in 0..64 {
            layout.publish_thread(&thread(tid)).unwrap();
        }
        assert_eq!(layout.publish_thread(&thread(64)), Err(TableFull));
        layout.withdraw_process(7);
        assert_eq!(layout.threads().len(), THREADS_MAX);
        layout.withdraw_process(100);
        assert_eq!(layout.threads(), []);
        layout.publish_thread(&thread(64)).unwrap();
    }

    #[test]
    fn an_entry_that_is_being_written_is_left_out() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        let slot = layout.publish_thread(&thread(1)).unwrap();
        assert!(layout.lock(slot.index(), slot.generation()));
        assert_eq!(layout.threads(), []);
        layout.unlock(slot.index(), slot.generation());
        assert_eq!(layout.threads().len(), 1);
    }

    #[test]
    fn threads_publish_at_the_same_time() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    for round in 0..500 {
                        let kept = layout.publish_thread(&thread(writer * 1000 + round));
                        let slot = kept.expect("room for four");
                        assert!(
                            layout.threads().iter().all(|published| {
                                published.thread == thread(published.thread.tid)
                            })
                        );
                        layout.withdraw(slot);
                    }
                });
            }
        });
        assert_eq!(layout.threads(), []);
    }
}
