//! Writing a recording, a line a tick.

use crate::error::TraceError;
use crate::format::{Header, TickRef};
use hugepilot_core::units::Bytes;
use serde::Serialize;
use std::io::{BufWriter, Write};

/// Was a tick written?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Yes.
    Yes,
    /// No: the recording would have grown past its bound. None is written after it either, so that it has no gap.
    Full,
}

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: BufWriter<W>,
    written: Bytes,
    bytes_max: Option<Bytes>,
    full: bool,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A recording that begins with `header` and grows to `bytes_max` at the most.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn new(out: W, header: &Header, bytes_max: Option<Bytes>) -> Result<Self, TraceError> {
        let mut writer = Self {
            out: BufWriter::new(out),
            written: Bytes::ZERO,
            bytes_max,
            full: false,
            line: Vec::new(),
        };
        writer.put(header)?;
        Ok(writer)
    }

    /// Appends a tick and flushes it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn tick(&mut self, tick: TickRef<'_>) -> Result<Written, TraceError> {
        if self.full {
            return Ok(Written::Full);
        }
        self.put(&tick)
    }

    /// Bytes written.
    #[must_use]
    pub const fn written(&self) -> Bytes {
        self.written
    }

    /// What it was written to; everything is flushed.
    #[must_use]
    pub fn into_inner(self) -> W {
        let (out, unwritten) = self.out.into_parts();
        assert!(
            unwritten.is_ok_and(|left| left.is_empty()),
            "every line is flushed"
        );
        out
    }

    fn put(&mut self, value: &impl Serialize) -> Result<Written, TraceError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value).map_err(|error| TraceError::Write {
            source: error.into(),
        })?;
        self.line.push(b'\n');
        let length = Bytes(u64::try_from(self.line.len()).expect("a line fits the address space"));
        if self
            .bytes_max
            .is_some_and(|most| self.written + length > most)
        {
            self.full = true;
            return Ok(Written::Full);
        }
        let error = |source| TraceError::Write { source };
        self.out.write_all(&self.line).map_err(error)?;
        self.out.flush().map_err(error)?;
        self.written += length;
        Ok(Written::Yes)
    }
}
