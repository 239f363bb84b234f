//! How large a case is. In a guest, all of this is work: nothing waits for a clock but the manager, whose second is a
//! guest's second.

/// Memory and work of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Memory of the workload for each node.
    pub mebibytes_per_node: u32,
    /// Intervals, each a window of the referee.
    pub intervals: u32,
    /// Accesses of a thread in one.
    pub accesses: u64,
}

impl Default for Size {
    /// One to five seconds of a guest for an interval, as fast as its host is: the policies decide each second, and must
    /// have settled within ten decisions; the last intervals are what the table shows.
    fn default() -> Self {
        Self {
            mebibytes_per_node: 16,
            intervals: 20,
            accesses: 1_000_000,
        }
    }
}

impl Size {
    /// Memory of the workload.
    pub const fn mebibytes(&self, nodes: u32) -> u32 {
        self.mebibytes_per_node * nodes
    }
}
