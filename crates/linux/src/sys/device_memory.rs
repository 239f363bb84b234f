//! Memory of a PCI device, mapped from its file below `/sys/bus/pci/devices`.

use super::Errno;
use rustix::fs::{Mode, OFlags, open};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Maps the first `words` words of the file, shared with the device, for as long as this process lives.
///
/// # Errors
/// The kernel's errno: `EPERM` where the kernel is locked down, `EINVAL` where the device has less memory.
pub fn map_for_good(path: &Path, words: usize) -> Result<&'static [AtomicU64], Errno> {
    let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let bytes = words * size_of::<AtomicU64>();
    // SAFETY: a fresh mapping at an address of the kernel's choice; nothing of ours is replaced.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
    }?;
    // SAFETY: the mapping is page-aligned, holds `words` words, and is never unmapped. The device and other processes
    // change them at any time, which atomics allow; any bits are a valid word. For a file shorter than the mapping mmap
    // of a device's memory fails, so that every word is there.
    Ok(unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), words) })
}
