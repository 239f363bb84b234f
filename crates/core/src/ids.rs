//! Who and where: processes, nodes, cgroups, memory objects, slots.

use crate::geometry::Geometry;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A process id of the kernel, in the namespace of whoever observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A thread id of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

/// One process and no other: ids are used again, a pair with the start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: Pid,
    /// When it started, in the kernel's clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pid.fmt(f)
    }
}

/// A NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u16);

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

/// A memory cgroup, by the inode of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupId(pub u64);

/// What memory belongs to: a private address space or an object that several address spaces map.
///
/// An address space is named by one of the processes that have it (threads, and processes made with `CLONE_VM`, share
/// one); a shared object by its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectId {
    /// The private memory of one address space.
    Private(ProcessId),
    /// Memory that any number of address spaces may map: shared anonymous memory, tmpfs, files.
    Shared {
        /// Device number, as `stat` gives it.
        device: u64,
        /// Inode number.
        inode: u64,
    },
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private(process) => write!(f, "{process}"),
            Self::Shared { device, inode } => write!(f, "{device:x}:{inode}"),
        }
    }
}

/// One aligned, huge-page-sized range of a memory object.
///
/// `index` counts slots from the start of the object: a virtual address over the slot's size in a private object, an
/// offset over the slot's size in a shared one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotId {
    /// The object that the slot is part of.
    pub object: ObjectId,
    /// Its place, in slots.
    pub index: u64,
}

impl SlotId {
    /// The first byte of the slot within its object: an address or an offset.
    #[must_use]
    pub const fn start(&self, geometry: &Geometry) -> u64 {
        self.index << geometry.slot_shift()
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:#x}", self.object, self.index)
    }
}

/// A run of slots of one object: `first .. first + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotRange {
    /// The object.
    pub object: ObjectId,
    /// Index of the first slot.
    pub first: u64,
    /// Slots in the run.
    pub count: u64,
}

impl SlotRange {
    /// The index just past the run.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Is `slot` in the run?
    #[must_use]
    pub fn contains(&self, slot: SlotId) -> bool {
        self.object == slot.object && (self.first..self.end()).contains(&slot.index)
    }

    /// The slots of the run, in order.
    pub fn slots(self) -> impl Iterator<Item = SlotId> {
        (self.first..self.end()).map(move |index| SlotId {
            object: self.object,
            index,
        })
    }
}

/// How far a switch reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One process.
    Process(ProcessId),
    /// All processes of a cgroup.
    Cgroup(CgroupId),
    /// The whole machine.
    System,
}
