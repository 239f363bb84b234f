//! The `PROCMAP_QUERY` ioctl (Linux 6.11) on `/proc/PID/maps`: one region, without reading them all.

use super::{Errno, checked};
use hugepilot_core::units::Bytes;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One region as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// Address past the last byte.
    pub end: u64,
    /// Can it be written?
    pub writable: bool,
    /// Is it a shared mapping?
    pub shared: bool,
    /// The size of its pages: above the base page for hugetlb alone.
    pub page: Bytes,
    /// Where in the file it starts.
    pub offset: u64,
    /// The file's inode; 0 without a file.
    pub inode: u64,
}

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl = 0xC068_6611;
const QUERY_BYTES: u64 = 104;
const _: () = assert!(size_of::<Query>() == 104);
const WRITABLE: u64 = 2;
const SHARED: u64 = 8;

/// The region that holds `address`, if one does.
///
/// # Errors
/// The kernel's errno: `ENOTTY` where there is no such call, `ESRCH` where the process is gone.
pub fn region_at(maps: BorrowedFd<'_>, address: u64) -> Result<Option<Vma>, Errno> {
    let mut query = Query {
        size: QUERY_BYTES,
        query_addr: address,
        ..Query::default()
    };
    // SAFETY: `query` is the structure that this ioctl reads and writes, of the size it says, without buffers for name
    // or build id. On another kind of file the ioctl fails.
    let returned = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    match checked(returned.into()) {
        Ok(_) => Ok(Some(Vma {
            start: query.vma_start,
            end: query.vma_end,
            writable: query.vma_flags & WRITABLE != 0,
            shared: query.vma_flags & SHARED != 0,
            page: Bytes(query.vma_page_size),
            offset: query.vma_offset,
            inode: query.inode,
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_variable_of_ours_lies_in_a_writable_region() {
        let here = Box::new(1_u64);
        let address = u64::try_from((&raw const *here).addr()).expect("64-bit");
        let maps = File::open("/proc/self/maps").expect("own maps");
        match region_at(maps.as_fd(), address) {
            Ok(region) => {
                let region = region.expect("the heap is mapped");
                assert!(region.start <= address && address < region.end);
                assert!(region.writable && !region.shared && region.inode == 0);
            }
            Err(errno) => assert_eq!(errno, Errno::NOTTY, "a kernel before 6.11"),
        }
    }
}
