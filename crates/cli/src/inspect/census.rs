//! What a process's memory is made of, as numbers. Pure: [`super::read`] fills it, [`super::render`] shows it.

use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{NodeId, ProcessId};
use hugepilot_core::observation::{CgroupObserved, MemoryKind, ThpConsent};
use hugepilot_core::units::{BasePages, Bytes};
use std::collections::BTreeMap;

/// Rows of the histogram: shares of `1 / BUCKETS` each.
pub const BUCKETS: usize = 10;

/// Slots by the share of their base pages that is present; slots that hold nothing are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Slots that are not huge: bucket n holds shares above n/10, up to (n+1)/10.
    pub base: [u64; BUCKETS],
    /// Slots mapped huge.
    pub huge: u64,
}

impl Histogram {
    /// Counts a slot of `whole` base pages, `present` of them present.
    pub fn add(&mut self, present: BasePages, whole: BasePages) {
        let buckets = u64::try_from(BUCKETS).expect("10");
        let Some(below) = (present.0 * buckets).checked_sub(1) else {
            return;
        };
        let bucket = usize::try_from(below / whole.0).expect("below 10");
        self.base[bucket.min(BUCKETS - 1)] += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (sum, more) in self.base.iter_mut().zip(other.base) {
            *sum += more;
        }
        self.huge += other.huge;
    }
}

/// Huge pages that are mapped in part, and hold all of their memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Partial {
    /// Such huge pages. One that lies in two slots counts in both.
    pub folios: u64,
    /// Base pages of them that nobody maps.
    pub unmapped: BasePages,
}

/// What some memory is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Makeup {
    /// Address space.
    pub mapped: Bytes,
    /// Resident, without hugetlb.
    pub resident: Bytes,
    /// Present base pages by the order of their folio, as far as it is known.
    pub orders: BTreeMap<Order, BasePages>,
    /// Present base pages below the slot's order of whose folio the order is not known.
    pub order_unknown: BasePages,
    /// Base pages of huge pages that are mapped by base-page entries.
    pub huge_by_base: BasePages,
    /// Base pages that map the shared zero page.
    pub zero_mapped: BasePages,
    /// Swapped out.
    pub swapped: Bytes,
    /// Locked in memory.
    pub locked: Bytes,
    /// Private anonymous memory that another process maps too: since a fork.
    pub fork_shared: Bytes,
    /// In hugetlb pages.
    pub hugetlb: Bytes,
    /// Resident by node.
    pub nodes: BTreeMap<NodeId, Bytes>,
    /// Whole slots by present share.
    pub slots: Histogram,
    /// Huge pages mapped in part; `None` where that cannot be seen.
    pub partial: Option<Partial>,
    /// Address space advised against THP.
    pub advised_against: Bytes,
    /// Address space advised for THP.
    pub advised_for: Bytes,
}

impl Makeup {
    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.mapped += other.mapped;
        self.resident += other.resident;
        for (order, pages) in &other.orders {
            *self.orders.entry(*order).or_default() += *pages;
        }
        self.order_unknown += other.order_unknown;
        self.huge_by_base += other.huge_by_base;
        self.zero_mapped += other.zero_mapped;
        self.swapped += other.swapped;
        self.locked += other.locked;
        self.fork_shared += other.fork_shared;
        self.hugetlb += other.hugetlb;
        for (node, bytes) in &other.nodes {
            *self.nodes.entry(*node).or_default() += *bytes;
        }
        self.slots.merge(&other.slots);
        if let Some(more) = other.partial {
            let sum = self.partial.get_or_insert_with(Partial::default);
            sum.folios += more.folios;
            sum.unmapped += more.unmapped;
        }
        self.advised_against += other.advised_against;
        self.advised_for += other.advised_for;
    }

    /// Memory in pages of the slot's order and above.
    pub fn huge(&self, geometry: &Geometry) -> Bytes {
        let pages = self
            .orders
            .range(geometry.slot_order..)
            .map(|(_, pages)| *pages)
            .sum();
        geometry.bytes(pages)
    }
}

/// One region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address past the last byte.
    pub end: u64,
    /// Path or `[name]`; empty for anonymous memory without one.
    pub name: String,
    /// What it maps.
    pub kind: MemoryKind,
    /// Is it part of a shared object?
    pub shared: bool,
    /// What it is made of.
    pub makeup: Makeup,
}

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub struct Census {
    /// Page sizes.
    pub geometry: Geometry,
    /// Who.
    pub process: ProcessId,
    /// The kernel's short name of it.
    pub comm: String,
    /// Did it opt out?
    pub thp: ThpConsent,
    /// Its regions, by address.
    pub regions: Vec<Region>,
    /// Its cgroup's counters, where known.
    pub cgroup: Option<CgroupObserved>,
    /// What could not be seen, each with what would change it.
    pub blind: Vec<String>,
}

impl Census {
    /// Everything together.
    pub fn total(&self) -> Makeup {
        let mut total = Makeup::default();
        self.regions
            .iter()
            .for_each(|region| total.merge(&region.makeup));
        total
    }

    /// The sums by kind of memory, in the kinds' order.
    pub fn by_kind(&self) -> BTreeMap<MemoryKind, Makeup> {
        let mut kinds: BTreeMap<MemoryKind, Makeup> = BTreeMap::new();
        for region in &self.regions {
            kinds.entry(region.kind).or_default().merge(&region.makeup);
        }
        kinds
    }

    /// The regions with most resident memory, at most `most` of them.
    pub fn largest(&self, most: usize) -> Vec<&Region> {
        let mut regions: Vec<&Region> = self.regions.iter().collect();
        let held = |region: &Region| region.makeup.resident + region.makeup.hugetlb;
        regions.sort_by_key(|region| (std::cmp::Reverse(held(region)), region.start));
        regions.truncate(most);
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(present: u64, bucket: usize) {
        let mut histogram = Histogram::default();
        histogram.add(BasePages(present), BasePages(512));
        assert_eq!(histogram.base[bucket], 1, "{present} of 512");
        assert_eq!(histogram.base.iter().sum::<u64>(), 1);
    }

    #[test]
    fn a_slot_counts_in_the_bucket_of_its_share() {
        check(1, 0);
        check(51, 0);
        check(52, 1);
        check(256, 4);
        check(257, 5);
        check(512, 9);
    }

    #[test]
    fn an_empty_slot_is_not_counted() {
        let mut histogram = Histogram::default();
        histogram.add(BasePages(0), BasePages(512));
        assert_eq!(histogram, Histogram::default());
    }
}
