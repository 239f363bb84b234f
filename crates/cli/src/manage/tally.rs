//! What a run did and what it cost, counted as it goes. Pure.

use hugepilot_core::ids::ProcessId;
use hugepilot_core::observation::{LookCost, Observation};
use hugepilot_core::outcome::{Cause, OutcomeClass};
use hugepilot_core::plan::{Accounted, Law, Plan};
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Bytes, Span};
use hugepilot_core::world::World;
use std::collections::BTreeMap;

/// Processes whose lock times are kept apart, at the most; the others are counted in the total alone.
pub const LOCKED_MAX: usize = 1024;

/// How long the lock of one process was held by collapses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locked {
    /// The kernel's short name of the process.
    pub comm: String,
    /// Collapses that succeeded or were tried.
    pub collapses: u64,
    /// All of them together.
    pub sum: Span,
    /// The longest.
    pub max: Span,
}

impl Locked {
    fn add(&mut self, took: Span) {
        self.collapses += 1;
        self.sum += took;
        self.max = self.max.max(took);
    }
}

/// What a run did.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Ticks.
    pub ticks: u64,
    /// Actions by name and class of outcome.
    pub outcomes: BTreeMap<(&'static str, OutcomeClass), u64>,
    /// Actions by name and cause, where one is known.
    pub causes: BTreeMap<(&'static str, Cause), u64>,
    /// Proposals that laws held back, as far as plans list them. A proposal that waits is counted each tick.
    pub refused: BTreeMap<Law, u64>,
    /// All that laws held back, listed or not.
    pub refused_total: u64,
    /// Memory that came back by splits.
    pub freed: Bytes,
    /// Lock times by process.
    pub locked: BTreeMap<ProcessId, Locked>,
    /// Lock times of all processes.
    pub locked_total: Locked,
    /// What looking cost.
    pub look: LookCost,
    /// Most bytes held for slots.
    pub state_max: Bytes,
    /// Most processes watched at once.
    pub processes_max: usize,
}

impl Tally {
    /// Counts an action; `world` is as it was before.
    pub fn action(&mut self, world: &World, done: &Accounted) {
        let name = done.planned.action.name();
        *self.outcomes.entry((name, done.outcome.class)).or_default() += 1;
        if let Some(cause) = done.outcome.cause {
            *self.causes.entry((name, cause)).or_default() += 1;
        }
        self.freed += done.outcome.freed;
        if name == "collapse" {
            self.lock(world, done);
        }
    }

    fn lock(&mut self, world: &World, done: &Accounted) {
        let took = done.outcome.took;
        self.locked_total.add(took);
        let Some(process) = done.via else { return };
        if self.locked.len() >= LOCKED_MAX && !self.locked.contains_key(&process) {
            return;
        }
        let locked = self.locked.entry(process).or_default();
        if let Some(known) = world.processes.get(&process) {
            locked.comm.clone_from(&known.comm);
        }
        locked.add(took);
    }

    /// Counts a tick.
    pub fn tick(&mut self, seen: &Observation, plan: &Plan, pilot: &Pilot) {
        self.ticks += 1;
        self.refused_total += plan.refused_total;
        for refused in &plan.refused {
            *self.refused.entry(refused.law).or_default() += 1;
        }
        self.look.cpu += seen.cost.cpu;
        self.look.scan += seen.cost.scan;
        self.look.slots += seen.cost.slots;
        self.look.contents += seen.cost.contents;
        self.look.bounded += seen.cost.bounded;
        self.processes_max = self.processes_max.max(pilot.world().processes.len());
        let state = Bytes(u64::try_from(pilot.bytes()).expect("memory fits 64 bits"));
        self.state_max = self.state_max.max(state);
    }

    /// Actions of `name` with an outcome of `class`.
    pub fn count(&self, name: &'static str, class: OutcomeClass) -> u64 {
        self.outcomes.get(&(name, class)).copied().unwrap_or(0)
    }
}
