//! A slot as a manager can reach and see it.

use crate::action::Attempt;
use crate::frame::Frame;
use crate::sim::{Process, Sim};
use crate::space::{Advice, Entry, Source, Table, frame_of};
use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{NodeId, ObjectId, ProcessId, SlotId};
use hugepilot_core::observation::{Mapping, MemoryKind, Sharing, SlotObserved, ThpConsent};
use hugepilot_core::outcome::{Cause, OutcomeClass};
use hugepilot_core::units::{BasePages, Bytes};
use std::collections::BTreeMap;

/// Through whom a slot can be acted upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// One region of `process` covers it, and its table there is `index`.
    Whole { process: ProcessId, index: u64 },
    /// It is mapped, but nowhere as a whole at a fitting address.
    Partly,
    /// Whoever maps it as a whole is known to refuse huge pages.
    Refused,
    /// Nothing maps it.
    Nowhere,
    /// Its address space ended.
    ProcessGone,
}

/// One base page of a slot as a page table shows it.
#[derive(Debug, Clone, Copy)]
struct PageSeen {
    entry: Entry,
    huge: bool,
    locked: bool,
}

impl Reach {
    /// The process and its table, or the attempt that ends here.
    pub(crate) const fn whole(self) -> Result<(ProcessId, u64), Attempt> {
        Err(match self {
            Self::Whole { process, index } => return Ok((process, index)),
            Self::Partly => Attempt::nowhere(OutcomeClass::Ineligible, Some(Cause::NotMappedWhole)),
            Self::Refused => Attempt::nowhere(OutcomeClass::Ineligible, Some(Cause::OptedOut)),
            Self::Nowhere => Attempt::nowhere(OutcomeClass::Gone, None),
            Self::ProcessGone => Attempt::nowhere(OutcomeClass::Gone, Some(Cause::ProcessGone)),
        })
    }
}

impl Sim {
    /// Every mapping of an object, sorted by process and address.
    pub(crate) fn mappings(&self, object: ObjectId) -> Vec<Mapping> {
        let of = |id: &ProcessId, process: &Process| {
            let all = self.all_mappings(*id, process).into_iter();
            let wanted = all.filter(|(of, _)| *of == object);
            wanted.map(|(_, mapping)| mapping).collect::<Vec<Mapping>>()
        };
        match object {
            ObjectId::Private(id) => {
                let found = self.processes.get_key_value(&id);
                found.map_or_else(Vec::new, |(id, process)| of(id, process))
            }
            ObjectId::Shared { .. } => {
                let all = self.processes.iter();
                all.flat_map(|(id, process)| of(id, process)).collect()
            }
        }
    }

    /// All regions of a process as observations show them, with their objects.
    ///
    /// That a region was advised against huge pages shows only once it refused: a manager cannot afford to ask before.
    pub(crate) fn all_mappings(
        &self,
        id: ProcessId,
        process: &Process,
    ) -> Vec<(ObjectId, Mapping)> {
        let regions = process.space.regions.iter();
        regions
            .map(|(start, region)| {
                let (object, offset, kind) = match region.source {
                    Source::Anonymous => (ObjectId::Private(id), *start, MemoryKind::Anonymous),
                    Source::Shared { object, offset } => (object.id(), offset, MemoryKind::Shmem),
                };
                let excluded =
                    region.advice == Advice::NoHuge && self.seen.refused.contains(&(id, *start));
                let length = Bytes(region.bytes);
                let mapping = Mapping {
                    process: id,
                    address: *start,
                    length,
                    offset,
                    kind,
                    writable: true,
                    excluded,
                    placement_fixed: false,
                };
                (object, mapping)
            })
            .collect()
    }

    /// Remembers that the region at table `index` refused.
    pub(crate) fn note_refusal(&mut self, id: ProcessId, index: u64) {
        let address = index << self.geometry().slot_shift();
        let region = self
            .processes
            .get(&id)
            .and_then(|process| process.space.region_at(address));
        if let Some((start, _)) = region {
            self.seen.refused.insert((id, start));
        }
    }

    pub(crate) fn reach(&self, slot: SlotId) -> Reach {
        let ended = |id| !self.processes.contains_key(&id);
        if matches!(slot.object, ObjectId::Private(id) if ended(id)) {
            return Reach::ProcessGone;
        }
        let geometry = self.geometry();
        let (start, length) = (slot.start(geometry), geometry.slot());
        let mappings = self.mappings(slot.object);
        if !mappings
            .iter()
            .any(|mapping| overlaps(mapping, start, length))
        {
            return Reach::Nowhere;
        }
        let whole = mappings
            .iter()
            .filter(|mapping| mapping.covers(start, length));
        let whole = whole.filter_map(|mapping| Some((mapping, mapping.address_of(start)?)));
        let mut whole = whole
            .filter(|(_, address)| address % length.0 == 0)
            .peekable();
        if whole.peek().is_none() {
            return Reach::Partly;
        }
        let refuses = |mapping: &Mapping| {
            mapping.excluded || self.processes[&mapping.process].consent == ThpConsent::Refused
        };
        match whole.find(|(mapping, _)| !refuses(mapping)) {
            Some((mapping, address)) => {
                let index = address >> geometry.slot_shift();
                Reach::Whole {
                    process: mapping.process,
                    index,
                }
            }
            None => Reach::Refused,
        }
    }

    /// The pages of a slot through the first mapping that shows each.
    fn pages_seen(&self, slot: SlotId) -> Vec<PageSeen> {
        let geometry = self.geometry();
        let (start, length) = (slot.start(geometry), geometry.slot());
        let mut seen: BTreeMap<u64, PageSeen> = BTreeMap::new();
        let mappings = self.mappings(slot.object);
        for mapping in mappings
            .iter()
            .filter(|mapping| overlaps(mapping, start, length))
        {
            let from = start.max(mapping.offset);
            let to = (start + length.0).min(mapping.offset + mapping.length.0);
            let process = &self.processes[&mapping.process];
            let mut offset = from;
            while offset < to {
                let address = mapping.address + (offset - mapping.offset);
                seen.entry(offset)
                    .or_insert_with(|| page_seen(process, address, geometry));
                offset += geometry.base_page().0;
            }
        }
        seen.into_values().collect()
    }

    /// A slot as its page tables show it.
    pub(crate) fn slot_seen(&self, slot: SlotId) -> SlotObserved {
        let pages = self.pages_seen(slot);
        let of = |wanted: Entry| count(pages.iter().filter(|page| page.entry == wanted));
        let frames: Vec<(Frame, bool)> = pages
            .iter()
            .filter_map(|page| Some((frame_of(&page.entry)?, page.huge)))
            .collect();
        let slot_order = self.geometry().slot_order;
        let order = |huge: bool| if huge { slot_order } else { Order::BASE };
        let backing = frames.iter().map(|(_, huge)| (order(*huge), BasePages(1)));
        SlotObserved {
            zero_mapped: of(Entry::Zero),
            swapped: of(Entry::Swapped),
            sharing: self.sharing(slot.object, &frames),
            locked: Some(pages.iter().any(|page| page.locked)),
            partially_mapped: Some(self.any_partly_mapped(&frames)),
            ..SlotObserved::new(slot, Backing::from_entries(backing))
        }
    }

    fn sharing(&self, object: ObjectId, frames: &[(Frame, bool)]) -> Sharing {
        match object {
            ObjectId::Shared { .. } => Sharing::Unknown,
            ObjectId::Private(_)
                if frames
                    .iter()
                    .any(|(frame, _)| self.frames.references(*frame) > 1) =>
            {
                Sharing::ForkShared
            }
            ObjectId::Private(_) => Sharing::Exclusive,
        }
    }

    fn any_partly_mapped(&self, frames: &[(Frame, bool)]) -> bool {
        let mut heads: Vec<Frame> = frames
            .iter()
            .filter(|(_, huge)| !huge)
            .map(|(frame, _)| self.frames.folio(*frame).0)
            .collect();
        heads.dedup();
        heads
            .into_iter()
            .any(|head| self.frames.has_unmapped_part(head))
    }

    /// Base pages of a slot by node.
    pub(crate) fn slot_nodes(&self, slot: SlotId) -> Vec<(NodeId, BasePages)> {
        let mut nodes: BTreeMap<NodeId, BasePages> = BTreeMap::new();
        for frame in self.slot_frames(slot) {
            *nodes.entry(self.frames.node_of(frame)).or_default() += BasePages(1);
        }
        nodes.into_iter().collect()
    }

    /// The frames that back a slot, where it is mapped.
    pub(crate) fn slot_frames(&self, slot: SlotId) -> Vec<Frame> {
        self.pages_seen(slot)
            .iter()
            .filter_map(|page| frame_of(&page.entry))
            .collect()
    }

    /// Slots of an object within `first .. end` whose tables are populated.
    pub(crate) fn populated(&self, object: ObjectId, first: u64, end: u64) -> Vec<SlotId> {
        let shift = self.geometry().slot_shift();
        let mut slots = std::collections::BTreeSet::new();
        for mapping in self.mappings(object) {
            let tables = &self.processes[&mapping.process].space.tables;
            let past = (mapping.address + mapping.length.0 - 1) >> shift;
            for (index, table) in tables.range(mapping.address >> shift..=past) {
                if table.is_empty() {
                    continue;
                }
                let from = (index << shift).max(mapping.address);
                let to = ((index + 1) << shift).min(mapping.address + mapping.length.0) - 1;
                let offsets =
                    [from, to].map(|address| mapping.offset + (address - mapping.address));
                slots.extend(offsets[0] >> shift..=offsets[1] >> shift);
            }
        }
        let within = slots.range(first..end.max(first));
        within
            .map(|index| SlotId {
                object,
                index: *index,
            })
            .collect()
    }

    /// The table of `process` at `index`, if there is one.
    pub(crate) fn table(&self, process: ProcessId, index: u64) -> Option<&Table> {
        self.processes.get(&process)?.space.tables.get(&index)
    }
}

fn count<'a>(pages: impl Iterator<Item = &'a PageSeen>) -> BasePages {
    BasePages(u64::try_from(pages.count()).expect("a count of pages"))
}

fn page_seen(process: &Process, address: u64, geometry: &Geometry) -> PageSeen {
    let (entry, huge) = process.space.entry(address, geometry);
    let locked = process
        .space
        .region_at(address)
        .is_some_and(|(_, region)| region.locked);
    PageSeen {
        entry,
        huge,
        locked,
    }
}

fn overlaps(mapping: &Mapping, start: u64, length: Bytes) -> bool {
    start < mapping.offset + mapping.length.0 && mapping.offset < start + length.0
}
