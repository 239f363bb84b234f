//! Breaking a slot's huge pages into base pages.
//!
//! What is mapped huge gets an entry for each base page, and its folio is split; so is every other folio of the slot,
//! where a huge page is mapped here in part. Base pages that nothing maps are freed. On kernels from 6.12 base pages full
//! of zeros are freed too, and the shared zero page takes their place. A locked region refuses; a folio that another
//! process shares after a fork, or that somebody holds, stays as it is without a word. A shared object's slot is unmapped
//! from all who see it, and comes back fault by fault.

use super::{Attempt, DONE, Verdict};
use crate::config::SplitZeroPages;
use crate::fault::opted_out;
use crate::frame::Frame;
use crate::shared::SharedIndex;
use crate::sim::Sim;
use crate::space::{Entry, frame_of};
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::{ProcessId, SlotId};
use hugepilot_core::outcome::{Cause, OutcomeClass};
use std::collections::BTreeSet;

impl Sim {
    pub(crate) fn split_slot(&mut self, slot: SlotId) -> Attempt {
        let (process, index) = match self.reach(slot).whole() {
            Ok(reached) => reached,
            Err(ended) => return ended,
        };
        let verdict = match self.split_obstacle(slot, process, index) {
            Some(obstacle) => obstacle,
            None => {
                match SharedIndex::of(slot.object) {
                    Some(object) => self.split_shared(object, slot.index),
                    None => self.split_private(process, index),
                }
                DONE
            }
        };
        Attempt {
            verdict,
            via: Some(process),
        }
    }

    fn split_obstacle(&self, slot: SlotId, id: ProcessId, index: u64) -> Option<Verdict> {
        let seen = self.slot_seen(slot);
        let frames = self.slot_frames(slot);
        let huge = seen.backing.at_least(self.geometry().slot_order).0 > 0;
        let large = || {
            frames
                .iter()
                .any(|frame| self.frames.folio(*frame).1 > Order::BASE)
        };
        if !huge && !large() {
            return Some((OutcomeClass::Done, Some(Cause::AlreadyDone)));
        }
        if huge && opted_out(&self.processes[&id], index, self.geometry()) {
            return Some((OutcomeClass::Ineligible, Some(Cause::OptedOut)));
        }
        if seen.locked == Some(true) {
            return Some((OutcomeClass::Ineligible, Some(Cause::Locked)));
        }
        if frames.iter().any(|frame| self.frames.is_pinned(*frame)) {
            return Some((OutcomeClass::NoEffect, Some(Cause::Pinned)));
        }
        let private = SharedIndex::of(slot.object).is_none();
        let shared = || frames.iter().any(|frame| self.shared_by_fork(*frame));
        (private && shared()).then_some((OutcomeClass::NoEffect, Some(Cause::ForkShared)))
    }

    /// Does another address space map any part of the folio of a private frame?
    fn shared_by_fork(&self, frame: Frame) -> bool {
        let (head, order) = self.frames.folio(frame);
        crate::frame::folio_frames(head, order).any(|frame| self.frames.references(frame) > 1)
    }

    fn split_private(&mut self, id: ProcessId, index: u64) {
        let geometry = *self.geometry();
        let process = self.processes.get_mut(&id).expect("was reached");
        let frames: Vec<Frame> = process
            .space
            .base_table(index, &geometry)
            .iter()
            .filter_map(frame_of)
            .collect();
        let large: BTreeSet<Frame> = frames
            .iter()
            .copied()
            .filter(|frame| self.frames.folio(*frame).1 > Order::BASE)
            .collect();
        for frame in &large {
            if self.frames.folio(*frame).1 > Order::BASE {
                self.frames.split(*frame);
            }
        }
        match self.config.split_zero_pages {
            SplitZeroPages::Kept => {}
            SplitZeroPages::Freed => self.free_zero_pages(id, index, &large),
        }
    }

    /// Maps the shared zero page where one of `frames` holds nothing but zeros.
    fn free_zero_pages(&mut self, id: ProcessId, index: u64, frames: &BTreeSet<Frame>) {
        let geometry = *self.geometry();
        let process = self.processes.get_mut(&id).expect("was reached");
        for entry in process.space.base_table(index, &geometry) {
            let Entry::Frame(frame) = *entry else {
                continue;
            };
            if frames.contains(&frame) && !self.frames.is_filled(frame) {
                *entry = Entry::Zero;
                self.frames.release(frame);
            }
        }
    }

    fn split_shared(&mut self, object: SharedIndex, slot: u64) {
        let geometry = *self.geometry();
        self.unmap_everywhere(object, slot);
        let Some(table) = self.caches[object.index()].tables.get_mut(&slot) else {
            return;
        };
        let frames: Vec<Frame> = table
            .as_base(&geometry)
            .iter()
            .filter_map(frame_of)
            .collect();
        for frame in frames {
            if self.frames.folio(frame).1 > Order::BASE {
                self.frames.split(frame);
            }
        }
    }
}
