//! What was done and what it cost: the summary of a run, for people and for programs. Pure.

use super::session::Ended;
use super::tally::{Locked, Tally};
use crate::numa::{self, View};
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::units::{Bytes, Ratio, Span};
use hugepilot_core::world::World;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// What we used ourselves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OwnCost {
    /// Time that the run took.
    pub wall: Span,
    /// Processor time of all our threads.
    pub cpu: Span,
    /// Most memory that was resident, where known.
    pub peak: Option<Bytes>,
}

impl OwnCost {
    /// Processor time over time: a share of one core.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn cpu_share(&self) -> f64 {
        if self.wall == Span::ZERO {
            0.0
        } else {
            self.cpu.0 as f64 / self.wall.0 as f64
        }
    }
}

/// Everything a summary is made of.
#[derive(Debug, Clone)]
pub struct Summary<'a> {
    /// The policy.
    pub policy: &'static str,
    /// Was nothing carried out?
    pub dry_run: bool,
    /// Why it ended.
    pub ended: Ended,
    /// What was done.
    pub tally: &'a Tally,
    /// What is known at the end.
    pub world: &'a World,
    /// What samples of accesses show; `None` on a machine with one node.
    pub numa: Option<View>,
    /// What we used.
    pub cost: OwnCost,
}

/// Processes whose lock times the text lists, at the most: those held longest.
const LOCKED_SHOWN: usize = 8;

/// Huge and present bytes of everything watched.
pub fn totals(world: &World) -> (Bytes, Bytes) {
    world
        .objects
        .values()
        .fold((Bytes::ZERO, Bytes::ZERO), |(huge, present), object| {
            (
                huge + world.geometry.bytes(object.huge),
                present + world.geometry.bytes(object.present),
            )
        })
}

impl Summary<'_> {
    /// For programs.
    pub fn json(&self) -> Value {
        let tally = self.tally;
        let (huge, present) = totals(self.world);
        json!({"summary": {
            "policy": self.policy,
            "dry_run": self.dry_run,
            "ended": self.ended.name(),
            "seconds": self.cost.wall.as_secs_f64(),
            "ticks": tally.ticks,
            "actions": self.outcomes(),
            "causes": self.causes(),
            "refused": {
                "total": tally.refused_total,
                "by_law": tally.refused.iter().map(|(law, count)| (name(law), json!(count)))
                    .collect::<Map<_, _>>(),
            },
            "freed_bytes": tally.freed.0,
            "locked": {
                "collapses": tally.locked_total.collapses,
                "sum_us": tally.locked_total.sum.as_micros(),
                "max_us": tally.locked_total.max.as_micros(),
                "by_process": tally.locked.iter().map(|(process, locked)| json!({
                    "pid": process.pid.0,
                    "comm": locked.comm,
                    "collapses": locked.collapses,
                    "sum_us": locked.sum.as_micros(),
                    "max_us": locked.max.as_micros(),
                })).collect::<Vec<_>>(),
            },
            "numa": numa::json(self.numa.as_ref()),
            "watched": {
                "processes_max": tally.processes_max,
                "huge_bytes": huge.0,
                "present_bytes": present.0,
            },
            "cost": {
                "cpu_s": self.cost.cpu.as_secs_f64(),
                "cpu_share": self.cost.cpu_share(),
                "peak_bytes": self.cost.peak.map(|peak| peak.0),
                "slot_state_bytes": tally.state_max.0,
                "look_cpu_s": tally.look.cpu.as_secs_f64(),
                "look_scan_s": tally.look.scan.as_secs_f64(),
                "look_slots": tally.look.slots,
                "look_contents_bytes": tally.look.contents.0,
                "look_bounded": tally.look.bounded,
            },
        }})
    }

    fn outcomes(&self) -> Map<String, Value> {
        let mut actions = Map::new();
        for ((action, class), count) in &self.tally.outcomes {
            let entry = actions.entry(*action).or_insert_with(|| json!({}));
            entry[class.name()] = json!(count);
        }
        actions
    }

    fn causes(&self) -> Map<String, Value> {
        let mut actions = Map::new();
        for ((action, cause), count) in &self.tally.causes {
            let entry = actions.entry(*action).or_insert_with(|| json!({}));
            entry[name(cause)] = json!(count);
        }
        actions
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let (huge, present) = totals(self.world);
        let mut line = |words: std::fmt::Arguments<'_>| {
            writeln!(text, "{words}").expect("a string takes every line");
        };
        let acted = if self.dry_run {
            " (dry run: nothing was changed)"
        } else {
            ""
        };
        line(format_args!(
            "policy {} for {}{acted}",
            self.policy, self.cost.wall
        ));
        for action in self.actions() {
            line(format_args!("{action:<10} {}", self.outcome_words(action)));
        }
        line(format_args!("refused    {}", self.refused_words()));
        if self.tally.freed > Bytes::ZERO {
            line(format_args!("freed      {} by splits", self.tally.freed));
        }
        for words in self.locked_words() {
            line(format_args!("{words}"));
        }
        let share = Ratio::of(huge.0, present.0);
        line(format_args!(
            "memory     {huge} of {present} seen is in huge pages ({share})"
        ));
        line(format_args!("cost       {}", self.cost_words()));
        // A policy that does not sample has nothing to show of nodes.
        let sampled = self.numa.as_ref().filter(|numa| numa.sampler.is_some());
        for words in sampled
            .map(|numa| numa::lines(Some(numa)))
            .unwrap_or_default()
        {
            line(format_args!("{}", words.trim_start_matches("  ")));
        }
        text
    }

    fn actions(&self) -> Vec<&'static str> {
        let mut names = vec!["collapse", "split"];
        for (name, _) in self.tally.outcomes.keys() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    }

    fn outcome_words(&self, action: &'static str) -> String {
        let tally = self.tally;
        let others = OutcomeClass::ALL
            .into_iter()
            .filter(|class| *class != OutcomeClass::Done)
            .filter_map(|class| {
                let count = tally.count(action, class);
                (count > 0).then(|| format!("{count} {}", class.name().replace('_', " ")))
            });
        let mut words = vec![format!("{} done", tally.count(action, OutcomeClass::Done))];
        words.extend(others);
        let causes: Vec<String> = tally
            .causes
            .iter()
            .filter(|((of, _), _)| *of == action)
            .map(|((_, cause), count)| format!("{count} {}", name(cause).replace('_', " ")))
            .collect();
        let causes = if causes.is_empty() {
            String::new()
        } else {
            format!(" ({})", causes.join(", "))
        };
        format!("{}{causes}", words.join(", "))
    }

    fn refused_words(&self) -> String {
        let tally = self.tally;
        if tally.refused_total == 0 {
            return "nothing by a law".to_owned();
        }
        let laws: Vec<String> = tally
            .refused
            .iter()
            .map(|(law, count)| format!("{law}: {count}"))
            .collect();
        format!(
            "{} proposals held back by a law ({})",
            tally.refused_total,
            laws.join("; ")
        )
    }

    /// The processes whose lock was held longest.
    fn locked_words(&self) -> Vec<String> {
        if self.dry_run {
            return Vec::new();
        }
        let mut locked: Vec<(_, &Locked)> = self.tally.locked.iter().collect();
        locked.sort_by_key(|(process, locked)| (std::cmp::Reverse(locked.sum), **process));
        let shown = locked.iter().take(LOCKED_SHOWN).map(|(process, locked)| {
            format!(
                "locked     {} ({process}) for {} in {} collapses, at most {} at once",
                locked.comm, locked.sum, locked.collapses, locked.max
            )
        });
        let mut words: Vec<String> = shown.collect();
        if let Some(more) = locked
            .len()
            .checked_sub(LOCKED_SHOWN)
            .filter(|more| *more > 0)
        {
            words.push(format!("locked     {more} processes more, each for less"));
        }
        words
    }

    fn cost_words(&self) -> String {
        let peak = self
            .cost
            .peak
            .map_or("unknown".to_owned(), |peak| peak.to_string());
        let look = &self.tally.look;
        format!(
            "{} of processor time ({:.2} % of one core), {} of it looking at {} slots; {peak} of memory at most",
            self.cost.cpu,
            self.cost.cpu_share() * 100.0,
            look.cpu,
            look.slots,
        )
    }
}

/// The name of a plain enum's value, as on the wire.
fn name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        other => panic!("a plain enum is a string on the wire, not {other:?}"),
    }
}
