//! Phases of an observation that are about page tables.
//!
//! Page tables are read where a look asks for it, and of slots that were acted upon; which to read, and how often, is
//! planned in the core, which pays for it from one budget.

use super::{LiveMachine, Tick};
use crate::sensors::fingerprints::SlotCounts;
use crate::sensors::scan::Step;
use crate::sys::{Errno, time};
use hugepilot_core::ids::{ObjectId, SlotId, SlotRange};
use hugepilot_core::observation::{SlotObserved, Unseen};

/// Slots looked at for partially mapped huge pages in one tick; each costs some 20 µs, and the allowance may end it sooner.
const SUSPECTS_A_TICK: usize = 256;

impl LiveMachine {
    /// For a checkpoint: what was seen before counts as new.
    pub(super) fn say_everything(&mut self, tick: &mut Tick) {
        self.objects.change_all();
        for (id, object) in self.objects.iter() {
            for (index, counts) in object.seen.iter() {
                let slot = SlotId { object: id, index };
                tick.slots
                    .insert(slot, counts.observed(slot, &self.geometry));
            }
        }
    }

    /// What is said unasked: slots whose mapping is gone, and those that were acted upon. All other page tables are
    /// read when somebody asks for them: the core plans that.
    pub(super) fn scan(&mut self, tick: &mut Tick) {
        self.objects.settle(&self.geometry);
        self.say_emptied(tick);
        self.revisit(tick);
    }

    /// Slots whose mapping is gone hold nothing any more.
    pub(super) fn say_emptied(&mut self, tick: &mut Tick) {
        for slot in self.objects.take_emptied() {
            let empty = SlotCounts::EMPTY.observed(slot, &self.geometry);
            tick.slots.insert(slot, empty);
        }
    }

    /// Slots that were acted upon are looked at again.
    fn revisit(&mut self, tick: &mut Tick) {
        for slot in std::mem::take(&mut self.acted) {
            tick.charge(|tick| self.read_slots(slot.object, slot.index, slot.index + 1, tick));
            if self.partial.contains(&slot) {
                self.suspects.add(slot);
            }
        }
    }

    /// Reads the slots `first .. end` of an object now. What is not mapped is read by not being there.
    pub(super) fn read_slots(&mut self, id: ObjectId, first: u64, end: u64, tick: &mut Tick) {
        let mut cursor = first;
        self.scanner.restart();
        while let Some(next) = self.step(id, cursor, end, tick) {
            cursor = next;
        }
    }

    /// One step from `cursor` on; where the next one begins.
    fn step(&mut self, id: ObjectId, cursor: u64, limit: u64, tick: &mut Tick) -> Option<u64> {
        let before = time::thread_cpu();
        let object = self.objects.get_mut(id)?;
        let processes = &self.processes;
        let pagemap = |via| processes.get(via).map(|watched| &watched.pagemap);
        let step = self
            .scanner
            .step(object, cursor, limit, &mut self.tables, pagemap)?;
        tick.observation.cost.scan += time::thread_cpu().growth_since(before);
        tick.observation.cost.slots += step.end - step.first;
        let next = step.end;
        self.tell(id, step, tick);
        Some(next)
    }

    fn tell(&mut self, id: ObjectId, step: Step, tick: &mut Tick) {
        if let Some((process, errno)) = step.unreadable {
            // Of an address space that is being taken down the next poll brings the news.
            if errno != Errno::SRCH {
                tick.blind(Some(process), Unseen::PageTables, errno.to_string());
            }
            return;
        }
        extend(&mut tick.observation.scanned, id, step.first, step.end);
        for (index, counts) in step.changed {
            let slot = SlotId { object: id, index };
            self.suspect(slot, counts);
            tick.slots
                .insert(slot, counts.observed(slot, &self.geometry));
        }
    }

    /// A slot of base pages that is not full may hold a part of a huge page; one said to hold it may not any more.
    fn suspect(&mut self, slot: SlotId, counts: SlotCounts) {
        let private = matches!(slot.object, ObjectId::Private(_));
        let some = counts.huge == 0
            && counts.base > 0
            && u64::from(counts.base) < self.geometry.slot_pages().0;
        let wanted = (private && some) || self.partial.contains(&slot);
        if wanted && self.tables.frames().visible() {
            self.suspects.add(slot);
        }
    }

    /// Looks at suspects, some a tick.
    pub(super) fn suspect_partial(&mut self, tick: &mut Tick) {
        for _ in 0..SUSPECTS_A_TICK {
            if !tick.may_go_on() {
                return;
            }
            let Some(slot) = self.suspects.take() else {
                return;
            };
            if let Some(partial) = tick.charge(|_| self.is_partially_mapped(slot)) {
                self.say_partial(slot, partial, tick);
            }
        }
    }

    fn say_partial(&mut self, slot: SlotId, partial: bool, tick: &mut Tick) {
        let was = self.partial.contains(&slot);
        if partial {
            self.partial.insert(slot);
        } else {
            self.partial.remove(&slot);
        }
        if partial || was {
            self.slot_said(slot, tick).partially_mapped = Some(partial);
        }
    }

    fn is_partially_mapped(&self, slot: SlotId) -> Option<bool> {
        let (process, address) = self.seen_through(slot)?;
        let watched = self.processes.get(process)?;
        let entries = self.tables.slot_entries(&watched.pagemap, address).ok()?;
        Some(!self.tables.frames().partially_mapped(&entries)?.is_empty())
    }

    /// The slot in the observation under way, as last seen where nothing was said of it yet.
    pub(super) fn slot_said<'t>(&self, slot: SlotId, tick: &'t mut Tick) -> &'t mut SlotObserved {
        tick.slots.entry(slot).or_insert_with(|| {
            self.objects
                .get(slot.object)
                .map_or(SlotCounts::EMPTY, |object| object.seen.get(slot.index))
                .observed(slot, &self.geometry)
        })
    }
}

/// Adds slots to the ranges scanned; neighbours become one.
fn extend(scanned: &mut Vec<SlotRange>, object: ObjectId, first: u64, end: u64) {
    match scanned.last_mut() {
        Some(last) if last.object == object && last.end() == first => last.count += end - first,
        Some(_) | None => scanned.push(SlotRange {
            object,
            first,
            count: end - first,
        }),
    }
}
