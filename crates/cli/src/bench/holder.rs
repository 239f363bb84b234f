//! Holders as children: processes that have memory of a given shape while a manager is measured on them.

use super::interrupt::Interrupt;
use super::pipe::Lines;
use anyhow::Context;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Holders touch all of their memory within this.
const HELD_WITHIN: Duration = Duration::from_secs(120);

/// A child that is killed when dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself, and is then only reaped.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A holder that may still be touching its memory.
#[derive(Debug)]
pub struct Holder {
    child: Killed,
    lines: Lines,
}

impl Holder {
    /// Starts `command`, which becomes `bench hold`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Killed(command.spawn().context("cannot start a holder")?);
        let output = child.0.stdout.take().context("a holder without output")?;
        let lines = Lines::of(output)?;
        Ok(Self { child, lines })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Waits until it has all of its memory.
    ///
    /// # Errors
    /// If it ends before, takes far too long, or at a signal.
    pub fn wait(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let line = self.lines.next(HELD_WITHIN, interrupt)?;
        line.map(drop).context("a holder ended at once")
    }
}
