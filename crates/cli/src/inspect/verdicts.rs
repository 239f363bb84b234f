//! What each policy would do with a process now, and why. Nothing is done.
//!
//! All page tables are read once through a machine, as fast as it lets us; every policy is then shown the same
//! observations, and time goes on in its mind until it has nothing left to do, each action taken to have worked.

use crate::manage::predict::predict;
use hugepilot_core::ids::SlotRange;
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::Observation;
use hugepilot_core::plan::{Accounted, Law, Plan};
use hugepilot_core::policy::{NAMES, Settings};
use hugepilot_core::scan::slot_ranges;
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Ratio, Span};
use hugepilot_core::world::World;
use serde_json::Value;
use std::collections::BTreeMap;

/// Examples of each policy's actions that are kept.
const EXAMPLES: usize = 3;
/// Ticks that a policy is given, at the most: enough for a terabyte at 64 actions a tick.
const TICKS_MAX: u32 = 16_384;
/// Ticks without an action after which a policy is believed to be done.
const IDLE_TICKS: u32 = 3;
/// Observations made to read all page tables, at the most.
const LOOKS_MAX: u32 = 4096;
/// The time between two ticks in a policy's mind.
const TICK: Span = Span::secs(1);

/// What one policy would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// The policy.
    pub policy: String,
    /// What the user must know of it.
    pub notes: Vec<String>,
    /// Actions by name and rule of their reason.
    pub actions: BTreeMap<(&'static str, String), u64>,
    /// The first few, in words.
    pub examples: Vec<String>,
    /// What laws would still hold back in the end, as far as it is listed.
    pub refused: BTreeMap<Law, u64>,
    /// All that laws would still hold back.
    pub refused_total: u64,
}

/// Reads all page tables of what a machine watches: the observations of it, the first a checkpoint.
///
/// # Errors
/// If the machine cannot be seen.
pub fn look<M: Machine>(machine: &mut M) -> Result<Vec<Observation>, M::Error> {
    let first = machine.observe(&[])?;
    let mut world = World::new(machine.geometry());
    world.fold(&first);
    let mut left: Vec<SlotRange> = world
        .objects
        .keys()
        .flat_map(|object| slot_ranges(&world, *object))
        .collect();
    let mut seen = vec![first];
    for _ in 0..LOOKS_MAX {
        if left.is_empty() || world.processes.is_empty() {
            break;
        }
        let looks: Vec<Look> = left.iter().map(|range| Look::PageTables(*range)).collect();
        let next = machine.observe(&looks)?;
        world.fold(&next);
        let before = left.len();
        left = left
            .iter()
            .flat_map(|range| without(*range, &next.scanned))
            .collect();
        let nothing_read = next.scanned.is_empty() && left.len() == before;
        seen.push(next);
        if nothing_read && seen.len() > 64 {
            break;
        }
    }
    Ok(seen)
}

/// What is left of a range when others are taken out of it.
fn without(range: SlotRange, taken: &[SlotRange]) -> Vec<SlotRange> {
    let mut left = vec![range];
    for cut in taken.iter().filter(|cut| cut.object == range.object) {
        left = left
            .into_iter()
            .flat_map(|piece| {
                let part = |first: u64, end: u64| {
                    (first < end).then(|| SlotRange {
                        object: piece.object,
                        first,
                        count: end - first,
                    })
                };
                let before = part(piece.first, piece.end().min(cut.first));
                let after = part(piece.first.max(cut.end()), piece.end());
                before.into_iter().chain(after)
            })
            .collect();
    }
    left
}

/// What every policy would do after these observations.
pub fn verdicts(world: &World, seen: &[Observation], settings: &Settings) -> Vec<Verdict> {
    let mut settings = settings.clone();
    // Reading is over; in a policy's mind it costs nothing.
    settings.watch.cpu_max = Ratio::ONE;
    NAMES
        .iter()
        .filter_map(|name| verdict(name, world, seen, &settings))
        .collect()
}

fn verdict(
    name: &str,
    world: &World,
    seen: &[Observation],
    settings: &Settings,
) -> Option<Verdict> {
    let mut pilot = Pilot::new(world.geometry, settings.policy(name)?, settings);
    let mut verdict = Verdict {
        policy: name.to_owned(),
        ..Verdict::default()
    };
    let mut last = Plan::default();
    for observation in seen {
        last = verdict.tick(&mut pilot, observation);
    }
    let mut quiet = later(seen.last()?);
    let mut idle = 0;
    for _ in 0..TICKS_MAX {
        if idle >= IDLE_TICKS {
            break;
        }
        last = verdict.tick(&mut pilot, &quiet);
        idle = if last.actions.is_empty() { idle + 1 } else { 0 };
        quiet.at = quiet.at.after(TICK);
    }
    for refused in &last.refused {
        *verdict.refused.entry(refused.law).or_default() += 1;
    }
    verdict.refused_total = last.refused_total;
    verdict.notes = pilot.notes();
    Some(verdict)
}

/// An observation in which nothing happened, a tick after `before`.
fn later(before: &Observation) -> Observation {
    Observation {
        at: before.at.after(TICK),
        interval: TICK,
        nodes: before.nodes.clone(),
        pressure: before.pressure,
        ..Observation::default()
    }
}

impl Verdict {
    fn tick(&mut self, pilot: &mut Pilot, seen: &Observation) -> Plan {
        let plan = pilot.plan(seen);
        for planned in &plan.actions {
            let rule = rule(&serde_json::to_value(&planned.reason).unwrap_or(Value::Null));
            *self
                .actions
                .entry((planned.action.name(), rule))
                .or_default() += 1;
            if self.examples.len() < EXAMPLES {
                let slot = planned.action.slot().map_or(String::new(), |slot| {
                    let address = pilot
                        .world()
                        .mapping_of(slot)
                        .map_or(slot.start(&pilot.world().geometry), |of| of.1);
                    format!(" {address:#x}")
                });
                self.examples.push(format!(
                    "{}{slot}: {}",
                    planned.action.name(),
                    planned.reason
                ));
            }
            let (outcome, via) = predict(pilot.world(), &planned.action);
            pilot.account(&Accounted {
                planned: planned.clone(),
                via,
                outcome,
            });
        }
        plan
    }
}

/// The rule of a reason, as on the wire.
fn rule(reason: &Value) -> String {
    reason["rule"].as_str().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{ObjectId, Pid, ProcessId};

    fn range(first: u64, count: u64) -> SlotRange {
        let object = ObjectId::Private(ProcessId {
            pid: Pid(1),
            start_ticks: 1,
        });
        SlotRange {
            object,
            first,
            count,
        }
    }

    #[test]
    fn what_was_read_is_taken_out() {
        assert_eq!(
            without(range(10, 10), &[range(12, 3)]),
            [range(10, 2), range(15, 5)]
        );
        assert_eq!(without(range(10, 10), &[range(0, 30)]), []);
        assert_eq!(without(range(10, 10), &[range(30, 1)]), [range(10, 10)]);
        assert_eq!(without(range(10, 4), &[range(10, 2), range(12, 2)]), []);
    }
}
