//! `hugepilot pool set`, `grow`, `shrink` and `demote`.

use super::amount::{self, Amount, Setting};
use super::{persist, pool_of, pools, print, words};
use crate::failure::Usage;
use crate::text;
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::{Bytes, Span};
use hugepilot_linux::error::Error;
use hugepilot_linux::pool::resize::{End, Goal, Live, Resized, resize};
use hugepilot_linux::pool::{Counters, PageSize, Pool, dividing, obstacles, read};
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use std::io;
use std::process::ExitCode;

/// How long growing may take.
#[derive(Debug, clap::Args)]
struct Patience {
    /// How long to go on growing: memory is compacted and asked for again
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = text::span)]
    within: Span,
}

/// `hugepilot pool set`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo hugepilot pool set 2M=512\n  sudo hugepilot pool set 2M=1G 1G=4@0 --within 1m\n  sudo hugepilot pool set 2M=0 --overcommit 256\n\nPages that are in use or promised to a mapping stay until they are given back: they are shown as surplus."
)]
pub struct SetArgs {
    /// Pages to keep, or memory: `2M=512`, `2M=1G`; on one node `2M=512@0`
    #[arg(value_name = "SIZE=N[@NODE]", required = true, value_parser = amount::setting)]
    settings: Vec<Setting>,
    /// Surplus pages that there may be on top of those pools (`vm.nr_overcommit_hugepages`)
    #[arg(long, value_name = "PAGES")]
    overcommit: Option<u64>,
    #[command(flatten)]
    patience: Patience,
}

/// `hugepilot pool grow`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo hugepilot pool grow 2M +64\n  sudo hugepilot pool grow 1G +2@1 --within 1m"
)]
pub struct GrowArgs {
    /// The size of the pool's pages
    #[arg(value_name = "SIZE", value_parser = amount::size)]
    size: PageSize,
    /// Pages to add, or memory: `+64`, `+1G`; on one node `+64@0`
    #[arg(value_name = "+N[@NODE]", value_parser = amount::more)]
    amount: Amount,
    #[command(flatten)]
    patience: Patience,
}

/// `hugepilot pool shrink`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sudo hugepilot pool shrink 2M -64\n  sudo hugepilot pool shrink 2M -128M@0\n\nPages that are in use or promised to a mapping stay until they are given back: they are shown as surplus."
)]
pub struct ShrinkArgs {
    /// The size of the pool's pages
    #[arg(value_name = "SIZE", value_parser = amount::size)]
    size: PageSize,
    /// Pages to take out, or memory: `-64`, `-1G`; of one node `-64@0`
    #[arg(value_name = "-N[@NODE]", value_parser = amount::fewer, allow_hyphen_values = true)]
    amount: Amount,
}

/// `hugepilot pool demote`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  sudo hugepilot pool demote 1G 2\n\nOnly pages that are free and promised to nobody can be broken up. There is no way back but to shrink the one pool and to grow the other."
)]
pub struct DivideArgs {
    /// The size of the pages to break up
    #[arg(value_name = "SIZE", value_parser = amount::size)]
    size: PageSize,
    /// How many, or memory: `2`, `2G`; of one node `2@0`
    #[arg(value_name = "N[@NODE]", value_parser = amount::more)]
    amount: Amount,
}

/// One pool, or its part on a node, and what it is to keep.
struct Change {
    size: PageSize,
    node: Option<NodeId>,
    minimum: u64,
}

/// Sets pools.
///
/// # Errors
/// If one cannot be read or written, or the usage is wrong.
pub fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let sys = SysRoot::default();
    let pools = pools(&sys)?;
    let mut changes = Vec::new();
    for setting in &args.settings {
        let pages = part(&pools, setting.size, setting.amount)?.pages;
        changes.push(Change {
            size: setting.size,
            node: setting.amount.node,
            minimum: pages,
        });
    }
    if let Some(pages) = args.overcommit {
        for change in &changes {
            let set = read::set_overcommit(&sys, change.size, pages);
            set.map_err(|error| explained(error, change.size))?;
        }
    }
    let mut all = true;
    for change in &changes {
        all &= carry_out(&sys, change, args.patience.within)?;
    }
    Ok(ExitCode::from(u8::from(!all)))
}

/// Adds pages.
///
/// # Errors
/// If the pool cannot be read or written, or the usage is wrong.
pub fn grow(args: &GrowArgs) -> anyhow::Result<ExitCode> {
    let sys = SysRoot::default();
    let pools = pools(&sys)?;
    let part = part(&pools, args.size, args.amount)?;
    let change = Change {
        size: args.size,
        node: args.amount.node,
        minimum: part.counters.minimum() + part.pages,
    };
    let done = carry_out(&sys, &change, args.patience.within)?;
    Ok(ExitCode::from(u8::from(!done)))
}

/// Takes pages out.
///
/// # Errors
/// If the pool cannot be read or written, or has not so many.
pub fn shrink(args: &ShrinkArgs) -> anyhow::Result<ExitCode> {
    let sys = SysRoot::default();
    let pools = pools(&sys)?;
    let part = part(&pools, args.size, args.amount)?;
    let has = part.counters.minimum();
    let minimum = has.checked_sub(part.pages).ok_or_else(|| {
        let there = words::pages(has);
        Usage::error(format!(
            "there are only {there} to take out; set {}=0 takes all",
            args.size.short()
        ))
    })?;
    let change = Change {
        size: args.size,
        node: args.amount.node,
        minimum,
    };
    let done = carry_out(&sys, &change, Span::ZERO)?;
    Ok(ExitCode::from(u8::from(!done)))
}

/// Breaks pages up.
///
/// # Errors
/// If the pool cannot be read or written, or its pages have no parts.
pub fn divide(args: &DivideArgs) -> anyhow::Result<ExitCode> {
    let sys = SysRoot::default();
    let pools = pools(&sys)?;
    let pages = part(&pools, args.size, args.amount)?.pages;
    let Some(parts) = pool_of(&pools, args.size)?.divides_into else {
        return Err(Usage::error(format!(
            "pages of {} cannot be broken into pages of another pool; those of 1G can, into 2M",
            args.size
        )));
    };
    let divided = dividing::divide(&sys, args.size, args.amount.node, pages)
        .map_err(|error| explained(error, args.size))?;
    let done = divided.pages();
    let mut text = format!(
        "{} became {}\n",
        words::pages_of(done, args.size),
        words::pages_of(done * (args.size.bytes().0 / parts.bytes().0), parts)
    );
    if done < pages {
        text += &format!(
            "{} not broken up: only pages that are free and promised to nobody can be\n",
            words::pages(pages - done)
        );
    }
    print(&text)?;
    Ok(ExitCode::from(u8::from(done < pages)))
}

/// What an amount is about: its pages, and the counters of the pool or of its part on the node.
struct Part {
    pages: u64,
    counters: Counters,
}

fn part(pools: &[Pool], size: PageSize, amount: Amount) -> anyhow::Result<Part> {
    let pool = pool_of(pools, size)?;
    let pages = amount.pages(size).map_err(Usage::error)?;
    let Some(node) = amount.node else {
        let counters = pool.counters;
        return Ok(Part { pages, counters });
    };
    let found = pool.nodes.iter().find(|part| part.node == node);
    let counters = found.map(|part| part.counters).ok_or_else(|| {
        let nodes: Vec<String> = pool
            .nodes
            .iter()
            .map(|part| part.node.0.to_string())
            .collect();
        Usage::error(format!(
            "this machine has no node {}; it has {}",
            node.0,
            nodes.join(", ")
        ))
    })?;
    Ok(Part { pages, counters })
}

/// Does it, and says what came of it: is all there that was asked for?
fn carry_out(sys: &SysRoot, change: &Change, within: Span) -> anyhow::Result<bool> {
    let proc = ProcRoot::default();
    let mut live = Live::new(sys, &proc, change.size, change.node);
    let goal = Goal {
        size: change.size,
        minimum: change.minimum,
        within,
    };
    let resized = resize(&mut live, goal).map_err(|error| explained(error, change.size))?;
    let mut said = words::resized(change.size, change.minimum, &resized);
    said.extend(why_not(sys, &proc, change, &resized));
    if change.node.is_none() && resized.after.minimum() > 0 {
        let default = read::default_size(&proc)?;
        said.push(persist::pool(change.size, resized.after.minimum(), default));
    }
    print(&(said.join("\n") + "\n"))?;
    Ok(resized.end == End::Reached)
}

/// What was in the way, if memory was. That it cannot be seen does not undo what was gained, and is said in its place.
fn why_not(sys: &SysRoot, proc: &ProcRoot, change: &Change, resized: &Resized) -> Vec<String> {
    match resized.end {
        End::OutOfMemory => {
            let missing = change.minimum.saturating_sub(resized.after.minimum()); // others may have grown it since
            match obstacles::memory(proc, sys, change.node, base_page()) {
                Ok(memory) => words::blocked(change.size, missing, &memory, resized.compaction),
                Err(error) => vec![format!("what is in the way cannot be seen: {error}")],
            }
        }
        End::Reached | End::OutOfTime | End::Otherwise => Vec::new(),
    }
}

fn base_page() -> Bytes {
    let bytes = u64::try_from(rustix::param::page_size());
    Bytes(bytes.expect("a page is smaller than the largest number"))
}

/// An error, with what to do about it where that is known.
fn explained(error: Error, size: PageSize) -> anyhow::Error {
    let hint = match &error {
        Error::Write { source, .. } => hint(source.kind(), size),
        Error::Read { .. }
        | Error::Parse { .. }
        | Error::Call { .. }
        | Error::NoHugePages { .. } => None,
    };
    match hint {
        Some(hint) => anyhow::Error::new(error).context(hint),
        None => anyhow::Error::new(error),
    }
}

fn hint(kind: io::ErrorKind, size: PageSize) -> Option<String> {
    if kind == io::ErrorKind::PermissionDenied {
        Some("pools are changed by root alone".to_owned())
    } else if kind == io::ErrorKind::ReadOnlyFilesystem {
        Some("/sys is mounted read-only, as in a container: change the pool outside".to_owned())
    } else if kind == io::ErrorKind::InvalidInput {
        Some(format!(
            "this kernel does not do that with pages of {size} once it runs"
        ))
    } else {
        None
    }
}
