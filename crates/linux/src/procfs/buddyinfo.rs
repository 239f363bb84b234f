//! `/proc/buddyinfo`: free blocks by order.

use super::{ParseError, decimal, lines, words};
use hugepilot_core::ids::NodeId;
use std::collections::BTreeMap;

/// Free blocks of each node, summed over its zones: `blocks[n]` of order n.
///
/// # Errors
/// With the first line that is not a zone.
pub fn parse(text: &[u8]) -> Result<BTreeMap<NodeId, Vec<u64>>, ParseError> {
    let mut nodes: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
    for (number, line) in lines(text) {
        let (node, blocks) =
            zone(line).ok_or(ParseError::new("buddyinfo", number, "expected a zone"))?;
        let sums = nodes.entry(node).or_default();
        sums.resize(sums.len().max(blocks.len()), 0);
        for (sum, blocks) in sums.iter_mut().zip(blocks) {
            *sum = sum.saturating_add(blocks);
        }
    }
    Ok(nodes)
}

/// `Node 0, zone   Normal   4227   2608 …`
fn zone(line: &[u8]) -> Option<(NodeId, Vec<u64>)> {
    let mut fields = words(line);
    let node = fields
        .by_ref()
        .nth(1)
        .and_then(|node| decimal(node.strip_suffix(b",")?))?;
    let node = NodeId(u16::try_from(node).ok()?);
    let blocks = fields.skip(2).map(decimal).collect::<Option<Vec<u64>>>()?;
    Some((node, blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_of_a_node_add_up() {
        let text = b"Node 0, zone      DMA      0      1 \nNode 0, zone   Normal   4      2 \n\
            Node 1, zone   Normal   7      0 \n";
        let nodes = parse(text).expect("three zones");
        assert_eq!(nodes[&NodeId(0)], [4, 3]);
        assert_eq!(nodes[&NodeId(1)], [7, 0]);
    }

    #[test]
    fn the_error_names_the_line() {
        assert_eq!(
            parse(b"Node 0, zone DMA 1\nNode x\n")
                .expect_err("no zone")
                .line,
            2
        );
    }
}
