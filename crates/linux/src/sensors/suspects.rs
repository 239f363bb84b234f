//! Slots that wait to be looked at for partially mapped huge pages: in the order they came, none twice.
//!
//! A program that frees memory bit by bit changes the same slots in every sweep. Were each change to queue its slot
//! again, a few busy slots would keep the others waiting for good.

use hugepilot_core::ids::SlotId;
use std::collections::{BTreeSet, VecDeque};

/// Slots that wait, at the most: the rest is found when it changes again.
const WAITING_MAX: usize = 4096;

/// The queue.
#[derive(Debug, Default)]
pub struct Suspects {
    queue: VecDeque<SlotId>,
    waiting: BTreeSet<SlotId>,
}

impl Suspects {
    /// The slot is to be looked at; one that waits already keeps its place.
    pub fn add(&mut self, slot: SlotId) {
        if self.queue.len() < WAITING_MAX && self.waiting.insert(slot) {
            self.queue.push_back(slot);
        }
    }

    /// The one that has waited longest.
    pub fn take(&mut self) -> Option<SlotId> {
        let slot = self.queue.pop_front()?;
        self.waiting.remove(&slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{ObjectId, Pid, ProcessId};

    fn slot(index: u64) -> SlotId {
        let process = ProcessId {
            pid: Pid(1),
            start_ticks: 0,
        };
        SlotId {
            object: ObjectId::Private(process),
            index,
        }
    }

    #[test]
    fn who_waits_is_not_queued_again() {
        let mut suspects = Suspects::default();
        [1, 2, 1, 1]
            .map(slot)
            .into_iter()
            .for_each(|slot| suspects.add(slot));
        assert_eq!(suspects.take(), Some(slot(1)));
        suspects.add(slot(1));
        assert_eq!(suspects.take(), Some(slot(2)));
        assert_eq!(suspects.take(), Some(slot(1)));
        assert_eq!(suspects.take(), None);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut suspects = Suspects::default();
        for index in 0..10_000 {
            suspects.add(slot(index));
        }
        assert_eq!(std::iter::from_fn(|| suspects.take()).count(), WAITING_MAX);
    }
}
