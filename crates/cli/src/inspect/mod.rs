//! `hugepilot inspect PID`: what a process's memory is made of, and what each policy would do with it. Changes nothing.

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
use hugepilot_core::units::Bytes;
use hugepilot_core::world::World;
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
    let mut machine = kernel::onlooker(args.pid)?;
    let mut progress = Progress::new();
    let census = read::census(args.pid, machine.geometry(), &mut |done, whole| {
        progress.show(done, whole)
    })?;
    let seen = verdicts::look(&mut machine)?;
    progress.clear();
    let world = World::new(machine.geometry());
    let verdicts = verdicts::verdicts(&world, &seen, &settings);
    let shown = if args.json {
        format!(
            "{:#}\n",
            render_json::json(&census, &verdicts, args.regions)
        )
    } else {
        render::text(&census, &verdicts, args.regions, charset())
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
