//! `process_madvise(2)`: advice on another process's memory.

use super::{Errno, checked, remote};
use hugepilot_core::units::Bytes;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The advice that the kernel takes for another process, as far as we use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_COLD`: on one base page inside a huge page it splits that page.
    Cold,
    /// `MADV_COLLAPSE`: back the range by huge pages now.
    Collapse,
}

impl Advice {
    const fn raw(self) -> libc::c_int {
        match self {
            Self::Cold => 20,
            Self::Collapse => 25,
        }
    }
}

/// Gives `advice` on `length` bytes at `address` of the process behind `pidfd`. Returns the bytes advised, which is not
/// the bytes changed: verify by what the page tables then show.
///
/// # Errors
/// The kernel's errno.
pub fn process_madvise(
    pidfd: BorrowedFd<'_>,
    address: u64,
    length: Bytes,
    advice: Advice,
) -> Result<usize, Errno> {
    let Ok(iov_len) = usize::try_from(length.0) else {
        return Err(Errno::INVAL);
    };
    let range = libc::iovec {
        iov_base: remote(address)?,
        iov_len,
    };
    // SAFETY: the kernel reads one iovec, which lives until the call returns; the addresses in it are of another process
    // and are not dereferenced here.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            &raw const range,
            1_usize,
            advice.raw(),
            0_u32,
        )
    };
    checked(returned)
}
