//! `hugepilot bench pinned`: becomes another program on one CPU, told to the virtual PMU as the manager.
//!
//! Both the pinning and what is published outlive the exec, since the process stays the same: so what a manager costs in a
//! guest is counted from its first instruction on.

use anyhow::Context;
use hugepilot_bench::numa::cpus;
use hugepilot_bench::numa::referee::{Kind, Referee};

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Addresses at which nobody has memory; an empty range would mean all memory.
const NOTHING: std::ops::Range<u64> = 0..1;

/// `bench pinned`.
#[derive(Debug, clap::Args)]
pub struct PinnedArgs {
    /// The CPU that the program has to itself
    #[arg(long)]
    cpu: u32,
    /// Accesses of a thread per sample of the virtual PMU; without it, the program's own choice
    #[arg(long, value_name = "ACCESSES")]
    period: Option<u64>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

/// Becomes the program.
///
/// # Errors
/// If the CPU is not there, the virtual PMU has no room, or the program does not start.
pub fn run(args: &PinnedArgs) -> anyhow::Result<ExitCode> {
    cpus::pin(args.cpu)?;
    if let Some(referee) = Referee::find()? {
        // Its instructions are counted by its CPU; none of its memory is. It is never taken back: the guest ends first.
        referee.publish(args.cpu, NOTHING, Kind::Manager)?;
        if let Some(accesses) = args.period {
            referee.sample_every(accesses);
        }
    }
    let (program, arguments) = args.program.split_first().context("name a program")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot become {program}"))
}
