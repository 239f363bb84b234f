//! What the policies for machines with several nodes share: rounds, and Algorithm 1 of the paper line by line.
//!
//! **Problem.** Huge pages put more of what is hot, and of what different threads use, onto one node. **Approach.** Five
//! policies are one loop with parts switched on: placement ([`super::carrefour`]), the conservative component
//! ([`super::conservative`]), the reactive component ([`super::reactive`]), and taking a split back
//! ([`super::carrefour_lp`]). [`Family`] is the loop. **What is one application.** The paper estimates per application and
//! has one on the machine. Here it is all that is watched; the switches are the machine's, since stock Linux has no other
//! ones for a running process.
//!
//! **A round** (1 s): samples and counters are gathered over the ticks; at its end everything is judged once, and the
//! actions found are proposed in the ticks of the next round until they are carried out. Samples are kept for
//! `memory_rounds` rounds, so that few samples a second still become enough; when a page moves, the table knows.
//!
//! **Guard** (`uncertain_waits`, off in `paper`): where a threshold lies within the bounds of an estimate, nothing is
//! decided; the samples are kept longer and more of them are asked for.
//!
//! **Blindness.** Without sampled accesses nothing is done; without rates there are no hot pages and no imbalance; without
//! counters the conservative component is silent. Each is said by `notes`. On one node there is nothing to do.
//!
//! **Bounds.** [`PENDING_MAX`] actions wait; [`NODE_LOOKS_MAX`] looks a round; the table's own bound.

mod draw;
mod numbers;
mod pending;
mod placement;
mod rounds;
mod switches;

use draw::Draw;
pub use numbers::Numbers;
pub use pending::PENDING_MAX;
pub(super) use placement::{PagesOf, Placement};
pub use rounds::NODE_LOOKS_MAX;

use super::carrefour::CarrefourParams;
use super::carrefour_lp::{Placed, Retraction, Verdict};
use super::conservative::Conservative;
use super::reactive::{Judgement, Reactive};
use super::{Policy, Tick};
use crate::action::{Action, Switch};
use crate::geometry::Order;
use crate::ids::{ObjectId, SlotId};
use crate::metrics::{Grain, PageUse};
use crate::observation::{Observation, Unseen};
use crate::outcome::OutcomeClass;
use crate::plan::{Accounted, Planned, Wish};
use crate::world::{SlotChange, World};
use pending::Pending;
use rounds::Rounds;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use switches::Switches;

/// Slots split by us that are remembered, at the most.
const SPLIT_MAX: usize = 65_536;

/// The parts that a policy has.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) name: &'static str,
    /// Huge allocation and promotion at the start.
    pub(super) start: Switch,
    pub(super) params: CarrefourParams,
    pub(super) placement: Placement,
    pub(super) conservative: Option<Conservative>,
    pub(super) reactive: Option<Reactive>,
    pub(super) retraction: Option<Retraction>,
}

/// A policy of the family.
#[derive(Debug, Clone)]
pub(super) struct Family {
    parts: Parts,
    rounds: Rounds,
    switches: Switches,
    pending: Pending,
    /// Slots that were split because they were shared, and may be rejoined.
    split: BTreeSet<SlotId>,
    numbers: Option<Numbers>,
}

impl Family {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            rounds: Rounds::new(&parts.params),
            switches: Switches::new(parts.start),
            pending: Pending::default(),
            split: BTreeSet::new(),
            numbers: None,
            parts,
        }
    }

    /// Takes in what a tick brought, and forgets what is gone.
    fn learn(&mut self, tick: &Tick) {
        for process in &tick.seen.exited {
            self.forget(ObjectId::Private(*process));
        }
        for object in gone(tick.seen) {
            self.forget(object);
        }
        for change in tick.changes.iter().filter(|change| change.after.is_none()) {
            self.rounds.table.forget_slot(change.slot);
            self.rounds.lies_anywhere(change.slot);
            self.split.remove(&change.slot);
        }
        self.rounds.take(tick.world, tick.seen);
    }

    fn forget(&mut self, object: ObjectId) {
        self.rounds.forget(object);
        self.parts.placement.forget(object);
        self.split.retain(|slot| slot.object != object);
        self.pending.forget(object);
    }

    /// The end of a round: Algorithm 1, lines 4 to 20.
    fn judge(&mut self, world: &World) {
        let pages = self.rounds.table.pages(|slot| as_mapped(world, slot));
        let rejoined = self.if_rejoined(world);
        let numbers = self.rounds.numbers(
            world,
            &pages,
            rejoined.as_deref(),
            self.parts.reactive.as_ref(),
        );
        self.judge_counters(&numbers);
        let judgement = self.judge_split(&numbers);
        let mut wanted = self.hot_and_shared(world, &pages, &numbers, judgement);
        wanted.extend(self.rejoins(world, &numbers, judgement));
        let busy: BTreeSet<SlotId> = wanted
            .iter()
            .filter_map(|planned| planned.action.slot())
            .collect();
        let placed = self.parts.placement.plan(world, &pages, &numbers, &busy);
        wanted.extend(placed);
        let waits = judgement.is_some_and(Judgement::waits);
        self.rounds.end(world.at, waits, wanted.len(), &numbers);
        self.pending.replace(wanted);
        self.numbers = Some(numbers);
    }

    /// The pages as they would be if what was split were huge again, where that may come to be.
    fn if_rejoined(&self, world: &World) -> Option<Vec<PageUse>> {
        let may = self.parts.retraction.is_some() && !self.split.is_empty();
        may.then(|| {
            self.rounds.table.pages(|slot| {
                if self.split.contains(&slot) {
                    Grain::Huge
                } else {
                    as_mapped(world, slot)
                }
            })
        })
    }

    /// Lines 4 to 9: what the counters say.
    fn judge_counters(&mut self, numbers: &Numbers) {
        let Some(conservative) = &self.parts.conservative else {
            return;
        };
        if let Some(reason) = conservative.walks(numbers) {
            self.switches.allocation(Switch::On, reason.clone());
            self.switches.promotion(Switch::On, reason);
        } else if let Some(reason) = conservative.faults(numbers) {
            self.switches.allocation(Switch::On, reason);
        }
    }

    /// Lines 10 to 14: the latch.
    fn judge_split(&mut self, numbers: &Numbers) -> Option<Judgement> {
        let reactive = self.parts.reactive.as_mut()?;
        let held = self
            .parts
            .retraction
            .as_ref()
            .is_some_and(|retraction| retraction.holds(numbers.at));
        Some(reactive.judge(numbers, held))
    }

    /// Lines 15 to 19, the hot pages first: what is split, and huge allocation with it.
    fn hot_and_shared(
        &mut self,
        world: &World,
        pages: &[PageUse],
        numbers: &Numbers,
        judgement: Option<Judgement>,
    ) -> Vec<Planned> {
        let Some(reactive) = &mut self.parts.reactive else {
            return Vec::new();
        };
        let nodes = |slot: SlotId| self.parts.placement.targets(world, slot.object);
        let mut wanted = reactive.hot(world, pages, numbers, nodes);
        if judgement == Some(Judgement::Probes) {
            wanted.extend(reactive.probes(world, pages, numbers));
        }
        let off = self.switches.allocation_is(Switch::Off);
        if reactive.split_pages() || off {
            let hot: BTreeSet<SlotId> = wanted
                .iter()
                .filter_map(|planned| planned.action.slot())
                .collect();
            wanted.extend(reactive.splits(world, pages, numbers, &hot));
            let reason = reactive.reason(numbers);
            if reactive.stops_promotion() {
                self.switches.promotion(Switch::Off, reason.clone());
            }
            self.switches.allocation(Switch::Off, reason);
        }
        wanted
    }

    /// What a split that was in vain gives back.
    fn rejoins(
        &mut self,
        world: &World,
        numbers: &Numbers,
        judgement: Option<Judgement>,
    ) -> Vec<Planned> {
        let (Some(retraction), Some(reactive)) =
            (&mut self.parts.retraction, &mut self.parts.reactive)
        else {
            return Vec::new();
        };
        let placed = if self.pending.is_empty() {
            Placed::All
        } else {
            Placed::Some
        };
        let verdict = retraction.judge(reactive.split_pages(), placed, numbers);
        if let Verdict::InVain(reason) = verdict {
            reactive.unlatch();
            self.switches.allocation(Switch::On, reason.clone());
            self.switches.promotion(Switch::On, reason);
        }
        let settled = matches!(
            judgement,
            Some(Judgement::Neither | Judgement::PlacingSuffices)
        );
        let whole = !reactive.split_pages() && self.switches.allocation_is(Switch::On);
        let in_vain = numbers
            .cost_of_rejoining()
            .is_some_and(|cost| cost <= reactive.split_gain_min());
        if settled && whole && in_vain {
            retraction.rejoin_probes(numbers);
        }
        let order = world.geometry.slot_order;
        let rejoin = retraction.rejoining().map(|(reason, most)| {
            let apart = self.split.iter().filter(|slot| is_apart(world, **slot));
            apart.take(most).map(move |slot| Planned {
                action: Action::Collapse { slot: *slot, order },
                reason: reason.clone(),
            })
        });
        rejoin.into_iter().flatten().collect()
    }

    /// What is proposed now: the switches, then what waits. Splits stop where they took too much of the round.
    fn wishes(&mut self, world: &World) -> Vec<Planned> {
        let tired = self
            .parts
            .reactive
            .as_ref()
            .is_some_and(|reactive| reactive.is_tired(self.rounds.length()));
        let mut wanted = self.switches.wishes();
        wanted.extend(self.pending.take(|planned| {
            let split = matches!(planned.action, Action::Split { .. });
            let huge = planned
                .action
                .slot()
                .and_then(|slot| world.slots.get(slot))
                .map(|state| state.is_huge(&world.geometry));
            huge.is_some() && !(split && (tired || huge == Some(false)))
        }));
        wanted
    }

    fn done(&mut self, action: &Action) {
        match action {
            Action::MoveSlot { slot, to } => {
                self.rounds.table.place_slot(*slot, *to);
                self.rounds.lies_on(*slot, *to);
                self.parts.placement.moved(*slot);
            }
            Action::MovePages { slot, pages } => {
                self.rounds.table.place_pages(*slot, pages);
                self.rounds.lies_anywhere(*slot);
            }
            Action::Interleave { slot, .. } => {
                self.rounds.table.forget_slot(*slot);
                self.rounds.lies_anywhere(*slot);
            }
            Action::Split { slot, .. } if self.split.len() < SPLIT_MAX => {
                self.split.insert(*slot);
            }
            Action::Collapse { slot, .. } => {
                self.split.remove(slot);
            }
            Action::Split { .. }
            | Action::HugeAllocation { .. }
            | Action::Promotion { .. }
            | Action::Baseline { .. }
            | Action::CompactNode { .. }
            | Action::EvacuateBlock { .. }
            | Action::ResizePool { .. } => {}
        }
    }

    fn counter_notes(&self, world: &World) -> Vec<String> {
        if self.parts.conservative.is_none() {
            return Vec::new();
        }
        let walks = world.processes.values().any(|of| of.l2_misses.is_some());
        let faults = |of: &crate::observation::ProcessObserved| of.fault_time_share_max.is_some();
        let faults = world.processes.values().any(faults);
        let mut notes = Vec::new();
        if !walks {
            notes.push("blind: nothing counts L2 misses by page walks".to_owned());
        }
        if !faults {
            notes.push("blind: nothing measures time in page faults".to_owned());
        }
        notes
    }

    fn sample_notes(&self, world: &World) -> Vec<String> {
        let mut notes = Vec::new();
        if world.blind.contains(&Unseen::Accesses) {
            notes.push("blind: nothing samples accesses, so no page is moved".to_owned());
        }
        let unrated = world.blind.contains(&Unseen::AccessRates)
            || self.numbers.as_ref().is_some_and(Numbers::is_unrated);
        if unrated {
            notes.push(
                "blind: samples tell who, not how often: imbalance and hot pages are unknown"
                    .to_owned(),
            );
        }
        notes
    }
}

fn gone(seen: &Observation) -> impl Iterator<Item = ObjectId> {
    let gone = seen.objects.iter().filter(|of| of.mappings.is_empty());
    gone.map(|of| of.object)
}

/// A slot is one page where it is mapped huge.
fn as_mapped(world: &World, slot: SlotId) -> Grain {
    match world.slots.get(slot) {
        Some(state) if state.is_huge(&world.geometry) => Grain::Huge,
        Some(_) | None => Grain::Base,
    }
}

const fn at_start(set: bool, to: Switch) -> &'static str {
    match (set, to) {
        (false, _) => "left as they are",
        (true, Switch::On) => "on",
        (true, Switch::Off) => "off",
    }
}

fn is_apart(world: &World, slot: SlotId) -> bool {
    let state = world.slots.get(slot);
    state.is_some_and(|state| state.backing.at_least(Order(1)).0 == 0)
}

impl Policy for Family {
    fn name(&self) -> &'static str {
        self.parts.name
    }

    fn notes(&self, world: &World) -> Vec<String> {
        if world.memory_nodes().len() < 2 {
            return vec!["one node: there is nothing to do".to_owned()];
        }
        let mut notes = vec![format!(
            "all that is watched counts as one application; huge allocation and promotion are the whole machine's: at start {}",
            at_start(self.parts.params.start_switches, self.parts.start)
        )];
        notes.extend(self.sample_notes(world));
        notes.extend(self.counter_notes(world));
        notes.extend(self.switches.notes());
        notes
    }

    fn plan(&mut self, tick: &Tick) -> Wish {
        if tick.world.memory_nodes().len() < 2 {
            return Wish::default();
        }
        if self.parts.params.start_switches {
            self.switches.begin();
        }
        self.learn(tick);
        let mut looks = Vec::new();
        if self.rounds.is_over(tick.world.at) {
            looks = self.rounds.node_looks();
            self.judge(tick.world);
            if let Some(reactive) = &mut self.parts.reactive {
                reactive.begin_round();
            }
        }
        looks.extend(self.rounds.order());
        Wish {
            actions: self.wishes(tick.world),
            looks,
        }
    }

    fn account(&mut self, _: &World, done: &Accounted, _: Option<&SlotChange>) {
        self.switches.account(done);
        if let Some(reactive) = &mut self.parts.reactive {
            reactive.account(done);
        }
        self.pending.account(done);
        if done.outcome.class == OutcomeClass::Done {
            self.done(&done.planned.action);
        }
        let collapse = matches!(done.planned.action, Action::Collapse { .. });
        let hopeless = matches!(
            done.outcome.class,
            OutcomeClass::Gone
                | OutcomeClass::Ineligible
                | OutcomeClass::Unsupported
                | OutcomeClass::Denied
        );
        if let (true, Some(slot)) = (collapse && hopeless, done.planned.action.slot()) {
            self.split.remove(&slot);
        }
    }

    fn watches(&self) -> bool {
        true
    }

    fn state(&self) -> Value {
        json!({
            "rounds": self.rounds.state(),
            "numbers": self.numbers,
            "switches": self.switches.state(),
            "pending": self.pending.state(),
            "split": self.split.iter().collect::<Vec<_>>(),
            "placement": self.parts.placement.state(),
            "reactive": self.parts.reactive.as_ref().map(Reactive::state),
            "retraction": self.parts.retraction.as_ref().map(Retraction::state),
        })
    }

    fn bytes(&self) -> usize {
        self.rounds.table.bytes()
            + self.parts.placement.bytes()
            + self.split.len() * size_of::<SlotId>()
    }
}
