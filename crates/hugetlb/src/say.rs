//! Messages to standard error: one line, one call, only as loud as `HUGETLB_VERBOSE` allows.

use crate::sys;
use crate::text::Buffer;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How much a message matters. At the default verbosity, 1, only errors are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What was asked for is not done.
    Error,
    /// It is done otherwise.
    Warning,
    /// What is done.
    Note,
}

impl Level {
    /// The verbosity at which it is printed.
    fn verbosity(self) -> usize {
        match self {
            Self::Error => 1,
            Self::Warning => 2,
            Self::Note => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR: ",
            Self::Warning => "WARNING: ",
            Self::Note => "",
        }
    }
}

/// A piece of a message.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'text> {
    /// Words.
    Words(&'text str),
    /// What somebody else wrote.
    Bytes(&'text [u8]),
    /// A number.
    Number(usize),
}

/// Verbosity unless set: errors alone.
pub const VERBOSITY: usize = 1;
/// Bytes of a message; what is longer is cut off.
const LINE_MAX: usize = 1024;

static SPOKEN: AtomicUsize = AtomicUsize::new(VERBOSITY);

/// From now on, messages up to this verbosity are printed.
pub fn up_to(verbosity: usize) {
    SPOKEN.store(verbosity, Ordering::Relaxed);
}

/// Prints a message, if it is loud enough.
pub fn say(level: Level, pieces: &[Piece<'_>]) {
    if level.verbosity() > SPOKEN.load(Ordering::Relaxed) {
        return;
    }
    let mut line = Buffer::<LINE_MAX>::new();
    let process = sys::process();
    let head = [Piece::Words("libhugetlbfs ["), Piece::Number(process)];
    let name = [Piece::Words("]: "), Piece::Words(level.name())];
    for piece in head.iter().chain(&name).chain(pieces) {
        match piece {
            Piece::Words(words) => line.push_all(words.as_bytes()),
            Piece::Bytes(bytes) => line.push_all(bytes),
            Piece::Number(number) => line.push_number(*number),
        }
    }
    line.push(b'\n');
    sys::write_stderr(line.cut());
}
