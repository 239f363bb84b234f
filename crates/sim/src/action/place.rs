//! Moving what backs a slot to other nodes.
//!
//! A huge page moves as a whole, also when only one of its base pages is asked for; where the target has no free huge
//! page it is split and moves in pieces. What somebody holds or shares after a fork stays.

use super::{Attempt, DONE, Verdict};
use crate::frame::{Frame, folio_frames};
use crate::shared::SharedIndex;
use crate::sim::Sim;
use crate::slot::Reach;
use crate::space::{Entry, Table};
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::{NodeId, ProcessId, SlotId};
use hugepilot_core::outcome::{Cause, OutcomeClass};
use hugepilot_core::units::BasePages;

/// One folio taking another's place.
#[derive(Debug, Clone, Copy)]
struct Replacement {
    old: Frame,
    new: Frame,
    order: Order,
}

impl Replacement {
    fn of(&self, frame: Frame) -> Option<Frame> {
        let into = frame.0.checked_sub(self.old.0)?;
        (u64::from(into) < self.order.base_pages().0).then(|| self.new.offset(into))
    }
}

impl Sim {
    pub(crate) fn move_slot(&mut self, slot: SlotId, to: NodeId) -> Attempt {
        self.placed(slot, |sim| {
            let all = sim.slot_frames(slot);
            sim.move_frames(slot, all.into_iter().map(|frame| (frame, to)).collect())
        })
    }

    pub(crate) fn move_pages(&mut self, slot: SlotId, pages: &[(BasePages, NodeId)]) -> Attempt {
        self.placed(slot, |sim| {
            let wanted = pages
                .iter()
                .filter_map(|(page, to)| Some((sim.frame_at(slot, *page)?, *to)));
            let wanted = wanted.collect();
            sim.move_frames(slot, wanted)
        })
    }

    pub(crate) fn interleave(&mut self, slot: SlotId, nodes: &[(NodeId, u32)]) -> Attempt {
        let split = self.split_slot(slot);
        if split.verdict.0 != OutcomeClass::Done {
            return split;
        }
        let turns = nodes
            .iter()
            .flat_map(|(node, weight)| (0..*weight).map(move |_| *node));
        let turns: Vec<NodeId> = turns.collect();
        self.placed(slot, |sim| {
            let frames = sim.slot_frames(slot);
            sim.move_frames(
                slot,
                frames.into_iter().zip(turns.into_iter().cycle()).collect(),
            )
        })
    }

    fn placed(&mut self, slot: SlotId, run: impl FnOnce(&mut Self) -> Verdict) -> Attempt {
        match self.reach(slot).whole() {
            Ok((process, _)) => Attempt {
                verdict: run(self),
                via: Some(process),
            },
            Err(ended) => ended,
        }
    }

    fn frame_at(&self, slot: SlotId, page: BasePages) -> Option<Frame> {
        let Reach::Whole { process, index } = self.reach(slot) else {
            return None;
        };
        let address = (index << self.geometry().slot_shift()) + self.geometry().bytes(page).0;
        let (entry, _) = self.processes[&process]
            .space
            .entry(address, self.geometry());
        crate::space::frame_of(&entry)
    }

    fn move_frames(&mut self, slot: SlotId, wanted: Vec<(Frame, NodeId)>) -> Verdict {
        if wanted.is_empty() {
            return (OutcomeClass::Ineligible, None);
        }
        for (frame, to) in wanted {
            if !self.frames.has_node(to) {
                return (OutcomeClass::Ineligible, None);
            }
            if self.frames.references(frame) == 0 || self.frames.node_of(frame) == to {
                continue; // moved already, with the rest of its folio
            }
            if let Some(obstacle) = self.move_obstacle(slot, frame) {
                return obstacle;
            }
            if !self.move_folio(slot, frame, to) {
                return (OutcomeClass::NoMemory, None);
            }
        }
        DONE
    }

    fn move_obstacle(&self, slot: SlotId, frame: Frame) -> Option<Verdict> {
        let (head, order) = self.frames.folio(frame);
        let shared = || folio_frames(head, order).any(|frame| self.frames.references(frame) > 1);
        if self.frames.is_pinned(frame) {
            Some((OutcomeClass::Busy, Some(Cause::Pinned)))
        } else if SharedIndex::of(slot.object).is_none() && shared() {
            Some((OutcomeClass::Ineligible, Some(Cause::ForkShared)))
        } else {
            None
        }
    }

    /// Moves one folio; in pieces where the node has no block for the whole. False if it has no room at all.
    fn move_folio(&mut self, slot: SlotId, frame: Frame, to: NodeId) -> bool {
        let (old, order) = self.frames.folio(frame);
        if let Some(new) = self.frames.allocate_for_move(old, to) {
            self.replace(slot, Replacement { old, new, order });
            return true;
        }
        if order == Order::BASE {
            return false;
        }
        self.split_slot(slot);
        let pieces = folio_frames(old, order);
        let present: Vec<Frame> = pieces
            .filter(|frame| self.slot_frames(slot).contains(frame))
            .collect();
        present
            .into_iter()
            .all(|frame| self.move_folio(slot, frame, to))
    }

    fn replace(&mut self, slot: SlotId, change: Replacement) {
        for (old, new) in
            folio_frames(change.old, change.order).zip(folio_frames(change.new, change.order))
        {
            self.frames.set_filled(new, self.frames.is_filled(old));
        }
        let processes: Vec<ProcessId> = self
            .mappings(slot.object)
            .iter()
            .map(|mapping| mapping.process)
            .collect();
        let mut replaced = Vec::new();
        for process in processes {
            let space = &mut self
                .processes
                .get_mut(&process)
                .expect("maps the object")
                .space;
            replaced.extend(
                space
                    .tables
                    .values_mut()
                    .flat_map(|table| replace_in(table, change)),
            );
        }
        if let Some(object) = SharedIndex::of(slot.object) {
            let tables = &mut self.caches[object.index()].tables;
            replaced.extend(
                tables
                    .values_mut()
                    .flat_map(|table| replace_in(table, change)),
            );
        }
        for (old, new) in replaced {
            self.frames.refer(new);
            self.frames.release(old);
        }
    }
}

/// Puts new frames for old ones in one table; the pairs, one for each reference.
fn replace_in(table: &mut Table, change: Replacement) -> Vec<(Frame, Frame)> {
    match table {
        Table::Huge(head) if *head == change.old => {
            *head = change.new;
            folio_frames(change.old, change.order)
                .zip(folio_frames(change.new, change.order))
                .collect()
        }
        Table::Huge(_) => Vec::new(),
        Table::Base(entries) => {
            let mut replaced = Vec::new();
            for entry in entries {
                let Entry::Frame(old) = *entry else {
                    continue;
                };
                if let Some(new) = change.of(old) {
                    *entry = Entry::Frame(new);
                    replaced.push((old, new));
                }
            }
            replaced
        }
    }
}
