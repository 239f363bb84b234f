//! `/proc/PID/status`: whose a process is, and whether it opted out of THP.

use super::meminfo::parse_node_list;
use super::{ParseError, decimal, key_value, lines, words};
use hugepilot_core::ids::NodeId;

/// What we use of a process's `status`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// `THP_enabled`: false where the process opted out; `None` on a kernel that does not say.
    pub thp_enabled: Option<bool>,
    /// The real user id.
    pub uid: Option<u32>,
    /// Its ids, from the namespace of the reader inwards; more than one for a process of an inner namespace.
    pub namespace_pids: Vec<u32>,
    /// The nodes that it may have memory on (its cpuset's); `None` on a kernel that does not say.
    pub nodes_allowed: Option<Vec<NodeId>>,
    /// Bytes locked in memory.
    pub locked: Option<u64>,
    /// Bytes of shared memory resident.
    pub resident_shmem: Option<u64>,
    /// Bytes of anonymous memory resident.
    pub resident_anonymous: Option<u64>,
    /// Bytes swapped out.
    pub swapped: Option<u64>,
    /// Bytes of hugetlb pages that it maps, of all sizes.
    pub hugetlb: Option<u64>,
}

/// One `status` file. Lines that it does not know are passed over.
///
/// # Errors
/// With the first known key whose value is not understood.
pub fn parse(text: &[u8]) -> Result<Status, ParseError> {
    let mut status = Status::default();
    for (number, line) in lines(text) {
        let Some((key, value)) = key_value(line) else {
            continue;
        };
        take(&mut status, key, value).ok_or(ParseError::new(
            "status",
            number,
            "expected another value for this key",
        ))?;
    }
    Ok(status)
}

fn take(status: &mut Status, key: &[u8], value: &[u8]) -> Option<()> {
    match key {
        b"THP_enabled" => status.thp_enabled = Some(decimal(value)? != 0),
        b"Uid" => status.uid = Some(small(words(value).next()?)?),
        b"NSpid" => status.namespace_pids = words(value).map(small).collect::<Option<_>>()?,
        b"Mems_allowed_list" => {
            status.nodes_allowed = Some(parse_node_list(value).ok()?);
        }
        b"VmLck" => status.locked = Some(super::kilobytes(value)?),
        b"RssShmem" => status.resident_shmem = Some(super::kilobytes(value)?),
        b"RssAnon" => status.resident_anonymous = Some(super::kilobytes(value)?),
        b"HugetlbPages" => status.hugetlb = Some(super::kilobytes(value)?),
        b"VmSwap" => status.swapped = Some(super::kilobytes(value)?),
        _ => {}
    }
    Some(())
}

fn small(word: &[u8]) -> Option<u32> {
    u32::try_from(decimal(word)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_use_is_found() {
        let text = b"Name:\tx: y\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t812\t1\nVmLck:\t  8 kB\nTHP_enabled:\t0\nMems_allowed_list:\t0,2-3\n";
        let status = parse(text).expect("a status file");
        assert_eq!(status.thp_enabled, Some(false));
        assert_eq!(status.uid, Some(1000));
        assert_eq!(status.namespace_pids, [812, 1]);
        assert_eq!(status.locked, Some(8192));
        let nodes = [0, 2, 3].map(NodeId).to_vec();
        assert_eq!(status.nodes_allowed, Some(nodes));
    }

    #[test]
    fn a_kernel_thread_has_no_memory_lines() {
        assert_eq!(
            parse(b"Name:\tkthreadd\n").expect("short").thp_enabled,
            None
        );
    }

    #[test]
    fn the_error_names_the_line() {
        let error = parse(b"Name:\tx\nTHP_enabled:\tmaybe\n").expect_err("not a number");
        assert_eq!(error.line, 2);
    }
}
