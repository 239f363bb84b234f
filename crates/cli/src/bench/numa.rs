//! `hugepilot bench numa`: a program of known memory use on several nodes, and what it did.
//!
//! The program runs in this process: it is what a manager is pointed at. What its accesses cost is not its business; where
//! there is a virtual PMU it is told, else the kernel's account of the memory is shown.

mod chosen;
mod pinned;
mod text;

pub use pinned::{PinnedArgs, run as run_pinned};

use super::size;
use crate::failure::Usage;
use anyhow::Context;
use chosen::ChosenName;
use hugepilot_bench::numa::cpus::{self, Cpu};
use hugepilot_bench::numa::spec::{ACCESSES_DEFAULT, INTERVALS_DEFAULT, PHASE_DEFAULT, Spec};
use hugepilot_bench::numa::{self, Event, Name};
use hugepilot_bench::sys::words::Backing;
use hugepilot_core::units::Bytes;
use std::io::Write;
use std::process::ExitCode;

/// `bench numa`.
#[derive(Debug, clap::Args)]
pub struct NumaArgs {
    /// Which program
    name: ChosenName,
    /// Threads, one a CPU, in turn by node [default: one for each CPU that this process may use]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=63))]
    threads: Option<u32>,
    /// The CPUs to use, as in 0-3,8, instead of all
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Memory (a multiple of 2 MiB, at least 4 MiB a thread): by default more than caches hold, and soon moved
    #[arg(long, default_value = "64MiB", value_parser = size::parse)]
    size: Bytes,
    /// Intervals of work
    #[arg(long, default_value_t = INTERVALS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    intervals: u32,
    /// Accesses of each thread in each interval
    #[arg(long, default_value_t = ACCESSES_DEFAULT, value_parser = clap::value_parser!(u64).range(1..))]
    accesses: u64,
    /// Intervals after which owners change (false-sharing-phases)
    #[arg(long, default_value_t = PHASE_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    phase: u32,
    /// What backs hot-gigantic's memory
    #[arg(long, value_enum, default_value_t = BackingArg::Gigantic)]
    backing: BackingArg,
    /// Of contents and order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Wait for a line on standard input before touching memory
    #[arg(long)]
    wait: bool,
    /// Print JSON lines: the orders, each interval, the result
    #[arg(long)]
    json: bool,
}

/// What backs the memory of `hot-gigantic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BackingArg {
    /// One page of 1 GiB from the system's pool
    Gigantic,
    /// Pages as the system's switches say
    Ordinary,
}

/// Runs it; exit code 1 if a byte was wrong.
///
/// # Errors
/// If the orders mean nothing here, or the machine cannot carry them out.
pub fn run(args: &NumaArgs) -> anyhow::Result<ExitCode> {
    let spec = args.spec()?;
    spec.check()
        .map_err(|error| Usage::error(error.to_string()))?;
    if args.wait {
        let mut line = String::new();
        let read = std::io::stdin()
            .read_line(&mut line)
            .context("waiting for the word to begin")?;
        anyhow::ensure!(read > 0, "standard input ended without the word to begin");
    }
    let json = args.json;
    let figures = numa::run(&spec, |event| say(event, json))?;
    Ok(if figures.right() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints an event. Each goes out at once: who manages this process reads along.
fn say(event: &Event, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if json {
        writeln!(out, "{}", serde_json::to_string(event)?)
    } else {
        write!(out, "{}", text::of(event))
    };
    written
        .and_then(|()| out.flush())
        .context("cannot write what happened")
}

impl NumaArgs {
    fn spec(&self) -> anyhow::Result<Spec> {
        Ok(Spec {
            name: self.name.0,
            cpus: self.cpus()?,
            bytes: self.size,
            intervals: self.intervals,
            accesses: self.accesses,
            phase_intervals: self.phase,
            seed: self.seed,
            backing: if self.name.0 == Name::HotGigantic && self.backing == BackingArg::Gigantic {
                Backing::Gigantic
            } else {
                Backing::Ordinary
            },
        })
    }

    fn cpus(&self) -> anyhow::Result<Vec<Cpu>> {
        let mut cpus = cpus::allowed()?;
        if let Some(text) = &self.cpus {
            let named = cpus::list(text).map_err(|error| Usage::error(error.to_string()))?;
            if let Some(other) = named
                .iter()
                .find(|cpu| !cpus.iter().any(|allowed| allowed.cpu == **cpu))
            {
                return Err(Usage::error(format!(
                    "this process may not run on CPU {other}"
                )));
            }
            cpus.retain(|cpu| named.contains(&cpu.cpu));
        }
        let all = u32::try_from(cpus.len()).context("more CPUs than there can be")?;
        let threads = self.threads.unwrap_or(all.min(THREADS_MAX));
        if threads > all {
            return Err(Usage::error(format!(
                "{threads} threads need as many CPUs, and there are {all}: use a smaller --threads"
            )));
        }
        cpus.truncate(usize::try_from(threads).context("a number of threads")?);
        Ok(cpus)
    }
}

/// As many threads as a virtual PMU has room for.
#[expect(clippy::cast_possible_truncation, reason = "63")]
const THREADS_MAX: u32 = numa::spec::THREADS_MAX as u32;
