//! The `PAGEMAP_SCAN` ioctl (Linux 6.7) on `/proc/PID/pagemap`: page tables as runs of pages of one category.

use super::{Errno, checked};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Categories of pages, as bits.
pub mod category {
    /// Page cache or shared anonymous memory.
    pub const FILE: u64 = 1 << 2;
    /// Present in the page table.
    pub const PRESENT: u64 = 1 << 3;
    /// Swapped out, under migration, or a marker.
    pub const SWAPPED: u64 = 1 << 4;
    /// The shared zero page.
    pub const PFNZERO: u64 = 1 << 5;
    /// Mapped by a PMD (or above): THP or hugetlb.
    pub const HUGE: u64 = 1 << 6;
    /// A guard marker (Linux 6.15).
    pub const GUARD: u64 = 1 << 8;
    /// A bit that no kernel knows: every `PAGEMAP_SCAN` refuses it with `EINVAL`, which proves that it is there.
    pub const UNKNOWN: u64 = 1 << 62;
}

/// A run of pages of one combination of categories: the kernel's `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// First address.
    pub start: u64,
    /// Address past the last page.
    pub end: u64,
    /// Categories, of those asked for.
    pub categories: u64,
}

/// What to scan: pages that have one of `any_of`, told apart by `told`.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// First address, aligned to a base page.
    pub start: u64,
    /// Address past the last page.
    pub end: u64,
    /// Pages to report at the most, in base pages; 0 is no limit.
    pub pages_max: u64,
    /// Categories of which a page must have at least one.
    pub any_of: u64,
    /// Categories to report.
    pub told: u64,
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610;
const ARG_BYTES: u64 = 96;
const _: () = assert!(size_of::<ScanArg>() == 96);

/// Fills `runs` from its start. Returns how many runs it wrote and the address where the walk ended: the request's end,
/// or less where `runs` was full or `pages_max` reached.
///
/// # Errors
/// The kernel's errno: `ENOTTY` where there is no such call, `EINVAL` for a category it does not know, `ESRCH` where the
/// process is gone.
pub fn scan(
    pagemap: BorrowedFd<'_>,
    request: &Request,
    runs: &mut [Run],
) -> Result<(usize, u64), Errno> {
    let (Ok(vec), Ok(vec_len)) = (
        u64::try_from(runs.as_mut_ptr().expose_provenance()),
        u64::try_from(runs.len()),
    ) else {
        return Err(Errno::INVAL);
    };
    let mut arg = ScanArg {
        size: ARG_BYTES,
        flags: 0,
        start: request.start,
        end: request.end,
        walk_end: 0,
        vec,
        vec_len,
        max_pages: request.pages_max,
        category_inverted: 0,
        category_mask: 0,
        category_anyof_mask: request.any_of,
        return_mask: request.told,
    };
    // SAFETY: `arg` is the structure that this ioctl reads and writes, of the size it says; `vec` points to `vec_len`
    // entries that are ours alone until the call returns. On another kind of file the ioctl fails.
    let returned = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
    let written = checked(returned.into())?;
    Ok((written, arg.walk_end))
}
