//! What one tick sees: a delta, with the numbers of the interval.
//!
//! An observation says what *changed* since the one before: processes, regions, slots. A checkpoint says everything,
//! and opens a recording. What a sensor could not see is said in `blind`, never guessed.

use crate::backing::Backing;
use crate::geometry::Order;
use crate::ids::{CgroupId, NodeId, ObjectId, ProcessId, SlotId, SlotRange};
use crate::look::Answer;
use crate::sample::Samples;
use crate::units::{BasePages, Bytes, Instant, Ratio, Span};
use serde::{Deserialize, Serialize};

/// What one tick sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When it was made.
    pub at: Instant,
    /// Time since the one before; zero in the first.
    pub interval: Span,
    /// Everything is said, not only what changed.
    pub checkpoint: bool,
    /// All nodes, each time.
    pub nodes: Vec<NodeObserved>,
    /// Share of the last 10 s in which some task of the machine waited for memory (PSI), where known.
    pub pressure: Option<Ratio>,
    /// Cgroups that hold a watched process and whose numbers were read in this tick.
    pub cgroups: Vec<CgroupObserved>,
    /// Processes whose numbers were read in this tick.
    pub processes: Vec<ProcessObserved>,
    /// Processes that ended, or are not watched any more.
    pub exited: Vec<ProcessId>,
    /// Objects whose mappings changed, each with all its mappings. No mappings: the object is gone.
    pub objects: Vec<ObjectObserved>,
    /// Ranges whose page tables were read in this tick. A slot in one of them and not in `slots` is as it was.
    pub scanned: Vec<SlotRange>,
    /// Slots that changed; one that holds nothing any more comes with an empty backing.
    pub slots: Vec<SlotObserved>,
    /// Sampled accesses.
    pub samples: Samples,
    /// Answers to the looks asked for.
    pub answers: Vec<Answer>,
    /// What could not be seen, and why.
    pub blind: Vec<BlindSpot>,
    /// What looking cost since the observation before.
    pub cost: LookCost,
}

/// A node's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeObserved {
    /// The node.
    pub node: NodeId,
    /// All of its memory.
    pub total: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// Free blocks by order, as the buddy allocator keeps them (`blocks[n]` of order n).
    pub free_blocks: Vec<u64>,
    /// Requests its memory controller served in the interval, where known.
    pub controller_requests: Option<u64>,
    /// Its processors; none on a node of memory alone.
    #[serde(default)]
    pub cpus: u32,
    /// Distances from it to nodes with memory, itself included, in the kernel's scale (10 is local); empty where unknown.
    #[serde(default)]
    pub distances: Vec<(NodeId, u8)>,
}

/// A memory cgroup's counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CgroupObserved {
    /// The cgroup.
    pub cgroup: CgroupId,
    /// Its path below the hierarchy's root.
    pub path: String,
    /// Memory charged to it.
    pub current: Bytes,
    /// Where it is throttled, if anywhere (cgroup v2).
    pub high: Option<Bytes>,
    /// Its limit, if any: the lowest of its own and its ancestors'.
    pub max: Option<Bytes>,
    /// Anonymous memory in THPs, where known.
    pub anon_thp: Option<Bytes>,
    /// Share of the last 10 s in which some of its tasks waited for memory, where known.
    pub pressure: Option<Ratio>,
}

/// May the kernel give this process THPs?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThpConsent {
    /// As the system's switches say.
    Allowed,
    /// Only where advised, or by an explicit collapse (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    ExceptAdvised,
    /// The process opted out (`PR_SET_THP_DISABLE`).
    Refused,
}

/// One process in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessObserved {
    /// Who.
    pub process: ProcessId,
    /// The kernel's short name of it.
    pub comm: String,
    /// Its memory cgroup, where known.
    pub cgroup: Option<CgroupId>,
    /// Did it opt out?
    pub thp: ThpConsent,
    /// Living processes forked from it that still share its memory copy-on-write.
    pub forked_children: u32,
    /// Resident memory as the kernel reports it.
    pub resident: Bytes,
    /// Page faults in the interval.
    pub faults: u64,
    /// Length of the interval that the counters are of.
    pub over: Span,
    /// L2 misses in the interval, where a PMU counts them.
    pub l2_misses: Option<u64>,
    /// Those of them that page walks made.
    pub l2_misses_by_walks: Option<u64>,
    /// The worst per-core share of time spent in page faults, where measured.
    pub fault_time_share_max: Option<Ratio>,
    /// The nodes that it may have memory on, sorted (cpuset, memory policy); none where it is not known to be restricted.
    #[serde(default)]
    pub nodes_allowed: Option<Vec<NodeId>>,
}

impl ProcessObserved {
    /// Page faults a second, over the interval.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub fn fault_rate(&self) -> f64 {
        if self.over == Span::ZERO {
            return 0.0;
        }
        self.faults as f64 / self.over.as_secs_f64()
    }
}

/// What kind of memory a region maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Private anonymous memory: heap, stack, mmap.
    Anonymous,
    /// Shared anonymous memory, System V segments, memfd, tmpfs.
    Shmem,
    /// Pages of a regular file.
    File,
    /// hugetlb pages.
    Hugetlb,
    /// Device memory, vdso and the like: never managed.
    Special,
}

/// One region (VMA) of a process that maps a part of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Through which process.
    pub process: ProcessId,
    /// First virtual address.
    pub address: u64,
    /// Bytes mapped.
    pub length: Bytes,
    /// Where in the object `address` lies: an address in a private object, an offset in a shared one.
    pub offset: u64,
    /// What it maps.
    pub kind: MemoryKind,
    /// Can it be written?
    pub writable: bool,
    /// Excluded by the user, or advised against THP (`VM_NOHUGEPAGE`): never acted upon.
    pub excluded: bool,
    /// A memory policy binds its pages to nodes explicitly: never moved.
    #[serde(default)]
    pub placement_fixed: bool,
}

impl Mapping {
    /// The virtual address at which the object's byte `offset` is seen, if this region maps it.
    #[must_use]
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let into = offset.checked_sub(self.offset)?;
        (into < self.length.0).then(|| self.address + into)
    }

    /// Does it map all of the object's bytes `start .. start + length`?
    #[must_use]
    pub fn covers(&self, start: u64, length: Bytes) -> bool {
        start >= self.offset && start + length.0 <= self.offset + self.length.0
    }
}

/// All mappings of one object by watched processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectObserved {
    /// Which.
    pub object: ObjectId,
    /// Sorted by process and address; one of them suffices to look at a shared object.
    pub mappings: Vec<Mapping>,
}

/// Is a page of the slot mapped by another address space too?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Nobody looked.
    #[default]
    Unknown,
    /// All its pages are this address space's alone.
    Exclusive,
    /// At least one anonymous page is shared copy-on-write after a fork.
    ForkShared,
}

/// What told an accessed share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracker {
    /// DAMON on virtual addresses, one region a slot.
    DamonVirtual,
    /// DAMON on physical addresses: a huge slot's own accessed bit.
    DamonPhysical,
    /// Idle page tracking.
    PageIdle,
    /// The simulator knows.
    Simulated,
}

/// The share of a slot that was accessed in one scan period, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accessed {
    /// Base pages accessed over base pages in the slot; under a huge mapping 0 or 1 in one scan.
    pub share: Ratio,
    /// The tracker.
    pub tracker: Tracker,
}

/// One slot as its page tables show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotObserved {
    /// Which.
    pub slot: SlotId,
    /// Base pages present, by order of mapping. The shared zero page does not count as present.
    pub backing: Backing,
    /// Base pages that map the shared zero page.
    pub zero_mapped: BasePages,
    /// Base pages swapped out.
    pub swapped: BasePages,
    /// Base pages by node, where somebody looked.
    pub nodes: Vec<(NodeId, BasePages)>,
    /// Accessed share of the last scan, where tracked.
    pub accessed: Option<Accessed>,
    /// Shared copy-on-write?
    pub sharing: Sharing,
    /// Locked in memory, where known.
    pub locked: Option<bool>,
    /// A huge page is mapped here only in part, by base-page entries, and holds more memory than it shows; where known.
    pub partially_mapped: Option<bool>,
}

impl SlotObserved {
    /// A slot of which only the backing is known.
    #[must_use]
    pub fn new(slot: SlotId, backing: Backing) -> Self {
        Self {
            slot,
            backing,
            zero_mapped: BasePages::ZERO,
            swapped: BasePages::ZERO,
            nodes: Vec::new(),
            accessed: None,
            sharing: Sharing::Unknown,
            locked: None,
            partially_mapped: None,
        }
    }

    /// Is it mapped huge throughout?
    #[must_use]
    pub fn is_huge(&self, slot_order: Order) -> bool {
        self.backing.is_huge(slot_order)
    }
}

/// Something that could not be seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlindSpot {
    /// Of whom, if of one process.
    pub process: Option<ProcessId>,
    /// What is not seen.
    pub what: Unseen,
    /// Why, in one sentence that says what would change it.
    pub why: String,
}

/// Kinds of blindness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    /// Regions and page tables.
    PageTables,
    /// Whether mappings are huge.
    HugeMappings,
    /// Which share is accessed.
    AccessedShare,
    /// Partially mapped huge pages.
    PartialMappings,
    /// The cgroup's counters.
    Cgroup,
    /// Free blocks of nodes.
    Nodes,
    /// Forked children.
    Sharing,
    /// Zero-filled base pages.
    ZeroPages,
    /// Who accesses which page: nothing samples accesses.
    Accesses,
    /// How often pages are accessed: the sampler tells who, not how often.
    AccessRates,
    /// L2 misses and those that page walks made.
    PageWalks,
    /// Time spent in page faults.
    FaultTime,
}

/// What looking cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookCost {
    /// Processor time of the looking thread.
    pub cpu: Span,
    /// Of that, time in page-table scans.
    pub scan: Span,
    /// Slots whose page tables were read.
    pub slots: u64,
    /// Bytes of memory contents read.
    pub contents: Bytes,
    /// Looks cut short by a bound.
    pub bounded: u64,
}
