//! What a workload says while it runs, one object a line.

use super::placement::Placement;
use super::spec::Spec;
use serde::Serialize;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// It is about to touch its memory.
    Begins {
        /// The process.
        pid: u32,
        /// Its orders.
        spec: Spec,
        /// First address and the one past the last, in hexadecimal.
        addresses: [String; 2],
        /// Is a virtual PMU told?
        virtual_pmu: bool,
    },
    /// An interval is over.
    Interval {
        /// Which, from 0.
        interval: u32,
        /// The virtual PMU's window that it was.
        window: Option<u64>,
        /// Accesses of all threads.
        accesses: u64,
        /// The memory after it.
        placement: Placement,
    },
    /// All is done and compared.
    Done(Figures),
}

/// A whole run in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Accesses of all threads in all intervals.
    pub accesses: u64,
    /// Updates among them.
    pub updates: u64,
    /// Updates that the memory does not remember, or has too many; zero in a right run.
    pub updates_lost: u64,
    /// Words that were not what they must be, when read or in the end; zero in a right run.
    pub wrong: u64,
    /// Of everything read: the same for the same orders.
    pub checksum: u64,
}

impl Figures {
    /// Was every byte right?
    #[must_use]
    pub const fn right(&self) -> bool {
        self.wrong == 0 && self.updates_lost == 0
    }
}
