//! Both ends of a worker: the hidden subcommand, and the child that the benchmark holds.

use crate::bench::interrupt::Interrupt;
use crate::bench::own_program;
use crate::bench::pipe::Lines;
use crate::failure::Usage;
use anyhow::{Context, bail};
use hugepilot_bench::worker::{self, Phase, WorkerEvent, WorkerResult, WorkerSpec};
use hugepilot_core::units::Instant;
use std::io::Write;
use std::process::{Child, ExitCode, Stdio};
use std::time::Duration;

/// A worker is ready within this time: it maps nothing yet.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// The slowest touch rate that is waited for: a twentieth of an ordinary one.
const PAGES_PER_S_MIN: u64 = 50_000;
/// Beyond what the orders themselves take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Is the worker: the hidden subcommand.
///
/// # Errors
/// If the orders mean nothing, or the measurement fails.
pub fn be(spec: &str) -> anyhow::Result<ExitCode> {
    let spec: WorkerSpec = serde_json::from_str(spec)
        .map_err(|error| Usage::error(format!("a worker's orders are JSON: {error}")))?;
    die_with_parent()?;
    worker::run(&spec, std::io::stdin().lock(), std::io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// Lets the kernel kill this process when the one that started it dies, even by SIGKILL.
///
/// # Errors
/// If the kernel refuses.
pub fn die_with_parent() -> anyhow::Result<()> {
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)
        .context("cannot ask to be killed with the parent")
}

/// A worker that waits for the word to begin. Killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Lines,
    spec: WorkerSpec,
}

/// What a worker gave back.
#[derive(Debug)]
pub struct Measured {
    /// Its figures.
    pub result: WorkerResult,
    /// When each phase began.
    pub phases: Vec<(Phase, Instant)>,
}

impl Worker {
    /// Starts one and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(spec: &WorkerSpec) -> anyhow::Result<Self> {
        let mut child = own_program()
            .args(["bench", "worker"])
            .arg(serde_json::to_string(spec)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let output = child.stdout.take().context("a worker without output")?;
        let lines = Lines::of(output)?;
        let spec = *spec;
        Ok(Self { child, lines, spec })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says the word and waits for the figures.
    ///
    /// # Errors
    /// If the worker fails, takes far too long, or at a signal.
    pub fn measure(mut self, interrupt: &Interrupt) -> anyhow::Result<Measured> {
        let ready = self.event(READY_WITHIN, interrupt)?;
        if !matches!(ready, WorkerEvent::Ready { .. }) {
            bail!("a worker said {ready:?} before it was ready");
        }
        let mut input = self.child.stdin.take().context("a worker without input")?;
        input.write_all(b"go\n").context("a worker went away")?;
        let mut phases = Vec::new();
        loop {
            match self.event(self.patience(), interrupt)? {
                WorkerEvent::Begins { phase, at_ns } => phases.push((phase, at_ns)),
                WorkerEvent::Done { result } => {
                    let result = *result;
                    return Ok(Measured { result, phases });
                }
                WorkerEvent::Ready { .. } => bail!("a worker was ready twice"),
            }
        }
    }

    /// The longest that any phase may take.
    fn patience(&self) -> Duration {
        let pages = self.spec.bytes.0 >> 12;
        let rate = self
            .spec
            .open_per_s
            .map_or(PAGES_PER_S_MIN, |rate| PAGES_PER_S_MIN.min(u64::from(rate)));
        let touching = Duration::from_secs(pages / rate);
        let waiting = Duration::from_nanos(self.spec.settle_ns_max.0.max(self.spec.read_ns.0));
        PATIENCE + touching.max(waiting)
    }

    fn event(&self, limit: Duration, interrupt: &Interrupt) -> anyhow::Result<WorkerEvent> {
        let line = self
            .lines
            .next(limit, interrupt)
            .context("waiting for a worker")?;
        let line = line.context("a worker ended before it was done")?.line;
        serde_json::from_str(&line).with_context(|| format!("a worker said {line:?}"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill, and it is only reaped.
        drop(self.child.kill());
        if let Err(error) = self.child.wait() {
            eprintln!("hugepilot: cannot wait for a worker: {error}");
        }
    }
}
