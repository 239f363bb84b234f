//! Samples of single memory accesses, raw as a sensor saw them.
//!
//! A sample carries the base page even where a huge page maps it: every what-if (LAR if placed, LAR if split) is the
//! same fold over samples with another grouping.

use crate::ids::{CpuId, NodeId, ProcessId, SlotId, Tid};
use crate::units::{BasePages, Ratio};
use serde::{Deserialize, Serialize};

/// Which sensor made a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// Intel PEBS loads.
    Pebs,
    /// AMD IBS op.
    Ibs,
    /// A sampler that a simulator or a hypervisor feeds.
    Virtual,
    /// The kernel's NUMA hinting faults: they tell who, not how often.
    HintingFault,
    /// First touches of memory.
    FirstTouch,
}

/// What served an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServedBy {
    /// A memory controller.
    Dram,
    /// Some cache.
    Cache,
    /// The sampler cannot tell.
    Unknown,
}

/// One access.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who: the process.
    pub process: ProcessId,
    /// Who: the thread.
    pub thread: Tid,
    /// From which processor.
    pub cpu: CpuId,
    /// The node of that processor.
    pub cpu_node: NodeId,
    /// To which slot.
    pub slot: SlotId,
    /// To which base page of the slot, from its start.
    pub base_page: BasePages,
    /// Where that base page lies, where known.
    pub page_node: Option<NodeId>,
    /// What served it.
    pub served_by: ServedBy,
    /// Accesses that the sample stands for, where the sampler knows.
    pub rate: Option<f64>,
    /// The sensor.
    pub sampler: Sampler,
}

/// The samples of one interval, and how many were lost to the cap.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// As they came.
    pub taken: Vec<Sample>,
    /// Dropped by the sensor's bound or by the kernel.
    pub lost: u64,
    /// The sensor that was at work; none where nobody asked or nothing can sample.
    #[serde(default)]
    pub sampler: Option<Sampler>,
    /// Share of the watched present memory that could have been sampled in the interval, where known: hinting faults
    /// come only from where the kernel's scan went.
    #[serde(default)]
    pub coverage: Option<Ratio>,
}
