//! Recording a run.

use super::session::Listener;
use super::tally::Tally;
use hugepilot_core::tick::Pilot;
use hugepilot_trace::{TickRef, Writer, Written};
use std::fs::File;

/// Writes every tick to a recording, as long as it takes one.
pub struct Recorder {
    writer: Writer<File>,
    full: bool,
}

impl Recorder {
    /// Records with `writer`.
    pub const fn new(writer: Writer<File>) -> Self {
        Self {
            writer,
            full: false,
        }
    }
}

impl Listener for Recorder {
    fn ticked(&mut self, tick: TickRef<'_>, _: &Pilot, _: &Tally) -> anyhow::Result<()> {
        let written = self.writer.tick(tick)?;
        if written == Written::Full && !self.full {
            self.full = true;
            eprintln!(
                "hugepilot: note: the recording is full at {}; managing goes on without it",
                self.writer.written()
            );
        }
        Ok(())
    }
}
