//! The conformance suite as one static program, for guests: it carries its worker inside.
//!
//! `conformance_live` compares with what was recorded and exits 1 on a difference; `conformance_live --record` prints
//! what this kernel does, for `hugepilot-conformance-bless`.

#[path = "../tests/conformance/cgroup.rs"]
mod cgroup;
#[path = "../tests/conformance/stage.rs"]
mod stage;

use hugepilot_conformance::{Expected, Recorded, StageError, differences, record};
use hugepilot_workers::Itself;
use stage::{LiveStage, Program, check_geometry, features, kernel};
use std::process::ExitCode;

/// The argument that leads to the worker inside.
const WORKER: &str = "worker";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == WORKER) {
        return hugepilot_workers::run(&Itself::behind([WORKER]), arguments.skip(1));
    }
    match play() {
        Ok(recorded) if arguments.any(|argument| argument == "--record") => print(&recorded),
        Ok(recorded) => compare(&recorded),
        Err(error) => {
            eprintln!("conformance_live: {error}");
            ExitCode::FAILURE
        }
    }
}

fn play() -> Result<Recorded, StageError> {
    check_geometry()?;
    let file = std::env::current_exe().map_err(StageError::from_error)?;
    let program = Program {
        file,
        prefix: vec![WORKER],
    };
    let features = features(&program)?;
    Ok(record(&kernel()?, &features, || {
        Ok(LiveStage::new(program.clone(), None))
    }))
}

fn print(recorded: &Recorded) -> ExitCode {
    println!("{}", serde_json::to_string(recorded).expect("plain data"));
    ExitCode::SUCCESS
}

fn compare(recorded: &Recorded) -> ExitCode {
    let differences = differences(&Expected::recorded(), recorded);
    for difference in &differences {
        println!("{difference}");
    }
    println!(
        "{}: {} cases, {} differ",
        recorded.machine,
        recorded.reports.len(),
        differences.len()
    );
    if differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
