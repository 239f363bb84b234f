//! `hugepilot-worker`: all of it is in the library, so that other test programs can carry it inside.

use std::process::ExitCode;

fn main() -> ExitCode {
    hugepilot_workers::run(
        &hugepilot_workers::Itself::plain(),
        std::env::args().skip(1),
    )
}
