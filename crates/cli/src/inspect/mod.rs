//! `hugepilot inspect PID`: what a process's memory is made of, and what each policy would do with it. Changes nothing.

mod accesses;
mod census;
mod folios;
mod numa_maps;
mod opt_out;
mod read;
mod render;
mod render_json;
mod verdicts;

use crate::config::ConfigArgs;
use crate::{kernel, text};
use hugepilot_core::ids::Pid;
use hugepilot_core::machine::Machine;
use hugepilot_core::units::{Bytes, Span};
use hugepilot_core::world::World;
use hugepilot_linux::sampler::choice::Wish;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use render::Charset;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// `hugepilot inspect`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hugepilot inspect 1234\n  hugepilot inspect 1234 --regions 50\n  hugepilot inspect 1234 --json | jq .total.huge_bytes\n\nIt reads all page tables once, which holds the process's lock for milliseconds at a time, and changes nothing."
)]
pub struct Args {
    /// The process
    #[arg(value_parser = text::pid)]
    pid: Pid,
    /// List so many regions, the largest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    regions: usize,
    /// On a machine with several NUMA nodes, sample accesses for so long
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = text::span)]
    sample_for: Span,
    /// What samples them: auto (the best there is), pebs, ibs, virtual, hinting or none
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = text::sampler)]
    sampler: Wish,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A look that takes longer than this shows how far it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs it.
///
/// # Errors
/// If there is no such process, or we may not look at it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.config.settings()?;
    let (choice, unsampled) = accesses::choose(args.sampler)?;
    let mut machine = kernel::onlooker(args.pid, choice)?;
    let mut progress = Progress::new();
    let census = read::census(args.pid, machine.geometry(), &mut |done, whole| {
        progress.show(done, whole)
    })?;
    let mut seen = verdicts::look(&mut machine)?;
    progress.clear();
    if machine.sampler().is_some() {
        seen.extend(accesses::sample(&mut machine, args.sample_for)?);
    }
    let numa = accesses::view(machine.geometry(), &seen, &settings);
    let mut census = census;
    census.blind.extend(unsampled.filter(|_| numa.is_some()));
    let world = World::new(machine.geometry());
    let verdicts = verdicts::verdicts(&world, &seen, &settings);
    let shown = if args.json {
        format!(
            "{:#}\n",
            render_json::json(&census, &verdicts, numa.as_ref(), args.regions)
        )
    } else {
        render::text(&census, &verdicts, numa.as_ref(), (args.regions, charset()))
    };
    match std::io::stdout().write_all(shown.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => Ok(written.map(|()| ExitCode::SUCCESS)?),
    }
}

fn charset() -> Charset {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty());
    Charset::of(&locale.unwrap_or_default())
}

/// A progress bar on a terminal, once it takes long.
struct Progress {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            bar: None,
        }
    }

    fn show(&mut self, done: Bytes, whole: Bytes) {
        if self.bar.is_none() && self.began.elapsed() > PATIENCE {
            let bar = ProgressBar::with_draw_target(Some(whole.0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "reading page tables {wide_bar} {bytes}/{total_bytes}",
            );
            bar.set_style(style.expect("a constant that is tested"));
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done.0);
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_can_be_made() {
        let mut progress = Progress {
            began: Instant::now() - PATIENCE * 2,
            bar: None,
        };
        progress.show(Bytes(1), Bytes(2));
        assert!(progress.bar.is_some());
    }
}
