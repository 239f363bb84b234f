//! Answering the looks that a policy asked for, within bounds.

use super::{LiveMachine, Tick};
use crate::sensors::contents::count_zero_pages;
use crate::sensors::placement::nodes_of_slot;
use crate::tracker::TrackedSlot;
use hugepilot_core::ids::{ProcessId, SlotId, SlotRange};
use hugepilot_core::look::{Answer, Look};
use hugepilot_core::units::{BasePages, Bytes, Span};

/// Slots whose page tables are read for looks in one tick, at the most: 16 GiB, 26 ms where all is base pages.
const LOOK_SLOTS_MAX: u64 = 8192;
/// Bytes of contents read in one tick, at the most: some 2 ms.
const CONTENTS_MAX: Bytes = Bytes::mib(16);
/// Slots asked for their nodes in one tick, at the most; each costs some 30 µs.
const NODES_MAX: u64 = 256;

/// What is left of the bounds of one tick.
struct Bounds {
    slots: u64,
    contents: Bytes,
    nodes: u64,
}

impl LiveMachine {
    /// Answers `looks`, as far as the bounds of a tick allow.
    pub(super) fn answer(&mut self, looks: &[Look], tick: &mut Tick) {
        let mut bounds = Bounds {
            slots: LOOK_SLOTS_MAX,
            contents: CONTENTS_MAX,
            nodes: NODES_MAX,
        };
        for look in looks {
            match look {
                Look::PageTables(range) => self.look_at_tables(*range, &mut bounds, tick),
                Look::ZeroPages { slot, pages_max } => {
                    self.look_for_zeros(*slot, *pages_max, &mut bounds, tick);
                }
                Look::Nodes(slot) => self.look_for_nodes(*slot, &mut bounds, tick),
                Look::Track { slots, period } => self.track(slots, *period),
                Look::Sample { samples_max } => self.order_samples(*samples_max, tick),
            }
        }
    }

    fn look_at_tables(&mut self, range: SlotRange, bounds: &mut Bounds, tick: &mut Tick) {
        let count = range.count.min(bounds.slots);
        bounds.slots -= count;
        if count < range.count {
            tick.observation.cost.bounded += 1;
        }
        self.refresh_mappings(range, tick);
        self.read_slots(range.object, range.first, range.first + count, tick);
        // What no region maps was not walked, and is known to be empty all the same.
        tick.observation.scanned.push(SlotRange { count, ..range });
    }

    /// A look means the present: the regions that it goes through are read again, if that was not just done.
    fn refresh_mappings(&mut self, range: SlotRange, tick: &mut Tick) {
        let via: Vec<ProcessId> = match range.object {
            hugepilot_core::ids::ObjectId::Private(process) => vec![process],
            hugepilot_core::ids::ObjectId::Shared { .. } => Vec::new(),
        };
        for process in via {
            self.refresh_regions(process, tick);
        }
        self.objects.settle(&self.geometry);
        self.say_emptied(tick);
    }

    fn look_for_zeros(
        &mut self,
        slot: SlotId,
        pages_max: BasePages,
        bounds: &mut Bounds,
        tick: &mut Tick,
    ) {
        let wanted = self
            .geometry
            .bytes(pages_max.min(self.geometry.slot_pages()));
        let answer = match bounds.contents.checked_sub(wanted) {
            Some(left) => {
                bounds.contents = left;
                self.count_zeros(slot, pages_max, tick)
            }
            None => {
                tick.observation.cost.bounded += 1;
                None
            }
        };
        let answer = answer.unwrap_or(Answer::Unanswered { slot });
        tick.observation.answers.push(answer);
    }

    fn count_zeros(
        &mut self,
        slot: SlotId,
        pages_max: BasePages,
        tick: &mut Tick,
    ) -> Option<Answer> {
        let (process, address) = self.seen_through(slot)?;
        let watched = self
            .processes
            .get(process)
            .filter(|watched| watched.alive())?;
        let pid = watched.id.pid;
        let count =
            count_zero_pages(pid, address, pages_max, &self.geometry, &mut self.contents).ok()?;
        tick.observation.cost.contents += self.geometry.bytes(count.read);
        Some(Answer::ZeroPages {
            slot,
            read: count.read,
            zero: count.zero,
        })
    }

    fn look_for_nodes(&mut self, slot: SlotId, bounds: &mut Bounds, tick: &mut Tick) {
        let Some(left) = bounds.nodes.checked_sub(1) else {
            tick.observation.cost.bounded += 1;
            return;
        };
        bounds.nodes = left;
        let nodes = self.seen_through(slot).and_then(|(process, address)| {
            let watched = self
                .processes
                .get(process)
                .filter(|watched| watched.alive())?;
            nodes_of_slot(watched.id.pid, address, &self.geometry).ok()
        });
        match nodes {
            Some(nodes) => self.slot_said(slot, tick).nodes = nodes,
            None => tick.observation.answers.push(Answer::Unanswered { slot }),
        }
    }

    fn track(&mut self, slots: &[SlotId], period: Span) {
        let followed: Vec<TrackedSlot> = slots
            .iter()
            .filter_map(|&slot| self.tracked(slot))
            .collect();
        if let Some(tracker) = &mut self.tracker {
            tracker.track(&followed, period);
        }
    }

    fn tracked(&self, slot: SlotId) -> Option<TrackedSlot> {
        let (process, address) = self.seen_through(slot)?;
        let counts = self.objects.get(slot.object)?.seen.get(slot.index);
        Some(TrackedSlot {
            slot,
            process,
            address,
            bytes: self.geometry.slot(),
            huge: counts.huge > 0,
        })
    }

    /// Takes in what the tracker measured since the last observation.
    pub(super) fn take_readings(&mut self, tick: &mut Tick) {
        let Some(tracker) = &mut self.tracker else {
            return;
        };
        let readings = tracker.poll(tick.now);
        for spot in tracker.blind() {
            tick.blind(spot.process, spot.what, spot.why);
        }
        for (slot, accessed) in readings {
            self.slot_said(slot, tick).accessed = Some(accessed);
        }
    }

    /// A process that maps all of the slot at a fitting address, and that address.
    pub(super) fn seen_through(&self, slot: SlotId) -> Option<(ProcessId, u64)> {
        let (start, bytes) = (slot.start(&self.geometry), self.geometry.slot());
        let object = self.objects.get(slot.object)?;
        object
            .mappings()
            .filter(|mapping| mapping.covers(start, bytes))
            .filter_map(|mapping| Some((mapping.process, mapping.address_of(start)?)))
            .find(|(_, address)| address % bytes.0 == 0)
    }
}
