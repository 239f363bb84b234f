//! The laws of acting, which hold whatever a policy asks.
//!
//! **What is never done**: acting on memory that opted out; collapsing a fork-shared slot, a slot of a process with a
//! living forked child that shares its memory, or one with swapped pages; collapsing without headroom or under memory
//! pressure. (The live actuator looks once more, page by page, right before it acts: what is known here is a scan old.)
//!
//! **Where memory may go**: never to a node without memory or one that a process which maps it may not use; never where a
//! memory policy binds the pages; never to a node that it would fill.
//!
//! **What is priced**: a collapse holds the target's mmap lock, so faults of the target wait for it. The price is the
//! time that faults are expected to wait: lock time × the chance that a fault comes meanwhile, `min(1, fault rate × lock
//! time)`. Each process has a budget of such time (`stall_share_max`), so one that does not fault is collapsed as fast
//! as copying is allowed, and one that faults waits. Lock times are learned from outcomes.
//!
//! **What is slowed**: after a collapse slower than `slow_ms`, after a lack of memory, and per slot after any failure,
//! doubling each time. A slot that the kernel calls ineligible is left alone until it is mapped anew.
//!
//! **Bounds**: `actions_per_tick_max`; `copy_bytes_per_s_max`; at most [`BARRED_MAX`] slots remembered as failed.

use crate::action::Action;
use crate::budget::{BackOff, Smoothed, TimeBudget};
use crate::ids::{NodeId, ObjectId, ProcessId, SlotId};
use crate::observation::{MemoryKind, Observation, ProcessObserved, Sharing, ThpConsent};
use crate::outcome::OutcomeClass;
use crate::plan::{Accounted, Law, Planned, Refused};
use crate::units::{Bytes, Instant, Ratio, Span};
use crate::world::World;
use std::collections::BTreeMap;
use std::ops::Range;

mod moves;

use moves::{is_node_full, moves_of};

crate::parameters! {
    /// The laws' numbers.
    pub struct LawParams in "laws" {
        headroom_share: Ratio = Ratio::new(0.05), 0..=1, "share of the cgroup's limit",
            "Room that a collapse must leave in the cgroup", "design";
        headroom_min_bytes: Bytes = Bytes::mib(64), 0..=1_099_511_627_776.0, "bytes",
            "Room that a collapse must leave at least, in the cgroup and on the machine", "design";
        pressure_max: Ratio = Ratio::new(0.10), 0..=1, "share of the last 10 s",
            "Memory pressure (PSI some avg10) above which nothing is collapsed", "ours";
        stall_share_max: Ratio = Ratio::new(0.004), 0..=1, "share of time",
            "Time that a process's faults may be made to wait by collapses", "issue: at most 0.5 %";
        stall_burst_ms: Span = Span::millis(1), 1..=10_000, "ms",
            "Waiting that may be saved up", "ours: two collapses";
        slow_ms: Span = Span::millis(30), 1..=60_000, "ms",
            "A collapse slower than this makes its process wait", "TCMalloc backs off at 30 ms";
        back_off_ms: Span = Span::secs(1), 1..=3_600_000, "ms",
            "First wait after a failure", "ours";
        back_off_max_ms: Span = Span::secs(60), 1..=3_600_000, "ms",
            "Longest wait after failures", "ours";
        actions_per_tick_max: u64 = 64, 1..=65_536, "actions",
            "Actions in one tick", "TCMalloc selects at most 64";
        copy_bytes_per_s_max: Bytes = Bytes::mib(512), 2_097_152.0..=1_099_511_627_776.0, "bytes a second",
            "Memory that collapses and moves may copy", "ours: a quarter of one core";
        node_free_share: Ratio = Ratio::new(0.02), 0..=1, "share of the node's memory",
            "Free memory that a move must leave on the node it goes to", "ours";
    }
}

/// Slots remembered as failed, at the most; past it those that may be tried again soonest are forgotten.
pub const BARRED_MAX: usize = 16_384;
/// Lock time of a collapse before any was measured (measured here: 430-600 µs).
const LOCK_TIME_S: f64 = 600e-6;
/// How much a new lock time counts.
const LOCK_TIME_WEIGHT: f64 = 0.2;

#[derive(Debug, Clone)]
struct ProcessPace {
    stall: TimeBudget,
    lock_s: Smoothed,
    slow: BackOff,
}

/// The laws with what they remember.
#[derive(Debug, Clone)]
pub struct Laws {
    params: LawParams,
    paces: BTreeMap<ProcessId, ProcessPace>,
    barred: BTreeMap<SlotId, BackOff>,
    memory: BackOff,
    copies: TimeBudget,
}

/// What an admission has used up so far in its tick.
#[derive(Debug, Default)]
struct Used {
    actions: u64,
    bytes: Bytes,
    to_node: BTreeMap<NodeId, Bytes>,
}

impl Laws {
    /// Laws that remember nothing yet.
    #[must_use]
    pub fn new(params: LawParams) -> Self {
        let copies = TimeBudget::new(Ratio::ONE, Span::millis(50));
        Self {
            params,
            paces: BTreeMap::new(),
            barred: BTreeMap::new(),
            memory: BackOff::IDLE,
            copies,
        }
    }

    /// Learns from an observation: time passes, processes end, mappings change.
    pub fn learn(&mut self, world: &World, seen: &Observation) {
        self.copies.fill(seen.at);
        for pace in self.paces.values_mut() {
            pace.stall.fill(seen.at);
        }
        for process in &seen.exited {
            self.paces.remove(process);
        }
        if !world.fresh.is_empty() || !seen.exited.is_empty() {
            self.forgive(world);
        }
        self.paces
            .retain(|process, _| world.processes.contains_key(process));
    }

    /// Forgets failures of slots that are gone or mapped anew.
    fn forgive(&mut self, world: &World) {
        self.barred.retain(|slot, _| {
            let start = slot.start(&world.geometry);
            let fresh = |(object, part): &(ObjectId, Range<u64>)| {
                *object == slot.object && part.contains(&start)
            };
            world.slots.get(*slot).is_some() && !world.fresh.iter().any(fresh)
        });
    }

    /// Splits what is asked for into what may be done now and what may not, with the law that forbids it.
    pub fn admit(&mut self, world: &World, wanted: Vec<Planned>) -> (Vec<Planned>, Vec<Refused>) {
        let mut used = Used::default();
        let mut admitted = Vec::new();
        let mut refused = Vec::new();
        for planned in wanted {
            match self.forbids(world, &planned.action, &used) {
                Some(law) => refused.push(Refused { planned, law }),
                None => {
                    self.charge(world, &planned.action, &mut used);
                    admitted.push(planned);
                }
            }
        }
        (admitted, refused)
    }

    fn forbids(&self, world: &World, action: &Action, used: &Used) -> Option<Law> {
        if used.actions >= self.params.actions_per_tick_max {
            return Some(Law::TickBound);
        }
        let slot = action.slot()?;
        let Some(process) = world.process_of(slot) else {
            return Some(Law::Unmapped);
        };
        if process.thp == ThpConsent::Refused {
            return Some(Law::OptedOut);
        }
        if self
            .barred
            .get(&slot)
            .is_some_and(|wait| wait.waits(world.at))
        {
            return Some(Law::BackOff);
        }
        if matches!(action, Action::Collapse { .. }) {
            forbidden_memory(world, slot, process)
                .or_else(|| self.short_of_memory(world, process, used))
                .or_else(|| self.too_dear(world, process))
        } else {
            self.forbids_move(world, slot, &moves_of(world, action), used)
        }
    }

    /// The laws on where memory may go: `moves` has the bytes that go to each node.
    fn forbids_move(
        &self,
        world: &World,
        slot: SlotId,
        moves: &BTreeMap<NodeId, Bytes>,
        used: &Used,
    ) -> Option<Law> {
        if moves.is_empty() {
            return None;
        }
        if world.is_placement_fixed(slot) {
            return Some(Law::PlacementFixed);
        }
        let forbidden = |node: &NodeId| !world.is_node_allowed(slot.object, *node);
        if moves.keys().any(forbidden) {
            return Some(Law::NodeForbidden);
        }
        let coming = |node: NodeId| used.to_node.get(&node).copied().unwrap_or(Bytes::ZERO);
        let full = |(node, bytes): (&NodeId, &Bytes)| {
            is_node_full(world, &self.params, *node, *bytes + coming(*node))
        };
        if moves.iter().any(full) {
            return Some(Law::NodeFull);
        }
        (!self.copies.allows()).then_some(Law::TickBound)
    }

    fn short_of_memory(
        &self,
        world: &World,
        process: &ProcessObserved,
        used: &Used,
    ) -> Option<Law> {
        if self.memory.waits(world.at) {
            return Some(Law::BackOff);
        }
        let cgroup = process.cgroup.and_then(|cgroup| world.cgroups.get(&cgroup));
        let pressed = |pressure: Option<Ratio>| {
            pressure.is_some_and(|share| share > self.params.pressure_max)
        };
        if pressed(world.pressure) || cgroup.is_some_and(|cgroup| pressed(cgroup.pressure)) {
            return Some(Law::Pressure);
        }
        let coming = used.bytes + world.geometry.slot();
        let crowded = cgroup.is_some_and(|cgroup| {
            let limit = [cgroup.high, cgroup.max].into_iter().flatten().min();
            limit.is_some_and(|limit| cgroup.current + coming + self.headroom(limit) > limit)
        });
        let free: Bytes = world.nodes.iter().map(|node| node.free).sum();
        let full = !world.nodes.is_empty() && free < coming + self.params.headroom_min_bytes;
        (crowded || full).then_some(Law::Headroom)
    }

    /// Room to leave under `limit`.
    fn headroom(&self, limit: Bytes) -> Bytes {
        limit
            .share(self.params.headroom_share)
            .max(self.params.headroom_min_bytes)
    }

    fn too_dear(&self, world: &World, process: &ProcessObserved) -> Option<Law> {
        if !self.copies.allows() {
            return Some(Law::TickBound);
        }
        let pace = self.paces.get(&process.process)?;
        if pace.slow.waits(world.at) {
            return Some(Law::BackOff);
        }
        let dear = price(process, pace.lock_s.get()) > Span::ZERO && !pace.stall.allows();
        dear.then_some(Law::LockBudget)
    }

    /// How long until the soonest of the processes that wait for their lock budget may be collapsed again.
    #[must_use]
    pub fn wait(&self) -> Span {
        let debts = self.paces.values().map(|pace| pace.stall.wait());
        debts
            .filter(|wait| *wait > Span::ZERO)
            .min()
            .unwrap_or(Span::ZERO)
    }

    fn charge(&mut self, world: &World, action: &Action, used: &mut Used) {
        used.actions += 1;
        for (node, bytes) in moves_of(world, action) {
            *used.to_node.entry(node).or_default() += bytes;
            self.charge_copy(bytes);
        }
        let Action::Collapse { slot, .. } = action else {
            return;
        };
        used.bytes += world.geometry.slot();
        self.charge_copy(world.geometry.slot());
        if let Some(process) = world.process_of(*slot) {
            let pace = self.pace(process.process, world.at);
            let cost = price(process, pace.lock_s.get());
            pace.stall.spend(cost);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of a second")]
    fn charge_copy(&mut self, bytes: Bytes) {
        let copying = bytes.0 as f64 / self.params.copy_bytes_per_s_max.0 as f64;
        self.copies.spend(Span::from_secs_f64(copying));
    }

    fn pace(&mut self, process: ProcessId, at: Instant) -> &mut ProcessPace {
        let params = &self.params;
        self.paces.entry(process).or_insert_with(|| {
            let mut stall = TimeBudget::new(params.stall_share_max, params.stall_burst_ms);
            stall.fill(at);
            ProcessPace {
                stall,
                lock_s: Smoothed::new(LOCK_TIME_S, LOCK_TIME_WEIGHT),
                slow: BackOff::IDLE,
            }
        })
    }

    /// Learns from what came of an action.
    pub fn account(&mut self, world: &World, done: &Accounted) {
        let Some(slot) = done.planned.action.slot() else {
            return;
        };
        let at = world.at;
        let (first, longest) = (self.params.back_off_ms, self.params.back_off_max_ms);
        match done.outcome.class {
            OutcomeClass::Done | OutcomeClass::Gone => {
                self.barred.remove(&slot);
            }
            OutcomeClass::NoMemory | OutcomeClass::Busy | OutcomeClass::NoEffect => {
                self.barred
                    .entry(slot)
                    .or_insert(BackOff::IDLE)
                    .fail(at, first, longest);
            }
            OutcomeClass::Ineligible | OutcomeClass::Unsupported | OutcomeClass::Denied => {
                self.barred.entry(slot).or_insert(BackOff::IDLE).fail(
                    at,
                    INELIGIBLE_FOR,
                    INELIGIBLE_FOR,
                );
            }
        }
        self.bound_barred();
        if matches!(done.planned.action, Action::Collapse { .. }) {
            self.account_collapse(done, at);
        }
    }

    fn account_collapse(&mut self, done: &Accounted, at: Instant) {
        let (first, longest, slow) = (
            self.params.back_off_ms,
            self.params.back_off_max_ms,
            self.params.slow_ms,
        );
        match done.outcome.class {
            OutcomeClass::NoMemory => self.memory.fail(at, first, longest),
            OutcomeClass::Done => self.memory.succeed(),
            OutcomeClass::Busy
            | OutcomeClass::Gone
            | OutcomeClass::Ineligible
            | OutcomeClass::Unsupported
            | OutcomeClass::Denied
            | OutcomeClass::NoEffect => {}
        }
        let Some(process) = done.via else { return };
        let took = done.outcome.took;
        let pace = self.pace(process, at);
        if done.outcome.class == OutcomeClass::Done {
            pace.lock_s.add(took.as_secs_f64());
        }
        if took > slow {
            pace.slow.fail(at, first, longest);
        } else if done.outcome.class == OutcomeClass::Done {
            pace.slow.succeed();
        }
    }

    fn bound_barred(&mut self) {
        if self.barred.len() > BARRED_MAX {
            let soonest = self
                .barred
                .iter()
                .min_by_key(|(_, wait)| wait.until())
                .map(|(slot, _)| *slot);
            if let Some(slot) = soonest {
                self.barred.remove(&slot);
            }
        }
    }
}

/// How long a slot that the kernel called ineligible is left alone, unless it is mapped anew before.
const INELIGIBLE_FOR: Span = Span::secs(600);

/// The time that faults of `process` are expected to wait for one collapse that holds its lock for `lock_s` seconds.
/// Below one expected fault in ten collapses the process counts as quiet, and the price is nothing.
fn price(process: &ProcessObserved, lock_s: f64) -> Span {
    const QUIET: f64 = 0.1;
    let faults = process.fault_rate() * lock_s;
    if faults < QUIET {
        Span::ZERO
    } else {
        Span::from_secs_f64(lock_s * faults.min(1.0))
    }
}

/// The laws on whose memory may be collapsed at all.
fn forbidden_memory(world: &World, slot: SlotId, process: &ProcessObserved) -> Option<Law> {
    let (mapping, _) = world.mapping_of(slot)?;
    let state = world.slots.get(slot)?;
    let private = match mapping.kind {
        MemoryKind::Anonymous => true,
        MemoryKind::Shmem | MemoryKind::File | MemoryKind::Hugetlb | MemoryKind::Special => false,
    };
    if private && process.forked_children > 0 {
        return Some(Law::LivingChild);
    }
    if state.sharing == Sharing::ForkShared {
        return Some(Law::ForkShared);
    }
    (state.swapped().0 > 0).then_some(Law::Swapped)
}
