//! `/proc/PID/numa_maps`: on which nodes each region's pages lie. For `inspect` alone, since the kernel walks all page
//! tables for it.

use hugepilot_core::ids::NodeId;
use hugepilot_core::units::Bytes;
use std::collections::BTreeMap;

/// Resident bytes by node of each region, by the region's first address. Lines that are not understood are left out:
/// what cannot be said of one region is no reason not to show the others.
pub fn parse(text: &str) -> BTreeMap<u64, BTreeMap<NodeId, Bytes>> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(u64, BTreeMap<NodeId, Bytes>)> {
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut pages: Vec<(NodeId, u64)> = Vec::new();
    let mut page = Bytes::kib(4);
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        if key == "kernelpagesize_kB" {
            page = Bytes::kib(value.parse().ok()?);
        } else if let Some(node) = key.strip_prefix('N').and_then(|node| node.parse().ok()) {
            pages.push((NodeId(node), value.parse().ok()?));
        }
    }
    Some((
        start,
        pages
            .into_iter()
            .map(|(node, count)| (node, Bytes(count * page.0)))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_in_their_own_size() {
        let text = "7f0000000000 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f0010000000 default file=/anon_hugepage\\040(deleted) huge anon=4 N1=4 kernelpagesize_kB=2048\n\
                    garbage\n";
        let regions = parse(text);
        assert_eq!(regions.len(), 2);
        assert_eq!(regions[&0x7f00_0000_0000][&NodeId(0)], Bytes::kib(8));
        assert_eq!(regions[&0x7f00_1000_0000][&NodeId(1)], Bytes::mib(8));
    }
}
