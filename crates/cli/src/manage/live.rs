//! The line at the bottom of a terminal that says how a run is going. Where nobody looks, nothing is drawn.

use super::report::totals;
use super::session::{Listener, Note};
use super::tally::Tally;
use crate::own;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::plan::Accounted;
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Instant, Ratio, Span};
use hugepilot_core::world::World;
use hugepilot_trace::TickRef;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawn anew at most so often: a reader's eye is slower.
const REDRAW: Span = Span::millis(250);

/// The live line.
pub struct Live {
    bar: ProgressBar,
    began: Option<Instant>,
    drawn: Option<Instant>,
    notes: Vec<String>,
}

impl Live {
    /// A line on standard error, if that is a terminal.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{wide_msg}").expect("a constant that is tested"),
        );
        Self {
            bar,
            began: None,
            drawn: None,
            notes: Vec::new(),
        }
    }

    /// A line that is never drawn.
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            began: None,
            drawn: None,
            notes: Vec::new(),
        }
    }

    /// Notes of the policy that fit into the line.
    fn take(&mut self, note: &Note) {
        match note {
            Note::Policy(words) if words.len() <= 24 => self.notes.push(words.clone()),
            Note::Policy(_) | Note::Machine(_) | Note::Blind(_) => {}
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Listener for Live {
    fn started(&mut self, _: &Pilot, notes: &[Note]) -> anyhow::Result<()> {
        notes.iter().for_each(|note| self.take(note));
        Ok(())
    }

    fn noted(&mut self, note: &Note) -> anyhow::Result<()> {
        self.take(note);
        Ok(())
    }

    fn acted(&mut self, _: &World, _: &Accounted) -> anyhow::Result<()> {
        Ok(())
    }

    fn ticked(&mut self, tick: TickRef<'_>, pilot: &Pilot, tally: &Tally) -> anyhow::Result<()> {
        let at = tick.observation.at;
        let began = *self.began.get_or_insert(at);
        let due = self.drawn.is_none_or(|drawn| at.since(drawn) >= REDRAW);
        if due && !self.bar.is_hidden() {
            self.drawn = Some(at);
            let cpu = own::cpu();
            self.bar
                .set_message(status(pilot, tally, cpu, at.since(began), &self.notes));
        }
        Ok(())
    }
}

/// The line.
pub fn status(pilot: &Pilot, tally: &Tally, cpu: Span, ran: Span, notes: &[String]) -> String {
    let world = pilot.world();
    let (huge, present) = totals(world);
    let done = |name| tally.count(name, OutcomeClass::Done);
    let share = Ratio::of(cpu.0, ran.0);
    let notes: String = notes.iter().map(|note| format!(" {note}")).collect();
    format!(
        "{} {}{notes} | {} processes | {huge} of {present} huge | {} collapsed, {} split, {} refused | cpu {share}",
        clock(ran),
        pilot.policy().name(),
        world.processes.len(),
        done("collapse"),
        done("split"),
        tally.refused_total,
    )
}

/// Minutes and seconds.
fn clock(ran: Span) -> String {
    let seconds = ran.0 / 1_000_000_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
