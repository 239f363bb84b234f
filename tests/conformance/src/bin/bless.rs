//! Takes what `conformance_live --record` printed on some kernel into `expected.json`.
//!
//! `hugepilot-conformance-bless EXPECTED_JSON < RECORDED_JSON`

use hugepilot_conformance::{Expected, Recorded};
use std::process::ExitCode;

fn main() -> ExitCode {
    match bless() {
        Ok(machine) => {
            println!("took the recordings of {machine}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("hugepilot-conformance-bless: {message}");
            ExitCode::FAILURE
        }
    }
}

fn bless() -> Result<String, String> {
    let file = std::env::args()
        .nth(1)
        .ok_or("name the expected.json to change")?;
    let text =
        std::io::read_to_string(std::io::stdin()).map_err(|error| format!("reading: {error}"))?;
    let recorded: Recorded =
        serde_json::from_str(&text).map_err(|error| format!("the recording: {error}"))?;
    let old = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let mut expected: Expected =
        serde_json::from_str(&old).map_err(|error| format!("{file}: {error}"))?;
    let machine = recorded.machine.clone();
    expected.take_all(recorded)?;
    std::fs::write(&file, expected.to_json()).map_err(|error| format!("{file}: {error}"))?;
    Ok(machine)
}
