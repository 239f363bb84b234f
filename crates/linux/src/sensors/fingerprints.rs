//! What each slot looked like when it was last read: eight bytes a slot, so that an observation says only what changed.
//!
//! The eight bytes hold the counts themselves, not a hash of them, so that no change is missed and a checkpoint can be
//! made without reading page tables again. Slots that never held anything take no room but that of their neighbours: a
//! chunk is allocated when its first slot holds something and dropped when its last one is empty again.

use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::SlotId;
use hugepilot_core::observation::SlotObserved;
use hugepilot_core::units::BasePages;
use std::collections::BTreeMap;

/// Slots of a chunk: 512 bytes, and 128 MiB of memory on x86. Larger ones would waste room on small regions.
const CHUNK: u64 = 64;
const CHUNK_LEN: usize = 64;

/// Bits of one count in the eight bytes: a slot of up to 65,535 base pages.
const COUNT_BITS: u32 = 16;

/// Base pages of one slot, by what its page tables say of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Present, each by an entry of its own.
    pub base: u16,
    /// Present, by huge entries.
    pub huge: u16,
    /// The shared zero page.
    pub zero: u16,
    /// Swapped out.
    pub swapped: u16,
}

impl SlotCounts {
    /// Nothing at all.
    pub const EMPTY: Self = Self {
        base: 0,
        huge: 0,
        zero: 0,
        swapped: 0,
    };

    fn pack(self) -> u64 {
        [self.base, self.huge, self.zero, self.swapped]
            .into_iter()
            .fold(0, |packed, count| (packed << COUNT_BITS) | u64::from(count))
    }

    fn unpack(packed: u64) -> Self {
        let [s0, s1, z0, z1, h0, h1, b0, b1] = packed.to_le_bytes();
        Self {
            base: u16::from_le_bytes([b0, b1]),
            huge: u16::from_le_bytes([h0, h1]),
            zero: u16::from_le_bytes([z0, z1]),
            swapped: u16::from_le_bytes([s0, s1]),
        }
    }

    /// Base pages present, by whatever entry.
    #[must_use]
    pub fn present(self) -> u16 {
        self.base.saturating_add(self.huge)
    }

    /// As an observation says it.
    #[must_use]
    pub fn observed(self, slot: SlotId, geometry: &Geometry) -> SlotObserved {
        let pages = |count: u16| BasePages(u64::from(count));
        let backing = Backing::from_entries([
            (Order::BASE, pages(self.base)),
            (geometry.slot_order, pages(self.huge)),
        ]);
        SlotObserved {
            zero_mapped: pages(self.zero),
            swapped: pages(self.swapped),
            ..SlotObserved::new(slot, backing)
        }
    }
}

/// The slots of one object as they were last read.
#[derive(Debug, Clone, Default)]
pub struct Fingerprints {
    chunks: BTreeMap<u64, Box<[u64; CHUNK_LEN]>>,
}

impl Fingerprints {
    /// What slot `index` looked like.
    #[must_use]
    pub fn get(&self, index: u64) -> SlotCounts {
        self.chunks
            .get(&(index / CHUNK))
            .map_or(SlotCounts::EMPTY, |chunk| {
                SlotCounts::unpack(chunk[within(index)])
            })
    }

    /// Slot `index` looks like `counts` now. Did it look otherwise before?
    pub fn set(&mut self, index: u64, counts: SlotCounts) -> bool {
        let (key, packed) = (index / CHUNK, counts.pack());
        if packed == 0 && !self.chunks.contains_key(&key) {
            return false;
        }
        let chunk = self
            .chunks
            .entry(key)
            .or_insert_with(|| Box::new([0; CHUNK_LEN]));
        let before = std::mem::replace(&mut chunk[within(index)], packed);
        if packed == 0 && before != 0 && chunk.iter().all(|&slot| slot == 0) {
            self.chunks.remove(&key);
        }
        before != packed
    }

    /// Did no slot of `first .. end` hold anything?
    #[must_use]
    pub fn nothing_in(&self, first: u64, end: u64) -> bool {
        first >= end
            || self
                .chunks
                .range(first / CHUNK..=(end - 1) / CHUNK)
                .next()
                .is_none()
    }

    /// All slots that hold something, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, SlotCounts)> + '_ {
        self.chunks.iter().flat_map(|(key, chunk)| {
            (key * CHUNK..)
                .zip(chunk.iter())
                .filter(|(_, packed)| **packed != 0)
                .map(|(index, packed)| (index, SlotCounts::unpack(*packed)))
        })
    }
}

fn within(index: u64) -> usize {
    usize::try_from(index % CHUNK).expect("less than a chunk")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{ObjectId, Pid, ProcessId};

    const SOME: SlotCounts = SlotCounts {
        base: 511,
        huge: 512,
        zero: 3,
        swapped: u16::MAX,
    };

    #[test]
    fn packing_loses_nothing() {
        assert_eq!(SlotCounts::unpack(SOME.pack()), SOME);
        let only_base = SlotCounts {
            base: 7,
            ..SlotCounts::EMPTY
        };
        assert_eq!(SlotCounts::unpack(only_base.pack()), only_base);
    }

    #[test]
    fn only_changes_are_changes() {
        let mut seen = Fingerprints::default();
        assert!(!seen.set(1000, SlotCounts::EMPTY));
        assert!(seen.set(1000, SOME));
        assert!(!seen.set(1000, SOME));
        assert_eq!(seen.get(1000), SOME);
        assert!(!seen.nothing_in(960, 1024));
        assert!(seen.set(1000, SlotCounts::EMPTY));
        assert!(seen.nothing_in(0, u64::MAX));
        assert_eq!(seen.iter().count(), 0);
    }

    #[test]
    fn iteration_is_in_order() {
        let mut seen = Fingerprints::default();
        for index in [700, 3, 64, 63] {
            seen.set(index, SOME);
        }
        let order: Vec<u64> = seen.iter().map(|(index, _)| index).collect();
        assert_eq!(order, [3, 63, 64, 700]);
    }

    #[test]
    fn an_observation_tells_the_orders_apart() {
        let slot = SlotId {
            object: ObjectId::Private(ProcessId {
                pid: Pid(1),
                start_ticks: 1,
            }),
            index: 5,
        };
        let geometry = Geometry::X86_64;
        let huge = SlotCounts {
            huge: 512,
            ..SlotCounts::EMPTY
        };
        let huge = huge.observed(slot, &geometry);
        assert!(huge.is_huge(geometry.slot_order));
        assert_eq!(SOME.observed(slot, &geometry).zero_mapped, BasePages(3));
    }
}
