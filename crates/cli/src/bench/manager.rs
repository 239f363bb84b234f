//! Our own `manage`, as a child: started for one process, stopped, and judged by what it wrote and by what the kernel
//! says that it used.

use crate::bench::interrupt::Interrupt;
use crate::bench::own_program;
use crate::bench::pipe::{Lines, Stamped};
use anyhow::{Context, bail};
use hugepilot_bench::clock::monotonic;
use hugepilot_bench::report::ManagerFigures;
use hugepilot_bench::schedule::Mode;
use hugepilot_bench::sys::{self, Ended, Wait};
use hugepilot_bench::worker::Phase;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::units::{Instant, Span};
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A manager says something within this time after its start; else it is taken to be watching in silence.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(2);
/// A manager that was asked to end restores and ends within this time.
const STOP_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// A running manager. Stopped when dropped.
#[derive(Debug)]
pub struct Manager {
    pid: Pid,
    /// Taken when it has been waited for.
    lines: Option<Lines>,
    first: Option<Stamped>,
    started: Instant,
}

/// What a manager wrote and used.
#[derive(Debug)]
pub struct ManagerLog {
    /// Its lines.
    pub lines: Vec<Stamped>,
    /// How long it ran.
    pub wall: Span,
    /// Its processor time.
    pub cpu: Span,
}

/// An action's line; other lines have no action.
#[derive(Debug, Deserialize)]
struct ActionLine {
    action: String,
    outcome: OutcomeClass,
}

/// The last line.
#[derive(Debug, Deserialize)]
struct SummaryLine {
    summary: serde_json::Value,
}

impl Manager {
    /// Starts one for `pid`, where the mode has one.
    ///
    /// # Errors
    /// If it does not start or ends at once.
    pub fn start_for(
        mode: Mode,
        pid: u32,
        sets: &[String],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Self>> {
        match mode {
            Mode::Never | Mode::Always => Ok(None),
            Mode::Mega | Mode::Ingens => Self::start(mode, pid, sets, interrupt).map(Some),
        }
    }

    fn start(mode: Mode, pid: u32, sets: &[String], interrupt: &Interrupt) -> anyhow::Result<Self> {
        let child = spawn(mode, pid, sets)?;
        let started = monotonic();
        let mut manager = Self::of(child, started)?;
        let lines = manager
            .lines
            .as_ref()
            .context("a manager that was stopped")?;
        let silent = std::time::Instant::now() + FIRST_WORD_WITHIN;
        match lines.next(FIRST_WORD_WITHIN, interrupt) {
            Ok(Some(line)) => manager.first = Some(line),
            Ok(None) => bail!("`hugepilot manage --policy {mode}` ended at once"),
            Err(_) if std::time::Instant::now() >= silent => (),
            Err(error) => return Err(error),
        }
        Ok(manager)
    }

    fn of(mut child: Child, started: Instant) -> anyhow::Result<Self> {
        let pid = i32::try_from(child.id()).context("a process id")?;
        let pid = Pid::from_raw(pid).context("a process id")?;
        let output = child.stdout.take().context("a manager without output")?;
        Ok(Self {
            pid,
            lines: Some(Lines::of(output)?),
            first: None,
            started,
        })
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// If it failed, or had to be killed.
    pub fn stop(mut self) -> anyhow::Result<ManagerLog> {
        let ended = self.end()?;
        let lines = self
            .lines
            .take()
            .context("a manager that was stopped twice")?;
        if ended.code != Some(0) {
            bail!("the manager failed: it ended with {:?}", ended.code);
        }
        let first = self.first.take().into_iter().map(Ok);
        let lines = first.chain(lines.rest()?.into_iter().map(Ok));
        Ok(ManagerLog {
            lines: lines.collect::<anyhow::Result<_>>()?,
            wall: monotonic().since(self.started),
            cpu: Span::micros(ended.cpu_us),
        })
    }

    fn end(&self) -> anyhow::Result<Ended> {
        signal(self.pid, Signal::TERM)?;
        let until = std::time::Instant::now() + STOP_WITHIN;
        while std::time::Instant::now() < until {
            if let Some(ended) = self.wait(Wait::Poll)? {
                return Ok(ended);
            }
            std::thread::sleep(POLL);
        }
        signal(self.pid, Signal::KILL)?;
        self.wait(Wait::Block)?;
        bail!(
            "the manager did not end within {STOP_WITHIN:?} and was killed; `hugepilot restore` puts back what it set"
        );
    }

    fn wait(&self, wait: Wait) -> anyhow::Result<Option<Ended>> {
        sys::wait_with_usage(self.pid.as_raw_nonzero().get(), wait)
            .context("cannot wait for the manager")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if self.lines.take().is_some() {
            if let Err(error) = self.end() {
                eprintln!("hugepilot: {error:#}");
            }
        }
    }
}

fn spawn(mode: Mode, pid: u32, sets: &[String]) -> anyhow::Result<Child> {
    let mut command = own_program();
    command.arg("manage").arg("--pid").arg(pid.to_string());
    command.args(["--policy", mode.name(), "--json"]);
    for set in sets.iter().filter(|set| concerns(mode, set)) {
        command.args(["--set", set]);
    }
    // Ctrl-C in the terminal is ours to handle: the manager ends after what it manages.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    command.spawn().context("cannot start `hugepilot manage`")
}

/// Parameters of another mode's policy are not for this one's manager.
fn concerns(mode: Mode, set: &str) -> bool {
    let section = set.split('.').next();
    let others = Mode::ALL.into_iter().filter(|other| *other != mode);
    others.map(Mode::name).all(|other| section != Some(other))
}

/// One that ended already is not waited for yet, so its id cannot be another's.
fn signal(pid: Pid, signal: Signal) -> anyhow::Result<()> {
    rustix::process::kill_process(pid, signal).context("cannot signal the manager")
}

impl ManagerLog {
    /// In figures, with collapses told apart by the phase of the worker in which they were reported.
    pub fn figures(&self, phases: &[(Phase, Instant)]) -> ManagerFigures {
        let mut figures = ManagerFigures {
            cpu_ns: self.cpu,
            wall_ns: self.wall,
            summary: self.summary(),
            ..ManagerFigures::default()
        };
        for Stamped { at, line } in &self.lines {
            let Ok(action) = serde_json::from_str::<ActionLine>(line) else {
                continue;
            };
            count(&mut figures, &action, phase_at(phases, *at));
        }
        figures
    }

    /// The manager's own summary.
    pub fn summary(&self) -> Option<serde_json::Value> {
        let parse = |line: &Stamped| serde_json::from_str::<SummaryLine>(&line.line).ok();
        self.lines
            .iter()
            .rev()
            .find_map(parse)
            .map(|line| line.summary)
    }
}

fn count(figures: &mut ManagerFigures, line: &ActionLine, phase: Option<Phase>) {
    let key = format!("{}_{}", line.action, line.outcome);
    *figures.outcomes.entry(key).or_default() += 1;
    if line.outcome != OutcomeClass::Done {
        return;
    }
    match line.action.as_str() {
        "collapse" => {
            figures.collapses += 1;
            match phase {
                Some(Phase::Closed) => figures.collapses_in_closed += 1,
                Some(Phase::Open) => figures.collapses_in_open += 1,
                Some(Phase::Settle | Phase::Read) | None => (),
            }
        }
        "split" => figures.splits += 1,
        // Other actions are counted among the outcomes only.
        _ => (),
    }
}

fn phase_at(phases: &[(Phase, Instant)], at: Instant) -> Option<Phase> {
    let begun = phases.iter().rev().find(|(_, began)| *began <= at);
    begun.map(|(phase, _)| *phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(u64, &str)]) -> ManagerLog {
        let stamped = |(at, line): &(u64, &str)| Stamped {
            at: Instant(*at),
            line: (*line).to_owned(),
        };
        ManagerLog {
            lines: lines.iter().map(stamped).collect(),
            wall: Span::secs(1),
            cpu: Span::millis(3),
        }
    }

    const PHASES: [(Phase, Instant); 3] = [
        (Phase::Closed, Instant(10)),
        (Phase::Open, Instant(20)),
        (Phase::Settle, Instant(30)),
    ];

    #[test]
    fn collapses_belong_to_the_phase_in_which_they_were_done() {
        let collapse = r#"{"action":"collapse","outcome":"done","micros":400}"#;
        let figures = log(&[
            (5, collapse),
            (12, collapse),
            (25, collapse),
            (29, collapse),
            (99, collapse),
        ])
        .figures(&PHASES);
        assert_eq!(
            (
                figures.collapses,
                figures.collapses_in_closed,
                figures.collapses_in_open
            ),
            (5, 1, 2)
        );
    }

    #[test]
    fn a_manager_gets_its_own_and_the_common_parameters() {
        assert!(concerns(Mode::Mega, "mega.present_min=0.8"));
        assert!(concerns(Mode::Mega, "laws.stall_share_max=0.01"));
        assert!(!concerns(Mode::Mega, "ingens.fairness=false"));
    }

    #[test]
    fn what_was_not_done_is_counted_apart_and_other_lines_are_not_actions() {
        let figures = log(&[
            (1, r#"{"watching":7}"#),
            (2, r#"{"action":"collapse","outcome":"busy"}"#),
            (3, r#"{"action":"split","outcome":"done"}"#),
            (4, r#"{"summary":{"ticks":3}}"#),
        ])
        .figures(&PHASES);
        assert_eq!((figures.collapses, figures.splits), (0, 1));
        assert_eq!(figures.outcomes["collapse_busy"], 1);
        assert_eq!(figures.outcomes.len(), 2);
        assert_eq!(figures.summary.expect("the last line")["ticks"], 3);
    }
}
