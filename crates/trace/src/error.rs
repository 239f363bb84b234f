//! What can be wrong with a recording, each with the line and with what to do next.

use hugepilot_core::params::ParamError;
use std::io;

/// A recording cannot be read, written or replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("line {line} cannot be read: {source}")]
    Read {
        /// The line, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("the recording cannot be written: {source}; is the disk full?")]
    Write {
        /// Why.
        source: io::Error,
    },
    /// A line that is too long to be one of ours.
    #[error("line {line} is longer than {bytes_max} bytes, so this is no recording of hugepilot")]
    TooLong {
        /// The line, from 1.
        line: u64,
        /// Most bytes a line may have.
        bytes_max: u64,
    },
    /// The first line is not a header.
    #[error(
        "this is no recording of hugepilot: line 1 is not a header ({source}); record one with `hugepilot manage --record FILE`"
    )]
    NoHeader {
        /// Why.
        source: serde_json::Error,
    },
    /// Nothing is in it.
    #[error(
        "this is no recording of hugepilot: it is empty; record one with `hugepilot manage --record FILE`"
    )]
    Empty,
    /// It comes from a newer hugepilot.
    #[error(
        "this recording has version {found}, and this hugepilot reads versions up to {known}: use a newer hugepilot"
    )]
    Newer {
        /// Its version.
        found: u32,
        /// The newest we know.
        known: u32,
    },
    /// A line is damaged.
    #[error("line {line} is damaged: {source}")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// It does not begin with everything.
    #[error(
        "line 2 is not a checkpoint, so what came before it is unknown: the recording was cut at its beginning"
    )]
    NoCheckpoint,
    /// A parameter of the header does not fit.
    #[error("the header's settings do not fit: {source}")]
    Settings {
        /// Which and why.
        source: ParamError,
    },
    /// The settings are no table of tables.
    #[error("the header's settings are no sections of parameters")]
    SettingsShape,
    /// There is no such policy.
    #[error("there is no policy {name:?}; the policies are {known}")]
    Policy {
        /// As given.
        name: String,
        /// All there are.
        known: String,
    },
}
