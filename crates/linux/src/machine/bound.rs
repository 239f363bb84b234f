//! Where memory may lie: what cpusets and memory policies say, and that nothing is moved against them.

use super::{LiveMachine, Tick};
use crate::actuators::Verdict;
use crate::actuators::target::timed;
use crate::error::Error;
use crate::procfs::{numa_maps, read, understood};
use crate::sys::time;
use hugepilot_core::action::Action;
use hugepilot_core::ids::{NodeId, ProcessId};
use hugepilot_core::observation::{ProcessObserved, Unseen};
use hugepilot_core::outcome::OutcomeClass;

impl LiveMachine {
    /// Reads the memory policies of one process that is due for it, while somebody decides by samples.
    pub(super) fn look_for_bound(&mut self, tick: &mut Tick) {
        if !self.samples_wanted() || self.nodes.observed.len() < 2 {
            return;
        }
        let Some(process) = self.processes.due_for_policies(tick.now) else {
            return;
        };
        if let Err(error) = tick.charge(|_| self.read_bound(process)) {
            if !error.is_gone() {
                tick.blind(
                    Some(process),
                    Unseen::PageTables,
                    format!("memory policies: {error}"),
                );
            }
        }
    }

    /// Reads which regions of a process are bound to nodes.
    fn read_bound(&mut self, process: ProcessId) -> Result<(), Error> {
        let path = self.proc.process(process.pid, "numa_maps");
        let (text, took) = timed(|| read(&path));
        let bound = understood(&path, numa_maps::parse_bound(&text?))?;
        let now = time::since_boot();
        let changed = self
            .processes
            .get_mut(process)
            .is_some_and(|watched| watched.set_bound(&bound, now, took));
        if changed {
            self.place_regions(process.pid);
        }
        Ok(())
    }

    /// Why the action must not be carried out, if it would move memory to where it may not be.
    pub(super) fn forbidden(
        &mut self,
        action: &Action,
        process: ProcessId,
        address: u64,
    ) -> Option<Verdict> {
        let nodes = action.destinations()?;
        let unread = |watched: &crate::sensors::watched::Watched| !watched.bound().is_known();
        if self.processes.get(process).is_some_and(unread) && self.read_bound(process).is_err() {
            // What cannot be known to be free is left alone.
            return Some(Verdict::new(OutcomeClass::Ineligible));
        }
        let end = address + self.geometry.slot().0;
        let watched = self.processes.get(process)?;
        let outside = |allowed: &[NodeId]| nodes.iter().any(|node| !allowed.contains(node));
        let refused =
            watched.bound().touches(address, end) || watched.nodes_allowed().is_some_and(outside);
        refused.then(|| Verdict::new(OutcomeClass::Ineligible))
    }

    /// Says to which nodes a process is restricted, only where that is not all of them.
    pub(super) fn with_restriction(&self, mut observed: ProcessObserved) -> ProcessObserved {
        let nodes: Vec<NodeId> = self.nodes.observed.iter().map(|node| node.node).collect();
        observed.nodes_allowed = observed.nodes_allowed.take().and_then(|allowed| {
            let here: Vec<NodeId> = nodes
                .iter()
                .copied()
                .filter(|node| allowed.contains(node))
                .collect();
            (here.len() < nodes.len()).then_some(here)
        });
        observed
    }
}
