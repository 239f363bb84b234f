//! hugepilot under abuse: it collapses and splits at random, as fast as it can, while a storm of processes holds
//! checksummed memory in threads, forks, locks, pins, moves, unmaps, execs and dies.
//!
//! Passes only if not one byte is wrong, no process was harmed but by its own doing, at least [`ACTIONS_MIN`] collapses
//! and as many splits were *verified*, and every class of outcome was seen. `HUGEPILOT_ABUSE_SECONDS` sets how long
//! (60 s; `make test-long` takes an hour); `HUGEPILOT_ABUSE_SEED` repeats a run.

mod denied;
mod limited;
mod storm;

use hugepilot_core::action::Action;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{ObjectId, SlotId, SlotRange};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::Observation;
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::scan::slot_ranges;
use hugepilot_core::units::BasePages;
use hugepilot_core::world::{SlotState, World};
use hugepilot_linux::machine::LiveMachine;
use hugepilot_workers::pattern::Random;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use storm::Storm;

/// Verified collapses, and splits, without which a run of a minute or longer proves nothing.
const ACTIONS_MIN: u64 = 10_000;
/// Memory of the storm that stays, so that there is always something to collapse and split.
const STORM_BYTES: u64 = 256 << 20;
/// Actions between two observations.
const ACTIONS_PER_TICK: usize = 64;
/// Slots read in one observation.
const SLOTS_PER_TICK: u64 = 512;
/// Slots of processes that ended, kept to be asked for again.
const GHOSTS_MAX: usize = 64;

/// Outcomes by action and class.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<(&'static str, OutcomeClass, Option<Cause>), u64>);

impl Tally {
    fn add(&mut self, action: &Action, outcome: &Outcome) {
        *self
            .0
            .entry((action.name(), outcome.class, outcome.cause))
            .or_default() += 1;
    }

    fn of(&self, action: &'static str, class: OutcomeClass) -> u64 {
        let counted = self
            .0
            .iter()
            .filter(|((name, of, _), _)| *name == action && *of == class);
        counted.map(|(_, count)| count).sum()
    }

    fn unseen(&self) -> Vec<OutcomeClass> {
        let seen = |class: &OutcomeClass| self.0.keys().any(|(_, of, _)| of == class);
        OutcomeClass::ALL
            .into_iter()
            .filter(|class| !seen(class))
            .collect()
    }
}

/// The manager that knows no restraint: no policy, no laws, only the machine.
pub struct Abuser {
    machine: LiveMachine,
    world: World,
    random: Random,
    ghosts: Vec<SlotId>,
    pub tally: Tally,
}

impl Abuser {
    pub fn new(machine: LiveMachine, seed: u64) -> Self {
        let world = World::new(machine.geometry());
        Self {
            machine,
            world,
            random: Random::new(seed),
            ghosts: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// One round: look at some slots, then act on some, at random.
    pub fn tick(&mut self) {
        let looks = self.looks();
        let seen = self
            .machine
            .observe(&looks)
            .expect("a partial answer at the least");
        self.remember_ghosts(&seen);
        self.world.fold(&seen);
        for action in self.actions() {
            let (outcome, _) = self.machine.act(&action);
            check_verified(&self.world.geometry, &action, &outcome);
            self.tally.add(&action, &outcome);
            if let Some(after) = &outcome.after {
                self.world.account(after);
            }
        }
    }

    fn looks(&mut self) -> Vec<Look> {
        let objects: Vec<ObjectId> = self.world.objects.keys().copied().collect();
        let mut ranges: Vec<SlotRange> = objects
            .iter()
            .flat_map(|object| slot_ranges(&self.world, *object))
            .collect();
        let mut looks = Vec::new();
        let mut left = SLOTS_PER_TICK;
        while left > 0 && !ranges.is_empty() {
            let range = ranges.swap_remove(self.random.below(ranges.len()));
            let count = range.count.min(left);
            left -= count;
            let room = usize::try_from(range.count - count).expect("fits") + 1;
            let first = range.first + u64::try_from(self.random.below(room)).expect("fits");
            looks.push(Look::PageTables(SlotRange {
                first,
                count,
                ..range
            }));
        }
        if let Some(slot) = self.any_slot() {
            looks.push(Look::ZeroPages {
                slot,
                pages_max: BasePages(64),
            });
            looks.push(Look::Nodes(slot));
        }
        looks
    }

    fn any_slot(&mut self) -> Option<SlotId> {
        let all = self.world.slots.len();
        if all == 0 {
            return None;
        }
        let nth = self.random.below(all);
        self.world.slots.iter().nth(nth).map(|(slot, _)| slot)
    }

    fn remember_ghosts(&mut self, seen: &Observation) {
        for process in &seen.exited {
            let object = ObjectId::Private(*process);
            self.ghosts.extend(
                self.world
                    .slots
                    .of_object(object)
                    .map(|(slot, _)| slot)
                    .take(4),
            );
        }
        let excess = self.ghosts.len().saturating_sub(GHOSTS_MAX);
        self.ghosts.drain(..excess);
    }

    fn actions(&mut self) -> Vec<Action> {
        let slots = |wanted: bool| -> Vec<SlotId> {
            let is_huge = |state: &SlotState| state.is_huge(&self.world.geometry);
            let all = self.world.slots.iter();
            all.filter(|(_, state)| is_huge(state) == wanted)
                .map(|(slot, _)| slot)
                .collect()
        };
        let (base, huge) = (slots(false), slots(true));
        let mut actions = Vec::new();
        for n in 0..ACTIONS_PER_TICK {
            // As many splits as collapses, and now and then what makes no sense: splitting base pages, collapsing what
            // is huge.
            let sense = self.random.below(16) > 0;
            let from = if (n % 2 == 0) == sense { &base } else { &huge };
            if from.is_empty() {
                continue;
            }
            let slot = from[self.random.below(from.len())];
            actions.push(if n % 2 == 0 {
                collapse(slot, &self.world.geometry)
            } else {
                split(slot)
            });
        }
        if !self.ghosts.is_empty() {
            let ghost = self.ghosts[self.random.below(self.ghosts.len())];
            actions.extend([collapse(ghost, &self.world.geometry), split(ghost)]);
        }
        if let Some(slot) = self.any_slot() {
            let order = Order(4);
            actions.push(Action::Collapse { slot, order });
        }
        actions
    }
}

fn collapse(slot: SlotId, geometry: &Geometry) -> Action {
    Action::Collapse {
        slot,
        order: geometry.slot_order,
    }
}

fn split(slot: SlotId) -> Action {
    Action::Split {
        slot,
        order: Order::BASE,
    }
}

/// What is called done is shown by the state that came with it.
fn check_verified(geometry: &Geometry, action: &Action, outcome: &Outcome) {
    if outcome.class != OutcomeClass::Done {
        return;
    }
    let after = outcome
        .after
        .as_ref()
        .unwrap_or_else(|| panic!("{action:?} done, and nobody looked"));
    let wanted = matches!(action, Action::Collapse { .. });
    assert_eq!(
        after.is_huge(geometry.slot_order),
        wanted,
        "{action:?}: {after:?}"
    );
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_unset) => default,
    }
}

#[test]
fn not_one_wrong_byte_while_slots_are_collapsed_and_split_at_random() {
    let seconds = number("HUGEPILOT_ABUSE_SECONDS", 60);
    let seed = number("HUGEPILOT_ABUSE_SEED", u64::from(std::process::id()));
    eprintln!("HUGEPILOT_ABUSE_SEED={seed} HUGEPILOT_ABUSE_SECONDS={seconds}");
    let storm = Storm::start(seconds, seed, STORM_BYTES);
    let mut abuser = Abuser::new(storm.machine(), seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        abuser.tick();
    }
    limited::collapse_in_a_full_cgroup(&mut abuser.tally);
    denied::act_without_capabilities(&mut abuser.tally);
    let report = storm.finish();
    for ((action, class, cause), count) in &abuser.tally.0 {
        eprintln!("{action} {class} {cause:?}: {count}");
    }
    eprintln!("{report:#?}");
    assert_eq!(report.wrong_bytes, 0);
    report.assert_busy();
    assert_eq!(
        abuser.tally.unseen(),
        [],
        "classes of outcomes that did not occur"
    );
    let least = ACTIONS_MIN * seconds.min(60) / 60;
    for action in ["collapse", "split"] {
        let done = abuser.tally.of(action, OutcomeClass::Done);
        assert!(
            done >= least,
            "only {done} verified {action}s in {seconds} s, of {least}"
        );
    }
}
