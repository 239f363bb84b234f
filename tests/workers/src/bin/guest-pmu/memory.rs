//! Memory that is bound to nodes, and the loop that loads from it.

use std::arch::asm;
use std::io;
use std::ops::Range;

use hugepilot_workers::sys::{self, Advice, Source};

/// Of each node: 16 MiB, in base pages.
pub const PAGES_PER_NODE: usize = 4096;
const PAGE: usize = 4096;
const NODE_BYTES: usize = PAGES_PER_NODE * PAGE;
/// Aligned to huge pages, so that what shares one is known.
const ADDRESS: usize = 0x5100_0000_0000;
const LINE: usize = 64;
/// Pages of which the place is asked at a time.
const BATCH: usize = 512;

/// All nodes' memory, one after the other.
#[derive(Debug)]
pub struct Memory {
    nodes: usize,
}

impl Memory {
    /// Maps, binds and touches it.
    pub fn new(nodes: usize) -> io::Result<Self> {
        sys::map_at(ADDRESS, nodes * NODE_BYTES, Source::Anonymous)?;
        sys::advise(ADDRESS, nodes * NODE_BYTES, Advice::NoHuge)?;
        let memory = Self { nodes };
        for node in 0..nodes {
            bind(start(node), NODE_BYTES, node)?;
        }
        for page in 0..nodes * PAGES_PER_NODE {
            sys::poke(ADDRESS + page * PAGE, 1);
        }
        memory.check_places()?;
        Ok(memory)
    }

    /// Where it is.
    pub fn addresses(&self) -> Range<u64> {
        let number = |address: usize| u64::try_from(address).expect("64 bits");
        number(ADDRESS)..number(start(self.nodes))
    }

    /// The node that an address of it is bound to.
    pub fn node_of(address: u64) -> Option<u16> {
        let offset = usize::try_from(address).ok()?.checked_sub(ADDRESS)?;
        u16::try_from(offset / NODE_BYTES).ok()
    }

    /// Asks the kernel whether every page is on its node.
    pub fn check_places(&self) -> io::Result<()> {
        for node in 0..self.nodes {
            for first in (0..PAGES_PER_NODE).step_by(BATCH) {
                let pages: Vec<usize> = (first..first + BATCH)
                    .map(|page| start(node) + page * PAGE)
                    .collect();
                if places(&pages)?.iter().any(|place| *place != node) {
                    return Err(io::Error::other(format!(
                        "a page of node {node} is elsewhere"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Loads that many times, a cache line further each time, around the pages.
    pub fn load(&self, node: usize, first_page: usize, pages: usize, loads: u64) {
        assert!(node < self.nodes && first_page + pages <= PAGES_PER_NODE);
        let base = start(node) + first_page * PAGE;
        let mask = pages * PAGE - 1;
        // SAFETY: base and anything up to the mask lie in memory that is mapped for good.
        unsafe {
            asm!(
                "2:",
                "mov {value}, qword ptr [{base} + {offset}]",
                "add {offset}, {line}",
                "and {offset}, {mask}",
                "dec {left}",
                "jnz 2b",
                base = in(reg) base,
                mask = in(reg) mask,
                line = const LINE,
                offset = inout(reg) 0_usize => _,
                left = inout(reg) loads => _,
                value = out(reg) _,
                options(nostack, readonly),
            );
        }
    }
}

fn start(node: usize) -> usize {
    ADDRESS + node * NODE_BYTES
}

/// `mbind(MPOL_BIND)` to one node.
fn bind(address: usize, bytes: usize, node: usize) -> io::Result<()> {
    let mask: libc::c_ulong = 1 << node;
    let bits = libc::c_ulong::BITS;
    // SAFETY: the mask lives through the call; no contents change.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            bytes,
            libc::MPOL_BIND,
            &raw const mask,
            u64::from(bits),
            0_u32,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The node of each page.
fn places(pages: &[usize]) -> io::Result<Vec<usize>> {
    let mut nodes = vec![0_i32; pages.len()];
    // SAFETY: both lists have that many members and live through the call; without a list of nodes nothing moves.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0_i32,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<i32>(),
            nodes.as_mut_ptr(),
            0_i32,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let place = |node: i32| {
        usize::try_from(node)
            .map_err(|_negative| io::Error::from_raw_os_error(node.saturating_neg()))
    };
    nodes.into_iter().map(place).collect()
}
