//! `/proc/PID/cgroup`, and the files of a memory cgroup of either version.

use super::{ParseError, decimal, lines, words};
use hugepilot_core::units::Bytes;

/// Which hierarchy controls a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// A hierarchy of the memory controller alone.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The memory cgroup of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// In which hierarchy.
    pub version: Version,
    /// Its path, from the root of the reader's cgroup namespace.
    pub path: String,
}

/// The memory cgroup in a `/proc/PID/cgroup` file: that of the version 1 controller where there is one, else the unified
/// one; `None` where there is neither.
///
/// # Errors
/// With the first line that is not `id:controllers:path`.
pub fn parse_membership(text: &[u8]) -> Result<Option<Membership>, ParseError> {
    parse_membership_of(text, "memory")
}

/// The same for another controller.
///
/// # Errors
/// With the first line that is not `id:controllers:path`.
pub fn parse_membership_of(
    text: &[u8],
    controller: &str,
) -> Result<Option<Membership>, ParseError> {
    let mut unified = None;
    for (number, line) in lines(text) {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (Some(id), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(ParseError::new(
                "cgroup",
                number,
                "expected id:controllers:path",
            ));
        };
        let path = String::from_utf8_lossy(path).into_owned();
        if controllers
            .split(|&byte| byte == b',')
            .any(|name| name == controller.as_bytes())
        {
            return Ok(Some(Membership {
                version: Version::V1,
                path,
            }));
        }
        if id == b"0" && controllers.is_empty() {
            unified = Some(Membership {
                version: Version::V2,
                path,
            });
        }
    }
    Ok(unified)
}

/// A limit of version 2: a number or `max`, which is none.
///
/// # Errors
/// If it is neither.
pub fn parse_limit(text: &[u8]) -> Result<Option<Bytes>, ParseError> {
    match text.trim_ascii() {
        b"max" => Ok(None),
        number => decimal(number)
            .map(|bytes| Some(Bytes(bytes)))
            .ok_or(ParseError::new("memory.max", 1, "expected bytes or max")),
    }
}

/// Limits of version 1 at or above this mean none: the kernel's `PAGE_COUNTER_MAX`, less at most one page of 64 KiB.
const UNLIMITED_V1: u64 = (1 << 63) - (64 << 10);

/// A limit of version 1: a number so large that it is none, or a number.
///
/// # Errors
/// If it is no number.
pub fn parse_limit_v1(text: &[u8]) -> Result<Option<Bytes>, ParseError> {
    let bytes = parse_counter(text)?;
    Ok((bytes.0 < UNLIMITED_V1).then_some(bytes))
}

/// A file that holds one number of bytes.
///
/// # Errors
/// If it is no number.
pub fn parse_counter(text: &[u8]) -> Result<Bytes, ParseError> {
    decimal(text.trim_ascii()).map(Bytes).ok_or(ParseError::new(
        "memory.current",
        1,
        "expected a number of bytes",
    ))
}

/// What we use of `memory.stat`, of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStat {
    /// Anonymous memory in THPs, descendants included.
    pub anon_thp: Option<Bytes>,
    /// Anonymous memory, descendants included.
    pub anon: Option<Bytes>,
    /// Version 1: the lowest limit of the cgroup and its ancestors.
    pub hierarchical_limit: Option<Bytes>,
}

/// A `memory.stat` file.
///
/// # Errors
/// With the first line that is not `name number`.
pub fn parse_stat(text: &[u8]) -> Result<MemoryStat, ParseError> {
    let mut stat = MemoryStat::default();
    for (number, line) in lines(text) {
        let wrong = ParseError::new("memory.stat", number, "expected a name and a number");
        let mut fields = words(line);
        let (Some(name), Some(value)) = (fields.next(), fields.next().and_then(decimal)) else {
            return Err(wrong);
        };
        match name {
            b"anon_thp" | b"total_rss_huge" => stat.anon_thp = Some(Bytes(value)),
            b"anon" | b"total_rss" => stat.anon = Some(Bytes(value)),
            b"hierarchical_memory_limit" if value < UNLIMITED_V1 => {
                stat.hierarchical_limit = Some(Bytes(value));
            }
            _ => {}
        }
    }
    Ok(stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(text: &str) -> Option<(Version, String)> {
        let found = parse_membership(text.as_bytes()).expect(text);
        found.map(|found| (found.version, found.path))
    }

    #[test]
    fn version_one_wins_where_it_controls_memory() {
        let hybrid = "9:name=systemd:/\n4:cpu,memory:/a:b\n0::/c\n";
        assert_eq!(membership(hybrid), Some((Version::V1, "/a:b".into())));
        assert_eq!(
            membership("0::/user.slice\n"),
            Some((Version::V2, "/user.slice".into()))
        );
        assert_eq!(membership("1:cpu:/\n"), None);
        assert_eq!(
            parse_membership(b"0::/\nx\n").expect_err("no fields").line,
            2
        );
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(parse_limit(b"max\n"), Ok(None));
        assert_eq!(parse_limit(b"4096\n"), Ok(Some(Bytes(4096))));
        assert!(parse_limit(b"lots\n").is_err());
        assert_eq!(parse_limit_v1(b"9223372036854771712\n"), Ok(None));
        assert_eq!(parse_limit_v1(b"4096\n"), Ok(Some(Bytes(4096))));
    }

    #[test]
    fn stat_of_both_versions() {
        let two = parse_stat(b"anon 8192\nfile 0\nanon_thp 4096\n").expect("v2");
        assert_eq!(
            (two.anon, two.anon_thp),
            (Some(Bytes(8192)), Some(Bytes(4096)))
        );
        let one =
            parse_stat(b"rss 1\ntotal_rss 9\ntotal_rss_huge 4\nhierarchical_memory_limit 77\n");
        let one = one.expect("v1");
        assert_eq!(one.hierarchical_limit, Some(Bytes(77)));
        assert_eq!((one.anon, one.anon_thp), (Some(Bytes(9)), Some(Bytes(4))));
    }
}
