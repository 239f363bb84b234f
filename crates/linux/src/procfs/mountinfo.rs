//! `/proc/PID/mountinfo`: where cgroup hierarchies are mounted, and which devices are tmpfs or hugetlbfs.

use super::maps::Device;
use super::{ParseError, decimal, lines};
use std::path::PathBuf;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The device that files in it show.
    pub device: Device,
    /// Which directory of the file system is its root.
    pub root: String,
    /// Where it is mounted.
    pub at: PathBuf,
    /// The type of the file system: `tmpfs`, `cgroup2`, ….
    pub kind: String,
    /// Options of the file system, where version 1 names its controllers.
    pub options: String,
}

impl Mount {
    /// Is `option` among the file system's options?
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|given| given == option)
    }
}

/// The mounts, in the file's order.
///
/// # Errors
/// With the first line that is not a mount.
pub fn parse(text: &[u8]) -> Result<Vec<Mount>, ParseError> {
    lines(text)
        .map(|(number, line)| {
            mount(line).ok_or(ParseError::new("mountinfo", number, "expected a mount"))
        })
        .collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    // id parent major:minor root mount-point options [optional fields …] - type source super-options
    let mut fields = line.split(|&byte| byte == b' ');
    let device = Device::parse(fields.by_ref().nth(2)?, decimal)?;
    let root = unescaped(fields.next()?);
    let at = PathBuf::from(unescaped(fields.next()?));
    fields.by_ref().find(|&field| field == b"-")?;
    let kind = unescaped(fields.next()?);
    let options = unescaped(fields.nth(1).unwrap_or_default());
    Some(Mount {
        device,
        root,
        at,
        kind,
        options,
    })
}

/// The kernel writes blanks, tabs, newlines and backslashes as `\040` and the like.
fn unescaped(field: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_fields_may_be_there_or_not() {
        let text = b"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            36 31 0:33 /a /mnt/a\\040b rw shared:1 master:2 - tmpfs none rw,size=4k\n";
        let mounts = parse(text).expect("two mounts");
        assert!(mounts[0].has_option("memory"));
        assert_eq!(mounts[0].kind, "cgroup");
        assert_eq!(mounts[1].at, PathBuf::from("/mnt/a b"));
        assert_eq!(
            (mounts[1].kind.as_str(), mounts[1].root.as_str()),
            ("tmpfs", "/a")
        );
        assert_eq!(
            mounts[1].device,
            Device {
                major: 0,
                minor: 33
            }
        );
    }

    #[test]
    fn the_error_names_the_line() {
        assert_eq!(parse(b"1 2 3\n").expect_err("short").line, 1);
    }
}
