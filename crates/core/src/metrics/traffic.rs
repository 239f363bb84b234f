//! The traffic of one round, as it went when it was sampled: pages that moved since do not change it.

use super::estimate::{Estimate, Weights};
use super::measures::{Imbalance, Lar, imbalance};
use super::page_use::NodeUse;
use super::table::Volume;
use crate::ids::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Accesses sampled in a round, by where they went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    to: BTreeMap<NodeId, NodeUse>,
    local: f64,
    samples: u64,
}

impl Traffic {
    /// Adds one sample that stands for `weight` accesses.
    pub fn add(&mut self, from: NodeId, to: Option<NodeId>, weight: f64) {
        self.samples += 1;
        let Some(node) = to else { return };
        let of = self.to.entry(node).or_insert(NodeUse {
            node,
            samples: 0,
            weight: 0.0,
        });
        of.samples += 1;
        of.weight += weight;
        self.local += if node == from { weight } else { 0.0 };
    }

    /// Samples, also those of which it is not known where they went.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// All accesses that went somewhere known.
    #[must_use]
    pub fn accesses(&self) -> f64 {
        self.to.values().map(|of| of.weight).sum()
    }

    /// The share of them that went to `node`.
    #[must_use]
    pub fn share(&self, node: NodeId) -> f64 {
        let all = self.accesses();
        let of = self.to.get(&node).map_or(0.0, |of| of.weight);
        if all > 0.0 { of / all } else { 0.0 }
    }

    /// LAR of the round; `None` where nothing is known to have gone anywhere.
    #[must_use]
    pub fn lar(&self) -> Option<Lar> {
        let mut weights = Weights::default();
        for of in self.to.values() {
            weights.add(of.weight, of.samples);
        }
        let all = self.accesses();
        let share = (self.local / all).min(1.0);
        (all > 0.0).then(|| Lar(Estimate::share(share, weights.effective())))
    }

    /// Imbalance of the round over `nodes`, as [`imbalance`].
    #[must_use]
    pub fn imbalance(&self, nodes: &[NodeId], volume: Volume) -> Option<Imbalance> {
        imbalance(&self.to, nodes, volume)
    }
}
