//! One address space: regions, and page tables of one slot each.
//!
//! As in the kernel, a table either maps one huge page or has an entry for every base page; what the entries refer to is
//! told by [`crate::frame`]. A huge page mapped by base entries is therefore nothing special here: its frames are just
//! part of one folio.

use crate::frame::{Frame, folio_frames};
use crate::shared::SharedIndex;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::Bytes;
use std::collections::BTreeMap;

/// What a base page's place in a page table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Entry {
    #[default]
    Empty,
    /// The shared zero page.
    Zero,
    Swapped,
    Frame(Frame),
}

/// The page table of one slot.
#[derive(Debug, Clone)]
pub(crate) enum Table {
    Huge(Frame),
    Base(Vec<Entry>),
}

impl Table {
    pub(crate) fn empty(geometry: &Geometry) -> Self {
        Self::Base(vec![Entry::Empty; slot_pages(geometry)])
    }

    /// The entry of base page `page`, as if it were one where a huge page is mapped.
    pub(crate) fn entry(&self, page: usize) -> Entry {
        match self {
            Self::Huge(head) => Entry::Frame(head.offset(page_number(page))),
            Self::Base(entries) => entries[page],
        }
    }

    /// The entries by base page; a huge mapping is broken into them, its folio stays whole.
    pub(crate) fn as_base(&mut self, geometry: &Geometry) -> &mut Vec<Entry> {
        if let Self::Huge(head) = self {
            *self = Self::Base(
                folio_frames(*head, geometry.slot_order)
                    .map(Entry::Frame)
                    .collect(),
            );
        }
        match self {
            Self::Base(entries) => entries,
            Self::Huge(_) => unreachable!("was just broken up"),
        }
    }

    /// All frames that it refers to.
    pub(crate) fn frames(&self, geometry: &Geometry) -> Vec<Frame> {
        match self {
            Self::Huge(head) => folio_frames(*head, geometry.slot_order).collect(),
            Self::Base(entries) => entries.iter().filter_map(frame_of).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Huge(_) => false,
            Self::Base(entries) => entries.iter().all(|entry| *entry == Entry::Empty),
        }
    }
}

pub(crate) fn frame_of(entry: &Entry) -> Option<Frame> {
    match entry {
        Entry::Frame(frame) => Some(*frame),
        Entry::Empty | Entry::Zero | Entry::Swapped => None,
    }
}

/// Base pages in a slot, for indexing.
pub(crate) fn slot_pages(geometry: &Geometry) -> usize {
    1 << geometry.slot_order.0
}

/// A base page's number within its slot.
pub(crate) fn page_number(page: usize) -> u32 {
    u32::try_from(page).expect("a slot has fewer than 2^32 base pages")
}

/// What a program said about a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Neutral,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// Where a region's pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Anonymous,
    Shared {
        object: SharedIndex,
        /// Byte of the object at the region's start.
        offset: u64,
    },
}

/// A mapping of an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) bytes: u64,
    pub(crate) source: Source,
    pub(crate) advice: Advice,
    pub(crate) locked: bool,
    /// Something was written: the kernel then has a reverse map of it, which a collapse needs.
    pub(crate) written: bool,
}

impl Region {
    /// The same with its start `into` bytes later, and its length untouched.
    const fn advanced(self, into: u64) -> Self {
        let source = match self.source {
            Source::Anonymous => Source::Anonymous,
            Source::Shared { object, offset } => Source::Shared {
                object,
                offset: offset + into,
            },
        };
        Self { source, ..self }
    }
}

/// Where regions of a simulated process start.
const ARENA: u64 = 0x1000_0000_0000;

/// Regions and page tables of one process.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    pub(crate) regions: BTreeMap<u64, Region>,
    /// By virtual address over the slot's size.
    pub(crate) tables: BTreeMap<u64, Table>,
    next: u64,
}

impl Space {
    pub(crate) fn new() -> Self {
        Self {
            regions: BTreeMap::new(),
            tables: BTreeMap::new(),
            next: ARENA,
        }
    }

    /// Takes addresses for `bytes`, aligned to a slot and a slot away from the next.
    pub(crate) fn reserve(&mut self, bytes: Bytes, geometry: &Geometry) -> u64 {
        let slot = geometry.slot().0;
        let address = self.next;
        self.next += bytes.0.next_multiple_of(slot) + slot;
        address
    }

    /// The region at `address`, with its start.
    pub(crate) fn region_at(&self, address: u64) -> Option<(u64, &Region)> {
        let (start, region) = self.regions.range(..=address).next_back()?;
        (address < start + region.bytes).then_some((*start, region))
    }

    pub(crate) fn region_at_mut(&mut self, address: u64) -> Option<&mut Region> {
        let (start, region) = self.regions.range_mut(..=address).next_back()?;
        (address < start + region.bytes).then_some(region)
    }

    /// Regions that overlap `start .. end`.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Region)> {
        let first = self.region_at(start).map_or(start, |(start, _)| start);
        self.regions
            .range(first..end)
            .map(|(start, region)| (*start, region))
    }

    /// Makes region borders at `start` and `end`; the regions between them, by their starts.
    pub(crate) fn cut_out(&mut self, start: u64, end: u64) -> Vec<u64> {
        self.cut_at(start);
        self.cut_at(end);
        self.regions
            .range(start..end)
            .map(|(start, _)| *start)
            .collect()
    }

    fn cut_at(&mut self, address: u64) {
        let Some((start, region)) = self
            .region_at(address)
            .map(|(start, region)| (start, *region))
        else {
            return;
        };
        if start == address {
            return;
        }
        let tail = Region {
            bytes: region.bytes - (address - start),
            ..region.advanced(address - start)
        };
        self.regions.insert(address, tail);
        self.regions.insert(
            start,
            Region {
                bytes: address - start,
                ..region
            },
        );
    }

    /// Joins neighbours that differ in nothing, as the kernel does after a change of advice or locks.
    pub(crate) fn merge(&mut self) {
        let mut merged: BTreeMap<u64, Region> = BTreeMap::new();
        for (start, region) in std::mem::take(&mut self.regions) {
            match merged.last_entry() {
                Some(mut last) if continues(*last.key(), last.get(), start, &region) => {
                    last.get_mut().bytes += region.bytes;
                }
                Some(_) | None => {
                    merged.insert(start, region);
                }
            }
        }
        self.regions = merged;
    }

    /// The entry of the base page at `address`, and whether a huge mapping serves it.
    pub(crate) fn entry(&self, address: u64, geometry: &Geometry) -> (Entry, bool) {
        let (index, page) = place(address, geometry);
        match self.tables.get(&index) {
            None => (Entry::Empty, false),
            Some(table) => (table.entry(page), matches!(table, Table::Huge(_))),
        }
    }

    /// The entries of the slot at `index`, to change them.
    pub(crate) fn base_table(&mut self, index: u64, geometry: &Geometry) -> &mut Vec<Entry> {
        self.tables
            .entry(index)
            .or_insert_with(|| Table::empty(geometry))
            .as_base(geometry)
    }

    /// Is the whole slot at `index` part of one region?
    pub(crate) fn whole_region(&self, index: u64, geometry: &Geometry) -> Option<&Region> {
        let start = index << geometry.slot_shift();
        let (from, region) = self.region_at(start)?;
        (start + geometry.slot().0 <= from + region.bytes).then_some(region)
    }
}

fn continues(start: u64, left: &Region, next: u64, right: &Region) -> bool {
    let expected = Region {
        bytes: right.bytes,
        ..left.advanced(left.bytes)
    };
    start + left.bytes == next && expected == *right
}

/// The slot and the base page in it at an address or offset.
pub(crate) fn place(at: u64, geometry: &Geometry) -> (u64, usize) {
    let page = (at >> geometry.base_shift) % geometry.slot_pages().0;
    (
        at >> geometry.slot_shift(),
        usize::try_from(page).expect("below a slot's base pages"),
    )
}
