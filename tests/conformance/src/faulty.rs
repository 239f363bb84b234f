//! Machines with a known fault: what the suite must notice.

use hugepilot_core::action::Action;
use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{ProcessId, SlotId};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{Observation, SlotObserved};
use hugepilot_core::outcome::{Outcome, OutcomeClass};
use hugepilot_core::units::BasePages;

/// What is wrong with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A collapse says that it is done, and nothing happens.
    CollapseOnlyClaimed,
    /// A split says that it is done, and nothing happens.
    SplitOnlyClaimed,
    /// After the first slots were seen, none ever changes.
    StaleObservation,
    /// Slots that did not change are said again.
    RepeatedSlots,
    /// No process ever ends.
    LostExit,
    /// One base page too few in every slot.
    WrongPresentCount,
    /// Outcomes say no cause.
    LostCause,
    /// Freed memory is not counted.
    FreedNotCounted,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::CollapseOnlyClaimed,
        Self::SplitOnlyClaimed,
        Self::StaleObservation,
        Self::RepeatedSlots,
        Self::LostExit,
        Self::WrongPresentCount,
        Self::LostCause,
        Self::FreedNotCounted,
    ];
}

/// A machine, with a fault if one is wanted.
#[derive(Debug)]
pub struct Faulty<M> {
    inner: M,
    fault: Option<Fault>,
    /// Slots as they were said last, for the faults that need them.
    said: Vec<SlotObserved>,
}

impl<M> Faulty<M> {
    /// `inner` with `fault`.
    pub const fn new(inner: M, fault: Option<Fault>) -> Self {
        Self {
            inner,
            fault,
            said: Vec::new(),
        }
    }

    /// The machine behind it, to let programs run on.
    pub const fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }
}

impl<M: Machine> Machine for Faulty<M> {
    type Error = M::Error;

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn observe(&mut self, looks: &[Look]) -> Result<Observation, M::Error> {
        let mut seen = self.inner.observe(looks)?;
        if let Some(fault) = self.fault {
            self.spoil_observation(fault, &mut seen);
        }
        Ok(seen)
    }

    fn act(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        match (self.fault, action) {
            (Some(Fault::CollapseOnlyClaimed), Action::Collapse { slot, order }) => (
                claimed(*slot, Backing::uniform(*order, order.base_pages())),
                None,
            ),
            (Some(Fault::SplitOnlyClaimed), Action::Split { slot, .. }) => {
                let pages = self.inner.geometry().slot_pages();
                (claimed(*slot, Backing::uniform(Order::BASE, pages)), None)
            }
            (fault, action) => {
                let (outcome, via) = self.inner.act(action);
                (spoil_outcome(fault, outcome), via)
            }
        }
    }
}

impl<M> Faulty<M> {
    fn spoil_observation(&mut self, fault: Fault, seen: &mut Observation) {
        match fault {
            Fault::StaleObservation => {
                if !self.said.is_empty() {
                    seen.slots.clear();
                }
                self.said.extend(seen.slots.iter().cloned());
            }
            Fault::RepeatedSlots => {
                let known = |slot: SlotId| seen.slots.iter().any(|seen| seen.slot == slot);
                let repeated: Vec<SlotObserved> = self
                    .said
                    .iter()
                    .filter(|said| !known(said.slot))
                    .cloned()
                    .collect();
                seen.slots.extend(repeated);
                self.said.clone_from(&seen.slots);
            }
            Fault::LostExit => seen.exited.clear(),
            Fault::WrongPresentCount => seen.slots.iter_mut().for_each(lose_one_page),
            Fault::CollapseOnlyClaimed
            | Fault::SplitOnlyClaimed
            | Fault::LostCause
            | Fault::FreedNotCounted => {}
        }
    }
}

fn spoil_outcome(fault: Option<Fault>, mut outcome: Outcome) -> Outcome {
    match fault {
        Some(Fault::LostCause) => outcome.cause = None,
        Some(Fault::FreedNotCounted) => outcome.freed = Outcome::new(outcome.class).freed,
        Some(Fault::WrongPresentCount) => outcome.after.iter_mut().for_each(lose_one_page),
        Some(
            Fault::CollapseOnlyClaimed
            | Fault::SplitOnlyClaimed
            | Fault::StaleObservation
            | Fault::RepeatedSlots
            | Fault::LostExit,
        )
        | None => {}
    }
    outcome
}

fn claimed(slot: SlotId, backing: Backing) -> Outcome {
    Outcome {
        after: Some(SlotObserved::new(slot, backing)),
        ..Outcome::new(OutcomeClass::Done)
    }
}

fn lose_one_page(slot: &mut SlotObserved) {
    let mut left: Vec<(Order, BasePages)> = slot.backing.entries().collect();
    if let Some((_, pages)) = left.first_mut() {
        *pages = pages.checked_sub(BasePages(1)).expect("no entry is empty");
    }
    slot.backing = Backing::from_entries(left);
}
