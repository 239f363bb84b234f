//! What an action moves where, and whether there is room.

use super::LawParams;
use crate::action::Action;
use crate::ids::NodeId;
use crate::units::{Bytes, Ratio};
use crate::world::World;
use std::collections::BTreeMap;

/// The bytes that an action moves to each node, at the most.
pub(super) fn moves_of(world: &World, action: &Action) -> BTreeMap<NodeId, Bytes> {
    let geometry = &world.geometry;
    let mut moves = BTreeMap::new();
    match action {
        Action::MoveSlot { to, .. } => {
            moves.insert(*to, geometry.slot());
        }
        Action::MovePages { pages, .. } => {
            for (_, to) in pages {
                *moves.entry(*to).or_default() += geometry.base_page();
            }
        }
        Action::Interleave { nodes, .. } => {
            let all: u64 = nodes.iter().map(|(_, weight)| u64::from(*weight)).sum();
            for (node, weight) in nodes {
                let part = Ratio::of(u64::from(*weight), all);
                moves.insert(*node, geometry.slot().share(part));
            }
        }
        Action::Collapse { .. }
        | Action::Split { .. }
        | Action::HugeAllocation { .. }
        | Action::Promotion { .. }
        | Action::Baseline { .. }
        | Action::CompactNode { .. }
        | Action::EvacuateBlock { .. }
        | Action::ResizePool { .. } => {}
    }
    moves
}

/// Would `bytes` more leave too little free memory on `node`?
pub(super) fn is_node_full(world: &World, params: &LawParams, node: NodeId, bytes: Bytes) -> bool {
    let found = world.nodes.iter().find(|of| of.node == node);
    found.is_some_and(|of| of.free < bytes + of.total.share(params.node_free_share))
}
