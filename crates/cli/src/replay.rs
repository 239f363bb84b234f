//! `hugepilot replay`: planning a recording again.

use crate::config::ConfigArgs;
use crate::text;
use anyhow::Context;
use hugepilot_core::plan::Plan;
use hugepilot_trace::{Reader, Tick, replay};
use serde_json::json;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// `hugepilot replay`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hugepilot replay run.trace\n  hugepilot replay run.trace --policy ingens\n  hugepilot replay run.trace --set mega.present_min=0.99 --json\n\nUnder the recorded policy and parameters it checks that every plan comes out as recorded. Under others the world still goes on as the recorded actions made it."
)]
pub struct Args {
    /// The recording
    file: PathBuf,
    /// Plan under this policy instead of the recorded one
    #[arg(long, value_name = "NAME", value_parser = text::policy)]
    policy: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// Runs it. Exit code 1: the recorded policy planned otherwise than recorded.
///
/// # Errors
/// If the recording cannot be read.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| {
        format!("cannot open {shown}; name a file that `hugepilot manage --record` wrote")
    })?;
    let reader = Reader::new(BufReader::new(file)).with_context(|| shown.to_string())?;
    let other =
        args.policy.is_some() || args.config.config.is_some() || !args.config.set.is_empty();
    let again = if other {
        plan_anew(args, reader)
    } else {
        check(args, reader)
    };
    again.with_context(|| shown.to_string())
}

/// Plans under what the user gave, and prints it.
fn plan_anew(args: &Args, mut reader: Reader<BufReader<File>>) -> anyhow::Result<ExitCode> {
    let header = reader.header().clone();
    let recorded = replay::settings(&header.settings)?;
    let settings = args.config.settings_over(recorded)?;
    let policy = args.policy.as_deref().unwrap_or(&header.policy);
    let mut pilot = replay::pilot(&header, policy, &settings)?;
    let mut out = std::io::stdout().lock();
    for tick in reader.by_ref() {
        let tick = tick?;
        let plan = replay::step(&mut pilot, &tick);
        print(&mut out, args.json, &tick, &plan)?;
    }
    tell_truncated(&reader);
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, json: bool, tick: &Tick, plan: &Plan) -> std::io::Result<()> {
    let at_ms = tick.observation.at.0 / 1_000_000;
    if json {
        return writeln!(out, "{}", json!({"at_ms": at_ms, "plan": plan}));
    }
    for planned in &plan.actions {
        let slot = planned
            .action
            .slot()
            .map_or(String::new(), |slot| format!(" {slot}"));
        writeln!(
            out,
            "{at_ms} ms {}{slot}: {}",
            planned.action.name(),
            planned.reason
        )?;
    }
    Ok(())
}

/// Plans under what was recorded, and compares.
fn check(args: &Args, mut reader: Reader<BufReader<File>>) -> anyhow::Result<ExitCode> {
    let difference = replay::first_difference(&mut reader)?;
    let ticks = reader.line().saturating_sub(1);
    tell_truncated(&reader);
    let same = difference.is_none();
    if args.json {
        let line = difference.map(|difference| {
            json!({"line": difference.line, "recorded": difference.recorded, "replayed": difference.replayed})
        });
        println!(
            "{}",
            json!({"policy": reader.header().policy, "ticks": ticks, "same": same, "difference": line})
        );
    } else if let Some(difference) = difference {
        println!(
            "line {}: {} actions were planned then, {} now, or others: this hugepilot decides otherwise",
            difference.line,
            difference.recorded.actions.len(),
            difference.replayed.actions.len()
        );
    } else {
        println!(
            "{ticks} ticks under {}: the same plans",
            reader.header().policy
        );
    }
    Ok(ExitCode::from(u8::from(!same)))
}

fn tell_truncated(reader: &Reader<BufReader<File>>) {
    if let Some(line) = reader.truncated() {
        eprintln!("hugepilot: note: line {line}, the last one, is cut off and was left out");
    }
}
