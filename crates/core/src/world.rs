//! What is known: observations, which are deltas, folded into a state.
//!
//! Policies and laws read this; nothing but [`World::fold`] and [`World::account`] writes it. A slot costs
//! [`SlotState`] (24 bytes) plus the map's one byte.

use crate::backing::Backing;
use crate::geometry::Geometry;
use crate::ids::{CgroupId, NodeId, ObjectId, ProcessId, SlotId};
use crate::observation::{
    Accessed, CgroupObserved, Mapping, MemoryKind, NodeObserved, Observation, ProcessObserved,
    Sharing, SlotObserved, Unseen,
};
use crate::slot_map::SlotMap;
use crate::units::{BasePages, Bytes, Instant, Ratio};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A slot as last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotState {
    /// Base pages present, by order.
    pub backing: Backing,
    zero_mapped: u16,
    swapped: u16,
    /// Scans since the backing last changed; stops at 255.
    pub quiet_scans: u8,
    /// Shared copy-on-write?
    pub sharing: Sharing,
    /// A huge page is mapped here in part; false where unknown.
    pub partially_mapped: bool,
}

impl SlotState {
    fn of(seen: &SlotObserved) -> Self {
        Self {
            backing: seen.backing.clone(),
            zero_mapped: clamp(seen.zero_mapped),
            swapped: clamp(seen.swapped),
            quiet_scans: 0,
            sharing: seen.sharing,
            partially_mapped: seen.partially_mapped.unwrap_or(false),
        }
    }

    /// Base pages swapped out; exact up to 65,535.
    #[must_use]
    pub fn swapped(&self) -> BasePages {
        BasePages(u64::from(self.swapped))
    }

    /// Base pages that map the zero page; exact up to 65,535.
    #[must_use]
    pub fn zero_mapped(&self) -> BasePages {
        BasePages(u64::from(self.zero_mapped))
    }

    /// Base pages present over base pages in the slot.
    #[must_use]
    pub fn present_share(&self, geometry: &Geometry) -> Ratio {
        Ratio::of(self.backing.present().0, geometry.slot_pages().0)
    }

    /// Is all that is present mapped huge?
    #[must_use]
    pub fn is_huge(&self, geometry: &Geometry) -> bool {
        self.backing.is_huge(geometry.slot_order)
    }

    fn is_empty(&self) -> bool {
        self.backing == Backing::EMPTY && self.swapped == 0 && self.zero_mapped == 0
    }
}

fn clamp(pages: BasePages) -> u16 {
    u16::try_from(pages.0).unwrap_or(u16::MAX)
}

/// An object as last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// All its mappings, sorted by process and address.
    pub mappings: Vec<Mapping>,
    /// The runs of slots that some managed mapping covers whole and at fitting addresses: sorted, none twice.
    pub runs: Vec<Range<u64>>,
    /// Base pages in huge mappings.
    pub huge: BasePages,
    /// Base pages present.
    pub present: BasePages,
}

/// What happened to one slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotChange {
    /// Which.
    pub slot: SlotId,
    /// What was known before.
    pub before: Option<SlotState>,
    /// What is known now; `None` where nothing is there any more.
    pub after: Option<SlotState>,
    /// The accessed share, if this tick brought one.
    pub accessed: Option<Accessed>,
}

/// Everything known.
#[derive(Debug, Clone)]
pub struct World {
    /// The machine's page sizes.
    pub geometry: Geometry,
    /// The time of the last observation.
    pub at: Instant,
    /// Nodes.
    pub nodes: Vec<NodeObserved>,
    /// System-wide memory pressure.
    pub pressure: Option<Ratio>,
    /// Cgroups.
    pub cgroups: BTreeMap<CgroupId, CgroupObserved>,
    /// Watched processes.
    pub processes: BTreeMap<ProcessId, ProcessObserved>,
    /// Memory objects.
    pub objects: BTreeMap<ObjectId, ObjectState>,
    /// Slots.
    pub slots: SlotMap<SlotState>,
    /// What cannot be seen anywhere.
    pub blind: BTreeSet<Unseen>,
    /// Parts of objects that the last observation showed mapped and the one before did not, as bytes of the object.
    pub fresh: Vec<(ObjectId, Range<u64>)>,
}

impl World {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            at: Instant(0),
            nodes: Vec::new(),
            pressure: None,
            cgroups: BTreeMap::new(),
            processes: BTreeMap::new(),
            objects: BTreeMap::new(),
            slots: SlotMap::default(),
            blind: BTreeSet::new(),
            fresh: Vec::new(),
        }
    }

    /// Takes an observation in; says which slots changed.
    pub fn fold(&mut self, seen: &Observation) -> Vec<SlotChange> {
        self.at = seen.at;
        self.nodes.clone_from(&seen.nodes);
        self.pressure = seen.pressure;
        for cgroup in &seen.cgroups {
            self.cgroups.insert(cgroup.cgroup, cgroup.clone());
        }
        for process in &seen.processes {
            self.processes.insert(process.process, process.clone());
        }
        self.blind.extend(
            seen.blind
                .iter()
                .filter(|spot| spot.process.is_none())
                .map(|spot| spot.what),
        );
        self.fold_objects(seen);
        for range in &seen.scanned {
            self.slots.for_each_mut(*range, |_, state| {
                state.quiet_scans = state.quiet_scans.saturating_add(1);
            });
        }
        seen.slots.iter().map(|slot| self.fold_slot(slot)).collect()
    }

    fn fold_objects(&mut self, seen: &Observation) {
        self.fresh.clear();
        for object in &seen.objects {
            if object.mappings.is_empty() {
                self.forget(object.object);
            } else {
                let known = self.objects.entry(object.object).or_default();
                for mapping in &object.mappings {
                    let parts = parts_not_in(&known.mappings, mapping);
                    self.fresh
                        .extend(parts.into_iter().map(|part| (object.object, part)));
                }
                known.mappings.clone_from(&object.mappings);
                known.runs = runs_of(&object.mappings, self.geometry.slot().0);
            }
        }
        for process in &seen.exited {
            self.processes.remove(process);
            self.forget(ObjectId::Private(*process));
        }
    }

    fn forget(&mut self, object: ObjectId) {
        self.objects.remove(&object);
        self.slots.remove_object(object);
    }

    fn fold_slot(&mut self, seen: &SlotObserved) -> SlotChange {
        let slot = seen.slot;
        let mut after = SlotState::of(seen);
        let before = self.slots.get(slot).cloned();
        if let Some(before) = &before {
            if before.backing == after.backing {
                after.quiet_scans = before.quiet_scans;
            }
        }
        let after = if after.is_empty() {
            self.slots.remove(slot);
            None
        } else {
            self.slots.insert(slot, after.clone());
            Some(after)
        };
        self.count(slot.object, before.as_ref(), after.as_ref());
        SlotChange {
            slot,
            before,
            after,
            accessed: seen.accessed,
        }
    }

    fn count(&mut self, object: ObjectId, before: Option<&SlotState>, after: Option<&SlotState>) {
        let order = self.geometry.slot_order;
        let huge = |state: Option<&SlotState>| {
            state.map_or(BasePages::ZERO, |state| state.backing.at_least(order))
        };
        let present = |state: Option<&SlotState>| {
            state.map_or(BasePages::ZERO, |state| state.backing.present())
        };
        let totals = self.objects.entry(object).or_default();
        totals.huge = totals.huge + huge(after) - huge(before);
        totals.present = totals.present + present(after) - present(before);
    }

    /// Takes in a slot as an actuator saw it after an action.
    pub fn account(&mut self, seen: &SlotObserved) -> SlotChange {
        self.fold_slot(seen)
    }

    /// A mapping that covers the whole slot at an address aligned to it and may be acted upon, and that address.
    #[must_use]
    pub fn mapping_of(&self, slot: SlotId) -> Option<(&Mapping, u64)> {
        let start = slot.start(&self.geometry);
        let length = self.geometry.slot();
        self.objects
            .get(&slot.object)?
            .mappings
            .iter()
            .find_map(|mapping| {
                let address = mapping.address_of(start)?;
                let fits = mapping.covers(start, length) && address % length.0 == 0;
                (fits && is_managed(mapping)).then_some((mapping, address))
            })
    }

    /// May the slot be acted upon through some mapping?
    #[must_use]
    pub fn is_reachable(&self, slot: SlotId) -> bool {
        self.objects.get(&slot.object).is_some_and(|state| {
            let at = state.runs.partition_point(|run| run.end <= slot.index);
            state
                .runs
                .get(at)
                .is_some_and(|run| run.start <= slot.index)
        })
    }

    /// The process through which a slot is reached.
    #[must_use]
    pub fn process_of(&self, slot: SlotId) -> Option<&ProcessObserved> {
        let (mapping, _) = self.mapping_of(slot)?;
        self.processes.get(&mapping.process)
    }

    /// All processes that map an object.
    pub fn processes_of(&self, object: ObjectId) -> impl Iterator<Item = &ProcessObserved> {
        let ids: BTreeSet<ProcessId> = self
            .objects
            .get(&object)
            .into_iter()
            .flat_map(|state| state.mappings.iter().map(|mapping| mapping.process))
            .collect();
        ids.into_iter().filter_map(|id| self.processes.get(&id))
    }

    /// Does a memory policy bind a page of the slot to nodes, in any process that maps it?
    #[must_use]
    pub fn is_placement_fixed(&self, slot: SlotId) -> bool {
        let start = slot.start(&self.geometry);
        let end = start + self.geometry.slot().0;
        let fixed = |mapping: &Mapping| {
            mapping.placement_fixed
                && mapping.offset < end
                && start < mapping.offset + mapping.length.0
        };
        self.objects
            .get(&slot.object)
            .is_some_and(|object| object.mappings.iter().any(fixed))
    }

    /// The nodes with memory, sorted.
    #[must_use]
    pub fn memory_nodes(&self) -> Vec<NodeId> {
        let with_memory = self.nodes.iter().filter(|node| node.total > Bytes::ZERO);
        let mut nodes: Vec<NodeId> = with_memory.map(|node| node.node).collect();
        nodes.sort_unstable();
        nodes
    }

    /// May memory of an object lie on `node`: does it have memory, and may every process that maps the object use it?
    #[must_use]
    pub fn is_node_allowed(&self, object: ObjectId, node: NodeId) -> bool {
        let has_memory = |of: &NodeObserved| of.node == node && of.total > Bytes::ZERO;
        let allows = |process: &ProcessObserved| {
            let allowed = process.nodes_allowed.as_ref();
            allowed.is_none_or(|allowed| allowed.contains(&node))
        };
        self.nodes.iter().any(has_memory) && self.processes_of(object).all(allows)
    }

    /// Huge bytes of an object.
    #[must_use]
    pub fn huge_bytes(&self, object: ObjectId) -> Bytes {
        self.objects
            .get(&object)
            .map_or(Bytes::ZERO, |state| self.geometry.bytes(state.huge))
    }
}

/// The runs of slots (of `slot` bytes) that managed mappings cover whole, merged.
fn runs_of(mappings: &[Mapping], slot: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = mappings
        .iter()
        .filter(|mapping| is_managed(mapping) && mapping.address % slot == mapping.offset % slot)
        .map(|mapping| mapping.offset.div_ceil(slot)..(mapping.offset + mapping.length.0) / slot)
        .filter(|run| run.start < run.end)
        .collect();
    runs.sort_unstable_by_key(|run| (run.start, run.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            Some(_) | None => merged.push(run),
        }
    }
    merged
}

/// The parts of a mapping, as bytes of its object, that no mapping of `known` shows alike (grown or moved regions keep
/// what they had).
fn parts_not_in(known: &[Mapping], mapping: &Mapping) -> Vec<Range<u64>> {
    let alike = |other: &&Mapping| {
        other.process == mapping.process
            && other.kind == mapping.kind
            && other.excluded == mapping.excluded
            && other.address.wrapping_sub(other.offset)
                == mapping.address.wrapping_sub(mapping.offset)
    };
    let whole = mapping.offset..mapping.offset + mapping.length.0;
    let mut left = Vec::from([whole]);
    for other in known.iter().filter(alike) {
        let (start, end) = (other.offset, other.offset + other.length.0);
        left = left
            .into_iter()
            .flat_map(|part| {
                [
                    part.start..part.end.min(start),
                    part.start.max(end)..part.end,
                ]
            })
            .filter(|part| part.start < part.end)
            .collect();
    }
    left
}

/// May slots of this mapping be acted upon?
#[must_use]
pub fn is_managed(mapping: &Mapping) -> bool {
    let kind = match mapping.kind {
        MemoryKind::Anonymous | MemoryKind::Shmem => true,
        MemoryKind::File | MemoryKind::Hugetlb | MemoryKind::Special => false,
    };
    kind && !mapping.excluded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_costs_24_bytes() {
        assert!(size_of::<SlotState>() <= 24, "{}", size_of::<SlotState>());
    }
}
