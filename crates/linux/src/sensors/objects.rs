//! Memory objects: what all watched processes map, object by object.
//!
//! However many processes map a shared object, it is one object here, scanned once (see `ranges`) and planned once.

use super::fingerprints::{Fingerprints, SlotCounts};
use super::ranges::{ScanRange, covers_all, plan};
use super::regions::Placed;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, ProcessId, SlotId};
use hugepilot_core::observation::{Mapping, MemoryKind, ObjectObserved};
use hugepilot_core::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// One object.
#[derive(Debug, Default)]
pub struct Object {
    /// Its regions, sorted by process and address.
    placed: Vec<Placed>,
    /// What to scan, sorted by offset, without overlap.
    pub ranges: Vec<ScanRange>,
    /// What its slots looked like.
    pub seen: Fingerprints,
}

impl Object {
    /// Its mappings, sorted by process and address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.placed.iter().map(|placed| &placed.mapping)
    }

    /// Where `process`'s regions are in `placed`.
    fn part_of(&self, process: ProcessId) -> std::ops::Range<usize> {
        let first = self
            .placed
            .partition_point(|placed| placed.mapping.process < process);
        let count = self.placed[first..]
            .iter()
            .take_while(|placed| placed.mapping.process == process)
            .count();
        first..first + count
    }

    fn observed(&self, object: ObjectId) -> ObjectObserved {
        ObjectObserved {
            object,
            mappings: self.placed.iter().filter_map(said).cloned().collect(),
        }
    }
}

/// All objects that watched processes map.
#[derive(Debug, Default)]
pub struct Objects {
    table: BTreeMap<ObjectId, Object>,
    of_process: BTreeMap<ProcessId, BTreeSet<ObjectId>>,
    resident: BTreeMap<ProcessId, Bytes>,
    /// Mappings changed since the last observation.
    changed: BTreeSet<ObjectId>,
    /// Mappings changed since ranges were last planned.
    stale: BTreeSet<ObjectId>,
    /// Slots that are not mapped any more since the last observation.
    emptied: Vec<SlotId>,
}

impl Objects {
    /// The object `id`, if a watched process maps it.
    #[must_use]
    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.table.get(&id)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: ObjectId) -> Option<&mut Object> {
        self.table.get_mut(&id)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.table.iter().map(|(id, object)| (*id, object))
    }

    /// `process` maps exactly `regions` now, and has so much resident.
    pub fn replace(&mut self, process: ProcessId, regions: &[Placed], resident: Bytes) {
        let mut by_object: BTreeMap<ObjectId, Vec<Placed>> = BTreeMap::new();
        for placed in regions {
            by_object
                .entry(placed.object)
                .or_default()
                .push(placed.clone());
        }
        self.resident.insert(process, resident);
        let now_mapped: BTreeSet<ObjectId> = by_object.keys().copied().collect();
        let before = self
            .of_process
            .insert(process, now_mapped)
            .unwrap_or_default();
        for (id, placed) in by_object {
            self.put(id, process, placed);
        }
        for id in before {
            if !self.of_process[&process].contains(&id) {
                self.put(id, process, Vec::new());
            }
        }
    }

    /// `process` is not watched any more.
    pub fn remove(&mut self, process: ProcessId) {
        self.replace(process, &[], Bytes::ZERO);
        self.of_process.remove(&process);
        self.resident.remove(&process);
    }

    /// `process` maps exactly `placed` of object `id`.
    fn put(&mut self, id: ObjectId, process: ProcessId, placed: Vec<Placed>) {
        let object = self.table.entry(id).or_default();
        let part = object.part_of(process);
        if object.placed[part.clone()] == placed {
            return;
        }
        object.placed.splice(part, placed);
        self.changed.insert(id);
        self.stale.insert(id);
    }

    /// Plans anew what to scan of objects whose mappings changed. Once a tick, however many processes map one.
    pub fn settle(&mut self, geometry: &Geometry) {
        for id in std::mem::take(&mut self.stale) {
            let Some(object) = self.table.get_mut(&id) else {
                continue;
            };
            if object.placed.is_empty() {
                // Said to be gone as a whole, not slot by slot.
                object.ranges = Vec::new();
                continue;
            }
            let ranges = plan(&object.placed, &self.resident);
            let grown = covers_all(&ranges, &object.ranges);
            object.ranges = ranges;
            if !grown {
                let gone = empty_unmapped(object, geometry);
                let slot = |index| SlotId { object: id, index };
                self.emptied.extend(gone.into_iter().map(slot));
            }
        }
    }

    /// `process` has so much resident memory: shared objects are looked at through the largest.
    pub fn note_resident(&mut self, process: ProcessId, resident: Bytes) {
        self.resident.insert(process, resident);
    }

    /// Objects whose mappings changed since last asked; those without any are forgotten with that.
    pub fn take_changed(&mut self) -> Vec<ObjectObserved> {
        let mut said = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let Some(object) = self.table.get(&id) else {
                continue;
            };
            said.push(object.observed(id));
            if object.placed.is_empty() {
                self.table.remove(&id);
            }
        }
        said
    }

    /// Slots that are not mapped any more since last asked.
    pub fn take_emptied(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.emptied)
    }

    /// Every object counts as changed: for a checkpoint.
    pub fn change_all(&mut self) {
        self.changed.extend(self.table.keys());
    }
}

/// Reserved address space that nobody may touch is kept to ourselves: a sweep over terabytes of it would find nothing.
fn said(placed: &Placed) -> Option<&Mapping> {
    let managed = matches!(
        placed.mapping.kind,
        MemoryKind::Anonymous | MemoryKind::Shmem
    );
    (placed.worth_a_look || !managed).then_some(&placed.mapping)
}

/// Forgets slots that no range holds any more, and says which.
fn empty_unmapped(object: &mut Object, geometry: &Geometry) -> Vec<u64> {
    let slot = geometry.slot().0;
    let mapped = |index: u64| {
        let start = index * slot;
        let after = object
            .ranges
            .partition_point(|range| range.offset < start + slot);
        after > 0 && object.ranges[after - 1].end() > start
    };
    let gone: Vec<u64> = object
        .seen
        .iter()
        .map(|(index, _)| index)
        .filter(|&index| !mapped(index))
        .collect();
    for &index in &gone {
        object.seen.set(index, SlotCounts::EMPTY);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::Pid;

    const G: Geometry = Geometry::X86_64;
    const SEGMENT: ObjectId = ObjectId::Shared {
        device: 1,
        inode: 7,
    };
    const SOME: SlotCounts = SlotCounts {
        base: 1,
        ..SlotCounts::EMPTY
    };

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid: Pid(pid),
            start_ticks: 1,
        }
    }

    fn shared(pid: u32, address: u64, offset: u64, length: u64) -> Placed {
        Placed {
            object: SEGMENT,
            mapping: Mapping {
                process: process(pid),
                address,
                length: Bytes(length),
                offset,
                kind: MemoryKind::Shmem,
                writable: true,
                excluded: false,
                placement_fixed: false,
            },
            worth_a_look: true,
        }
    }

    fn replace(objects: &mut Objects, pid: u32, regions: &[Placed], resident: u64) {
        objects.replace(process(pid), regions, Bytes(resident));
        objects.settle(&G);
    }

    fn ranges(objects: &Objects) -> Vec<(u32, u64, u64)> {
        let object = objects.get(SEGMENT).expect("mapped");
        let range = |range: &ScanRange| (range.via.pid.0, range.offset, range.length);
        object.ranges.iter().map(range).collect()
    }

    #[test]
    fn many_mappings_are_scanned_once_through_the_largest() {
        let mut objects = Objects::default();
        for pid in 1..=200 {
            replace(
                &mut objects,
                pid,
                &[shared(pid, 1 << 30, 0, 1 << 22)],
                u64::from(pid),
            );
        }
        assert_eq!(ranges(&objects), [(200, 0, 1 << 22)]);
        assert_eq!(objects.take_changed()[0].mappings.len(), 200);
    }

    #[test]
    fn what_one_process_does_not_map_is_seen_through_another() {
        let mut objects = Objects::default();
        replace(
            &mut objects,
            1,
            &[shared(1, 0x1000_0000, 0x1000, 0x2000)],
            9,
        );
        replace(&mut objects, 2, &[shared(2, 0x2000_0000, 0, 0x8000)], 5);
        assert_eq!(
            ranges(&objects),
            [(2, 0, 0x1000), (1, 0x1000, 0x2000), (2, 0x3000, 0x5000)]
        );
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut objects = Objects::default();
        let pieces = [
            shared(1, 0x1000, 0, 0x1000),
            shared(1, 0x2000, 0x1000, 0x3000),
        ];
        replace(&mut objects, 1, &pieces, 9);
        assert_eq!(ranges(&objects), [(1, 0, 0x4000)]);
    }

    #[test]
    fn unmapped_slots_are_said_once() {
        let mut objects = Objects::default();
        replace(&mut objects, 1, &[shared(1, 1 << 30, 0, 8 << 21)], 9);
        let object = objects.get_mut(SEGMENT).expect("mapped");
        (0..8).for_each(|index| assert!(object.seen.set(index, SOME)));
        replace(
            &mut objects,
            1,
            &[shared(1, 1 << 30, 0, (6 << 21) + 4096)],
            9,
        );
        let gone: Vec<u64> = objects
            .take_emptied()
            .iter()
            .map(|slot| slot.index)
            .collect();
        assert_eq!(gone, [7]);
        assert!(objects.take_emptied().is_empty());
    }

    #[test]
    fn an_object_without_mappings_is_said_and_forgotten() {
        let mut objects = Objects::default();
        replace(&mut objects, 1, &[shared(1, 1 << 30, 0, 4096)], 9);
        assert_eq!(objects.take_changed().len(), 1);
        objects.remove(process(1));
        let said = objects.take_changed();
        assert!(said.len() == 1 && said[0].mappings.is_empty());
        assert!(objects.get(SEGMENT).is_none());
    }
}
