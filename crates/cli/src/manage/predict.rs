//! What would come of an action, for a dry run: that it works.
//!
//! A dry run goes on as the run would, each slot proposed once, so an action that is not carried out is accounted as
//! done and the slot as it would then be. Nothing is freed and no lock is held in a prediction: neither is known.

use hugepilot_core::action::Action;
use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::{ProcessId, SlotId};
use hugepilot_core::observation::SlotObserved;
use hugepilot_core::outcome::{Outcome, OutcomeClass};
use hugepilot_core::units::Span;
use hugepilot_core::world::World;

/// What a collapse or a split is taken to take: a warm collapse of 2 MiB, as measured.
const TOOK: Span = Span::micros(500);

/// The outcome that an action would have, and the process that it would be done through.
pub fn predict(world: &World, action: &Action) -> (Outcome, Option<ProcessId>) {
    let after = match action {
        Action::Collapse { slot, order } => Some(huge(world, *slot, *order)),
        Action::Split { slot, order } => Some(split(world, *slot, *order)),
        Action::MoveSlot { .. }
        | Action::MovePages { .. }
        | Action::Interleave { .. }
        | Action::HugeAllocation { .. }
        | Action::Promotion { .. }
        | Action::Baseline { .. }
        | Action::CompactNode { .. }
        | Action::EvacuateBlock { .. }
        | Action::ResizePool { .. } => None,
    };
    let took = if after.is_some() { TOOK } else { Span::ZERO };
    let via = action
        .slot()
        .and_then(|slot| world.process_of(slot))
        .map(|process| process.process);
    (
        Outcome {
            took,
            after,
            ..Outcome::new(OutcomeClass::Done)
        },
        via,
    )
}

fn huge(world: &World, slot: SlotId, order: Order) -> SlotObserved {
    SlotObserved::new(slot, Backing::uniform(order, world.geometry.slot_pages()))
}

fn split(world: &World, slot: SlotId, order: Order) -> SlotObserved {
    let backing = world.slots.get(slot).map_or(Backing::EMPTY, |state| {
        Backing::from_entries(
            state
                .backing
                .entries()
                .map(|(had, pages)| (had.min(order), pages)),
        )
    });
    SlotObserved {
        partially_mapped: Some(false),
        ..SlotObserved::new(slot, backing)
    }
}
