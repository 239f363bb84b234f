//! From an action to the actuator that carries it out.

use super::LiveMachine;
use crate::actuators::Verdict;
use crate::actuators::collapse::collapse;
use crate::actuators::moving::{interleave, move_base_pages, move_slot};
use crate::actuators::split::{Consent, split};
use crate::actuators::target::Target;
use crate::sys::time;
use hugepilot_core::action::Action;
use hugepilot_core::ids::{ObjectId, ProcessId, SlotId};
use hugepilot_core::observation::{Mapping, MemoryKind, ThpConsent};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};

/// Slots to be looked at again after actions, at the most; a tick acts on far fewer.
const ACTED_MAX: usize = 65_536;

impl LiveMachine {
    pub(super) fn carry_out(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        let Some(slot) = action.slot() else {
            return (self.switch(action), None);
        };
        let (process, address) = match self.reach(slot) {
            Ok(reached) => reached,
            Err(verdict) => return (verdict.into(), None),
        };
        let outcome = self.act_on(action, slot, process, address);
        if outcome.cause == Some(Cause::OptedOut) {
            self.note_opted_out(process, address);
        }
        if self.acted.len() < ACTED_MAX {
            self.acted.push(slot);
        }
        (outcome, Some(process))
    }

    fn switch(&mut self, action: &Action) -> Outcome {
        match &mut self.switches {
            Some(switches) => switches.switch(action),
            None => Outcome::new(OutcomeClass::Unsupported),
        }
    }

    fn act_on(
        &mut self,
        action: &Action,
        slot: SlotId,
        process: ProcessId,
        address: u64,
    ) -> Outcome {
        if let Some(verdict) = self.forbidden(action, process, address) {
            return verdict.into();
        }
        if action.destinations().is_none() {
            return self.act_at(action, slot, process, address);
        }
        if !self.collisions.may_move(time::since_boot()) {
            return Outcome::new(OutcomeClass::Busy);
        }
        let outcome = self.act_at(action, slot, process, address);
        self.collisions
            .learn(outcome.class, &self.proc, time::since_boot());
        outcome
    }

    fn act_at(
        &mut self,
        action: &Action,
        slot: SlotId,
        process: ProcessId,
        address: u64,
    ) -> Outcome {
        let consent = self.consent(process, address);
        let Some(watched) = self.processes.get(process) else {
            return Outcome::new(OutcomeClass::Gone).because(Cause::ProcessGone);
        };
        let mut target = Target {
            slot,
            process: watched,
            address,
            geometry: self.geometry,
            tables: &mut self.tables,
        };
        let outcome = match action {
            Action::Collapse { order, .. } => collapse(&mut target, *order),
            Action::Split { order, .. } => split(&mut target, *order, consent),
            Action::MoveSlot { to, .. } => move_slot(&mut target, *to),
            Action::MovePages { pages, .. } => move_base_pages(&mut target, pages),
            Action::Interleave { nodes, .. } => interleave(&mut target, nodes, consent),
            Action::HugeAllocation { .. }
            | Action::Promotion { .. }
            | Action::Baseline { .. }
            | Action::CompactNode { .. }
            | Action::EvacuateBlock { .. }
            | Action::ResizePool { .. } => Outcome::new(OutcomeClass::Unsupported),
        };
        if outcome.class == OutcomeClass::Done {
            self.note_consent(process, address);
        }
        outcome
    }

    fn consent(&self, process: ProcessId, address: u64) -> Consent {
        let known = self
            .processes
            .get(process)
            .is_some_and(|watched| watched.consents(address, time::since_boot()));
        if known {
            Consent::Given
        } else {
            Consent::Unknown
        }
    }

    fn note_consent(&mut self, process: ProcessId, address: u64) {
        if let Some(watched) = self.processes.get_mut(process) {
            watched.note_consent(address, time::since_boot());
        }
    }

    /// Who refused, the process or the region? The next observation says so.
    fn note_opted_out(&mut self, process: ProcessId, address: u64) {
        let now = time::since_boot();
        let Some(watched) = self.processes.get_mut(process) else {
            return;
        };
        // Where its status cannot be read it is on its way out, and nothing need be noted.
        if watched.read_status(&self.proc, now).is_ok() && watched.thp != ThpConsent::Refused {
            watched.note_opted_out(address, now);
            self.place_regions(process.pid);
        }
    }

    /// Through which process, and at which address, the slot can be acted upon.
    fn reach(&self, slot: SlotId) -> Result<(ProcessId, u64), Verdict> {
        let Some(object) = self.objects.get(slot.object) else {
            return Err(self.nowhere(slot));
        };
        let (start, bytes) = (slot.start(&self.geometry), self.geometry.slot());
        let touching: Vec<&Mapping> = object
            .mappings()
            .filter(|mapping| mapping.offset < start + bytes.0)
            .filter(|mapping| start < mapping.offset + mapping.length.0)
            .collect();
        if touching.is_empty() {
            return Err(self.nowhere(slot));
        }
        let whole = touching.into_iter().filter_map(|mapping| {
            let address = mapping.address_of(start)?;
            let fits = mapping.covers(start, bytes) && address % bytes.0 == 0;
            fits.then_some((mapping, address))
        });
        let whole: Vec<(&Mapping, u64)> = whole.collect();
        if whole.is_empty() {
            return Err(Verdict::new(OutcomeClass::Ineligible).because(Cause::NotMappedWhole));
        }
        self.choose(&whole)
    }

    /// The first mapping that may be acted upon, of a process that still runs.
    fn choose(&self, whole: &[(&Mapping, u64)]) -> Result<(ProcessId, u64), Verdict> {
        let mut why = Verdict::new(OutcomeClass::Gone).because(Cause::ProcessGone);
        for (mapping, address) in whole {
            let Some(watched) = self.processes.get(mapping.process) else {
                continue;
            };
            let opted_out = mapping.excluded || watched.thp == ThpConsent::Refused;
            match mapping.kind {
                MemoryKind::Anonymous | MemoryKind::Shmem if opted_out => {
                    why = Verdict::new(OutcomeClass::Ineligible).because(Cause::OptedOut);
                }
                MemoryKind::Anonymous | MemoryKind::Shmem if watched.alive() => {
                    return Ok((mapping.process, *address));
                }
                MemoryKind::Anonymous | MemoryKind::Shmem => {}
                MemoryKind::File | MemoryKind::Hugetlb | MemoryKind::Special => {
                    why = Verdict::new(OutcomeClass::Ineligible);
                }
            }
        }
        Err(why)
    }

    /// Nobody maps the slot: because its process is gone, or because the memory is.
    fn nowhere(&self, slot: SlotId) -> Verdict {
        let gone = Verdict::new(OutcomeClass::Gone);
        match slot.object {
            ObjectId::Private(process)
                if self
                    .processes
                    .get(process)
                    .is_none_or(|watched| !watched.alive()) =>
            {
                gone.because(Cause::ProcessGone)
            }
            ObjectId::Private(_) | ObjectId::Shared { .. } => gone,
        }
    }
}
