//! What a workload is to do.

use super::cpus::Cpu;
use super::name::Name;
use crate::BenchError;
use crate::sys::words::Backing;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::Bytes;
use serde::Serialize;
use std::collections::BTreeSet;

/// The table of published threads has 64 places, one of them for a manager.
pub const THREADS_MAX: usize = 63;
/// Intervals unless told otherwise.
pub const INTERVALS_DEFAULT: u32 = 10;
/// Accesses of a thread in an interval unless told otherwise: each line of 16 MiB, a thread's part of the usual memory, some four times.
pub const ACCESSES_DEFAULT: u64 = 1_000_000;
/// Intervals after which owners change, unless told otherwise: the paper's policies have settled by then.
pub const PHASE_DEFAULT: u32 = 10;

/// A workload's orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// Which.
    pub name: Name,
    /// One thread on each of these.
    pub cpus: Vec<Cpu>,
    /// Memory in all, a multiple of a slot.
    pub bytes: Bytes,
    /// How many intervals.
    pub intervals: u32,
    /// Accesses of each thread in each interval, at least; whole steps are done.
    pub accesses: u64,
    /// Intervals of a phase, where there are phases.
    pub phase_intervals: u32,
    /// Seed of contents and order.
    pub seed: u64,
    /// From where its 1 GiB page comes, where it wants one.
    #[serde(skip)]
    pub backing: Backing,
}

impl Spec {
    /// Does it mean something?
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<(), BenchError> {
        let slot = Geometry::X86_64.slot().0;
        let wrong = |what| Err(BenchError::Spec(what));
        if self.cpus.is_empty() || self.cpus.len() > THREADS_MAX {
            return wrong("between 1 and 63 threads, each on a CPU of its own");
        }
        let different: BTreeSet<u32> = self.cpus.iter().map(|cpu| cpu.cpu).collect();
        if different.len() != self.cpus.len() {
            return wrong("each thread needs a CPU of its own");
        }
        if self.bytes.0 % slot != 0 {
            return wrong("the size must be a multiple of 2 MiB");
        }
        if self.bytes.0 / slot < 2 * u64::from(self.threads()) {
            return wrong("the size must be at least 4 MiB a thread");
        }
        if self.intervals == 0 || self.accesses == 0 || self.phase_intervals == 0 {
            return wrong("intervals, their accesses and those of a phase must not be zero");
        }
        Ok(())
    }

    /// How many threads.
    ///
    /// # Panics
    /// If there are more than a checked spec has.
    #[must_use]
    pub fn threads(&self) -> u32 {
        u32::try_from(self.cpus.len()).expect("at most 63")
    }

    /// How many nodes the threads are on.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        let nodes: BTreeSet<u32> = self.cpus.iter().map(|cpu| cpu.node).collect();
        u32::try_from(nodes.len()).expect("at most 63")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Four threads on four nodes, all of them on the one CPU that every machine has.
    pub fn spec(name: Name) -> Spec {
        Spec {
            name,
            cpus: (0..4).map(|cpu| Cpu { cpu, node: cpu }).collect(),
            bytes: Bytes::mib(16),
            intervals: 3,
            accesses: 1_000,
            phase_intervals: 2,
            seed: 1,
            backing: Backing::Ordinary,
        }
    }

    #[test]
    fn meaningless_orders_are_refused() {
        let good = spec(Name::FirstTouch);
        good.check().expect("these mean something");
        let bad = [
            Spec {
                cpus: Vec::new(),
                ..good.clone()
            },
            Spec {
                cpus: vec![good.cpus[0]; 2],
                ..good.clone()
            },
            Spec {
                bytes: Bytes::mib(15),
                ..good.clone()
            },
            Spec {
                bytes: Bytes::mib(14),
                ..good.clone()
            },
            Spec {
                intervals: 0,
                ..good.clone()
            },
            Spec {
                accesses: 0,
                ..good.clone()
            },
            Spec {
                phase_intervals: 0,
                ..good
            },
        ];
        for spec in bad {
            assert!(spec.check().is_err(), "{spec:?}");
        }
    }
}
