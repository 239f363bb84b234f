//! The last step before a server: enter the cgroup, ask to die with the parent, become the command.
//!
//! Entering before the program starts charges every one of its pages to the cgroup. The request to be killed with the
//! parent survives `exec`, so a demo killed by SIGKILL leaves no server behind.

use crate::bench::die_with_parent;
use anyhow::Context;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// `demo exec`.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// The `cgroup.procs` to enter
    #[arg(long)]
    cgroup: PathBuf,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Does not come back, unless it fails.
///
/// # Errors
/// If the cgroup cannot be entered or the command not started.
pub fn become_command(args: &ExecArgs) -> anyhow::Result<ExitCode> {
    die_with_parent()?;
    std::fs::write(&args.cgroup, std::process::id().to_string())
        .with_context(|| format!("cannot enter {}", args.cgroup.display()))?;
    let (program, rest) = args.command.split_first().context("no command")?;
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot start {program}"))
}
