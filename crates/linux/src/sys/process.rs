//! Another process: a stable handle on it, whether it lives, what its memory holds.

use super::{Errno, checked, last_errno, remote};
use hugepilot_core::ids::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::PidfdFlags;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A process id as the kernel's calls take it.
fn raw(pid: Pid) -> Result<i32, Errno> {
    match i32::try_from(pid.0) {
        Ok(raw) => Ok(raw),
        Err(_too_large) => Err(Errno::SRCH),
    }
}

/// A descriptor of the process that has this id now; it never means another one.
///
/// # Errors
/// The kernel's errno; `ESRCH` where there is no such process.
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd, Errno> {
    let Some(pid) = rustix::process::Pid::from_raw(raw(pid)?) else {
        return Err(Errno::SRCH);
    };
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Does the process behind `pidfd` still run? (A zombie does not.)
///
/// # Errors
/// The kernel's errno.
pub fn pidfd_alive(pidfd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = poll(
        &mut [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)],
        Some(&now),
    )?;
    Ok(ready == 0)
}

/// Do two processes have one address space (`CLONE_VM`)?
///
/// # Errors
/// The kernel's errno; `ENOSYS` where it was built without `kcmp`.
pub fn same_memory(one: Pid, other: Pid) -> Result<bool, Errno> {
    const KCMP_VM: libc::c_int = 1;
    let (one, other) = (raw(one)?, raw(other)?);
    // SAFETY: kcmp takes five integers and touches no memory of ours.
    let returned = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0_usize, 0_usize) };
    checked(returned).map(|order| order == 0)
}

/// Reads the memory of `pid` at `address` into `buffer`; returns the bytes read, fewer where the rest is not mapped.
///
/// # Errors
/// The kernel's errno.
pub fn read_memory(pid: Pid, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let there = libc::iovec {
        iov_base: remote(address)?,
        iov_len: buffer.len(),
    };
    let pid = raw(pid)?;
    // SAFETY: `local` describes `buffer`, which is ours alone until the call returns; the remote address is of another
    // process and is only checked by the kernel.
    let returned =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const there, 1, 0) };
    match usize::try_from(returned) {
        Ok(read) => Ok(read),
        Err(_negative) => Err(last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn we_live_and_share_memory_with_ourselves() {
        let me = Pid(std::process::id());
        let pidfd = pidfd_open(me).expect("own pid");
        assert!(pidfd_alive(pidfd.as_fd()).expect("poll of an own descriptor"));
        match same_memory(me, me) {
            Ok(same) => assert!(same),
            Err(errno) => assert_eq!(errno, Errno::NOSYS),
        }
    }

    #[test]
    fn an_impossible_pid_is_nobody() {
        assert_eq!(
            pidfd_open(Pid(u32::MAX)).expect_err("too large"),
            Errno::SRCH
        );
        assert_eq!(pidfd_open(Pid(0)).expect_err("zero"), Errno::SRCH);
    }

    #[test]
    fn own_memory_can_be_read() {
        let (secret, mut seen) = (*b"base page", [0_u8; 9]);
        let address = u64::try_from(secret.as_ptr().addr()).expect("64-bit");
        let read = read_memory(Pid(std::process::id()), address, &mut seen);
        assert_eq!(read, Ok(9));
        assert_eq!(seen, secret);
    }
}
