//! `numa-table`: what page sizes and placement do on several nodes, by the virtual PMU, in one table.
//!
//! **What is run**: each workload of `hugepilot bench numa`, on 4 and 8 nodes, on kernels 6.12 and newest, under nobody
//! (base pages, THP, THP with the kernel's balancing) and under each NUMA policy, which sees accesses by the virtual PMU's
//! samples or by hinting faults alone. One case is one guest ([`guest`]), which runs one [`script`].
//!
//! **What is counted**: the referee's windows ([`referee`]), one an interval of the workload ([`figures`]). The manager has a
//! CPU of its own, so that its instructions, the kernel's on its behalf included, are those of that CPU.
//!
//! **What goes wrong** is a row that says why: a wrong byte, a switch left changed, a guest that hangs. All rows are
//! in a file ([`results`]); a case that has figures is not run again, unless that file is removed.

mod abuse;
pub mod case;
mod figures;
mod guest;
mod referee;
mod results;
mod script;
mod size;
mod table;
pub mod tests_in_guests;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::vm;
use case::{Case, Mode, Sampler, Wanted, Workload};
use guest::Rig;
use results::{Became, Results, Row};
use size::Size;

/// Everything that is written.
const DIRECTORY: &str = "target/numa-table";

#[derive(Args)]
pub struct Arguments {
    /// Only these workloads
    #[arg(long = "workload", value_enum, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// How many nodes
    #[arg(long, value_delimiter = ',', default_value = "4,8", value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: Vec<u32>,
    /// Kernels, as `vm run` takes them
    #[arg(long = "kernel", value_delimiter = ',', default_value = "6.12,newest")]
    kernels: Vec<String>,
    /// Only these modes
    #[arg(long = "mode", value_enum, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Only what sees accesses by these
    #[arg(long = "sampler", value_enum, value_delimiter = ',')]
    samplers: Vec<Sampler>,
    /// Intervals of each workload
    #[arg(long, default_value_t = Size::default().intervals, value_parser = clap::value_parser!(u32).range(1..))]
    intervals: u32,
    /// Accesses of a thread in an interval
    #[arg(long, default_value_t = Size::default().accesses, value_parser = clap::value_parser!(u64).range(1..))]
    accesses: u64,
    /// Kill a guest after so many seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    limit: u64,
    /// The file of results [default: target/numa-table/results.json]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// This hugepilot, linked statically, instead of one built for release
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Keep what each guest said, beside the results
    #[arg(long)]
    keep: bool,
    /// Run cases that failed before once more
    #[arg(long)]
    again: bool,
    /// Run nothing: print the table of what there is
    #[arg(long)]
    show: bool,
}

pub fn perform(arguments: &Arguments) -> Result<ExitCode> {
    let directory = vm::workspace_root()?.join(DIRECTORY);
    let path = arguments
        .results
        .clone()
        .unwrap_or_else(|| directory.join("results.json"));
    let mut results = Results::open(&path)?;
    let cases = arguments.wanted().cases();
    ensure!(!cases.is_empty(), "there is no such case");
    if !arguments.show {
        let rig = Rig {
            program: match &arguments.program {
                Some(program) => program.clone(),
                None => program(Profile::Release)?,
            },
            size: Size {
                intervals: arguments.intervals,
                accesses: arguments.accesses,
                ..Size::default()
            },
            limit: Duration::from_secs(arguments.limit),
            scratch: directory,
            keep: arguments.keep,
        };
        let due: Vec<&Case> = cases
            .iter()
            .filter(|case| !results.has(case) && (arguments.again || results.of(case).is_none()))
            .collect();
        run_all(&rig, &due, &mut results)?;
    }
    let table = table::markdown(&results, &cases);
    print!("{table}");
    fs::write(path.with_extension("md"), &table).context("cannot write the table")?;
    let failed = cases.iter().filter(|case| !results.has(case)).count();
    eprintln!(
        "numa-table: {} of {} cases have figures",
        cases.len() - failed,
        cases.len()
    );
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Arguments {
    fn wanted(&self) -> Wanted {
        Wanted {
            workloads: self.workloads.clone(),
            nodes: self.nodes.clone(),
            kernels: self.kernels.clone(),
            modes: self.modes.clone(),
            samplers: self.samplers.clone(),
        }
    }
}

fn run_all(rig: &Rig, due: &[&Case], results: &mut Results) -> Result<()> {
    let began = Instant::now();
    for (done, case) in due.iter().enumerate() {
        eprintln!(
            "numa-table: {} of {}: {case}{}",
            done + 1,
            due.len(),
            left(began.elapsed(), done, due.len())
        );
        let row = run_one(rig, case);
        eprintln!("numa-table: {}", said(&row));
        results.keep(row)?;
    }
    Ok(())
}

fn run_one(rig: &Rig, case: &Case) -> Row {
    let began = Instant::now();
    let became = match rig.run(case) {
        Ok(figures) => Became::Done(Box::new(figures)),
        Err(error) => Became::Failed(format!("{error:#}")),
    };
    Row {
        case: case.clone(),
        seconds: began.elapsed().as_secs_f64(),
        became,
    }
}

/// How long the rest takes, if it goes on like that.
fn left(took: Duration, done: usize, all: usize) -> String {
    let Ok(count @ 1..) = u32::try_from(done) else {
        return String::new();
    };
    let rest =
        u32::try_from(all - done).map_or(Duration::MAX, |rest| (took / count).saturating_mul(rest));
    format!(" (about {} min left)", rest.as_secs().div_ceil(60))
}

fn said(row: &Row) -> String {
    match &row.became {
        Became::Done(figures) => format!(
            "LAR {:.1} %, imbalance {:.1} %, {:.0} % huge, {} pages migrated{} ({:.0} s)",
            figures.lar * 100.0,
            figures.imbalance * 100.0,
            figures.huge_share * 100.0,
            figures.migrated,
            figures
                .manager
                .as_ref()
                .map_or(String::new(), |manager| format!(
                    ", overhead {:.2} %",
                    manager.overhead * 100.0
                )),
            row.seconds
        ),
        Became::Failed(why) => format!("failed after {:.0} s: {why}", row.seconds),
    }
}

/// How hugepilot is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    /// As it is shipped: what is counted as overhead is its.
    Release,
    /// As the other tests in guests have it.
    Debug,
}

/// hugepilot, linked statically.
fn program(profile: Profile) -> Result<PathBuf> {
    let binaries = vm::build::guest_binaries(profile == Profile::Release)?;
    binaries
        .into_iter()
        .find(|path| path.file_name().is_some_and(|file| file == "hugepilot"))
        .context("hugepilot is not among the guests' binaries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_estimated_from_what_was_done() {
        assert_eq!(left(Duration::ZERO, 0, 5), "");
        assert_eq!(left(Duration::from_secs(120), 2, 5), " (about 3 min left)");
    }
}
