//! Programs that hold memory while tests manage it from outside.
//!
//! A worker is driven by lines on its standard input and answers each with one line (see [`session`]); [`client::Worker`]
//! is the other end. It never manages itself but on command, and then by its own `madvise`, so that a test builds a
//! state without the code under test. It dies with the thread that started it.
//!
//! `storm` is the abuse worker: processes that hold checksummed memory, fork, lock, move, unmap, exec and die at random
//! from a seed, and count every wrong byte.
//!
//! Everything is in the library, so that a test program which runs where no other file is (a guest) can carry the worker
//! inside: it passes its arguments on to [`run`] and names itself by [`Itself`].

pub mod cgroup;
pub mod client;
mod latency;
pub mod pattern;
mod pin;
mod region;
mod session;
mod storm;
pub mod sys;
mod toil;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// How this program starts another one of itself: its file, and the arguments that lead to the worker.
#[derive(Debug, Clone)]
pub struct Itself {
    file: PathBuf,
    prefix: Vec<OsString>,
}

impl Itself {
    /// The running program, which is a worker and nothing else.
    #[must_use]
    pub fn plain() -> Self {
        Self::behind([])
    }

    /// The running program, where the arguments `prefix` lead to the worker.
    #[must_use]
    pub fn behind<const N: usize>(prefix: [&str; N]) -> Self {
        Self {
            file: own_file(),
            prefix: prefix.iter().map(OsString::from).collect(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.args(&self.prefix);
        command
    }
}

/// By name where it still has one, so that the kernel calls the new process by it.
fn own_file() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|file| file.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

const USAGE: &str = "usage: hugepilot-worker [serve]
       hugepilot-worker storm --seconds N --seed S --bytes B [--threads T]";

/// Runs the worker with `arguments` (without the program's name).
pub fn run(itself: &Itself, arguments: impl Iterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] | ["serve"] => session::serve(itself),
        ["storm", options @ ..] => storm::run(itself, options),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(code) => code,
        Err(message) => {
            eprintln!("hugepilot-worker: {message}");
            ExitCode::from(2)
        }
    }
}
