//! Our own resource limits, and the machine's base page.

use super::{Errno, last_errno};
use hugepilot_core::units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. Returns the limit then in force; `None` is no limit.
///
/// # Errors
/// The kernel's errno.
pub fn raise_open_files() -> Result<Option<u64>, Errno> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(limit.current);
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum)
}

/// Bytes of a base page.
///
/// # Errors
/// The C library's errno.
pub fn base_page() -> Result<Bytes, Errno> {
    // SAFETY: sysconf takes an integer and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    match u64::try_from(bytes) {
        Ok(bytes) => Ok(Bytes(bytes)),
        Err(_negative) => Err(last_errno()),
    }
}
