//! What a manager does to the machine, one file an action.
//!
//! Every action ends in an [`Outcome`] that is judged by the state afterwards, as on the live machine.

mod collapse;

mod place;
mod split;

use crate::config::ThpMode;
use crate::sim::Sim;
use crate::slot::Reach;
use hugepilot_core::action::{Action, LinuxMode, Switch};
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::{ProcessId, Scope, SlotId};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::BasePages;

/// What an attempt on a slot came to, before the state afterwards is put to it.
pub(crate) type Verdict = (OutcomeClass, Option<Cause>);

pub(crate) const DONE: Verdict = (OutcomeClass::Done, None);

/// An attempt, with the process through which it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) verdict: Verdict,
    pub(crate) via: Option<ProcessId>,
}

impl Attempt {
    pub(crate) const fn nowhere(class: OutcomeClass, cause: Option<Cause>) -> Self {
        Self {
            verdict: (class, cause),
            via: None,
        }
    }
}

impl Sim {
    pub(crate) fn carry_out(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        match action {
            Action::Collapse { slot, order } => self.on_slot(*slot, |sim| {
                sim.for_slot_order(*order, |sim| sim.collapse(*slot))
            }),
            Action::Split { slot, order } => self.on_slot(*slot, |sim| {
                sim.for_base_order(*order, |sim| sim.split_slot(*slot))
            }),
            Action::MoveSlot { slot, to } => self.on_slot(*slot, |sim| sim.move_slot(*slot, *to)),
            Action::MovePages { slot, pages } => {
                self.on_slot(*slot, |sim| sim.move_pages(*slot, pages))
            }
            Action::Interleave { slot, nodes } => {
                self.on_slot(*slot, |sim| sim.interleave(*slot, nodes))
            }
            Action::HugeAllocation { scope, switch } => {
                (Outcome::new(self.switch(*scope, *switch)), None)
            }
            Action::Baseline { mode } => {
                self.thp = baseline(*mode);
                (Outcome::new(OutcomeClass::Done), None)
            }
            Action::Promotion { .. }
            | Action::CompactNode { .. }
            | Action::EvacuateBlock { .. }
            | Action::ResizePool { .. } => (Outcome::new(OutcomeClass::Unsupported), None),
        }
    }

    fn on_slot(
        &mut self,
        slot: SlotId,
        attempt: impl FnOnce(&mut Self) -> Attempt,
    ) -> (Outcome, Option<ProcessId>) {
        let free_before = self.frames.free_pages();
        let Attempt {
            verdict: (class, cause),
            via,
        } = attempt(self);
        if let (Some(Cause::OptedOut), Reach::Whole { process, index }) = (cause, self.reach(slot))
        {
            self.note_refusal(process, index);
        }
        let freed = self
            .frames
            .free_pages()
            .checked_sub(free_before)
            .unwrap_or(BasePages::ZERO);
        let outcome = Outcome {
            cause,
            freed: self.geometry().bytes(freed),
            after: via.is_some().then(|| self.slot_seen(slot)),
            ..Outcome::new(class)
        };
        (outcome, via)
    }

    fn for_slot_order(&mut self, order: Order, run: impl FnOnce(&mut Self) -> Attempt) -> Attempt {
        if order == self.geometry().slot_order {
            run(self)
        } else {
            Attempt::nowhere(OutcomeClass::Unsupported, None)
        }
    }

    fn for_base_order(&mut self, order: Order, run: impl FnOnce(&mut Self) -> Attempt) -> Attempt {
        if order == Order::BASE {
            run(self)
        } else {
            Attempt::nowhere(OutcomeClass::Unsupported, None)
        }
    }

    fn switch(&mut self, scope: Scope, switch: Switch) -> OutcomeClass {
        match (scope, switch) {
            (Scope::System, Switch::On) => self.thp = ThpMode::Always,
            (Scope::System, Switch::Off) => self.thp = ThpMode::Never,
            (Scope::Process(_) | Scope::Cgroup(_), _) => return OutcomeClass::Unsupported,
        }
        OutcomeClass::Done
    }
}

const fn baseline(mode: LinuxMode) -> ThpMode {
    match mode {
        LinuxMode::Never => ThpMode::Never,
        LinuxMode::Madvise => ThpMode::Madvise,
        LinuxMode::Always | LinuxMode::Khugepaged => ThpMode::Always,
    }
}
