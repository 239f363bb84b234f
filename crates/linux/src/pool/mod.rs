//! hugetlb pools: reading them, resizing them, and saying what room there is.
//!
//! # Problem
//! The kernel grows a pool as far as it can and says nothing when that is not far enough. Who then holds the pages, what is
//! promised to whom, and why no more can be had stands in a dozen files.
//!
//! # Approach
//! [`read`](mod@read) gives each pool as a value, per size and node. [`resize`] asks, reads back, compacts and asks again within a bound of
//! time; what it then says is what the kernel shows, never what was asked for. [`dividing`] breaks pages of one size into pages
//! of the next smaller one. [`holders`] and [`cgroups`] say who has the pages and who may have how many; [`obstacles`] what stands in the
//! way of growing; [`room`] is a pure judgement on a mapping from all this. [`mounts`] mounts hugetlbfs.
//!
//! # What stays
//! A pool that the user sets stays as it was set: nothing here goes through the journal, for there is nothing to restore.
//!
//! # Terminology
//! *Minimum*, *current* and *maximum* as hugeadm has them: pages that stay, pages that are there, and pages that there may
//! be. Current is minimum plus surplus; maximum is minimum plus overcommit.
//!
//! # Bounds
//! Growing asks for 1 GiB at a time and looks at the clock in between; it compacts a few times and no more. Looking for holders
//! reads `smaps`, which walks page tables under the process's lock, of those processes alone that seem to have hugetlb memory, and of none
//! while no pool has pages. The counters are separate files, so that one reading may show two moments.

pub mod cgroups;
pub mod dividing;
pub mod holders;
pub mod mounts;
pub mod obstacles;
pub mod read;
pub mod resize;
pub mod room;

use hugepilot_core::ids::NodeId;
use hugepilot_core::units::Bytes;
use serde::Serialize;
use std::fmt;

/// The size of a pool's pages: a power of two, at least 1 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct PageSize(Bytes);

impl PageSize {
    /// `None` for what no pages have.
    #[must_use]
    pub fn new(bytes: Bytes) -> Option<Self> {
        (bytes.0.is_power_of_two() && bytes >= Bytes::kib(1)).then_some(Self(bytes))
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        self.0
    }

    /// The name of its directory in sysfs: `hugepages-2048kB`.
    #[must_use]
    pub fn directory(self) -> String {
        format!("hugepages-{}kB", self.0.0 >> 10)
    }

    /// The size that a directory of sysfs is named after.
    #[must_use]
    pub fn of_directory(name: &str) -> Option<Self> {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let bytes = kib.parse::<u64>().ok()?.checked_mul(1 << 10)?;
        Self::new(Bytes(bytes))
    }

    /// As cgroups name it: `2MB`, `1GB`.
    #[must_use]
    pub fn of_cgroups(self) -> String {
        let (shift, unit) = self.unit();
        format!("{}{unit}B", self.0.0 >> shift)
    }

    /// As mount options and kernel parameters have it: `2M`, `1G`.
    #[must_use]
    pub fn short(self) -> String {
        let (shift, unit) = self.unit();
        format!("{}{unit}", self.0.0 >> shift)
    }

    const fn unit(self) -> (u32, char) {
        match self.0.0 {
            0x4000_0000.. => (30, 'G'),
            0x10_0000.. => (20, 'M'),
            _ => (10, 'K'),
        }
    }

    /// So many pages in bytes; the largest number where they are more than there are addresses, which a limit may be.
    #[must_use]
    pub fn times(self, pages: u64) -> Bytes {
        Bytes(pages.saturating_mul(self.0.0))
    }

    /// Pages that hold so many bytes.
    #[must_use]
    pub const fn pages_for(self, bytes: Bytes) -> u64 {
        bytes.0.div_ceil(self.0.0)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is counted of a pool, and of its part on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Pages that there are, surplus ones included.
    pub total: u64,
    /// Of them, those that nobody uses.
    pub free: u64,
    /// Of them, those over what was asked for: they go when they are given back.
    pub surplus: u64,
}

impl Counters {
    /// Pages that stay.
    #[must_use]
    pub const fn minimum(self) -> u64 {
        // Two files, read one after the other: the pool may have changed in between.
        self.total.saturating_sub(self.surplus)
    }

    /// Pages that somebody uses.
    #[must_use]
    pub const fn in_use(self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// A pool's part on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePool {
    /// Which node.
    pub node: NodeId,
    /// What is there.
    pub counters: Counters,
}

/// All pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Their size.
    pub size: PageSize,
    /// What there is.
    pub counters: Counters,
    /// Free pages that are promised to mappings.
    pub reserved: u64,
    /// How many surplus pages there may be.
    pub overcommit: u64,
    /// Of which size the parts are that its pages can be broken into.
    pub divides_into: Option<PageSize>,
    /// By node; empty on a kernel without nodes.
    pub nodes: Vec<NodePool>,
}

impl Pool {
    /// Pages that there may be.
    #[must_use]
    pub const fn maximum(&self) -> u64 {
        // Overcommit may be the largest number: no limit.
        self.counters.minimum().saturating_add(self.overcommit)
    }

    /// Free pages that are promised to nobody.
    #[must_use]
    pub const fn available(&self) -> u64 {
        self.counters.free.saturating_sub(self.reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: Bytes) -> PageSize {
        PageSize::new(bytes).expect("a power of two")
    }

    #[test]
    fn a_size_has_a_name_for_everybody() {
        let names = |bytes| {
            let size = size(bytes);
            (size.directory(), size.of_cgroups(), size.short())
        };
        let all = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(names(Bytes::kib(64)), all("hugepages-64kB", "64KB", "64K"));
        assert_eq!(names(Bytes::mib(2)), all("hugepages-2048kB", "2MB", "2M"));
        assert_eq!(
            names(Bytes::gib(1)),
            all("hugepages-1048576kB", "1GB", "1G")
        );
        assert_eq!(
            names(Bytes::gib(16)),
            all("hugepages-16777216kB", "16GB", "16G")
        );
    }

    #[test]
    fn a_directory_names_a_size_or_none() {
        assert_eq!(
            PageSize::of_directory("hugepages-2048kB"),
            Some(size(Bytes::mib(2)))
        );
        for wrong in ["hugepages-kB", "hugepages-3kB", "hugepages-0kB", "nodes"] {
            assert_eq!(PageSize::of_directory(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn minimum_is_what_stays_and_maximum_what_may_be() {
        let pool = Pool {
            size: size(Bytes::mib(2)),
            counters: Counters {
                total: 6,
                free: 3,
                surplus: 2,
            },
            reserved: 1,
            overcommit: 5,
            divides_into: None,
            nodes: Vec::new(),
        };
        assert_eq!((pool.counters.minimum(), pool.maximum()), (4, 9));
        assert_eq!((pool.counters.in_use(), pool.available()), (3, 2));
    }
}
