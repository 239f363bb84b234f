//! Pages as their samples show them, at base-page or at huge grain.

use crate::ids::{NodeId, SlotId};
use crate::units::BasePages;
use serde::{Deserialize, Serialize};

/// What is taken as one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grain {
    /// Each base page.
    Base,
    /// Each slot.
    Huge,
}

/// What one node's processors did with a page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeUse {
    /// The accessing node.
    pub node: NodeId,
    /// Samples from it.
    pub samples: u32,
    /// Accesses that they stand for.
    pub weight: f64,
}

/// One page and who used it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageUse {
    /// The slot that it is, or is part of.
    pub slot: SlotId,
    /// Which base page of the slot; none where the slot is taken as one page.
    pub page: Option<BasePages>,
    /// Where it lies; none where that is not known, or not one node.
    pub home: Option<NodeId>,
    /// By accessing node, sorted.
    pub by_node: Vec<NodeUse>,
    /// Threads that accessed it.
    pub threads: u32,
    /// Accesses of which it is known where they went.
    pub placed_weight: f64,
    /// Those of them that stayed on the accessing node.
    pub local_weight: f64,
    /// At least one sample was served by memory, as far as anybody knows.
    pub from_memory: bool,
}

impl PageUse {
    /// Samples of it.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.by_node.iter().map(|of| of.samples).sum()
    }

    /// Accesses to it.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.by_node.iter().map(|of| of.weight).sum()
    }

    /// The node that all samples came from, if it was one.
    #[must_use]
    pub fn single_node(&self) -> Option<NodeId> {
        match self.by_node.as_slice() {
            [only] => Some(only.node),
            [] | [_, _, ..] => None,
        }
    }

    /// Nodes that accessed it.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.by_node.len()
    }
}
