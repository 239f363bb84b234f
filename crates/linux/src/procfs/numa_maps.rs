//! `/proc/PID/numa_maps`: the memory policy of each region.
//!
//! The kernel walks all page tables to print it, with the target's `mmap` lock held for a region at a time: read it seldom.

use super::{ParseError, lines, words};

/// Where regions begin whose policy binds them to nodes, in the order of the file.
///
/// A policy is printed as `bind:0-1`, with its flags as `bind=static:0-1`; a region without one of its own shows its
/// task's.
///
/// # Errors
/// If a line does not begin with an address and a policy.
pub fn parse_bound(text: &[u8]) -> Result<Vec<u64>, ParseError> {
    let mut bound = Vec::new();
    for (number, line) in lines(text) {
        let mut words = words(line);
        let start = words.next().and_then(address);
        let (Some(start), Some(policy)) = (start, words.next()) else {
            let what = "expected an address and a policy";
            return Err(ParseError::new("numa_maps", number, what));
        };
        if policy.starts_with(b"bind:") || policy.starts_with(b"bind=") {
            bound.push(start);
        }
    }
    Ok(bound)
}

fn address(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_are_bound_are_found() {
        let text = b"5581a000 default file=/bin/x mapped=3 N0=3 kernelpagesize_kB=4\n\
            7f10000000 bind:1 anon=512 dirty=512 N1=512 kernelpagesize_kB=4\n\
            7f20000000 bind=static:0-1 anon=1\n\
            7f30000000 interleave:0-3 anon=1\n\
            7f40000000 prefer:1\n";
        assert_eq!(parse_bound(text), Ok(vec![0x7f_1000_0000, 0x7f_2000_0000]));
        assert!(parse_bound(b"nonsense").is_err());
    }
}
