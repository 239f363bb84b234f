//! First touches told from hinting faults.
//!
//! **Problem.** Both are page faults with an address, and perf gives no more. A first touch says who initialises memory,
//! which is not who uses it.
//!
//! **Rule.** A fault is an access of memory that was there before if its page was known to be present:
//!
//! 1. its slot was present throughout (huge, or every base page) when its page tables were last read, before the fault; or
//! 2. the same page faulted before, since then it is present.
//!
//! Any other fault is a first touch. So the rule errs on one side: the first hinting fault of a page that was there
//! already, in a slot that is not wholly present, is taken for a first touch, once. On the other side it errs where a
//! page was given back and touched anew before its page tables were read again; and a fault on a page that is present for
//! another reason (copy on write) counts as an access, which it is.
//!
//! **Bounds.** 64 bytes a slot of which rule 2 is needed, for at most [`SLOTS_MAX`] slots; then all is forgotten, and every
//! such page errs once more. A slot that is found present throughout is forgotten, since rule 1 holds for it.

use hugepilot_core::ids::{ObjectId, SlotId};
use hugepilot_core::sample::Sampler;
use hugepilot_core::units::BasePages;
use std::collections::BTreeMap;

/// Slots whose pages are remembered one by one, at the most: some 3 MiB.
pub const SLOTS_MAX: usize = 16_384;

/// Pages that faulted, by slot.
#[derive(Debug, Default)]
pub struct FirstTouches {
    slots: BTreeMap<SlotId, Vec<u64>>,
}

impl FirstTouches {
    /// What the fault on this page tells: `HintingFault` or `FirstTouch`. `full`: the slot was wholly present when its page
    /// tables were last read.
    pub fn tell(
        &mut self,
        slot: SlotId,
        page: BasePages,
        slot_pages: BasePages,
        full: bool,
    ) -> Sampler {
        if full {
            self.slots.remove(&slot);
            return Sampler::HintingFault;
        }
        if self.slots.len() >= SLOTS_MAX && !self.slots.contains_key(&slot) {
            self.slots.clear();
        }
        let words = usize::try_from(slot_pages.0.div_ceil(64)).expect("a slot has few words");
        let pages = self.slots.entry(slot).or_insert_with(|| vec![0; words]);
        let at = usize::try_from(page.0 / 64).expect("a page of the slot");
        let bit = 1 << (page.0 % 64);
        let before = pages[at] & bit != 0;
        pages[at] |= bit;
        if before {
            Sampler::HintingFault
        } else {
            Sampler::FirstTouch
        }
    }

    /// The object is gone.
    pub fn forget(&mut self, object: ObjectId) {
        self.slots.retain(|slot, _| slot.object != object);
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        self.slots.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{Pid, ProcessId};

    const PAGES: BasePages = BasePages(512);

    fn slot(index: u64) -> SlotId {
        let process = ProcessId {
            pid: Pid(1),
            start_ticks: 1,
        };
        SlotId {
            object: ObjectId::Private(process),
            index,
        }
    }

    #[test]
    fn the_second_fault_of_a_page_is_no_first_touch() {
        let mut touches = FirstTouches::default();
        let mut tell = |page| touches.tell(slot(1), BasePages(page), PAGES, false);
        assert_eq!(tell(511), Sampler::FirstTouch);
        assert_eq!(tell(510), Sampler::FirstTouch);
        assert_eq!(tell(511), Sampler::HintingFault);
    }

    #[test]
    fn what_was_wholly_present_is_not_touched_first() {
        let mut touches = FirstTouches::default();
        assert_eq!(
            touches.tell(slot(1), BasePages(3), PAGES, true),
            Sampler::HintingFault
        );
        assert!(touches.slots.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut touches = FirstTouches::default();
        for index in 0..=u64::try_from(SLOTS_MAX).expect("few") {
            touches.tell(slot(index), BasePages(0), PAGES, false);
        }
        assert_eq!(touches.slots.len(), 1);
        touches.forget(slot(0).object);
        assert!(touches.slots.is_empty());
    }
}
