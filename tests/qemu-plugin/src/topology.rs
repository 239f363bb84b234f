// SPDX-License-Identifier: GPL-2.0-or-later

//! Which node a CPU and a physical address belong to.
//!
//! QEMU up to 8 does not tell the guest's physical address of an access: it tells the place in the
//! node's own memory, plus the node's place among QEMU's memories, plus its place in the guest's
//! memory. As the memories of the nodes are made first, in order, both places are the sum of the
//! sizes before it, so that it can be undone. From QEMU 9 on (API version 2) it tells the address.
//!
//! The guest's memory is the nodes' one after the other, with a hole below 4 GiB for devices.

/// Where the hole for devices begins in a guest whose memory does not reach it.
const HOLE_HIGH: u64 = 0xb000_0000;
/// Where it begins in a guest with more memory than that.
const HOLE_LOW: u64 = 0x8000_0000;
const HOLE_END: u64 = 1 << 32;

/// How QEMU reports addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reports {
    /// Sums of places, as QEMU 7 does.
    Places,
    /// Guest-physical addresses, as QEMU 9 and later do.
    Addresses,
}

/// A place in the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub node: u16,
    /// Guest-physical address.
    pub paddr: u64,
}

/// The nodes of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cpu_nodes: Vec<u16>,
    memory_bytes: Vec<u64>,
    reports: Reports,
    hole: u64,
}

impl Topology {
    /// The node of each CPU, and the memory of each node.
    pub fn new(cpu_nodes: Vec<u16>, memory_bytes: Vec<u64>, reports: Reports) -> Self {
        let all: u64 = memory_bytes.iter().sum();
        Self {
            cpu_nodes,
            memory_bytes,
            reports,
            hole: if all >= HOLE_HIGH {
                HOLE_LOW
            } else {
                HOLE_HIGH
            },
        }
    }

    pub fn nodes(&self) -> usize {
        self.memory_bytes.len()
    }

    pub fn cpus(&self) -> usize {
        self.cpu_nodes.len()
    }

    pub fn has_memory(&self, node: usize) -> bool {
        self.memory_bytes[node] > 0
    }

    pub fn node_of_cpu(&self, cpu: usize) -> Option<u16> {
        self.cpu_nodes.get(cpu).copied()
    }

    /// `None`: no node's memory.
    pub fn place(&self, reported: u64) -> Option<Place> {
        let mut before = 0;
        let told = match self.reports {
            Reports::Places => reported,
            Reports::Addresses => self.without_hole(reported),
        };
        for (node, size) in (0..).zip(&self.memory_bytes) {
            let start = match self.reports {
                Reports::Places => 2 * before,
                Reports::Addresses => before,
            };
            if let Some(offset) = told.checked_sub(start).filter(|offset| offset < size) {
                let paddr = self.with_hole(before + offset);
                return Some(Place { node, paddr });
            }
            before += size;
        }
        None
    }

    fn with_hole(&self, linear: u64) -> u64 {
        if linear < self.hole {
            linear
        } else {
            linear - self.hole + HOLE_END
        }
    }

    fn without_hole(&self, paddr: u64) -> u64 {
        match paddr.checked_sub(HOLE_END) {
            Some(above) => above + self.hole,
            None => paddr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn topology(sizes_mib: &[u64], reports: Reports) -> Topology {
        let sizes = sizes_mib.iter().map(|size| size * MIB).collect();
        Topology::new(vec![0, 1, 1], sizes, reports)
    }

    fn place(node: u16, paddr: u64) -> Option<Place> {
        Some(Place { node, paddr })
    }

    #[test]
    fn addresses_of_later_versions_are_taken_as_they_are() {
        let guest = topology(&[512, 256, 256], Reports::Addresses);
        assert_eq!(guest.place(512 * MIB - 1), place(0, 512 * MIB - 1));
        assert_eq!(guest.place(512 * MIB), place(1, 512 * MIB));
        assert_eq!(guest.place(1023 * MIB), place(2, 1023 * MIB));
        assert_eq!(guest.place(1024 * MIB), None);
    }

    #[test]
    fn sums_of_places_are_undone() {
        let guest = topology(&[512, 256, 256], Reports::Places);
        assert_eq!(guest.place(100), place(0, 100));
        assert_eq!(guest.place(2 * 512 * MIB + 7), place(1, 512 * MIB + 7));
        assert_eq!(guest.place(2 * 768 * MIB + 7), place(2, 768 * MIB + 7));
        assert_eq!(guest.place(600 * MIB), None);
    }

    #[test]
    fn memory_beyond_the_hole_lies_above_four_gibibytes() {
        let sizes = [2048, 2048];
        let last = 4095 * MIB - 2048 * MIB + HOLE_END;
        let guest = topology(&sizes, Reports::Addresses);
        assert_eq!(guest.place(last), place(1, last));
        let guest = topology(&sizes, Reports::Places);
        assert_eq!(guest.place((4096 + 2047) * MIB), place(1, last));
    }

    #[test]
    fn a_node_without_memory_owns_no_address() {
        let guest = topology(&[512, 0, 512], Reports::Places);
        assert_eq!(guest.place(2 * 512 * MIB), place(2, 512 * MIB));
        assert!(!guest.has_memory(1));
    }

    #[test]
    fn cpus_have_nodes() {
        let guest = topology(&[512, 512], Reports::Addresses);
        assert_eq!(
            (guest.node_of_cpu(2), guest.node_of_cpu(3)),
            (Some(1), None)
        );
    }
}
