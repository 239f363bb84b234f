//! What can go wrong for good: not being able to see or to be set up.
//!
//! A process that vanished, memory that ran out and a page that is busy are values of the core, never errors.

use crate::procfs::ParseError;
use std::io;
use std::path::PathBuf;

/// The one error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the kernel cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the kernel cannot be written.
    #[error("cannot write {value} to {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What should have been written.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// A file of the kernel is not as we know it.
    #[error("cannot make sense of {path}: {source}; please report the file", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        source: ParseError,
    },
    /// A system call failed that we cannot do without.
    #[error("{call} failed: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// Why.
        source: rustix::io::Errno,
    },
    /// The kernel has no transparent huge pages.
    #[error("this kernel has no transparent huge pages ({path} is missing); boot one that has", path = path.display())]
    NoHugePages {
        /// What was looked for.
        path: PathBuf,
    },
}

impl Error {
    /// Did a process vanish while its file was read? Then it is no error but news.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Read { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || source.raw_os_error() == Some(libc::ESRCH)
            }
            Self::Call { source, .. } => *source == rustix::io::Errno::SRCH,
            Self::Write { .. } | Self::Parse { .. } | Self::NoHugePages { .. } => false,
        }
    }
}
