//! System calls: one function a call, nothing else, and all `unsafe` code of the crate.
//!
//! A function here takes and gives back plain values, keeps no state and decides nothing. Where rustix has a safe
//! wrapper we use that one; the rest goes through `libc::syscall` or `libc::ioctl`, each block with the reason why it is
//! sound. Errors are [`Errno`]; what an errno means for an action is said in `actuators::errno` alone.

pub mod advise;
pub mod bpf;
pub mod bpf_map;
pub mod caps;
pub mod detached_mount;
pub mod device_memory;
pub mod limits;
pub mod maps;
pub mod move_pages;
pub mod pagemap;
pub mod perf;
pub mod probe_child;
pub mod process;
pub mod thp;
pub mod time;

pub use rustix::io::Errno;

/// The errno of the system call that just failed.
fn last_errno() -> Errno {
    errno_of(&std::io::Error::last_os_error())
}

/// The errno of an I/O error; `EIO` where the error is not the kernel's.
#[must_use]
pub fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// What a system call returned, where a negative number means that it failed.
fn checked(returned: libc::c_long) -> Result<usize, Errno> {
    match usize::try_from(returned) {
        Ok(value) => Ok(value),
        Err(_negative) => Err(last_errno()),
    }
}

/// A pointer into *another* address space: never dereferenced here.
fn remote(address: u64) -> Result<*mut libc::c_void, Errno> {
    match usize::try_from(address) {
        Ok(address) => Ok(std::ptr::without_provenance_mut(address)),
        Err(_too_large) => Err(Errno::FAULT),
    }
}
