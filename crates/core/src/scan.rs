//! Which page tables to read next.
//!
//! **Problem.** Page tables change without a sign, and reading them costs: 13 ms for 8 GiB in base pages, all of it
//! under the target's lock. **Approach.** Each object is swept from end to end, in pieces; a sweep begins when its
//! object is due. An object whose mappings changed, or whose last sweep found changes, is due after `scan_period_ms`; each
//! sweep that finds no change doubles the wait: up to four periods while its processes fault (the faults may be others'),
//! else up to `quiet_period_ms`. All sweeps share one budget of processor time, and a
//! piece is charged by what its slots have cost so far. **Bounds.** `slots_per_tick_max` slots a tick; over the long
//! run no more than `cpu_max` of one core; state of 56 bytes an object.

use crate::budget::{Smoothed, TimeBudget};
use crate::ids::{ObjectId, SlotRange};
use crate::look::Look;
use crate::observation::Observation;
use crate::units::{Instant, Ratio, Span};
use crate::world::{SlotChange, World};
use std::collections::{BTreeMap, BTreeSet};

crate::parameters! {
    /// How memory is watched.
    pub struct WatchParams in "watch" {
        cpu_max: crate::units::Ratio = crate::units::Ratio::new(0.01), 0.0001..=1.0, "share of one core",
            "Processor time spent on looking, at the most", "issue: 1 % of one core";
        sample_cpu_max: crate::units::Ratio = crate::units::Ratio::new(0.01), 0.0001..=1.0, "share of one core",
            "Processor time spent on taking in samples of accesses, at the most; what does not fit is lost, and counted", "ours: as much as for looking";
        scan_period_ms: Span = Span::secs(1), 10..=3_600_000, "ms",
            "Time between two sweeps of memory that changes", "ours";
        quiet_period_ms: Span = Span::secs(16), 10..=3_600_000, "ms",
            "Longest time between two sweeps of memory that does not change", "ours";
        slots_per_tick_max: u64 = 2048, 1..=1_048_576, "slots",
            "Slots whose page tables are read in one tick", "ours: 4 GiB, 6 ms in base pages";
        tick_ms: Span = Span::millis(250), 1..=60_000, "ms",
            "Time between two ticks with nothing to do", "ours";
        tick_quiet_ms: Span = Span::secs(1), 1..=60_000, "ms",
            "Longest time between two ticks while nothing changes", "ours";
        tick_busy_ms: Span = Span::millis(20), 1..=60_000, "ms",
            "Time between two ticks while actions wait", "measured: one collapse per 20 ms stays within 1.5 x at p99.9";
    }
}

/// Nanoseconds that reading one slot's page tables costs before anything was measured: 13 ms for 4096 slots.
const SLOT_COST_NS: f64 = 3_200.0;
/// What one piece costs beyond its slots.
const PIECE_COST: Span = Span::micros(5);
/// The part of `cpu_max` that the sensors' own count may use; the rest is for what nobody counts: folding and planning.
const COUNTED_SHARE: f64 = 0.8;
/// Scan periods that memory of a process that faults waits at the most, where its sweeps find no change.
const FAULTING_WAIT: u64 = 4;
/// Processor time that looking may save up.
const BURST: Span = Span::millis(10);

#[derive(Debug, Clone)]
struct Sweep {
    due: Instant,
    /// The first slot not read yet in the sweep under way.
    cursor: Option<u64>,
    wait: Span,
    changed: bool,
}

/// The planner of page-table scans.
#[derive(Debug, Clone)]
pub struct ScanPlanner {
    params: WatchParams,
    budget: TimeBudget,
    slot_cost: Smoothed,
    sweeps: BTreeMap<ObjectId, Sweep>,
}

impl ScanPlanner {
    /// A planner that knows no object yet.
    #[must_use]
    pub fn new(params: WatchParams) -> Self {
        let share = Ratio::new(params.cpu_max.get() * COUNTED_SHARE);
        let budget = TimeBudget::new(share, BURST);
        Self {
            params,
            budget,
            slot_cost: Smoothed::new(SLOT_COST_NS, 0.2),
            sweeps: BTreeMap::new(),
        }
    }

    /// Learns from an observation: what looking cost, which objects changed.
    pub fn learn(&mut self, world: &World, seen: &Observation, changes: &[SlotChange]) {
        // First the debt, then the time that pays it off: what is saved up is little, and one dear look would keep it
        // from ever being enough.
        self.budget.spend(seen.cost.cpu.max(seen.cost.scan));
        self.budget.fill(seen.at);
        if seen.cost.slots > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a cost per slot")]
            self.slot_cost
                .add(seen.cost.scan.0 as f64 / seen.cost.slots as f64);
        }
        self.sweeps
            .retain(|object, _| world.objects.contains_key(object));
        for change in changes {
            if let Some(sweep) = self.sweeps.get_mut(&change.slot.object) {
                sweep.changed = true;
            }
        }
        let soon = self.params.scan_period_ms;
        for object in faulting(world, seen) {
            self.hurry(object, seen.at, Span(soon.0 * FAULTING_WAIT));
        }
        for object in mapped_anew(world, seen) {
            self.hurry(object, seen.at, soon);
        }
    }

    /// An object is in use: it is due `soon` after its last sweep, not later.
    fn hurry(&mut self, object: ObjectId, at: Instant, soon: Span) {
        let sweep = self.sweeps.entry(object).or_insert(Sweep {
            due: at,
            cursor: None,
            wait: self.params.scan_period_ms,
            changed: true,
        });
        if sweep.wait > soon {
            sweep.wait = soon;
            sweep.due = sweep.due.min(at.after(soon));
        }
    }

    /// The pieces to read in the next observation, those longest due first.
    pub fn plan(&mut self, world: &World) -> Vec<Look> {
        let mut looks = Vec::new();
        let mut left = self.params.slots_per_tick_max;
        let mut due: Vec<(Instant, ObjectId)> = self
            .sweeps
            .iter()
            .filter(|(_, sweep)| sweep.cursor.is_some() || sweep.due <= world.at)
            .map(|(object, sweep)| (sweep.due, *object))
            .collect();
        due.sort_unstable();
        let mut expected = self.budget.clone();
        for (_, object) in due {
            while left > 0 && expected.allows() {
                let Some(piece) = self.next_piece(world, object, left) else {
                    break;
                };
                expected.spend(self.cost(piece.count));
                left -= piece.count;
                looks.push(Look::PageTables(piece));
            }
        }
        looks
    }

    #[expect(clippy::cast_precision_loss, reason = "a cost estimate")]
    fn cost(&self, slots: u64) -> Span {
        Span::from_secs_f64(self.slot_cost.get() * slots as f64 / 1e9) + PIECE_COST
    }

    /// The next piece of an object's sweep, of at most `slots`; `None` at its end.
    fn next_piece(&mut self, world: &World, object: ObjectId, slots: u64) -> Option<SlotRange> {
        let ranges = slot_ranges(world, object);
        let sweep = self.sweeps.get_mut(&object)?;
        let from = sweep.cursor.unwrap_or(0);
        let next = ranges.iter().find(|range| range.end() > from);
        let Some(range) = next else {
            finish(sweep, world.at, &self.params);
            return None;
        };
        let first = range.first.max(from);
        let piece = SlotRange {
            object,
            first,
            count: slots.min(range.end() - first),
        };
        sweep.cursor = Some(piece.end());
        Some(piece)
    }
}

/// Ends a sweep: the next one is due after the period, or after twice the last wait if nothing changed.
fn finish(sweep: &mut Sweep, at: Instant, params: &WatchParams) {
    let longest = params.quiet_period_ms.max(params.scan_period_ms);
    sweep.wait = if sweep.changed {
        params.scan_period_ms
    } else {
        Span((sweep.wait.0 * 2).min(longest.0))
    };
    sweep.due = at.after(sweep.wait);
    sweep.cursor = None;
    sweep.changed = false;
}

/// Objects of processes that faulted in this tick.
fn faulting(world: &World, seen: &Observation) -> BTreeSet<ObjectId> {
    let faulting: BTreeSet<_> = seen
        .processes
        .iter()
        .filter(|process| process.faults > 0)
        .map(|process| process.process)
        .collect();
    let mapped = world.objects.iter().filter(|(_, state)| {
        !faulting.is_empty()
            && state
                .mappings
                .iter()
                .any(|mapping| faulting.contains(&mapping.process))
    });
    mapped.map(|(object, _)| *object).collect()
}

/// Objects that are new in this tick, or whose mappings changed.
fn mapped_anew<'a>(
    world: &'a World,
    seen: &'a Observation,
) -> impl Iterator<Item = ObjectId> + use<'a> {
    seen.objects
        .iter()
        .map(|object| object.object)
        .filter(|object| world.objects.contains_key(object))
}

/// The runs of slots of an object that some managed mapping covers whole, in order, none twice.
#[must_use]
pub fn slot_ranges(world: &World, object: ObjectId) -> Vec<SlotRange> {
    let runs = world
        .objects
        .get(&object)
        .into_iter()
        .flat_map(|state| &state.runs);
    runs.map(|run| SlotRange {
        object,
        first: run.start,
        count: run.end - run.start,
    })
    .collect()
}
