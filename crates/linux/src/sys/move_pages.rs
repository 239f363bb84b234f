//! `move_pages(2)`: where pages lie, and moving them.

use super::{Errno, checked, remote};
use hugepilot_core::ids::Pid;

/// What the kernel says of each page: a node, or a negated errno.
pub type Status = i32;

/// Move the pages that this process alone maps.
const MPOL_MF_MOVE: libc::c_int = 2;

/// On which node each page of `addresses` lies: one status each, in `status`.
///
/// # Errors
/// The kernel's errno for the call as a whole.
pub fn query(pid: Pid, addresses: &[u64], status: &mut Vec<Status>) -> Result<(), Errno> {
    call(pid, addresses, None, status)
}

/// Moves each page of `addresses` to the node beside it in `nodes`. Inside a huge page one address moves the whole.
///
/// # Errors
/// The kernel's errno for the call as a whole. Pages that were not moved say so in `status`.
///
/// # Panics
/// If there is not one node for each address.
pub fn move_to(
    pid: Pid,
    addresses: &[u64],
    nodes: &[i32],
    status: &mut Vec<Status>,
) -> Result<(), Errno> {
    assert_eq!(addresses.len(), nodes.len(), "one node for each address");
    call(pid, addresses, Some(nodes), status)
}

fn call(
    pid: Pid,
    addresses: &[u64],
    nodes: Option<&[i32]>,
    status: &mut Vec<Status>,
) -> Result<(), Errno> {
    let pages = addresses
        .iter()
        .map(|&address| remote(address))
        .collect::<Result<Vec<_>, Errno>>()?;
    let Ok(pid) = i32::try_from(pid.0) else {
        return Err(Errno::SRCH);
    };
    status.clear();
    status.resize(addresses.len(), -Errno::NOENT.raw_os_error());
    let nodes = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: `pages` and, where given, `nodes` hold as many entries as the count says and are only read; `status` has
    // room for as many. The pages are addresses of another process.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // A positive number is the pages that could not be moved; `status` says which and why.
    checked(returned).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_ours_lies_on_a_node() {
        let touched = Box::new([1_u8; 64]);
        let address = u64::try_from(touched.as_ptr().addr()).expect("64-bit");
        let mut status = Vec::new();
        match query(Pid(std::process::id()), &[address], &mut status) {
            Ok(()) => assert!(status[0] >= 0, "status {}", status[0]),
            Err(errno) => assert_eq!(errno, Errno::NOSYS, "a kernel without NUMA"),
        }
    }
}
