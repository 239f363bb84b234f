//! The loop on the simulated machine.

use super::{Acting, Ended, Listener, Note, Pace, Session, Targets, Terms};
use crate::manage::tally::Tally;
use hugepilot_core::action::Action;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::ProcessId;
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::Observation;
use hugepilot_core::outcome::{Outcome, OutcomeClass};
use hugepilot_core::plan::Accounted;
use hugepilot_core::policy::Settings;
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Bytes, Span};
use hugepilot_core::world::World;
use hugepilot_sim::{Config, Contents, Sim};
use hugepilot_trace::{Header, Reader, TickRef, VERSION, Writer, replay};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

/// A machine on which time passes between observations, and things happen at some of them.
struct Timed<F: FnMut(&mut Sim, u64)> {
    sim: Sim,
    tick: u64,
    happens: F,
    /// Actions that reached the machine.
    acts: Rc<Cell<usize>>,
}

const TICK: Span = Span::millis(250);

impl<F: FnMut(&mut Sim, u64)> Machine for Timed<F> {
    type Error = Infallible;

    fn geometry(&self) -> Geometry {
        self.sim.geometry()
    }

    fn observe(&mut self, looks: &[Look]) -> Result<Observation, Infallible> {
        self.sim.advance(TICK);
        (self.happens)(&mut self.sim, self.tick);
        self.tick += 1;
        self.sim.observe(looks)
    }

    fn act(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        self.acts.set(self.acts.get() + 1);
        self.sim.act(action)
    }
}

/// Does not wait; ends after so many waits, and asks for the end after so many checks between actions.
struct Hurry {
    waits: u64,
    checks: u64,
}

impl Hurry {
    const FOR_EVER: Self = Self {
        waits: u64::MAX,
        checks: u64::MAX,
    };
}

impl Pace for Hurry {
    fn wait(&mut self, span: Span) -> anyhow::Result<Option<Ended>> {
        let left = if span == Span::ZERO {
            &mut self.checks
        } else {
            &mut self.waits
        };
        *left -= 1;
        Ok((*left == 0).then_some(Ended::Asked))
    }
}

/// Keeps what it heard, and records it.
struct Ear {
    acts: Rc<Cell<usize>>,
    notes: Vec<String>,
    actions: Vec<Accounted>,
    writer: Writer<Vec<u8>>,
}

impl Ear {
    fn new(settings: &Settings) -> Self {
        let header = Header {
            hugepilot_trace: VERSION,
            geometry: Geometry::X86_64,
            policy: "ingens".to_owned(),
            settings: settings.values(),
            kernel: "simulated".to_owned(),
            started_unix_ms: 0,
            dry_run: false,
        };
        let writer = Writer::new(Vec::new(), &header, None).expect("memory takes it");
        Self {
            acts: Rc::default(),
            notes: Vec::new(),
            actions: Vec::new(),
            writer,
        }
    }
}

impl Listener for Ear {
    fn started(&mut self, _: &Pilot, notes: &[Note]) -> anyhow::Result<()> {
        self.notes.extend(notes.iter().map(Note::to_string));
        Ok(())
    }

    fn noted(&mut self, note: &Note) -> anyhow::Result<()> {
        self.notes.push(note.to_string());
        Ok(())
    }

    fn acted(&mut self, _: &World, done: &Accounted) -> anyhow::Result<()> {
        self.actions.push(done.clone());
        Ok(())
    }

    fn ticked(&mut self, tick: TickRef<'_>, _: &Pilot, _: &Tally) -> anyhow::Result<()> {
        self.writer.tick(tick)?;
        Ok(())
    }
}

const TERMS: Terms = Terms {
    acting: Acting::Really,
    targets: Targets::Fixed,
    time_max: Some(Span::secs(60)),
};

/// A simulated machine of 4 GiB with one process that has written `bytes`.
fn one_process(bytes: Bytes) -> (Sim, ProcessId) {
    let mut sim = Sim::new(Config {
        nodes: vec![Bytes::gib(4)],
        ..Config::default()
    });
    let process = sim.start("worker");
    fill(&mut sim, process, bytes);
    (sim, process)
}

fn fill(sim: &mut Sim, process: ProcessId, bytes: Bytes) {
    let area = sim.map(process, bytes).expect("there is room");
    sim.write(area, Contents::Data).expect("there is room");
}

/// Runs a session; what it heard, its tally, and why it ended.
fn run(
    sim: Sim,
    terms: Terms,
    mut pace: Hurry,
    happens: impl FnMut(&mut Sim, u64),
) -> (Ear, Tally, Ended) {
    let settings = Settings::default();
    let mut ear = Ear::new(&settings);
    let machine = Timed {
        sim,
        tick: 0,
        happens,
        acts: Rc::clone(&ear.acts),
    };
    let pilot = Pilot::new(
        machine.geometry(),
        settings.policy("ingens").expect("it exists"),
        &settings,
    );
    let mut session = Session::new(machine, pilot, terms, vec!["a note".to_owned()]);
    let ended = session
        .run(&mut pace, &mut [&mut ear])
        .expect("nothing fails here");
    let tally = session.tally().clone();
    (ear, tally, ended)
}

fn collapses(tally: &Tally) -> u64 {
    tally.count("collapse", OutcomeClass::Done)
}

#[test]
fn all_that_is_full_becomes_huge_and_is_counted() {
    let (sim, _) = one_process(Bytes::mib(64));
    let (ear, tally, ended) = run(sim, TERMS, Hurry::FOR_EVER, |_, _| {});
    assert_eq!(ended, Ended::Elapsed);
    assert_eq!(collapses(&tally), 32);
    let heard = ear
        .actions
        .iter()
        .filter(|done| done.outcome.class == OutcomeClass::Done)
        .count();
    assert_eq!(heard, 32);
    assert_eq!(ear.acts.get(), ear.actions.len());
    assert_eq!(ear.notes[0], "a note");
    assert!(
        ear.notes.contains(&"without compaction".to_owned()),
        "{:?}",
        ear.notes
    );
}

#[test]
fn it_ends_with_its_processes() {
    let (sim, process) = one_process(Bytes::mib(8));
    let (_, tally, ended) = run(sim, TERMS, Hurry::FOR_EVER, |sim, tick| {
        if tick == 8 {
            sim.exit(process).expect("it is there");
        }
    });
    assert_eq!(ended, Ended::TargetsGone);
    assert_eq!(tally.ticks, 9);
}

#[test]
fn open_targets_may_come_and_go() {
    let (sim, process) = one_process(Bytes::mib(8));
    let terms = Terms {
        targets: Targets::Open,
        time_max: Some(Span::secs(30)),
        ..TERMS
    };
    let (_, tally, ended) = run(sim, terms, Hurry::FOR_EVER, |sim, tick| match tick {
        20 => sim.exit(process).expect("it is there"),
        30 => {
            let next = sim.start("next");
            fill(sim, next, Bytes::mib(8));
        }
        _ => {}
    });
    assert_eq!(ended, Ended::Elapsed);
    assert_eq!(collapses(&tally), 8);
}

#[test]
fn an_end_is_never_further_away_than_one_action() {
    let (sim, _) = one_process(Bytes::mib(64));
    let pace = Hurry {
        checks: 3,
        ..Hurry::FOR_EVER
    };
    let (ear, tally, ended) = run(sim, TERMS, pace, |_, _| {});
    assert_eq!(ended, Ended::Asked);
    assert_eq!(ear.actions.len(), 2);
    assert_eq!(collapses(&tally), 2);
}

#[test]
fn a_dry_run_goes_on_as_the_run_would_and_touches_nothing() {
    let (sim, _) = one_process(Bytes::mib(64));
    let terms = Terms {
        acting: Acting::DryRun,
        ..TERMS
    };
    let (ear, ..) = run(sim, terms, Hurry::FOR_EVER, |_, _| {});
    let slots: std::collections::BTreeSet<_> = ear
        .actions
        .iter()
        .filter(|done| matches!(done.planned.action, Action::Collapse { .. }))
        .filter_map(|done| done.planned.action.slot())
        .collect();
    assert_eq!(slots.len(), 32);
    assert_eq!(ear.acts.get(), 0);
}

#[test]
fn the_same_recording_gives_the_same_plans() {
    let (sim, process) = one_process(Bytes::mib(64));
    let (ear, ..) = run(sim, TERMS, Hurry::FOR_EVER, |sim, tick| match tick {
        10 => fill(sim, process, Bytes::mib(16)),
        15 => {
            sim.fork(process).expect("there is room");
        }
        20 => fill(sim, process, Bytes::mib(16)),
        _ => {}
    });
    let text = ear.writer.into_inner();
    let mut reader = Reader::new(text.as_slice()).expect("our own");
    assert_eq!(
        replay::first_difference(&mut reader).expect("our own"),
        None
    );
    assert!(reader.line() > 100, "{} lines", reader.line());
}

#[test]
fn a_recording_that_was_changed_is_found_out() {
    let (sim, _) = one_process(Bytes::mib(64));
    let (ear, ..) = run(sim, TERMS, Hurry::FOR_EVER, |_, _| {});
    let text = String::from_utf8(ear.writer.into_inner()).expect("JSON");
    let changed = text.replacen("\"present_min\":0.9", "\"present_min\":0.8", 1);
    assert_ne!(changed, text);
    let mut reader = Reader::new(changed.as_bytes()).expect("our own");
    assert!(
        replay::first_difference(&mut reader)
            .expect("readable")
            .is_some()
    );
}

#[test]
fn one_process_that_must_wait_does_not_keep_another_waiting() {
    let (mut sim, parent) = one_process(Bytes::gib(1));
    sim.fork(parent).expect("there is room");
    let other = sim.start("other");
    fill(&mut sim, other, Bytes::mib(16));
    let (ear, ..) = run(sim, TERMS, Hurry::FOR_EVER, |_, _| {});
    let of_other = ear
        .actions
        .iter()
        .filter(|done| done.via == Some(other))
        .count();
    assert!(
        of_other >= 8,
        "{of_other} collapses of the process that nothing speaks against"
    );
}
