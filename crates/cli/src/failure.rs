//! How a command ends when it cannot be done: one sentence on standard error, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// Exit code of a command that failed.
pub const FAILED: u8 = 1;
/// Exit code of a command that was used wrongly.
pub const USAGE: u8 = 2;

/// The command was used wrongly: exit code 2.
#[derive(Debug)]
pub struct Usage(String);

impl Usage {
    /// What is wrong, and what to do.
    pub fn error(sentence: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self(sentence.into()))
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Says the error and gives the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("hugepilot: {}", sentence(error));
    ExitCode::from(if error.is::<Usage>() { USAGE } else { FAILED })
}

/// The error and its causes. Most of our errors say their cause themselves; then it is not said again.
fn sentence(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !said.ends_with(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

/// A panic is a bug of ours: says so. Unwinding then drops the journal, which restores what was changed.
pub fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!(
            "hugepilot: this is a bug: {panic}; what was changed on the system is restored (`hugepilot restore` makes sure); please report it"
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_cause_is_said_once() {
        let source = io::Error::other("no such luck");
        let error = hugepilot_linux::error::Error::Read {
            path: "/x".into(),
            source,
        };
        let error = anyhow::Error::new(error).context("cannot start");
        assert_eq!(
            sentence(&error),
            "cannot start: cannot read /x: no such luck"
        );
        let chained = anyhow::anyhow!("inner").context("outer");
        assert_eq!(sentence(&chained), "outer: inner");
    }
}
