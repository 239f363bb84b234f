//! Reading a recording, a line a tick.

use crate::error::TraceError;
use crate::format::{Header, Tick, VERSION, Version};
use std::io::{BufRead, Read};

/// Longest line that is read: a checkpoint of a terabyte in slots takes less.
pub const LINE_BYTES_MAX: u64 = 256 << 20;

/// Reads a recording; an iterator over its ticks.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    line: u64,
    truncated: Option<u64>,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If this is no recording, or one of a newer version.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let Some((text, _)) = read_line(&mut input, 1)? else {
            return Err(TraceError::Empty);
        };
        let version: Version =
            serde_json::from_slice(&text).map_err(|source| TraceError::NoHeader { source })?;
        if version.hugepilot_trace > VERSION {
            return Err(TraceError::Newer {
                found: version.hugepilot_trace,
                known: VERSION,
            });
        }
        let header =
            serde_json::from_slice(&text).map_err(|source| TraceError::NoHeader { source })?;
        Ok(Self {
            input,
            header,
            line: 1,
            truncated: None,
            ended: false,
        })
    }

    /// The first line.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The line read last, from 1.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The number of a last line that was cut off and is left out, once the end was reached.
    #[must_use]
    pub const fn truncated(&self) -> Option<u64> {
        self.truncated
    }

    fn read_tick(&mut self) -> Result<Option<Tick>, TraceError> {
        let line = self.line + 1;
        let Some((text, complete)) = read_line(&mut self.input, line)? else {
            return Ok(None);
        };
        self.line = line;
        match serde_json::from_slice::<Tick>(&text) {
            Ok(tick) if line == 2 && !tick.observation.checkpoint => Err(TraceError::NoCheckpoint),
            Ok(tick) => Ok(Some(tick)),
            Err(_) if !complete => {
                self.truncated = Some(line);
                Ok(None)
            }
            Err(source) => Err(TraceError::Damaged { line, source }),
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Tick, TraceError>;

    /// The next tick. Nothing comes after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let tick = self.read_tick().transpose();
        self.ended = !matches!(tick, Some(Ok(_)));
        tick
    }
}

/// The next line and whether it was complete; `None` at the end.
fn read_line(input: &mut impl BufRead, line: u64) -> Result<Option<(Vec<u8>, bool)>, TraceError> {
    let mut text = Vec::new();
    input
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut text)
        .map_err(|source| TraceError::Read { line, source })?;
    let complete = text.last() == Some(&b'\n');
    if !complete && u64::try_from(text.len()).expect("bounded") == LINE_BYTES_MAX {
        return Err(TraceError::TooLong {
            line,
            bytes_max: LINE_BYTES_MAX,
        });
    }
    Ok((!text.is_empty()).then_some((text, complete)))
}
