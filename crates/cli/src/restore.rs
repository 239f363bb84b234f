//! `hugepilot restore`: putting back what a hugepilot that was killed left changed.

use anyhow::Context;
use hugepilot_linux::journal::{DEFAULT_DIR, Journal, Restored};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `hugepilot restore`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo hugepilot restore\n\nA hugepilot that ends, also by a signal or a panic, restores by itself; this is for one that was killed by SIGKILL."
)]
pub struct Args {
    /// Where the journals are
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    journal: PathBuf,
}

/// Runs it.
///
/// # Errors
/// If the journals cannot be looked at.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = recover(&args.journal)?;
    if report.is_empty() {
        println!("nothing to restore");
    }
    report.iter().for_each(|restored| println!("{restored}"));
    let failed = report.iter().any(|restored| !restored.is_settled());
    Ok(ExitCode::from(u8::from(failed)))
}

/// Undoes what dead instances left in `dir`.
///
/// # Errors
/// If the journals cannot be looked at.
pub fn recover(dir: &Path) -> anyhow::Result<Vec<Restored>> {
    Journal::recover(dir).context("cannot restore what an earlier run left")
}
