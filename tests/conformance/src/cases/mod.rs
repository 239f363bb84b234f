//! The cases, by what they are about.

mod collapse;
mod observe;
mod split;

use crate::report::{Acted, CaseReport, SlotFacts};
use crate::stage::{Area, Feature, Features, Memory, Stage, StageError};
use hugepilot_core::action::Action;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{ObjectId, SlotId};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{Mapping, Observation, SlotObserved, Unseen};
use hugepilot_core::outcome::Cause;
use hugepilot_core::units::Bytes;
use std::collections::BTreeMap;

pub(crate) type Played = Result<CaseReport, StageError>;

macro_rules! cases {
    ($($file:ident: { $($name:ident $([$($feature:ident),+])?),+ $(,)? })+) => {
        /// All cases.
        pub static CASES: [Case; 0 $($(+ { let _ = stringify!($name); 1 })+)+] = [
            $($(Case {
                name: stringify!($name),
                features: &[$($(Feature::$feature),+)?],
            },)+)+
        ];

        impl Case {
            /// Plays it on a fresh stage.
            ///
            /// # Errors
            /// If the stage fails; whatever the machine does is part of the report.
            pub fn play<S: Stage>(&self, stage: &mut S) -> Result<CaseReport, StageError> {
                match self.name {
                    $($(stringify!($name) => $file::$name(stage),)+)+
                    other => unreachable!("{other} is no case"),
                }
            }
        }
    };
}

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What its outcome depends on.
    pub features: &'static [Feature],
}

impl Case {
    /// Of a machine's features those that matter here.
    #[must_use]
    pub fn relevant(&self, features: &Features) -> Features {
        let matters = |feature: &Feature| self.features.contains(feature);
        features
            .iter()
            .filter(|(feature, _)| matters(feature))
            .map(|(feature, has)| (*feature, *has))
            .collect()
    }
}

cases! {
    collapse: {
        collapse_full_slot,
        collapse_one_page_present,
        collapse_never_touched,
        collapse_only_read,
        collapse_already_huge,
        collapse_advised_against,
        collapse_opted_out_process,
        collapse_fork_shared,
        collapse_after_child_exits,
        collapse_locked,
        collapse_pinned_then_unpinned,
        collapse_region_too_small,
        collapse_region_unaligned,
        collapse_shmem,
        collapse_shmem_through_second_process,
        collapse_cgroup_full,
        collapse_after_pages_were_freed,
        collapse_after_unmap,
        collapse_vanished_process,
    }
    split: {
        split_huge,
        split_base_pages,
        split_never_touched,
        split_zero_filled [SplitFreesZeroPages],
        split_one_page_used [SplitFreesZeroPages],
        split_fork_shared,
        split_locked,
        split_pinned_then_unpinned,
        split_partially_mapped [SeesPartialMappings],
        split_advised_against,
        split_shmem,
        split_vanished_process,
        split_and_collapse_again,
    }
    observe: {
        first_observation_is_a_checkpoint,
        unchanged_slots_are_not_repeated,
        present_pages_are_counted,
        zero_pages_do_not_count_as_present,
        freed_inside_a_huge_page [SeesPartialMappings],
        refusal_is_said_after_it,
        emptied_slots_are_reported,
        unmapped_object_is_reported,
        exit_is_reported,
        shared_object_is_seen_once,
        fork_is_seen,
        refusals_are_seen,
        zero_filled_pages_are_counted,
    }
}

/// What was seen so far, and the way to see more.
pub(crate) struct Watch {
    geometry: Geometry,
    slots: BTreeMap<SlotId, SlotObserved>,
    objects: BTreeMap<ObjectId, Vec<Mapping>>,
    /// The machine says that it does not see partial mappings.
    blind_to_parts: bool,
}

/// Observations made until a look is answered; a machine bounds how much it looks at in one.
const LOOKS_MAX: usize = 20;

impl Watch {
    pub(crate) fn new<S: Stage>(stage: &mut S) -> Result<Self, StageError> {
        let geometry = stage.machine()?.geometry();
        Ok(Self {
            geometry,
            slots: BTreeMap::new(),
            objects: BTreeMap::new(),
            blind_to_parts: false,
        })
    }

    pub(crate) fn observe<S: Stage>(
        &mut self,
        stage: &mut S,
        looks: &[Look],
    ) -> Result<Observation, StageError> {
        let seen = stage
            .machine()?
            .observe(looks)
            .map_err(StageError::from_error)?;
        for object in &seen.objects {
            self.objects.insert(object.object, object.mappings.clone());
            if object.mappings.is_empty() {
                self.slots.retain(|slot, _| slot.object != object.object);
            }
        }
        self.blind_to_parts |= seen
            .blind
            .iter()
            .any(|spot| spot.what == Unseen::PartialMappings);
        self.slots
            .extend(seen.slots.iter().map(|slot| (slot.slot, slot.clone())));
        Ok(seen)
    }

    /// Reads the page tables of an area, as far as it is still mapped.
    pub(crate) fn look<S: Stage>(
        &mut self,
        stage: &mut S,
        area: &Area,
    ) -> Result<Observation, StageError> {
        for _ in 0..LOOKS_MAX {
            let seen = self.observe(stage, &[Look::PageTables(area.range())])?;
            let read = |slot: SlotId| seen.scanned.iter().any(|range| range.contains(slot));
            if area
                .range()
                .slots()
                .all(|slot| read(slot) || !self.is_mapped(slot))
            {
                return Ok(seen);
            }
        }
        Err(StageError(format!(
            "{:?} was not looked at in {LOOKS_MAX} observations",
            area.range()
        )))
    }

    fn mappings_over(&self, slot: SlotId) -> impl Iterator<Item = &Mapping> {
        let (start, length) = (slot.start(&self.geometry), self.geometry.slot().0);
        let mappings = self.objects.get(&slot.object).into_iter().flatten();
        mappings.filter(move |m| start < m.offset + m.length.0 && m.offset < start + length)
    }

    fn is_mapped(&self, slot: SlotId) -> bool {
        self.mappings_over(slot).next().is_some()
    }

    /// Is a region that maps a part of the slot said to be excluded?
    pub(crate) fn is_excluded(&self, slot: SlotId) -> bool {
        self.mappings_over(slot).any(|mapping| mapping.excluded)
    }

    /// A slot as it was seen last.
    pub(crate) fn slot(&self, slot: SlotId) -> SlotFacts {
        let facts = |seen| SlotFacts::of(seen, self.geometry.slot_pages());
        self.slots.get(&slot).map_or_else(SlotFacts::default, facts)
    }

    fn act<S: Stage>(
        &mut self,
        stage: &mut S,
        area: &Area,
        action: &Action,
    ) -> Result<Acted, StageError> {
        let (outcome, _via) = stage.machine()?.act(action);
        let slot = action.slot().expect("cases act on slots");
        let (slot_pages, page) = (self.geometry.slot_pages(), self.geometry.base_page());
        if outcome.cause == Some(Cause::ProcessGone) {
            return Ok(Acted::of(&outcome, None, slot_pages, page));
        }
        self.look(stage, area)?;
        Ok(Acted::of(&outcome, Some(self.slot(slot)), slot_pages, page))
    }

    pub(crate) fn collapse<S: Stage>(
        &mut self,
        stage: &mut S,
        area: &Area,
        slot: u64,
    ) -> Result<Acted, StageError> {
        let (slot, order) = (area.slot(slot), self.geometry.slot_order);
        self.act(stage, area, &Action::Collapse { slot, order })
    }

    pub(crate) fn split<S: Stage>(
        &mut self,
        stage: &mut S,
        area: &Area,
        slot: u64,
    ) -> Result<Acted, StageError> {
        let slot = area.slot(slot);
        self.act(
            stage,
            area,
            &Action::Split {
                slot,
                order: Order::BASE,
            },
        )
    }
}

/// One program with `slots` slots of private memory, nothing of it touched.
pub(crate) fn private<S: Stage>(stage: &mut S, slots: u64) -> Result<Area, StageError> {
    let process = stage.start()?;
    stage.map(process, Bytes::mib(2 * slots), Memory::Private)
}

/// One program with one slot of private memory, written to in full.
pub(crate) fn written<S: Stage>(stage: &mut S) -> Result<Area, StageError> {
    let area = private(stage, 1)?;
    stage.write(&area, 0..512)?;
    Ok(area)
}

/// The same, made huge by the program itself.
pub(crate) fn huge<S: Stage>(stage: &mut S) -> Result<Area, StageError> {
    let area = written(stage)?;
    stage.make_huge(&area, 0)?;
    Ok(area)
}

/// Looks at an area and collapses its first slot.
pub(crate) fn look_and_collapse<S: Stage>(stage: &mut S, area: &Area) -> Played {
    let mut watch = Watch::new(stage)?;
    watch.look(stage, area)?;
    Ok(CaseReport::default().acted(watch.collapse(stage, area, 0)?))
}

/// Looks at an area and splits its first slot.
pub(crate) fn look_and_split<S: Stage>(stage: &mut S, area: &Area) -> Played {
    let mut watch = Watch::new(stage)?;
    watch.look(stage, area)?;
    Ok(CaseReport::default().acted(watch.split(stage, area, 0)?))
}

/// Observations until something is seen: with the pauses of the live stage, some five seconds.
const OBSERVATIONS_MAX: usize = 100;

/// Does an observation say what is `wanted`, now or soon? A machine need not look at everything each time.
pub(crate) fn await_true<S: Stage>(
    stage: &mut S,
    watch: &mut Watch,
    wanted: impl Fn(&Observation) -> bool,
) -> Result<bool, StageError> {
    for _ in 0..OBSERVATIONS_MAX {
        if wanted(&watch.observe(stage, &[])?) {
            return Ok(true);
        }
        stage.wait();
    }
    Ok(false)
}

/// Is the first slot of an area said to be partially mapped, or (`wanted` false) not said so, now or soon?
pub(crate) fn await_partly_mapped<S: Stage>(
    stage: &mut S,
    watch: &mut Watch,
    area: &Area,
    wanted: bool,
) -> Result<bool, StageError> {
    for _ in 0..OBSERVATIONS_MAX {
        let slot = watch.slots.get(&area.slot(0));
        if slot.is_some_and(|slot| slot.partially_mapped == Some(true)) == wanted {
            return Ok(true);
        }
        if watch.blind_to_parts {
            return Ok(false);
        }
        stage.wait();
        watch.observe(stage, &[])?;
    }
    Ok(false)
}
