//! Undoing one entry, and saying what came of it.

use super::{JournalError, Undo, undo_damon, value};
use hugepilot_core::ids::ProcessId;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What came of restoring one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The setting, or the journal that could not be used.
    pub path: PathBuf,
    /// What came of it.
    pub outcome: RestoreOutcome,
}

/// The ways in which restoring ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// It was as we left it and is again as we found it; read back.
    Restored {
        /// What it was until now.
        from: String,
        /// What it is again.
        to: String,
    },
    /// It is as we found it: nothing to do.
    Unchanged,
    /// Somebody else changed it since; theirs stays.
    ChangedSince {
        /// What it is now.
        found: String,
        /// What we had set.
        ours: String,
    },
    /// It is not there any more.
    Gone,
    /// It could not be put back; the journal keeps it.
    Failed {
        /// Why.
        why: String,
    },
    /// A journal that cannot be read or trusted; it stays where it is.
    Unreadable {
        /// Why.
        why: String,
    },
    /// A journal of an earlier boot: its settings ended with that.
    OtherBoot,
    /// A journal of an instance that is alive and restores by itself.
    Living(ProcessId),
}

impl Restored {
    pub(super) fn new(path: &Path, outcome: RestoreOutcome) -> Self {
        Self {
            path: path.to_owned(),
            outcome,
        }
    }

    pub(super) fn failed(path: &Path, error: &JournalError) -> Self {
        let why = error.to_string();
        Self::new(path, RestoreOutcome::Failed { why })
    }

    pub(super) fn unreadable(path: &Path, error: &JournalError) -> Self {
        let why = error.to_string();
        Self::new(path, RestoreOutcome::Unreadable { why })
    }

    pub(super) fn other_boot(path: &Path) -> Self {
        Self::new(path, RestoreOutcome::OtherBoot)
    }

    pub(super) fn living(path: &Path, owner: ProcessId) -> Self {
        Self::new(path, RestoreOutcome::Living(owner))
    }

    /// Is there nothing left to do about it? Not so where it failed or could not be read.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        match self.outcome {
            RestoreOutcome::Restored { .. }
            | RestoreOutcome::Unchanged
            | RestoreOutcome::ChangedSince { .. }
            | RestoreOutcome::Gone
            | RestoreOutcome::OtherBoot
            | RestoreOutcome::Living(_) => true,
            RestoreOutcome::Failed { .. } | RestoreOutcome::Unreadable { .. } => false,
        }
    }
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.outcome {
            RestoreOutcome::Restored { from, to } => {
                write!(f, "{path}: restored to {to} (was {from})")
            }
            RestoreOutcome::Unchanged => write!(f, "{path}: is as it was found"),
            RestoreOutcome::ChangedSince { found, ours } => write!(
                f,
                "{path}: changed by somebody else since (now {found}, we had set {ours}); left so"
            ),
            RestoreOutcome::Gone => write!(f, "{path}: is not there any more"),
            RestoreOutcome::Failed { why } => write!(f, "{path}: not restored: {why}"),
            RestoreOutcome::Unreadable { why } => write!(f, "{path}: not used: {why}"),
            RestoreOutcome::OtherBoot => {
                write!(f, "{path}: from before the last reboot; nothing to restore")
            }
            RestoreOutcome::Living(owner) => {
                write!(
                    f,
                    "{path}: hugepilot {owner} is running and restores by itself"
                )
            }
        }
    }
}

/// Undoes one entry of `owner`.
pub(super) fn undo(entry: &Undo, owner: ProcessId) -> Restored {
    let outcome = match entry {
        Undo::File { path, before, ours } => undo_file(path, before, ours),
        Undo::Damon(damon) => undo_damon::undo(damon, owner),
    };
    let outcome = outcome.unwrap_or_else(|error| failure(&error));
    Restored::new(entry.path(), outcome)
}

fn failure(error: &io::Error) -> RestoreOutcome {
    if error.kind() == io::ErrorKind::NotFound {
        return RestoreOutcome::Gone;
    }
    let why = error.to_string();
    RestoreOutcome::Failed { why }
}

fn undo_file(path: &Path, before: &str, ours: &[String]) -> io::Result<RestoreOutcome> {
    let found = value::read(path)?;
    if found == before {
        return Ok(RestoreOutcome::Unchanged);
    }
    if !ours.contains(&found) {
        let ours = ours.join(" or ");
        return Ok(RestoreOutcome::ChangedSince { found, ours });
    }
    value::write(path, before)?;
    let shown = value::read(path)?;
    Ok(if shown == before {
        let to = shown;
        RestoreOutcome::Restored { from: found, to }
    } else {
        let why = format!("it shows {shown} after {before} was written");
        RestoreOutcome::Failed { why }
    })
}
