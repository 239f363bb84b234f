//! `/proc/PID/maps`: the regions of a process.

use super::{ParseError, decimal, hexadecimal, lines};

/// A device number in two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// The driver's number; 0 for file systems without a block device.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl Device {
    /// As one number, as `stat` gives it.
    #[must_use]
    pub fn number(self) -> u64 {
        rustix::fs::makedev(self.major, self.minor)
    }

    /// `8:1`, in hexadecimal or decimal as `radix` says; `None` if it is anything else.
    pub(super) fn parse(text: &[u8], number: fn(&[u8]) -> Option<u64>) -> Option<Self> {
        let colon = text.iter().position(|&byte| byte == b':')?;
        let part = |part| number(part).and_then(|value| u32::try_from(value).ok());
        Some(Self {
            major: part(&text[..colon])?,
            minor: part(&text[colon + 1..])?,
        })
    }
}

/// What a region's pages may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent flags, as the kernel prints them"
)]
pub struct Permissions {
    /// `r`
    pub read: bool,
    /// `w`
    pub write: bool,
    /// `x`
    pub execute: bool,
    /// `s`, not `p`
    pub shared: bool,
}

impl Permissions {
    fn parse(text: &[u8]) -> Option<Self> {
        let flag = |byte: u8, set: u8, clear: u8| match byte {
            byte if byte == set => Some(true),
            byte if byte == clear => Some(false),
            _ => None,
        };
        let &[read, write, execute, shared] = text else {
            return None;
        };
        Some(Self {
            read: flag(read, b'r', b'-')?,
            write: flag(write, b'w', b'-')?,
            execute: flag(execute, b'x', b'-')?,
            shared: flag(shared, b's', b'p')?,
        })
    }

    /// May nobody touch it?
    #[must_use]
    pub const fn none(self) -> bool {
        !(self.read || self.write || self.execute)
    }
}

/// One region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// First address.
    pub start: u64,
    /// Address past the last byte.
    pub end: u64,
    /// Permissions.
    pub permissions: Permissions,
    /// Where in the file it starts, in bytes.
    pub offset: u64,
    /// The file's device.
    pub device: Device,
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// Path or `[name]`, without ` (deleted)`; newlines are printed by the kernel as `\012`.
    pub name: &'a [u8],
    /// Was the file unlinked?
    pub deleted: bool,
}

/// The regions in a `maps` file, in its order.
///
/// # Errors
/// With the first line that is not a region.
pub fn parse(text: &[u8]) -> Result<Vec<Entry<'_>>, ParseError> {
    lines(text)
        .map(|(number, line)| {
            entry(line).ok_or(ParseError::new("maps", number, "expected a region"))
        })
        .collect()
}

/// One line; `None` if it is not a region.
pub(super) fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let range = fields.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (
        hexadecimal(&range[..dash])?,
        hexadecimal(&range[dash + 1..])?,
    );
    if start >= end {
        return None;
    }
    let permissions = Permissions::parse(fields.next()?)?;
    let offset = hexadecimal(fields.next()?)?;
    let device = Device::parse(fields.next()?, hexadecimal)?;
    let inode = decimal(fields.next()?)?;
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    Some(Entry {
        start,
        end,
        permissions,
        offset,
        device,
        inode,
        name,
        deleted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Entry<'_> {
        entry(line.as_bytes()).expect(line)
    }

    #[test]
    fn a_heap() {
        let heap =
            one("55d0c8a6e000-55d0c8a8f000 rw-p 00000000 00:00 0                          [heap]");
        assert_eq!((heap.start, heap.end), (0x55d0_c8a6_e000, 0x55d0_c8a8_f000));
        assert_eq!(heap.name, b"[heap]");
        assert!(heap.permissions.write && !heap.permissions.shared && !heap.permissions.none());
    }

    #[test]
    fn a_deleted_file_with_blanks_in_its_name() {
        let file = one("7f00-8f00 r--s 00002000 fe:01 4711    /tmp/a b (x) (deleted)");
        assert_eq!(file.name, b"/tmp/a b (x)");
        assert!(file.deleted && file.permissions.shared);
        assert_eq!((file.offset, file.inode), (0x2000, 4711));
        assert_eq!(
            file.device,
            Device {
                major: 0xfe,
                minor: 1
            }
        );
    }

    #[test]
    fn anonymous_memory_has_no_name() {
        assert_eq!(one("1000-2000 ---p 00000000 00:00 0 ").name, b"");
        assert_eq!(one("1000-2000 ---p 00000000 00:00 0").name, b"");
    }

    #[test]
    fn the_error_names_the_line() {
        let text = b"1000-2000 ---p 00000000 00:00 0\nnonsense\n";
        assert_eq!(
            parse(text),
            Err(ParseError::new("maps", 2, "expected a region"))
        );
        assert!(parse(b"2000-1000 ---p 00000000 00:00 0").is_err());
    }
}
