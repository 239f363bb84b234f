//! `ingens`: collapse what is nearly full, split what gives memory back, share huge pages fairly.
//!
//! **Problem.** Huge pages at fault time stall faults and bloat memory; first come, first served gives them all to one
//! process. **Signal.** Present share of each slot; base pages freed inside a huge page; huge bytes of each process, and
//! its accessed share where a tracker exists. **Decision.** A slot with at least `present_min` of its base pages is
//! collapsed in the background. A huge slot out of which base pages were freed is split. With `fairness`, slots of the
//! process that has the least for its share come first: Ingens ranks processes by share over huge memory, idle huge
//! memory weighing `idle_tax` times as much; without a tracker all memory counts as used, and `notes` says so.
//! **Parameters.** Below, presets `paper` and `released` (460 of 512 present, fairness off). **Properties.** A slot below
//! `present_min` is never collapsed; one with freed pages is not collapsed again before it is full again; of two
//! processes with candidates the one with less huge memory goes first. **Known bad cases.** A program that allocates and
//! frees in turn pays for a split and a collapse each time (MEGA measures +59 %). **Source.** Ingens (OSDI 2016), as the
//! MEGA slides describe it, and its released code; without its compaction of 100 MB a period.

use super::turn::Turn;
use super::{Policy, Tick};
use crate::action::Action;
use crate::geometry::Order;
use crate::ids::{ObjectId, SlotId};
use crate::params::ParamError;
use crate::plan::{Accounted, Planned, Wish};
use crate::reason::Reason;
use crate::slot_map::SlotMap;
use crate::units::{BasePages, Bytes, Ratio};
use crate::world::{SlotChange, SlotState, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The policy's name.
pub const NAME: &str = "ingens";

crate::parameters! {
    /// Ingens' numbers.
    pub struct IngensParams in "ingens" {
        present_min: Ratio = Ratio::new(0.9), 0..=1, "share of base pages",
            "A slot with at least this share present is collapsed", "paper: 90 %; released code: 460 of 512";
        quiet_scans_first: bool = true, 0..=0, "true or false",
            "Slots that did not change lately go before those being filled", "ours";
        fairness: bool = true, 0..=0, "true or false",
            "Processes with the least huge memory go first", "paper: on; released code: off";
        idle_tax: f64 = 4.0, 1..=1000, "times",
            "How much more idle huge memory counts than used", "ours: the paper gives no number on the slides";
    }
}

impl IngensParams {
    /// Sets the section to `"paper"` or `"released"`.
    ///
    /// # Errors
    /// Where it is neither.
    pub fn preset(&mut self, value: &Value) -> Result<(), ParamError> {
        match value.as_str() {
            Some("paper") => *self = Self::default(),
            Some("released") => {
                *self = Self {
                    present_min: Ratio::of(460, 512),
                    fairness: false,
                    ..Self::default()
                };
            }
            Some(_) | None => {
                return Err(ParamError::Value {
                    name: "ingens.preset".to_owned(),
                    value: value.clone(),
                    why: "must be paper or released".to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// The policy.
#[derive(Debug, Clone)]
pub struct Ingens {
    params: IngensParams,
    collapse: SlotMap<()>,
    split: BTreeMap<SlotId, BasePages>,
    /// Mean accessed share of each object's tracked slots.
    used: BTreeMap<ObjectId, Ratio>,
    turn: Turn,
}

impl Ingens {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(params: IngensParams) -> Self {
        Self {
            params,
            collapse: SlotMap::default(),
            split: BTreeMap::new(),
            used: BTreeMap::new(),
            turn: Turn::default(),
        }
    }

    fn consider(&mut self, world: &World, change: &SlotChange) {
        let slot = change.slot;
        self.collapse.remove(slot);
        let reachable = world.is_reachable(slot);
        let Some(after) = change.after.as_ref().filter(|_| reachable) else {
            self.split.remove(&slot);
            return;
        };
        if after.is_huge(&world.geometry) {
            self.split.remove(&slot);
            return;
        }
        if let Some(freed) = freed(world, change.before.as_ref(), after) {
            self.split.insert(slot, freed);
        }
        if !self.split.contains_key(&slot)
            && after.present_share(&world.geometry) >= self.params.present_min
        {
            self.collapse.insert(slot, ());
        }
    }

    fn forget(&mut self, object: ObjectId) {
        self.collapse.remove_object(object);
        self.split.retain(|slot, _| slot.object != object);
        self.used.remove(&object);
    }

    fn learn_use(&mut self, tick: &Tick) {
        let mut sums: BTreeMap<ObjectId, (f64, f64)> = BTreeMap::new();
        for change in tick.changes {
            if let Some(accessed) = change.accessed {
                let sum = sums.entry(change.slot.object).or_default();
                *sum = (sum.0 + accessed.share.get(), sum.1 + 1.0);
            }
        }
        self.used.extend(
            sums.into_iter()
                .map(|(object, (sum, count))| (object, Ratio::new(sum / count))),
        );
    }

    /// How much huge memory an object has, idle memory counting more: less goes first.
    fn claim(&self, world: &World, object: ObjectId) -> Bytes {
        if !self.params.fairness {
            return Bytes::ZERO;
        }
        let huge = world.huge_bytes(object);
        let used = self.used.get(&object).copied().unwrap_or(Ratio::ONE).get();
        let weight = (used + self.params.idle_tax * (1.0 - used)) / self.params.idle_tax;
        huge.share(Ratio::new(weight.clamp(0.0, 1.0)))
    }

    /// Objects with candidates, the one with the smallest claim first.
    fn by_claim(&self, world: &World) -> Vec<(Bytes, ObjectId)> {
        let mut objects: Vec<(Bytes, ObjectId)> = self
            .collapse
            .objects()
            .into_iter()
            .map(|object| (self.claim(world, object), object))
            .collect();
        objects.sort_unstable();
        objects
    }

    /// Candidates in the objects' order, quiet ones before those being filled.
    fn collapses<'a>(
        &'a self,
        world: &'a World,
        objects: &'a [(Bytes, ObjectId)],
    ) -> impl Iterator<Item = Planned> + 'a {
        let candidates = move |busy: bool| {
            objects.iter().flat_map(move |(_, object)| {
                self.collapse
                    .of_object(*object)
                    .filter_map(move |(slot, ())| {
                        let state = world.slots.get(slot)?;
                        let is_busy = self.params.quiet_scans_first && state.quiet_scans == 0;
                        (is_busy == busy).then_some((slot, state))
                    })
            })
        };
        candidates(false)
            .chain(candidates(true))
            .map(|(slot, state)| self.collapse_of(world, slot, state))
    }

    fn collapse_of(&self, world: &World, slot: SlotId, state: &SlotState) -> Planned {
        Planned {
            action: Action::Collapse {
                slot,
                order: world.geometry.slot_order,
            },
            reason: Reason::Present {
                present: state.present_share(&world.geometry),
                present_min: self.params.present_min,
                process_huge: world.huge_bytes(slot.object),
            },
        }
    }

    fn splits<'a>(&'a self, world: &'a World) -> impl Iterator<Item = Planned> + 'a {
        self.split.iter().filter_map(|(slot, freed)| {
            let present = world.slots.get(*slot)?.present_share(&world.geometry);
            Some(Planned {
                action: Action::Split {
                    slot: *slot,
                    order: Order::BASE,
                },
                reason: Reason::Freed {
                    freed: *freed,
                    present,
                },
            })
        })
    }
}

/// Base pages that went from a slot which was, or still is in part, a huge page.
fn freed(world: &World, before: Option<&SlotState>, after: &SlotState) -> Option<BasePages> {
    let left = after.backing.present();
    let was_huge = before.is_some_and(|before| before.is_huge(&world.geometry));
    let had = match before {
        Some(before) => before.backing.present(),
        None => world.geometry.slot_pages(),
    };
    let gone = had.checked_sub(left).filter(|gone| *gone > BasePages::ZERO);
    if after.partially_mapped {
        Some(gone.unwrap_or(world.geometry.slot_pages() - left))
    } else if was_huge {
        gone
    } else {
        None
    }
}

impl Policy for Ingens {
    fn name(&self) -> &'static str {
        NAME
    }

    fn notes(&self, world: &World) -> Vec<String> {
        let mut notes = vec!["without compaction".to_owned()];
        if self.params.fairness
            && world
                .blind
                .contains(&crate::observation::Unseen::AccessedShare)
        {
            notes.push("fairness by huge bytes: no tracker of accesses".to_owned());
        }
        notes
    }

    fn plan(&mut self, tick: &Tick) -> Wish {
        self.learn_use(tick);
        for change in tick.changes {
            self.consider(tick.world, change);
        }
        for process in &tick.seen.exited {
            self.forget(ObjectId::Private(*process));
        }
        for object in tick
            .seen
            .objects
            .iter()
            .filter(|object| object.mappings.is_empty())
        {
            self.forget(object.object);
        }
        let mut turn = self.turn;
        let objects = self.by_claim(tick.world);
        let splits = self.splits(tick.world);
        let actions = turn.take(splits.chain(self.collapses(tick.world, &objects)));
        self.turn = turn;
        Wish {
            actions,
            looks: Vec::new(),
        }
    }

    fn account(&mut self, world: &World, done: &Accounted, change: Option<&SlotChange>) {
        let Some(slot) = done.planned.action.slot() else {
            return;
        };
        self.turn.answered();
        if matches!(done.planned.action, Action::Split { .. }) {
            // Split once: what is left is judged like any other slot from now on.
            self.split.remove(&slot);
        }
        if let Some(change) = change {
            let settled = SlotChange {
                before: change.after.clone(),
                ..change.clone()
            };
            self.consider(world, &settled);
            self.split.remove(&slot);
        }
    }

    fn watches(&self) -> bool {
        true
    }

    fn state(&self) -> Value {
        json!({
            "collapse": self.collapse.iter().map(|(slot, ())| slot).collect::<Vec<_>>(),
            "skipped": self.turn.skipped(),
            "split": self.split.iter().collect::<Vec<_>>(),
            "used": self.used.iter().collect::<Vec<_>>(),
        })
    }

    fn bytes(&self) -> usize {
        self.collapse.bytes() + self.split.len() * size_of::<(SlotId, BasePages)>()
    }
}
