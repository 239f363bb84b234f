//! On which nodes the pages of a slot lie.

use crate::sys::{Errno, move_pages};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{NodeId, Pid};
use hugepilot_core::units::BasePages;
use std::collections::BTreeMap;

/// Base pages of the slot at `address` by node; absent ones are left out.
///
/// # Errors
/// If the process is gone, or we may not.
pub fn nodes_of_slot(
    pid: Pid,
    address: u64,
    geometry: &Geometry,
) -> Result<Vec<(NodeId, BasePages)>, Errno> {
    let addresses: Vec<u64> = (0..geometry.slot_pages().0)
        .map(|page| address + (page << geometry.base_shift))
        .collect();
    let mut status = Vec::new();
    move_pages::query(pid, &addresses, &mut status)?;
    Ok(by_node(&status))
}

/// Negative statuses are errors of single pages: absent, or of a kind that has no node.
fn by_node(status: &[move_pages::Status]) -> Vec<(NodeId, BasePages)> {
    let mut nodes: BTreeMap<NodeId, BasePages> = BTreeMap::new();
    for node in status
        .iter()
        .filter_map(|&status| u16::try_from(status).ok())
    {
        *nodes.entry(NodeId(node)).or_default() += BasePages(1);
    }
    nodes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_pages_are_on_no_node() {
        let counted = by_node(&[0, 1, -2, 0, -14]);
        assert_eq!(
            counted,
            [(NodeId(0), BasePages(2)), (NodeId(1), BasePages(1))]
        );
    }
}
