//! `hugepilot doctor`: what this kernel lets us do, found by trying, and what each policy can do with it.
//!
//! Exit code 0 if the main job (collapse and split on other processes) works, at least in part; 1 if it cannot.

mod table;

use anyhow::Context;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::sample::Sampler;
use hugepilot_linux::machine::geometry;
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use hugepilot_linux::sampler::choice::{Places, Wish, choose};
use hugepilot_linux::support::env::Env;
use hugepilot_linux::support::live::Live;
use hugepilot_linux::support::policies::Ability;
use hugepilot_linux::support::{Report, probe};
use serde::Serialize;
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

/// Probe what this kernel lets hugepilot do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  sudo hugepilot doctor\n  sudo hugepilot doctor --json | jq '.policies'"
)]
pub struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// The JSON object: the report, with the kernel's name for people to read.
#[derive(Serialize)]
struct Shown<'a> {
    /// The kernel's release: told, never relied on.
    kernel: &'a str,
    #[serde(flatten)]
    report: &'a Report,
    sampler: SamplerShown,
}

/// What would sample accesses for the NUMA policies, and why nothing better.
#[derive(Serialize)]
struct SamplerShown {
    chosen: Option<Sampler>,
    /// In words.
    said: String,
    /// Every better one, with why it cannot be had.
    because: Vec<String>,
}

/// Tries samplers as a run would.
fn sampler(geometry: Geometry) -> SamplerShown {
    let places = Places {
        proc: ProcRoot::default(),
        sys: SysRoot::default(),
        geometry,
    };
    let choice = choose(Wish::Auto, &places);
    SamplerShown {
        chosen: choice.sampler.as_ref().map(|sampler| sampler.kind()),
        said: choice.said(),
        because: choice.reasons().collect(),
    }
}

/// Runs it.
///
/// # Errors
/// If the output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // A kernel without THP tells no slot: then any size does to report what is missing.
    let geometry = geometry(&SysRoot::default()).unwrap_or(Geometry::X86_64);
    let calls = Live { geometry };
    let report = probe(&Env::new(calls.geometry, &calls));
    let system = rustix::system::uname();
    let kernel = system.release().to_string_lossy();
    let text = if args.json {
        let shown = Shown {
            kernel: &kernel,
            report: &report,
            sampler: sampler(geometry),
        };
        serde_json::to_string_pretty(&shown).context("writing the report as JSON")? + "\n"
    } else {
        table::render(&kernel, &report, look()) + &sampler_lines(&sampler(geometry))
    };
    stdout()
        .write_all(text.as_bytes())
        .context("writing to standard output")?;
    Ok(exit_code(&report))
}

fn sampler_lines(shown: &SamplerShown) -> String {
    let because = shown.because.iter().map(|why| format!("\n    {why}"));
    format!("\nNUMA: {}{}\n", shown.said, because.collect::<String>())
}

fn exit_code(report: &Report) -> ExitCode {
    match report.main_job.verdict {
        Ability::Works | Ability::WorksPartly => ExitCode::SUCCESS,
        Ability::Cannot => ExitCode::FAILURE,
    }
}

/// Colour on a terminal only, and not where `NO_COLOR` is set.
fn look() -> table::Look {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if stdout().is_terminal() && !unwanted {
        table::Look::Coloured
    } else {
        table::Look::Plain
    }
}
