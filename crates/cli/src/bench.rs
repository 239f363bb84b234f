//! `hugepilot bench`: fault latency and access speed under each mode, in turn, in one run.
//!
//! This binary is also the worker that it measures (`bench worker`, hidden) and the manager that it measures it under
//! (`manage`), so that one installed file suffices. `never` and `always` are the system's switch, set through the
//! journal and therefore restored after any end; `mega` and `ingens` leave all switches alone, which is asserted, and run
//! under `madvise` with no advice given: faults get base pages, as under `never`.

mod bloat;
mod holder;
pub mod interrupt;
pub mod machine;
pub mod manager;
mod numa;
pub mod pipe;
pub mod size;
pub mod switches;
mod watch;
mod worker;

pub use worker::die_with_parent;

use crate::failure::Usage;
use anyhow::{Context, bail};
use hugepilot_bench::report::{Benchmark, Report, Run};
use hugepilot_bench::schedule::{self, Cell, Mode, ROUNDS_DEFAULT};
use hugepilot_bench::worker::WorkerSpec;
use hugepilot_core::units::{Bytes, Span};
use indicatif::{ProgressBar, ProgressStyle};
use interrupt::Interrupt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use switches::Switches;

/// Touches a second of the open loop: a base page each 10 µs, a busy but not a saturated program.
const OPEN_RATE_DEFAULT: u32 = 100_000;
/// Without a manager nothing is to come: wait only until mmap is measured.
const SETTLE_UNMANAGED: Span = Span::secs(5);
/// A managed worker reads when this share is huge: what is left makes no difference to the third digit.
const SETTLED_SHARE: f64 = 0.99;
/// Memory that must stay free beside the worker's, for the kernel, page tables and the manager.
const SPARE: Bytes = Bytes::mib(512);

/// `hugepilot bench`'s arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which benchmark
    #[command(subcommand)]
    pub which: Which,
}

/// The benchmarks.
#[derive(Debug, clap::Subcommand)]
pub enum Which {
    /// Time each first touch of a base page, in a closed and in an open loop
    #[command(
        after_help = "Example: sudo hugepilot bench faults --size 4GiB --rounds 7 --json > faults.json"
    )]
    Faults(FaultsArgs),
    /// Read at random once the memory has settled
    #[command(after_help = "Example: sudo hugepilot bench access --size 8GiB --settle 60")]
    Access(AccessArgs),
    /// What watching costs, of processors and of memory, with nothing acted on
    #[command(after_help = "Example: sudo hugepilot bench watch --size 8GiB --seconds 20")]
    Watch(watch::WatchArgs),
    /// Memory that sparse huge pages hold, and what a policy brings back
    #[command(after_help = "Example: sudo hugepilot bench bloat --size 2GiB")]
    Bloat(bloat::BloatArgs),
    /// A program of known memory use on several nodes
    #[command(
        after_help = "Examples:\n  hugepilot bench numa false-sharing\n  hugepilot bench numa hot-vector --size 128MiB --intervals 30 --json"
    )]
    Numa(numa::NumaArgs),
    /// Becomes another program, pinned and told to the virtual PMU as the manager
    #[command(hide = true)]
    Pinned(numa::PinnedArgs),
    /// A process that is watched: reads its orders as JSON
    #[command(hide = true)]
    Hold {
        /// A `HoldSpec`
        spec: String,
    },
    /// The process that is measured: reads its orders as JSON
    #[command(hide = true)]
    Worker {
        /// A `WorkerSpec`
        spec: String,
    },
}

/// What both benchmarks take.
#[derive(Debug, clap::Args)]
pub struct CommonArgs {
    /// Memory that a worker touches (a multiple of 2 MiB)
    #[arg(long, default_value = "2GiB", value_parser = size::parse)]
    size: Bytes,
    /// Rounds: in each, every mode runs once and the baselines twice
    #[arg(long, default_value_t = ROUNDS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Modes to compare
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "never,always,mega,ingens"
    )]
    modes: Vec<Mode>,
    /// A parameter of the policy, as `manage` takes it (mega.present_min=0.9)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `bench faults`.
#[derive(Debug, clap::Args)]
pub struct FaultsArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Touches a second of the open loop; 0: no open loop
    #[arg(long, default_value_t = OPEN_RATE_DEFAULT)]
    rate: u32,
    /// Seconds to wait after the last touch, while the worker's own mmap is timed
    #[arg(long, default_value_t = 5)]
    settle: u64,
}

/// `bench access`.
#[derive(Debug, clap::Args)]
pub struct AccessArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Seconds that a manager has at most, after the last touch, before the reads begin
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Seconds of reading, half of them dependent, half independent
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    read: u64,
}

/// This very program, also when the file that it came from was replaced meanwhile.
pub fn own_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hugepilot");
    command
}

/// A benchmark as it will run.
#[derive(Debug)]
struct Job<'a> {
    benchmark: Benchmark,
    common: &'a CommonArgs,
    managed: WorkerSpec,
    unmanaged: WorkerSpec,
}

/// Runs it.
///
/// # Errors
/// Without root, without room for the memory, or if a worker or a manager fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.which {
        Which::Faults(faults) => measure(&faults.job()),
        Which::Access(access) => measure(&access.job()),
        Which::Watch(watch) => watch::run(watch),
        Which::Bloat(bloat) => bloat::run(bloat),
        Which::Numa(args) => numa::run(args),
        Which::Pinned(args) => numa::run_pinned(args),
        Which::Hold { spec } => watch::hold(spec),
        Which::Worker { spec } => worker::be(spec),
    }
}

impl FaultsArgs {
    fn job(&self) -> Job<'_> {
        let spec = WorkerSpec {
            bytes: self.common.size,
            closed: true,
            open_per_s: (self.rate > 0).then_some(self.rate),
            settle_ns_max: Span::secs(self.settle),
            settle_share: None,
            read_ns: Span::ZERO,
            mmap_watch: true,
            seed: 1,
        };
        Job {
            benchmark: Benchmark::Faults,
            common: &self.common,
            managed: spec,
            unmanaged: spec,
        }
    }
}

impl AccessArgs {
    fn job(&self) -> Job<'_> {
        let managed = WorkerSpec {
            bytes: self.common.size,
            closed: true,
            open_per_s: None,
            settle_ns_max: Span::secs(self.settle),
            settle_share: Some(SETTLED_SHARE),
            read_ns: Span::secs(self.read),
            mmap_watch: true,
            seed: 1,
        };
        let unmanaged = WorkerSpec {
            settle_ns_max: SETTLE_UNMANAGED.min(managed.settle_ns_max),
            settle_share: None,
            ..managed
        };
        Job {
            benchmark: Benchmark::Access,
            common: &self.common,
            managed,
            unmanaged,
        }
    }
}

impl Job<'_> {
    fn spec(&self, mode: Mode) -> &WorkerSpec {
        if mode.is_baseline() {
            &self.unmanaged
        } else {
            &self.managed
        }
    }
}

fn measure(job: &Job<'_>) -> anyhow::Result<ExitCode> {
    check(job)?;
    let interrupt = Interrupt::install()?;
    let switches = Switches::open()?;
    let base = switches.settle_base()?;
    let mut facts = machine::facts()?;
    facts.thp = base;
    let runs = all_rounds(job, &switches, &interrupt)?;
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let report = Report::new(job.benchmark, command, facts, job.common.size, runs);
    if job.common.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.render());
    }
    Ok(ExitCode::SUCCESS)
}

fn check(job: &Job<'_>) -> anyhow::Result<()> {
    let usage = |error: hugepilot_bench::BenchError| Usage::error(error.to_string());
    job.managed.check().map_err(usage)?;
    machine::require_root("sets the system's THP switch and manages a process")?;
    let available = machine::memory_available()?;
    if available < job.common.size + SPARE {
        bail!(
            "{available} of memory are available and {} are needed: use a smaller --size",
            job.common.size + SPARE
        );
    }
    Ok(())
}

/// Runs all rounds, the memory warmed before each run.
fn all_rounds(
    job: &Job<'_>,
    switches: &Switches,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Run>> {
    let schedule = schedule::rounds(&job.common.modes, job.common.rounds);
    let all: u64 = schedule.iter().map(|round| round.len() as u64).sum();
    let bar = progress(all);
    bar.set_message("warming the memory");
    let mut runs = Vec::new();
    for (round, cells) in (0..).zip(&schedule) {
        for cell in cells {
            warm(job, switches, interrupt)?;
            bar.set_message(format!("round {} of {}: {cell}", round + 1, schedule.len()));
            runs.push(one(job, *cell, round, switches, interrupt)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(runs)
}

fn progress(all: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)");
    let bar = ProgressBar::new(all);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Touches and frees twice the memory, so that a hypervisor has backed what the next run will get. Before each run: a
/// guest that reports its free memory is soon without it again.
fn warm(job: &Job<'_>, switches: &Switches, interrupt: &Interrupt) -> anyhow::Result<()> {
    let room = machine::memory_available()?.growth_since(SPARE);
    let twice = Bytes(job.common.size.0 * 2);
    let spec = WorkerSpec {
        bytes: if twice <= room {
            twice
        } else {
            job.common.size
        },
        closed: true,
        open_per_s: None,
        settle_ns_max: Span::ZERO,
        read_ns: Span::ZERO,
        mmap_watch: false,
        ..job.unmanaged
    };
    let _switch = switches.hold(Mode::Always)?;
    worker::Worker::start(&spec)?.measure(interrupt)?;
    Ok(())
}

fn one(
    job: &Job<'_>,
    cell: Cell,
    round: u32,
    switches: &Switches,
    interrupt: &Interrupt,
) -> anyhow::Result<Run> {
    let doing = || format!("round {}, {cell}", round + 1);
    let spec = job.spec(cell.mode);
    let _switch = switches.hold(cell.mode)?;
    let before = switches.snapshot()?;
    let worker = worker::Worker::start(spec)?;
    let manager = manager::Manager::start_for(cell.mode, worker.pid(), &job.common.sets, interrupt)
        .with_context(doing)?;
    let measured = worker.measure(interrupt).with_context(doing)?;
    switches
        .assert_same(&before, "while the worker ran")
        .with_context(doing)?;
    let manager = manager
        .map(manager::Manager::stop)
        .transpose()
        .with_context(doing)?;
    switches
        .assert_same(&before, "after the manager ended")
        .with_context(doing)?;
    Ok(Run {
        round,
        cell,
        manager: manager.map(|log| log.figures(&measured.phases)),
        worker: measured.result,
    })
}
