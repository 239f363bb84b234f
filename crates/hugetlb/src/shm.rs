//! `shmget` with huge pages, for programs that do not ask for them, when `HUGETLB_SHM=yes`.
//!
//! The size is rounded up and `SHM_HUGETLB` added, with the kernel's default size: `shmget` is for others' attaching too,
//! and they know of no other. If the kernel refuses (no pool, no right: see `vm.hugetlb_shm_group`), base pages serve, and
//! that is said. A segment that exists already is what it is, so it is asked for unchanged.

use crate::options;
use crate::say::{Level, Piece, say};
use crate::sizes;
use crate::sys::{self, Errno};
use core::ffi::c_int;

/// `shmget`.
pub fn get(key: libc::key_t, size: usize, flags: c_int) -> Result<c_int, Errno> {
    options::read();
    if !options::shm() || !creates(key, flags) {
        return sys::shmget(key, size, flags);
    }
    match existing(key, size, flags) {
        Err(Errno::ENOENT) => {}
        found => return found,
    }
    match huge(key, size, flags) {
        Some(Ok(id)) => Ok(id),
        Some(Err(_)) | None => base(key, size, flags),
    }
}

/// The segment that has this key already. With `IPC_EXCL` the kernel is asked all the same: it says what is wrong.
fn existing(key: libc::key_t, size: usize, flags: c_int) -> Result<c_int, Errno> {
    if key == libc::IPC_PRIVATE || flags & libc::IPC_EXCL != 0 {
        return Err(Errno::ENOENT);
    }
    sys::shmget(key, size, flags & !libc::IPC_CREAT)
}

fn base(key: libc::key_t, size: usize, flags: c_int) -> Result<c_int, Errno> {
    let id = sys::shmget(key, size, flags)?;
    let words = "HUGETLB_SHM: no huge pages for shared memory, base pages instead; bytes: ";
    say(Level::Error, &[Piece::Words(words), Piece::Number(size)]);
    Ok(id)
}

/// Can this call make a segment, and does it leave it to us of which pages?
fn creates(key: libc::key_t, flags: c_int) -> bool {
    (key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0) && flags & libc::SHM_HUGETLB == 0
}

fn huge(key: libc::key_t, size: usize, flags: c_int) -> Option<Result<c_int, Errno>> {
    let whole = sizes::kernel_default()?.round_up(size)?;
    Some(sys::shmget(key, whole, flags | libc::SHM_HUGETLB))
}
