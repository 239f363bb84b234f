//! What a run prints: JSON lines or text lines, one an action.
//!
//! The shapes are documented in `docs/json.md`. Rendering is pure; writing is one call a line, so that a reader at the
//! other end of a pipe sees an action when it was done.

use super::session::{Acting, Listener, Note};
use super::tally::Tally;
use hugepilot_core::ids::ObjectId;
use hugepilot_core::observation::Unseen;
use hugepilot_core::plan::Accounted;
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Bytes, Instant, Span};
use hugepilot_core::world::World;
use hugepilot_trace::TickRef;
use serde_json::{Value, json};
use std::io::Write;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One JSON object a line: start, actions, summary.
    Json,
    /// Text, a line an action.
    Verbose,
    /// Text, no actions.
    Quiet,
}

/// Prints a run's lines.
pub struct Lines<W: Write> {
    out: W,
    style: Style,
    acting: Acting,
    began: Option<Instant>,
}

impl<W: Write> Lines<W> {
    /// Lines of `style`.
    pub const fn new(out: W, style: Style, acting: Acting) -> Self {
        Self {
            out,
            style,
            acting,
            began: None,
        }
    }

    /// Says a note to people. What is unseen of accesses the policy's own note tells in short.
    fn say(&self, note: &Note) {
        let is_detail = matches!(note, Note::Blind(spot) if spot.what == Unseen::AccessedShare);
        if self.style == Style::Verbose || !is_detail {
            eprintln!("hugepilot: note: {note}");
        }
    }

    fn line(&mut self, line: &impl std::fmt::Display) -> anyhow::Result<()> {
        writeln!(self.out, "{line}")?;
        Ok(self.out.flush()?)
    }
}

impl<W: Write> Listener for Lines<W> {
    fn started(&mut self, pilot: &Pilot, notes: &[Note]) -> anyhow::Result<()> {
        match self.style {
            Style::Json => {
                let line = start_json(pilot, notes, self.acting);
                self.line(&line)
            }
            Style::Verbose | Style::Quiet => {
                notes.iter().for_each(|note| self.say(note));
                Ok(())
            }
        }
    }

    fn noted(&mut self, note: &Note) -> anyhow::Result<()> {
        match self.style {
            Style::Json => self.line(&json!({"note": note.to_string()})),
            Style::Verbose | Style::Quiet => {
                self.say(note);
                Ok(())
            }
        }
    }

    fn acted(&mut self, world: &World, done: &Accounted) -> anyhow::Result<()> {
        let began = *self.began.get_or_insert(world.at);
        let at = world.at.since(began);
        match self.style {
            Style::Json => self.line(&action_json(world, done, at, self.acting)),
            Style::Verbose => self.line(&action_text(world, done, at, self.acting)),
            Style::Quiet => Ok(()),
        }
    }

    fn ticked(&mut self, tick: TickRef<'_>, _: &Pilot, _: &Tally) -> anyhow::Result<()> {
        self.began.get_or_insert(tick.observation.at);
        Ok(())
    }
}

/// The first line.
fn start_json(pilot: &Pilot, notes: &[Note], acting: Acting) -> Value {
    json!({"start": {
        "policy": pilot.policy().name(),
        "dry_run": acting == Acting::DryRun,
        "notes": notes.iter().map(Note::to_string).collect::<Vec<_>>(),
        "processes": pilot.world().processes.values().map(|process| json!({
            "pid": process.process.pid.0,
            "start_ticks": process.process.start_ticks,
            "comm": process.comm,
            "thp": process.thp,
            "resident_bytes": process.resident.0,
        })).collect::<Vec<_>>(),
    }})
}

/// The address at which a slot is seen by the process that it was acted upon through.
fn address(world: &World, done: &Accounted) -> Option<u64> {
    let slot = done.planned.action.slot()?;
    match slot.object {
        ObjectId::Private(_) => Some(slot.start(&world.geometry)),
        ObjectId::Shared { .. } => world.mapping_of(slot).map(|(_, address)| address),
    }
}

/// One action, for programs.
pub fn action_json(world: &World, done: &Accounted, at: Span, acting: Acting) -> Value {
    let slot = done.planned.action.slot();
    let process = done.via.or_else(|| {
        slot.and_then(|slot| world.process_of(slot))
            .map(|p| p.process)
    });
    let order = world.geometry.slot_order;
    let mut line = json!({
        "at_ms": at.0 / 1_000_000,
        "action": done.planned.action.name(),
        "process": process.map(|process| json!({"pid": process.pid.0, "start_ticks": process.start_ticks})),
        "address": address(world, done).map(|address| format!("{address:#x}")),
        "object": slot.map(|slot| slot.object.to_string()),
        "slot": slot.map(|slot| slot.index),
        "reason": done.planned.reason,
        "reason_text": done.planned.reason.to_string(),
    });
    let result = match acting {
        Acting::DryRun => json!({"dry_run": true}),
        Acting::Really => json!({
            "outcome": done.outcome.class,
            "cause": done.outcome.cause,
            "micros": done.outcome.took.as_micros(),
            "freed_bytes": done.outcome.freed.0,
            "verified": done.outcome.after.as_ref().map(|after| json!({
                "huge": after.is_huge(order),
                "present_pages": after.backing.present().0,
            })),
        }),
    };
    if let (Some(line), Value::Object(result)) = (line.as_object_mut(), result) {
        line.extend(result);
    }
    line
}

/// One action, for people.
pub fn action_text(world: &World, done: &Accounted, at: Span, acting: Acting) -> String {
    let name = done.planned.action.name();
    let whom = done
        .via
        .map_or(String::new(), |process| format!(" {process}"));
    let place = address(world, done).map_or(String::new(), |address| format!(" {address:#x}"));
    let result = match acting {
        Acting::DryRun => "not done: dry run".to_owned(),
        Acting::Really => outcome_words(done),
    };
    format!(
        "{:9.3} s {name}{whom}{place}: {} -> {result}",
        at.as_secs_f64(),
        done.planned.reason
    )
}

fn outcome_words(done: &Accounted) -> String {
    let outcome = &done.outcome;
    let cause = outcome
        .cause
        .and_then(|cause| serde_json::to_value(cause).ok());
    let cause = cause
        .as_ref()
        .and_then(Value::as_str)
        .map_or(String::new(), |cause| format!(" ({cause})"));
    let freed = if outcome.freed > Bytes::ZERO {
        format!(", {} freed", outcome.freed)
    } else {
        String::new()
    };
    format!("{}{cause}, {}{freed}", outcome.class, outcome.took)
}
