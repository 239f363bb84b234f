//! Page sizes, found out at run time: the kernel's default from `/proc/meminfo`, all others from sysfs.

use crate::options;
use crate::say::{Level, Piece, say};
use crate::sys::{self, Directory, Errno};
use crate::text::{self, Buffer};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

const MEMINFO: &CStr = c"/proc/meminfo";
/// With the slash at its end: under this very name others interpose it.
const SYSFS: &CStr = c"/sys/kernel/mm/hugepages/";
/// Bytes of a line of `/proc/meminfo` that matter; the kernel's are shorter than 40.
const LINE_MAX: usize = 80;
const BYTES_PER_KIB: usize = 1024;

/// The size of a huge page in bytes: a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize(usize);

impl PageSize {
    /// Of this many bytes, if that is a power of two.
    pub fn new(bytes: usize) -> Option<Self> {
        bytes.is_power_of_two().then_some(Self(bytes))
    }

    /// Bytes.
    pub fn bytes(self) -> usize {
        self.0
    }

    /// The power of two.
    pub fn log2(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The next whole number of pages, unless that is past the end of all addresses.
    pub fn round_up(self, length: usize) -> Option<usize> {
        let mask = self.0.wrapping_sub(1);
        Some(length.checked_add(mask)? & !mask)
    }
}

/// The size that is used where none is named, once it was found out; before that, 0.
static DEFAULT: AtomicUsize = AtomicUsize::new(0);

/// The size that is used where none is named: `HUGETLB_DEFAULT_PAGE_SIZE`, or else the kernel's default. That there is
/// none is not remembered.
pub fn default() -> Result<PageSize, Errno> {
    if let Some(known) = PageSize::new(DEFAULT.load(Ordering::Relaxed)) {
        return Ok(known);
    }
    let found = asked_for().or_else(kernel_default).ok_or(Errno::ENOSYS)?;
    DEFAULT.store(found.bytes(), Ordering::Relaxed);
    Ok(found)
}

/// Forgets the default, so that it is found out anew.
pub fn forget_default() {
    DEFAULT.store(0, Ordering::Relaxed);
}

/// The size that the environment asks for, if the kernel has it. If not, that is said, and the kernel's default serves.
fn asked_for() -> Option<PageSize> {
    let bytes = options::page_size()?;
    let supported = PageSize::new(bytes).filter(|size| exists(*size));
    if supported.is_none() {
        let words = "HUGETLB_DEFAULT_PAGE_SIZE: the kernel has no huge pages of so many bytes: ";
        say(Level::Error, &[Piece::Words(words), Piece::Number(bytes)]);
    }
    supported
}

/// Does the kernel have this size?
pub fn exists(size: PageSize) -> bool {
    let mut path = Buffer::<LINE_MAX>::new();
    path.push_all(SYSFS.to_bytes());
    path.push_all(b"hugepages-");
    path.push_number(size.bytes() / BYTES_PER_KIB);
    path.push_all(b"kB");
    path.as_c_str().is_some_and(sys::exists) || kernel_default() == Some(size)
}

/// The kernel's default, if it has huge pages at all.
pub fn kernel_default() -> Option<PageSize> {
    let file = sys::open_to_read(MEMINFO).ok()?;
    let mut line = Buffer::<LINE_MAX>::new();
    let mut found = None;
    read_bytes(&file, |byte| {
        if byte == b'\n' {
            found = found.or_else(|| default_in(line.cut()));
            line.clear();
        } else {
            line.push(byte);
        }
    })
    .ok()?;
    found
}

fn default_in(line: &[u8]) -> Option<PageSize> {
    let value = line.strip_prefix(b"Hugepagesize:")?;
    let (count, unit) = text::number(value)?;
    if unit.trim_ascii() != b"kB" {
        return None;
    }
    PageSize::new(count.checked_mul(BYTES_PER_KIB)?)
}

/// All bytes of a file, one by one. It is read in whole buffers, as a file may be of any length.
pub fn read_bytes(file: &sys::File, mut take: impl FnMut(u8)) -> Result<(), Errno> {
    let mut buffer = [0_u8; 4096];
    loop {
        let count = sys::read(file, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        for byte in buffer.iter().take(count) {
            take(*byte);
        }
    }
}

/// Gives every huge page size to `take`, the kernel's default first.
///
/// # Errors
/// Where sysfs has the directory and it cannot be opened.
pub fn each(mut take: impl FnMut(PageSize)) -> Result<(), Errno> {
    let default = kernel_default();
    if let Some(default) = default {
        take(default);
    }
    let mut directory = match Directory::open(SYSFS) {
        Ok(directory) => directory,
        Err(Errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut size = None;
    while directory.next(|name| size = size_in(name)) {
        if let Some(other) = size.filter(|size| Some(*size) != default) {
            take(other);
        }
    }
    Ok(())
}

/// `hugepages-2048kB`
fn size_in(name: &[u8]) -> Option<PageSize> {
    let (count, unit) = text::number(name.strip_prefix(b"hugepages-")?)?;
    if unit != b"kB" {
        return None;
    }
    PageSize::new(count.checked_mul(BYTES_PER_KIB)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_default_stands_in_its_line() {
        let size = PageSize::new(2 * MIB);
        assert_eq!(default_in(b"Hugepagesize:       2048 kB"), size);
        for line in [
            "Hugepagesize: 2048",
            "HugePages_Total: 3",
            "Hugepagesize: 3 kB",
            "",
        ] {
            assert_eq!(default_in(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn sysfs_names_sizes() {
        assert_eq!(size_in(b"hugepages-1048576kB"), PageSize::new(1024 * MIB));
        for name in [
            ".",
            "hugepages-",
            "hugepages-2MB",
            "hugepages-99999999999999999999kB",
        ] {
            assert_eq!(size_in(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn lengths_round_up_or_do_not_exist() {
        let size = PageSize::new(2 * MIB).expect("a power of two");
        for (length, rounded) in [(0, Some(0)), (1, Some(2 * MIB)), (2 * MIB, Some(2 * MIB))] {
            assert_eq!(size.round_up(length), rounded);
        }
        assert_eq!(size.round_up(usize::MAX), None);
        assert_eq!(
            size.round_up(usize::MAX - 2 * MIB + 1),
            Some(usize::MAX - 2 * MIB + 1)
        );
        assert_eq!(size.log2(), 21);
    }
}
