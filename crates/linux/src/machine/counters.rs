//! Counters of processes that cost something to have: time in page faults, L2 misses.
//!
//! They are there where whoever built the machine asked for them. What is counted between two polls of a process is said at
//! the next; and since a process that does not fault is polled ever more seldom, one is polled every
//! [`POLL_PERIOD`] here at least. What cannot be had is said once, and stays unknown.

use super::{LiveMachine, Tick};
use crate::sensors::fault_time::FaultTime;
use crate::sensors::walks::{L2Misses, WalkCounters};
use hugepilot_core::ids::Pid;
use hugepilot_core::observation::Unseen;
use hugepilot_core::units::Span;
use std::collections::BTreeMap;

/// A process is polled at least so often.
pub(super) const POLL_PERIOD: Span = Span::secs(1);

/// The counters that are there.
#[derive(Default)]
pub(super) struct Counting {
    pub(super) fault_time: Option<FaultTime>,
    pub(super) walks: Option<WalkCounters>,
    /// Counted, and not said yet.
    pending: BTreeMap<Pid, L2Misses>,
}

impl Counting {
    pub(super) const fn is_on(&self) -> bool {
        self.fault_time.is_some() || self.walks.is_some()
    }
}

impl LiveMachine {
    /// Adds counters to the processes that this observation speaks of.
    pub(super) fn count(&mut self, tick: &mut Tick) {
        if !self.counting.is_on() {
            return;
        }
        tick.charge(|tick| {
            self.count_walks(tick);
            self.count_fault_time(tick);
        });
    }

    fn count_walks(&mut self, tick: &mut Tick) {
        let Some(walks) = &mut self.counting.walks else {
            return;
        };
        for (pid, grown) in walks.take() {
            let sum = self.counting.pending.entry(pid).or_default();
            sum.all += grown.all;
            sum.by_walks += grown.by_walks;
        }
        for process in &mut tick.observation.processes {
            if let Some(counted) = self.counting.pending.remove(&process.process.pid) {
                process.l2_misses = Some(counted.all);
                process.l2_misses_by_walks = Some(counted.by_walks);
            }
        }
        let processes = &self.processes;
        self.counting
            .pending
            .retain(|pid, _| processes.is_watched(*pid));
    }

    fn count_fault_time(&mut self, tick: &mut Tick) {
        let pids: Vec<Pid> = self.processes.ids().iter().map(|id| id.pid).collect();
        let Some(fault_time) = &mut self.counting.fault_time else {
            return;
        };
        match fault_time.read(&pids, tick.now) {
            Ok(shares) => {
                for process in &mut tick.observation.processes {
                    process.fault_time_share_max = shares.get(&process.process.pid).copied();
                }
            }
            Err(errno) => tick.blind(None, Unseen::FaultTime, format!("bpf: {errno}")),
        }
    }
}
