//! The loop: observe → plan → act → account → wait.
//!
//! Generic over the machine, so that it runs on the live kernel and on the simulated one alike. It decides nothing: the
//! pilot does. It writes nothing: [`Listener`]s do. It knows no clock and no signal: [`Pace`] waits and says when to
//! end. Time is the observations' own.
//!
//! **Ends** when the pace says so, when the time is up, or when every process it was started for is gone. It looks for
//! the pace's word between two actions too, so that an end is never further away than one action.

use super::predict::predict;
use super::tally::Tally;
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{BlindSpot, Observation, Unseen};
use hugepilot_core::plan::{Accounted, Plan, Planned};
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Instant, Span};
use hugepilot_core::world::World;
use hugepilot_trace::TickRef;
use std::collections::BTreeSet;
use std::fmt;

/// Blind spots that are told, at the most: a thousand processes that cannot be seen are one problem, not a thousand.
const BLIND_TOLD_MAX: usize = 64;

/// Are the plan's actions carried out?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acting {
    /// Yes.
    Really,
    /// No: each is taken to have worked, so that the run goes on as it would.
    DryRun,
}

/// Does the run end with the processes it was started for?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Targets {
    /// Yes: they were named one by one.
    Fixed,
    /// No: others that fit may come.
    Open,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked for it.
    Asked,
    /// The time was up.
    Elapsed,
    /// All that it was started for is gone.
    TargetsGone,
}

impl Ended {
    /// Its name, as the summary writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Elapsed => "elapsed",
            Self::TargetsGone => "targets_gone",
        }
    }
}

/// How a session waits.
pub trait Pace {
    /// Waits for `span`, or until there is a reason to end. No span: only looks whether there is one.
    ///
    /// # Errors
    /// Where it is not possible to wait.
    fn wait(&mut self, span: Span) -> anyhow::Result<Option<Ended>>;
}

/// Something that the user must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Of the policy, on this machine.
    Policy(String),
    /// Of how the machine is set.
    Machine(String),
    /// Something cannot be seen.
    Blind(BlindSpot),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(words) | Self::Machine(words) => f.write_str(words),
            Self::Blind(BlindSpot {
                process: Some(process),
                why,
                ..
            }) => {
                write!(f, "process {process}: {why}")
            }
            Self::Blind(BlindSpot {
                process: None, why, ..
            }) => f.write_str(why),
        }
    }
}

/// Who listens to a session: lines, the live line, the recorder.
pub trait Listener {
    /// The first observation is in.
    fn started(&mut self, _pilot: &Pilot, _notes: &[Note]) -> anyhow::Result<()> {
        Ok(())
    }
    /// Something that the user must know turned up later.
    fn noted(&mut self, _note: &Note) -> anyhow::Result<()> {
        Ok(())
    }
    /// An action was carried out; `world` is as it was before it.
    fn acted(&mut self, _world: &World, _done: &Accounted) -> anyhow::Result<()> {
        Ok(())
    }
    /// A tick is over.
    fn ticked(&mut self, tick: TickRef<'_>, pilot: &Pilot, tally: &Tally) -> anyhow::Result<()>;
}

/// What a session is told.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Does it act?
    pub acting: Acting,
    /// Does it end with its targets?
    pub targets: Targets,
    /// How long it runs at the most.
    pub time_max: Option<Span>,
}

/// One run over one machine.
pub struct Session<M: Machine> {
    machine: M,
    pilot: Pilot,
    terms: Terms,
    looks: Vec<Look>,
    began: Option<Instant>,
    /// What the user was not told yet.
    news: Vec<Note>,
    /// Notes of the policy that were told.
    notes: Vec<String>,
    blind: BTreeSet<BlindSpot>,
    tally: Tally,
}

impl<M: Machine> Session<M> {
    /// A session that has not begun; `notes` are told at its start.
    pub fn new(machine: M, pilot: Pilot, terms: Terms, notes: Vec<String>) -> Self {
        Self {
            machine,
            pilot,
            terms,
            looks: Vec::new(),
            began: None,
            news: notes.into_iter().map(Note::Machine).collect(),
            notes: Vec::new(),
            blind: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    /// What was done so far.
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What is known.
    pub const fn pilot(&self) -> &Pilot {
        &self.pilot
    }

    /// Ticks until there is a reason to end.
    ///
    /// # Errors
    /// Where the machine cannot be seen at all any more, or a listener cannot write.
    pub fn run(
        &mut self,
        pace: &mut dyn Pace,
        listeners: &mut [&mut dyn Listener],
    ) -> anyhow::Result<Ended> {
        loop {
            let seen = self.machine.observe(&self.looks)?;
            let plan = self.pilot.plan(&seen);
            self.tell(&seen, listeners)?;
            let (outcomes, stopped) = self.act(&plan, pace, listeners)?;
            self.tally.tick(&seen, &plan, &self.pilot);
            let tick = TickRef {
                observation: &seen,
                plan: &plan,
                outcomes: &outcomes,
            };
            for listener in &mut *listeners {
                listener.ticked(tick, &self.pilot, &self.tally)?;
            }
            let ended = match stopped.or(self.reason_to_end(&seen)?) {
                Some(ended) => Some(ended),
                None => pace.wait(self.until_next(&plan, seen.at))?,
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
            self.looks = plan.looks;
        }
    }

    /// Tells the listeners what is new for the user to know.
    fn tell(
        &mut self,
        seen: &Observation,
        listeners: &mut [&mut dyn Listener],
    ) -> anyhow::Result<()> {
        let first = self.began.is_none();
        self.began.get_or_insert(seen.at);
        let mut news = std::mem::take(&mut self.news);
        for note in self.pilot.notes() {
            if !self.notes.contains(&note) {
                self.notes.push(note.clone());
                news.push(Note::Policy(note));
            }
        }
        for spot in &seen.blind {
            if self.blind.len() < BLIND_TOLD_MAX && self.blind.insert(spot.clone()) {
                news.push(Note::Blind(spot.clone()));
            }
        }
        for listener in &mut *listeners {
            if first {
                listener.started(&self.pilot, &news)?;
            } else {
                news.iter().try_for_each(|note| listener.noted(note))?;
            }
        }
        Ok(())
    }

    /// Carries the plan's actions out, one by one, until somebody asks for the end.
    fn act(
        &mut self,
        plan: &Plan,
        pace: &mut dyn Pace,
        listeners: &mut [&mut dyn Listener],
    ) -> anyhow::Result<(Vec<Accounted>, Option<Ended>)> {
        let mut outcomes = Vec::with_capacity(plan.actions.len());
        for planned in &plan.actions {
            if let Some(ended) = pace.wait(Span::ZERO)? {
                return Ok((outcomes, Some(ended)));
            }
            let done = self.carry_out(planned);
            for listener in &mut *listeners {
                listener.acted(self.pilot.world(), &done)?;
            }
            self.tally.action(self.pilot.world(), &done);
            self.pilot.account(&done);
            outcomes.push(done);
        }
        Ok((outcomes, None))
    }

    fn carry_out(&mut self, planned: &Planned) -> Accounted {
        let (outcome, via) = match self.terms.acting {
            Acting::Really => self.machine.act(&planned.action),
            Acting::DryRun => predict(self.pilot.world(), &planned.action),
        };
        Accounted {
            planned: planned.clone(),
            via,
            outcome,
        }
    }

    fn reason_to_end(&mut self, seen: &Observation) -> anyhow::Result<Option<Ended>> {
        if self.terms.targets == Targets::Fixed {
            if let Some(why) = self.sees_nobody() {
                anyhow::bail!("none of the processes can be looked at: {why}");
            }
            if self.pilot.world().processes.is_empty() {
                return Ok(Some(Ended::TargetsGone));
            }
        }
        let is_over = self.time_left(seen.at) == Some(Span::ZERO);
        Ok(is_over.then_some(Ended::Elapsed))
    }

    /// Why no process can be looked at, if that is so from the start.
    fn sees_nobody(&self) -> Option<&str> {
        let world = self.pilot.world();
        let blind = self
            .blind
            .iter()
            .find(|spot| spot.what == Unseen::PageTables)?;
        (self.tally.ticks == 1 && world.objects.is_empty()).then_some(blind.why.as_str())
    }

    fn time_left(&self, at: Instant) -> Option<Span> {
        let ran = at.since(self.began?);
        self.terms.time_max.map(|most| most.growth_since(ran))
    }

    fn until_next(&self, plan: &Plan, at: Instant) -> Span {
        self.time_left(at)
            .map_or(plan.next_tick, |left| plan.next_tick.min(left))
    }
}

#[cfg(test)]
mod tests;
