//! Lines of a child's output, stamped as they arrive, waited for with a deadline.

use crate::bench::interrupt::{Interrupt, NOTICE};
use anyhow::{Context, bail};
use hugepilot_bench::clock::monotonic;
use hugepilot_core::units::Instant;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A line and when it came, by CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped {
    /// When.
    pub at: Instant,
    /// Without its end.
    pub line: String,
}

/// The lines of a pipe.
#[derive(Debug)]
pub struct Lines(Receiver<std::io::Result<Stamped>>);

impl Lines {
    /// Reads `pipe` in a thread that ends with the pipe.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn of(pipe: impl Read + Send + 'static) -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        let pump = move || {
            for line in BufReader::new(pipe).lines() {
                let at = monotonic();
                // Nobody listens any more: the reader was dropped, and so is the line.
                if sender.send(line.map(|line| Stamped { at, line })).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(pump)
            .context("cannot start a thread")?;
        Ok(Self(receiver))
    }

    /// The next line; `None` at the end of the pipe.
    ///
    /// # Errors
    /// After `limit`, at a signal, or if the pipe cannot be read.
    pub fn next(&self, limit: Duration, interrupt: &Interrupt) -> anyhow::Result<Option<Stamped>> {
        let until = std::time::Instant::now() + limit;
        loop {
            interrupt.check()?;
            match self.0.recv_timeout(NOTICE) {
                Ok(line) => return Ok(Some(line?)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if std::time::Instant::now() < until => (),
                Err(RecvTimeoutError::Timeout) => bail!("no answer within {limit:?}"),
            }
        }
    }

    /// All lines to the end of the pipe.
    ///
    /// # Errors
    /// If the pipe cannot be read.
    pub fn rest(self) -> anyhow::Result<Vec<Stamped>> {
        self.0.iter().map(|line| Ok(line?)).collect()
    }
}
