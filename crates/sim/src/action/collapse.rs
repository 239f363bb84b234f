//! Backing a slot by one huge page.
//!
//! As the kernel does it: base pages are copied into a fresh huge page on the node that holds most of them, holes are
//! filled with zeros. What must hold: the slot lies in one region that did not opt out; something of it was touched;
//! nothing is swapped, held, or shared after a fork; the cgroup has room for the copy beside the original; the node has
//! a free huge page. A shared object's pages are replaced for all who map it; only the caller's mapping is huge at once.

use super::{Attempt, DONE, Verdict};
use crate::fault::opted_out;
use crate::frame::{Frame, NoRoom, Place};
use crate::shared::SharedIndex;
use crate::sim::Sim;
use crate::space::{Entry, Source, Table, frame_of, page_number, slot_pages};
use hugepilot_core::ids::{NodeId, ProcessId, SlotId};
use hugepilot_core::observation::Sharing;
use hugepilot_core::outcome::{Cause, OutcomeClass};
use std::collections::BTreeMap;

impl Sim {
    pub(crate) fn collapse(&mut self, slot: SlotId) -> Attempt {
        let (process, index) = match self.reach(slot).whole() {
            Ok(reached) => reached,
            Err(ended) => return ended,
        };
        let verdict = match self.obstacle(slot, process, index) {
            Some(obstacle) => obstacle,
            None => match SharedIndex::of(slot.object) {
                Some(object) => self.collapse_shared(process, index, object, slot.index),
                None => self.collapse_private(process, index),
            },
        };
        Attempt {
            verdict,
            via: Some(process),
        }
    }

    /// What the state says against a collapse before it is tried.
    fn obstacle(&self, slot: SlotId, id: ProcessId, index: u64) -> Option<Verdict> {
        let geometry = self.geometry();
        let seen = self.slot_seen(slot);
        let process = &self.processes[&id];
        let region = process
            .space
            .whole_region(index, geometry)
            .expect("reached as a whole");
        let nothing = seen.backing.present().0 == 0;
        let never_written = region.source == Source::Anonymous && !region.written;
        let pinned = || {
            self.slot_frames(slot)
                .iter()
                .any(|frame| self.frames.is_pinned(*frame))
        };
        let ineligible = |cause| Some((OutcomeClass::Ineligible, cause));
        if seen.is_huge(geometry.slot_order) {
            Some((OutcomeClass::Done, Some(Cause::AlreadyDone)))
        } else if seen.sharing == Sharing::ForkShared {
            ineligible(Some(Cause::ForkShared))
        } else if seen.swapped.0 > 0 {
            ineligible(Some(Cause::Swapped))
        } else if opted_out(process, index, geometry) {
            ineligible((!nothing).then_some(Cause::OptedOut))
        } else if nothing && (seen.zero_mapped.0 == 0 || never_written) {
            ineligible(None)
        } else if pinned() {
            Some((OutcomeClass::Busy, Some(Cause::Pinned)))
        } else {
            None
        }
    }

    fn collapse_private(&mut self, id: ProcessId, index: u64) -> Verdict {
        let geometry = *self.geometry();
        let table = self
            .table(id, index)
            .expect("something of it is present")
            .clone();
        let head = match self.huge_page_for(id, &table) {
            Ok(head) => head,
            Err(verdict) => return verdict,
        };
        self.copy_contents(&table, head);
        let process = self.processes.get_mut(&id).expect("was reached");
        process.space.tables.remove(&index);
        self.map_huge(id, index, head).expect("was reached");
        table
            .frames(&geometry)
            .into_iter()
            .for_each(|frame| self.frames.release(frame));
        DONE
    }

    fn collapse_shared(
        &mut self,
        id: ProcessId,
        index: u64,
        object: SharedIndex,
        slot: u64,
    ) -> Verdict {
        let geometry = *self.geometry();
        let cached = self.caches[object.index()].tables.get(&slot).cloned();
        let table = cached.expect("something of it is present");
        if matches!(table, Table::Base(_)) {
            let head = match self.huge_page_for(id, &table) {
                Ok(head) => head,
                Err(verdict) => return verdict,
            };
            self.copy_contents(&table, head);
            self.unmap_everywhere(object, slot);
            table
                .frames(&geometry)
                .into_iter()
                .for_each(|frame| self.frames.release(frame));
            let huge = Table::Huge(head);
            huge.frames(&geometry)
                .into_iter()
                .for_each(|frame| self.frames.refer(frame));
            self.caches[object.index()].tables.insert(slot, huge);
        }
        let Some(Table::Huge(head)) = self.caches[object.index()].tables.get(&slot) else {
            unreachable!("was just made huge");
        };
        let head = *head;
        self.clear_table(id, index);
        self.map_huge(id, index, head).expect("was reached");
        DONE
    }

    fn huge_page_for(&mut self, id: ProcessId, table: &Table) -> Result<Frame, Verdict> {
        let order = self.geometry().slot_order;
        let process = &self.processes[&id];
        let (cgroup, place) = (
            process.cgroup,
            Place::On(self.fullest_node(table, process.node)),
        );
        self.frames
            .allocate(place, order, cgroup)
            .map_err(|why| match why {
                NoRoom::Node | NoRoom::Cgroup => (OutcomeClass::NoMemory, None),
            })
    }

    /// The node that holds most of the table's pages, the lowest among equals.
    fn fullest_node(&self, table: &Table, otherwise: NodeId) -> NodeId {
        let mut pages: BTreeMap<NodeId, usize> = BTreeMap::new();
        for frame in table.frames(self.geometry()) {
            *pages.entry(self.frames.node_of(frame)).or_default() += 1;
        }
        let fullest = pages
            .into_iter()
            .max_by_key(|(node, pages)| (*pages, std::cmp::Reverse(*node)));
        fullest.map_or(otherwise, |(node, _)| node)
    }

    fn copy_contents(&mut self, from: &Table, to: Frame) {
        for page in 0..slot_pages(self.geometry()) {
            let filled =
                frame_of(&from.entry(page)).is_some_and(|frame| self.frames.is_filled(frame));
            self.frames.set_filled(to.offset(page_number(page)), filled);
        }
    }

    /// Takes an object's slot out of all page tables; who accesses it next faults it in again.
    pub(crate) fn unmap_everywhere(&mut self, object: SharedIndex, slot: u64) {
        let geometry = *self.geometry();
        let (start, length) = (slot << geometry.slot_shift(), geometry.slot());
        for mapping in self.mappings(object.id()) {
            let from = start.max(mapping.offset);
            let to = (start + length.0).min(mapping.offset + mapping.length.0);
            let mut offset = from;
            while offset < to {
                let address = mapping.address + (offset - mapping.offset);
                self.clear_entry(mapping.process, address);
                offset += geometry.base_page().0;
            }
        }
    }

    fn clear_entry(&mut self, id: ProcessId, address: u64) {
        let geometry = *self.geometry();
        let (index, page) = crate::space::place(address, &geometry);
        let space = &mut self.processes.get_mut(&id).expect("maps the object").space;
        if space.entry(address, &geometry).0 == Entry::Empty {
            return;
        }
        let old = std::mem::take(&mut space.base_table(index, &geometry)[page]);
        frame_of(&old)
            .into_iter()
            .for_each(|frame| self.frames.release(frame));
    }

    fn clear_table(&mut self, id: ProcessId, index: u64) {
        let space = &mut self.processes.get_mut(&id).expect("was reached").space;
        let old = space.tables.remove(&index);
        let frames = old.map_or_else(Vec::new, |table| table.frames(&self.config.geometry));
        frames
            .into_iter()
            .for_each(|frame| self.frames.release(frame));
    }
}
