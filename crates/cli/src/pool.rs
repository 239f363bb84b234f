//! `hugepilot pool`: hugetlb pools read, resized and explained, and hugetlbfs mounted.
//!
//! `list` and `explain` change nothing. What the others change stays changed: a pool belongs to its administrator, not to a run of
//! hugepilot, so nothing of it goes through the journal or is restored.
//!
//! Exit code 0 if all that was asked for is there, 1 if it is not, or not all of it (and why is said), 2 for a wrong usage, which changes
//! nothing.

mod amount;
mod explain;
mod list;
mod list_json;
mod mount;
mod persist;
mod resize;
mod words;

use crate::failure::Usage;
use anyhow::Context;
use clap::Subcommand;
use hugepilot_linux::pool::{PageSize, Pool, read};
use hugepilot_linux::procfs::SysRoot;
use std::io::{Write, stdout};
use std::process::ExitCode;

/// `hugepilot pool`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  hugepilot pool list\n  sudo hugepilot pool set 2M=512\n  sudo hugepilot pool grow 2M +64 --within 30s\n  hugepilot pool explain 2M --length 1G --pid 1234\n  sudo hugepilot pool mount --size 1G /mnt/huge\n\nA pool that is set stays set until the next boot; each command prints what makes it last."
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the pools, who holds their pages, and the limits of cgroups
    List(list::Args),
    /// Set how many pages a pool keeps
    Set(resize::SetArgs),
    /// Add pages to a pool
    Grow(resize::GrowArgs),
    /// Take pages out of a pool
    Shrink(resize::ShrinkArgs),
    /// Break free pages of one size into pages of the next smaller one
    #[command(name = "demote")]
    Divide(resize::DivideArgs),
    /// Say in words whether a mapping would succeed now, and why
    Explain(explain::Args),
    /// Mount hugetlbfs, and print what makes that last
    Mount(mount::Args),
}

/// Runs it.
///
/// # Errors
/// If the pools cannot be read or written, or the usage is wrong.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Set(args) => resize::set(args),
        Command::Grow(args) => resize::grow(args),
        Command::Shrink(args) => resize::shrink(args),
        Command::Divide(args) => resize::divide(args),
        Command::Explain(args) => explain::run(args),
        Command::Mount(args) => mount::run(args),
    }
}

/// All pools; at least one.
fn pools(sys: &SysRoot) -> anyhow::Result<Vec<Pool>> {
    let pools = read::pools(sys)?;
    if pools.is_empty() {
        anyhow::bail!(
            "this kernel has no hugetlb pages (/sys/kernel/mm/hugepages is missing or empty); boot one with CONFIG_HUGETLBFS"
        );
    }
    Ok(pools)
}

/// The pool of one size.
fn pool_of(pools: &[Pool], size: PageSize) -> anyhow::Result<&Pool> {
    let found = pools.iter().find(|pool| pool.size == size);
    found.ok_or_else(|| {
        let sizes: Vec<String> = pools.iter().map(|pool| pool.size.short()).collect();
        Usage::error(format!(
            "this machine has no pool of {size} pages; it has {}",
            sizes.join(", ")
        ))
    })
}

fn print(text: &str) -> anyhow::Result<()> {
    stdout()
        .write_all(text.as_bytes())
        .context("writing to standard output")
}
