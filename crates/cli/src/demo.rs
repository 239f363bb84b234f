//! `hugepilot demo`: a real Redis under each mode in turn, and one table.
//!
//! For every mode a Redis server of its own starts in a memory cgroup of its own, is filled with 4 KiB objects over a
//! loopback socket, saves itself by BGSAVE while writes go on, loses three quarters of its objects at random, and ends.
//! What is timed is what a client sees; what is counted is what the cgroup is charged, page cache apart, since resident
//! size falls at a DONTNEED while a partially mapped huge page still holds all of its memory.
//!
//! **Bounds.** Every mode gets the same, stated time to settle; writes during the save are capped;
//! every wait has a deadline. **Cleaning up.** Server, cgroup, directory and switch are values that put themselves away
//! when dropped, at an error and at Ctrl-C too; after `kill -9` the kernel kills the server, and the next start removes
//! the rest.

pub mod cgroup;
mod exec;
mod load;
mod redis;
mod report;
mod resp;
mod scratch;
mod server;

use crate::bench::interrupt::Interrupt;
use crate::bench::machine;
use crate::bench::switches::Switches;
use anyhow::bail;
use hugepilot_bench::schedule::Mode;
use hugepilot_core::units::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// 300,000 objects are about 1.6 GiB in Redis, and the whole demo under three minutes on two processors.
const KEYS_DEFAULT: u32 = 300_000;
/// What the paper ran.
const KEYS_PAPER: u32 = 2_000_000;
/// An object of 4 KiB in Redis: jemalloc's class of 5 KiB, key and entry, a fifth for copies during the save and for
/// what the machine needs beside.
const BYTES_PER_KEY: u64 = 6_600;

/// `hugepilot demo`'s arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which program
    #[command(subcommand)]
    pub which: Which,
}

/// The demos.
#[derive(Debug, clap::Subcommand)]
pub enum Which {
    /// Fill a Redis, save it, empty it by three quarters, under each mode
    #[command(after_help = "Example: sudo hugepilot demo redis --json > demo.json")]
    Redis(RedisArgs),
    /// Enters a cgroup and becomes a command that dies with its parent
    #[command(hide = true)]
    Exec(exec::ExecArgs),
}

/// `demo redis`.
#[derive(Debug, clap::Args)]
pub struct RedisArgs {
    /// Objects of 4 KiB
    #[arg(long, default_value_t = KEYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1_000..=20_000_000))]
    keys: u32,
    /// The paper's 2 million objects (about 11 GiB)
    #[arg(long, conflicts_with = "keys")]
    paper: bool,
    /// Modes to run, in this order
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "never,always,mega,ingens"
    )]
    modes: Vec<Mode>,
    /// A parameter of the policy, as `manage` takes it (mega.present_min=0.9)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Seconds that every mode gets after the fill, and again after the deletion
    #[arg(long, default_value_t = redis::SETTLE_DEFAULT_S)]
    settle: u64,
    /// The server to start
    #[arg(long, default_value = "redis-server")]
    server: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// Without root or Redis, without room, if Redis opted out of THP, or if `always` did not get its huge pages.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.which {
        Which::Redis(args) => run_redis(args),
        Which::Exec(args) => exec::become_command(args),
    }
}

fn run_redis(args: &RedisArgs) -> anyhow::Result<ExitCode> {
    let keys = if args.paper { KEYS_PAPER } else { args.keys };
    let version = server::version(&args.server)?;
    machine::require_root("makes a memory cgroup, sets the system's THP switch and manages Redis")?;
    check_room(keys)?;
    let interrupt = Interrupt::install()?;
    let switches = Switches::open()?;
    let mut facts = machine::facts()?;
    facts.thp = switches.settle_base()?;
    cgroup::remove_stale()?;
    scratch::remove_stale()?;

    let bar = progress(args.modes.len());
    let mut rows = Vec::new();
    for mode in &args.modes {
        let job = redis::Job {
            mode: *mode,
            keys,
            sets: &args.sets,
            settle: Duration::from_secs(args.settle),
            server: &args.server,
            switches: &switches,
            interrupt: &interrupt,
            bar: &bar,
        };
        rows.push(redis::run(&job)?);
    }
    bar.finish_and_clear();
    let report = Report::new(keys, args.settle, version, facts, rows);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.render());
    }
    Ok(ExitCode::SUCCESS)
}

fn check_room(keys: u32) -> anyhow::Result<()> {
    let needed = Bytes(u64::from(keys) * BYTES_PER_KEY);
    let available = machine::memory_available()?;
    if available < needed {
        bail!("{keys} objects need {needed} and {available} are available: use fewer --keys");
    }
    Ok(())
}

fn progress(modes: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg} ({elapsed})");
    let bar = ProgressBar::new(modes as u64 * redis::STEPS);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
