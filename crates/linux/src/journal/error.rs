//! What can go wrong with the journal, each with what to do next.

use hugepilot_core::ids::ProcessId;
use std::io;
use std::path::PathBuf;

/// A change was not made, or what was left could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory cannot be made, read or written.
    #[error(
        "cannot keep a journal in {dir}: {source}; run as root, or name a directory that you own"
    )]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory or a file in it could have been written by somebody else.
    #[error(
        "{path} belongs to another user or can be written by others, so a journal in it cannot be trusted; \
         make it yours alone (chown, chmod go-w) or name another"
    )]
    Untrusted {
        /// Which.
        path: PathBuf,
    },
    /// Another instance holds the lock for too long.
    #[error("{path} has been locked by another hugepilot for two seconds; is that one stopped?")]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// A journal cannot be written.
    #[error("cannot write the journal {path}: {source}; nothing was changed")]
    Store {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A journal cannot be read.
    #[error("cannot read the journal {path}: {source}")]
    Load {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A journal holds something else than it should.
    #[error(
        "the journal {path} is damaged ({source}): look at the settings by hand, then remove that file"
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The kernel does not say who is alive.
    #[error("cannot read {path}: {source}; is /proc mounted?")]
    Proc {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A living instance changed the same setting.
    #[error(
        "{path} was set by another hugepilot that is still running (pid {owner}); \
         end that one first, or do without this setting"
    )]
    HeldByLiving {
        /// The setting.
        path: PathBuf,
        /// Who holds it.
        owner: ProcessId,
    },
    /// A dead instance's change was not undone yet.
    #[error(
        "{path} is as a hugepilot that died (pid {owner}) left it; run `hugepilot restore` first"
    )]
    LeftByDead {
        /// The setting.
        path: PathBuf,
        /// Who left it.
        owner: ProcessId,
    },
    /// A setting cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The setting.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A setting cannot be written.
    #[error("cannot write \"{value}\" to {path}: {source}")]
    Write {
        /// The setting.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel took the value and shows another.
    #[error("{path} shows \"{shown}\" after \"{wanted}\" was written to it")]
    NotTaken {
        /// The setting.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What it shows.
        shown: String,
    },
}
