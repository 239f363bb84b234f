//! Pseudo file systems that are mounted nowhere: a mount that is attached to no directory, seen by nobody else, and gone
//! with its descriptor.

use super::{Errno, checked};
use rustix::fs::{Mode, OFlags, openat};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A new descriptor from a call that returned it.
fn owned(returned: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = checked(returned)?;
    let Ok(fd) = i32::try_from(fd) else {
        return Err(Errno::BADF);
    };
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn fsopen(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends with a zero byte and lives until the call returns.
    owned(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) })
}

fn create(context: &OwnedFd) -> Result<(), Errno> {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value; both pointers are null.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0,
        )
    };
    checked(returned).map(drop)
}

fn fsmount(context: &OwnedFd) -> Result<OwnedFd, Errno> {
    // SAFETY: integers only.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// Opens `file` of the file system `name`, mounted for this descriptor alone.
///
/// # Errors
/// The kernel's errno; `ENODEV` where it has no such file system.
pub fn open(name: &CStr, file: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(name)?;
    create(&context)?;
    let root = fsmount(&context)?;
    openat(&root, file, flags | OFlags::CLOEXEC, Mode::empty())
}
