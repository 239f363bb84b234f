//! `/proc/meminfo` and a node's `meminfo`, which has `Node 0 ` before each key.

use super::{ParseError, decimal, key_value, kilobytes, lines, words};
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::Bytes;

/// What we use of either file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meminfo {
    /// All memory.
    pub total: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// What could be had without swapping; not said of a node.
    pub available: Option<Bytes>,
    /// Anonymous memory in THPs.
    pub anon_huge: Bytes,
    /// All swap; not said of a node.
    pub swap_total: Option<Bytes>,
}

/// Either file.
///
/// # Errors
/// If a line is not `key: value`, or the total or the free memory is missing.
pub fn parse(text: &[u8]) -> Result<Meminfo, ParseError> {
    let mut found = Meminfo::default();
    let (mut total, mut free, mut last) = (None, None, 0);
    for (number, line) in lines(text) {
        let (key, value) =
            key_value(line).ok_or(ParseError::new("meminfo", number, "expected key: value"))?;
        let name = words(key).last().unwrap_or_default();
        let bytes = kilobytes(value).map(Bytes);
        match name {
            b"MemTotal" => total = bytes,
            b"MemFree" => free = bytes,
            b"MemAvailable" => found.available = bytes,
            b"SwapTotal" => found.swap_total = bytes,
            b"AnonHugePages" => found.anon_huge = bytes.unwrap_or(Bytes::ZERO),
            _ => {}
        }
        last = number;
    }
    let missing = |what| ParseError::new("meminfo", last, what);
    found.total = total.ok_or(missing("expected MemTotal somewhere"))?;
    found.free = free.ok_or(missing("expected MemFree somewhere"))?;
    Ok(found)
}

/// A list of numbers as `/sys` has it: `0-1,4`.
///
/// # Errors
/// If it is not such a list.
pub fn parse_node_list(text: &[u8]) -> Result<Vec<NodeId>, ParseError> {
    let wrong = ParseError::new("node list", 1, "expected numbers and ranges");
    let mut nodes = Vec::new();
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(nodes);
    }
    for part in text.split(|&byte| byte == b',') {
        let (first, last) = match part.iter().position(|&byte| byte == b'-') {
            Some(dash) => (&part[..dash], &part[dash + 1..]),
            None => (part, part),
        };
        let number = |word| decimal(word).and_then(|value| u16::try_from(value).ok());
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(wrong);
        };
        nodes.extend((first..=last).map(NodeId));
    }
    Ok(nodes)
}

/// A node's `distance` file: numbers, one for each node that is online.
///
/// # Errors
/// If a word is no number below 256.
pub fn parse_distances(text: &[u8]) -> Result<Vec<u8>, ParseError> {
    let number = |word: &[u8]| decimal(word).and_then(|value| u8::try_from(value).ok());
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(number)
        .collect::<Option<_>>()
        .ok_or(ParseError::new(
            "node distances",
            1,
            "expected numbers below 256",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_a_node() {
        let all = parse(b"MemTotal: 8 kB\nMemFree: 4 kB\nMemAvailable: 6 kB\nHugePages_Total: 3\n");
        let all = all.expect("meminfo");
        assert_eq!(
            (all.total, all.available),
            (Bytes::kib(8), Some(Bytes::kib(6)))
        );
        let node = parse(b"Node 0 MemTotal:  8 kB\nNode 0 MemFree:  5 kB\n").expect("node");
        assert_eq!((node.free, node.available), (Bytes::kib(5), None));
    }

    #[test]
    fn without_a_total_it_is_no_meminfo() {
        assert!(parse(b"MemFree: 4 kB\n").is_err());
        assert!(parse(b"").is_err());
    }

    #[test]
    fn lists_of_nodes() {
        let list = |text: &str| parse_node_list(text.as_bytes());
        assert_eq!(list("0-1,4\n"), Ok(vec![NodeId(0), NodeId(1), NodeId(4)]));
        assert_eq!(list("\n"), Ok(vec![]));
        assert!(list("0-x").is_err());
    }
}
