//! What a policy may ask a machine to do.

use crate::geometry::Order;
use crate::ids::{NodeId, Scope, SlotId};
use crate::units::{BasePages, Bytes};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A two-way switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// What the kernel does by itself: the baselines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinuxMode {
    /// `enabled=never`.
    Never,
    /// `enabled=madvise`.
    Madvise,
    /// `enabled=always`, faults get huge pages.
    Always,
    /// `enabled=always`, faults do not wait (`defrag=defer`), khugepaged scans without pause.
    Khugepaged,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Back the slot by one page of `order`.
    Collapse {
        /// The slot.
        slot: SlotId,
        /// The order wanted.
        order: Order,
    },
    /// Break the slot's pages above `order` down to it, and free what only they held.
    Split {
        /// The slot.
        slot: SlotId,
        /// The order that may remain.
        order: Order,
    },
    /// Move the whole slot to a node.
    MoveSlot {
        /// The slot.
        slot: SlotId,
        /// The node.
        to: NodeId,
    },
    /// Move single base pages of a slot.
    MovePages {
        /// The slot.
        slot: SlotId,
        /// Each base page (from the slot's start) with its node.
        pages: Vec<(BasePages, NodeId)>,
    },
    /// Split the slot and spread its base pages over nodes by weight.
    Interleave {
        /// The slot.
        slot: SlotId,
        /// Nodes with their weights.
        nodes: Vec<(NodeId, u32)>,
    },
    /// May page faults be served with huge pages?
    HugeAllocation {
        /// For whom.
        scope: Scope,
        /// On or off.
        switch: Switch,
    },
    /// May the kernel collapse by itself?
    Promotion {
        /// For whom.
        scope: Scope,
        /// On or off.
        switch: Switch,
    },
    /// Set the system as one of the baselines has it, until the run ends.
    Baseline {
        /// Which.
        mode: LinuxMode,
    },
    /// Compact a node's free memory.
    CompactNode {
        /// The node.
        node: NodeId,
    },
    /// Move everything out of one physical block.
    EvacuateBlock {
        /// The kernel's number of the memory block.
        block: u64,
    },
    /// Set the number of pages in a hugetlb pool.
    ResizePool {
        /// On one node, or on the whole machine.
        node: Option<NodeId>,
        /// Size of the pool's pages.
        page: Bytes,
        /// Pages wanted.
        pages: u64,
    },
}

impl Action {
    /// The slot that it is about, if it is about one.
    #[must_use]
    pub const fn slot(&self) -> Option<SlotId> {
        match self {
            Self::Collapse { slot, .. }
            | Self::Split { slot, .. }
            | Self::MoveSlot { slot, .. }
            | Self::MovePages { slot, .. }
            | Self::Interleave { slot, .. } => Some(*slot),
            Self::HugeAllocation { .. }
            | Self::Promotion { .. }
            | Self::Baseline { .. }
            | Self::CompactNode { .. }
            | Self::EvacuateBlock { .. }
            | Self::ResizePool { .. } => None,
        }
    }

    /// The nodes that it moves memory to, if it moves any.
    #[must_use]
    pub fn destinations(&self) -> Option<Vec<NodeId>> {
        match self {
            Self::MoveSlot { to, .. } => Some(vec![*to]),
            Self::MovePages { pages, .. } => Some(pages.iter().map(|(_, node)| *node).collect()),
            Self::Interleave { nodes, .. } => Some(nodes.iter().map(|(node, _)| *node).collect()),
            Self::Collapse { .. }
            | Self::Split { .. }
            | Self::HugeAllocation { .. }
            | Self::Promotion { .. }
            | Self::Baseline { .. }
            | Self::CompactNode { .. }
            | Self::EvacuateBlock { .. }
            | Self::ResizePool { .. } => None,
        }
    }

    /// Its name, as the log and the statistics write it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Collapse { .. } => "collapse",
            Self::Split { .. } => "split",
            Self::MoveSlot { .. } => "move_slot",
            Self::MovePages { .. } => "move_pages",
            Self::Interleave { .. } => "interleave",
            Self::HugeAllocation { .. } => "huge_allocation",
            Self::Promotion { .. } => "promotion",
            Self::Baseline { .. } => "baseline",
            Self::CompactNode { .. } => "compact_node",
            Self::EvacuateBlock { .. } => "evacuate_block",
            Self::ResizePool { .. } => "resize_pool",
        }
    }
}

impl fmt::Display for LinuxMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::Madvise => "madvise",
            Self::Always => "always",
            Self::Khugepaged => "khugepaged",
        })
    }
}
