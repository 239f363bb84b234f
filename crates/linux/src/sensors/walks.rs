//! L2 misses, and those of them that page walks make.
//!
//! **Where they come from.** A hypervisor that models caches and page walks counts both for the threads that published
//! themselves (the crate `hugepilot-vpmu`). Of hardware no PMU that is made today counts L2 misses by page walks (Haswell and
//! Broadwell did, the paper's Opterons did), and none of the authors' machines has a PMU: there both are unknown.
//!
//! A thread that withdraws takes its counts with it, so that an interval in which one ended tells less than was; a
//! process of which no thread is published is unknown.

use crate::procfs::SysRoot;
use crate::sampler::SamplerUnavailable;
use crate::sampler::virtual_ibs;
use hugepilot_core::ids::{Pid, Tid};
use hugepilot_vpmu::Layout;
use std::collections::BTreeMap;

/// L2 misses of a process in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct L2Misses {
    /// All.
    pub all: u64,
    /// Those of page walks.
    pub by_walks: u64,
}

/// Reads a hypervisor's counts.
pub struct WalkCounters {
    layout: Layout<'static>,
    before: BTreeMap<(Pid, Tid, u64), L2Misses>,
}

impl WalkCounters {
    /// Looks for the hypervisor's device.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn probe(sys: &SysRoot) -> Result<Self, SamplerUnavailable> {
        Ok(Self::of(virtual_ibs::device(sys)?))
    }

    const fn of(layout: Layout<'static>) -> Self {
        Self {
            layout,
            before: BTreeMap::new(),
        }
    }

    /// What was counted since the last call, by process. Threads that are new tell nothing yet.
    pub fn take(&mut self) -> BTreeMap<Pid, L2Misses> {
        let mut now = BTreeMap::new();
        let mut grown: BTreeMap<Pid, L2Misses> = BTreeMap::new();
        for (published, counters) in self.layout.counters() {
            let (pid, tid) = (Pid(published.thread.pid), Tid(published.thread.tid));
            let counted = L2Misses {
                all: counters.l2_misses,
                by_walks: counters.l2_misses_by_walks,
            };
            let which = (pid, tid, published.slot.generation());
            if let Some(before) = self.before.get(&which) {
                let sum = grown.entry(pid).or_default();
                sum.all += counted.all.saturating_sub(before.all);
                sum.by_walks += counted.by_walks.saturating_sub(before.by_walks);
            }
            now.insert(which, counted);
        }
        self.before = now;
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_vpmu::{Counters, Kind, Machine, Thread, WORDS};
    use std::sync::atomic::AtomicU64;

    #[test]
    fn what_was_counted_since_is_summed_by_process() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let layout =
            Layout::prepare(words.leak(), Machine { nodes: 1, cpus: 2 }, 16).expect("prepared");
        let mut counters = WalkCounters::of(layout);
        let slots = [1, 2].map(|tid| {
            let thread = Thread {
                cpu: tid,
                pid: 7,
                tid,
                addresses: 0..0,
                kind: Kind::Workload,
            };
            layout.publish_thread(&thread).expect("room")
        });
        let count = |misses: u64| {
            for slot in slots {
                let counted = Counters {
                    l2_misses: misses,
                    l2_misses_by_walks: misses / 2,
                    ..Counters::default()
                };
                layout.set_counters(slot, counted);
            }
        };
        count(100);
        assert!(
            counters.take().is_empty(),
            "threads that are new tell nothing"
        );
        count(130);
        let expected = L2Misses {
            all: 60,
            by_walks: 30,
        };
        assert_eq!(counters.take(), BTreeMap::from([(Pid(7), expected)]));
    }
}
