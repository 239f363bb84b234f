//! `/proc/pagetypeinfo`, which only root may read: page blocks by what they are used for.

use super::{ParseError, decimal, lines, words};
use hugepilot_core::ids::NodeId;
use std::collections::BTreeMap;

/// Page blocks (each as large as a huge page, mostly) of a node by migrate type: `Movable`, `Unmovable`, ….
pub type Blocks = BTreeMap<String, u64>;

/// The page blocks of each node, summed over its zones.
///
/// # Errors
/// With the first line of that table that is not a zone with a number for each type.
pub fn parse(text: &[u8]) -> Result<BTreeMap<NodeId, Blocks>, ParseError> {
    let mut nodes: BTreeMap<NodeId, Blocks> = BTreeMap::new();
    let mut types: Vec<String> = Vec::new();
    for (number, line) in lines(text) {
        if let Some(names) = line.strip_prefix(b"Number of blocks type") {
            types = words(names)
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
        } else if !line.starts_with(b"Node") {
            types.clear(); // another node begins, with its free pages, which are not for us
        } else if !types.is_empty() {
            let wrong = ParseError::new("pagetypeinfo", number, "expected a zone's page blocks");
            let (node, counts) = zone(line, types.len()).ok_or(wrong)?;
            let sums = nodes.entry(node).or_default();
            for (name, count) in types.iter().zip(counts) {
                *sums.entry(name.clone()).or_default() += count;
            }
        }
    }
    Ok(nodes)
}

/// `Node 0, zone   Normal   4227   2608 …`
fn zone(line: &[u8], types: usize) -> Option<(NodeId, Vec<u64>)> {
    let mut fields = words(line);
    let node = decimal(fields.by_ref().nth(1)?.strip_suffix(b",")?)?;
    let counts = fields.skip(2).map(decimal).collect::<Option<Vec<u64>>>()?;
    let node = NodeId(u16::try_from(node).ok()?);
    (counts.len() == types).then_some((node, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"Page block order: 9\nPages per block:  512\n\n\
        Free pages count per migrate type at order       0      1 \n\
        Node    0, zone      DMA, type    Unmovable      0      0 \n\n\
        Number of blocks type     Unmovable      Movable \n\
        Node 0, zone      DMA            1            7 \n\
        Node 0, zone   Normal           10         2000 \n\
        Page block order: 9\nPages per block:  512\n\n\
        Free pages count per migrate type at order       0      1      2 \n\
        Node    1, zone   Normal, type    Unmovable      0      0     >100000 \n\n\
        Number of blocks type     Unmovable      Movable \n\
        Node 1, zone   Normal            3            4 \n";

    #[test]
    fn zones_of_a_node_add_up() {
        let nodes = parse(TEXT).expect("three zones");
        assert_eq!(nodes[&NodeId(0)]["Unmovable"], 11);
        assert_eq!(nodes[&NodeId(0)]["Movable"], 2007);
        assert_eq!(nodes[&NodeId(1)]["Movable"], 4);
    }

    #[test]
    fn the_error_names_the_line() {
        let short = b"Number of blocks type Unmovable Movable\nNode 0, zone DMA 1\n";
        assert_eq!(parse(short).expect_err("one number is missing").line, 2);
    }
}
