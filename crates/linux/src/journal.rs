//! The journal: nothing that hugepilot changes on the system outlives it.
//!
//! **Problem.** A run that sets `transparent_hugepage/enabled` or starts a kdamond must put back what it found: at its
//! end, in a panic, and also after `kill -9`, when no code of its own runs any more.
//!
//! **Approach.** Write ahead. Before each change an [`Undo`] goes into a file of this instance, named by pid and start
//! time, written to a temporary file, synced and renamed, so that a reader sees the old file or the new one. Then the
//! change is made and read back. [`Journal::restore`] undoes in reverse order and reads back again. A file whose owner
//! is dead is undone by [`Journal::recover`], at the next start or by `hugepilot restore`.
//!
//! **Whose value is it?** A value is put back only while the system still shows one that we wrote. If somebody else
//! changed it since, theirs stays and the report says so. An entry remembers at most two values as ours: the one that
//! stands and the one that is coming; a crash between the two leaves one of them.
//!
//! **Two instances.** Nesting would need every instance to end in the right order, so there is none: an instance that
//! wants a setting which another journal names is refused, with a sentence that says who holds it. The check and the
//! new entry are made under one lock (`lock` in the directory, waited for at most [`LOCK_WAIT`]).
//!
//! **Bounds.** One file an instance, one entry a setting: a few kilobytes, however long it runs.
//!
//! **Trust.** Recovery writes, as root, what a file says. The directory is made for its owner alone, and a file of
//! another user is reported and left.
//!
//! Handles are cheap to clone; the last one dropped restores, so a panic that unwinds does too. Signals are the
//! caller's business: it ends its loop and drops the journal, or calls [`Journal::restore`].

mod error;
mod lock;
mod owner;
mod record;
mod undo;
mod undo_damon;
pub mod value;

pub use error::JournalError;
pub use lock::LOCK_WAIT;
pub use undo::{RestoreOutcome, Restored};
pub use undo_damon::DamonUndo;

use hugepilot_core::ids::ProcessId;
use lock::{Lock, exists, prepare_dir};
use record::Record;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where journals are kept: a file system that does not survive a reboot, as the settings do not.
pub const DEFAULT_DIR: &str = "/run/hugepilot";

/// One thing to undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Undo {
    /// A file of sysfs or procfs that holds one value.
    File {
        /// Which.
        path: PathBuf,
        /// What it held.
        before: String,
        /// What we wrote: the value that stands, and the one that is coming.
        ours: Vec<String>,
    },
    /// Threads of DAMON's sysfs interface that we created.
    Damon(DamonUndo),
}

impl Undo {
    /// The file or directory that it is about: no two entries of living instances have the same.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } => path,
            Self::Damon(damon) => &damon.kdamonds,
        }
    }
}

/// A handle to this instance's journal.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    file: PathBuf,
    record: Record,
}

impl Journal {
    /// The journal of this process in `dir`, which is made if need be. Nothing is written before the first change.
    ///
    /// # Errors
    /// If the directory cannot be made or written, or a journal of this process cannot be read.
    pub fn open(dir: &Path) -> Result<Self, JournalError> {
        prepare_dir(dir)?;
        let owner = owner::this_process()?;
        let boot = owner::boot()?;
        drop(Lock::take(dir)?);
        Ok(Self(Arc::new(Mutex::new(Inner {
            dir: dir.to_owned(),
            file: dir.join(record::file_name(owner)),
            record: Record::new(owner, boot),
        }))))
    }

    /// Sets a one-value file, writing the journal first, and reads it back.
    ///
    /// # Errors
    /// If another instance holds it, the journal or the file cannot be written, or the kernel shows another value.
    pub fn set(&self, path: &Path, value: &str) -> Result<(), JournalError> {
        let mut inner = self.inner();
        let before = value::read(path).map_err(|source| JournalError::Read {
            path: path.to_owned(),
            source,
        })?;
        inner.note_file(path, before, value)?;
        value::write(path, value).map_err(|source| JournalError::Write {
            path: path.to_owned(),
            value: value.to_owned(),
            source,
        })?;
        verify(path, value)
    }

    /// Enters something to undo that is not a one-value file. Call it *before* the change.
    ///
    /// # Errors
    /// If another instance holds it or the journal cannot be written.
    pub fn note(&self, undo: Undo) -> Result<(), JournalError> {
        let mut inner = self.inner();
        let _lock = inner.claim(undo.path())?;
        inner
            .record
            .entries
            .retain(|entry| entry.path() != undo.path());
        inner.record.entries.push(undo);
        inner.store()
    }

    /// Undoes one entry now and forgets it. `None`: there is no entry of that path.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn release(&self, path: &Path) -> Result<Option<Restored>, JournalError> {
        let mut inner = self.inner();
        let Some(at) = inner.record.entries.iter().position(|e| e.path() == path) else {
            return Ok(None);
        };
        let restored = undo::undo(&inner.record.entries[at], inner.record.owner);
        if restored.is_settled() {
            inner.record.entries.remove(at);
            inner.store()?;
        }
        Ok(Some(restored))
    }

    /// Undoes everything, the last change first. What could not be undone stays in the journal.
    pub fn restore(&self) -> Vec<Restored> {
        self.inner().restore()
    }

    /// What is to be undone, the oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Undo> {
        self.inner().record.entries.clone()
    }

    /// The file of this instance. It exists while there is something to undo.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.inner().file.clone()
    }

    /// Who writes this journal.
    #[must_use]
    pub fn owner(&self) -> ProcessId {
        self.inner().record.owner
    }

    /// Undoes what instances left that are not alive any more. Living ones are named and left alone; a journal that
    /// cannot be read is reported and stays. No directory: nothing was left.
    ///
    /// # Errors
    /// If the directory cannot be read or locked.
    pub fn recover(dir: &Path) -> Result<Vec<Restored>, JournalError> {
        if !exists(dir)? {
            return Ok(Vec::new());
        }
        let _lock = Lock::take(dir)?;
        let boot = owner::boot()?;
        let mut report = Vec::new();
        for file in record::files(dir)? {
            report.extend(recover_one(&file, &boot));
        }
        Ok(report)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held leaves a record that was at worst written ahead: restoring it is right.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Enters that `path` goes from `before` to `value`. `before` counts only if the entry is new.
    fn note_file(&mut self, path: &Path, before: String, value: &str) -> Result<(), JournalError> {
        let _lock = self.claim(path)?;
        let known = self
            .record
            .entries
            .iter_mut()
            .find_map(|entry| match entry {
                Undo::File {
                    path: known, ours, ..
                } if known == path => Some(ours),
                Undo::File { .. } | Undo::Damon(_) => None,
            });
        match known {
            Some(ours) => {
                ours.retain(|old| *old == before && old != value);
                ours.push(value.to_owned());
            }
            None => self.record.entries.push(Undo::File {
                path: path.to_owned(),
                before,
                ours: vec![value.to_owned()],
            }),
        }
        self.store()
    }

    /// Makes sure that no other journal names `path`, and keeps others from entering it while the lock is held.
    fn claim(&self, path: &Path) -> Result<Lock, JournalError> {
        let lock = Lock::take(&self.dir)?;
        for file in record::files(&self.dir)? {
            if file == self.file {
                continue;
            }
            // One that cannot be read is `recover`'s to report; it must not stop this run.
            let Ok(other) = Record::load(&file) else {
                continue;
            };
            let same_boot = other.boot == self.record.boot;
            if same_boot && other.entries.iter().any(|entry| entry.path() == path) {
                return Err(held(path, &other));
            }
        }
        Ok(lock)
    }

    fn store(&self) -> Result<(), JournalError> {
        if self.record.entries.is_empty() {
            return record::remove(&self.file);
        }
        self.record.store(&self.file)
    }

    fn restore(&mut self) -> Vec<Restored> {
        let mut report = undo_all(&mut self.record);
        if let Err(error) = self.store() {
            report.push(Restored::failed(&self.file, &error));
        }
        report
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A forked child that inherited the handle must not undo its parent's changes.
        if std::process::id() == self.record.owner.pid.0 {
            for restored in self.restore() {
                if !restored.is_settled() {
                    eprintln!("hugepilot: {restored}");
                }
            }
        }
    }
}

/// Undoes the entries of `record` and keeps those that could not be undone even when all others had been.
fn undo_all(record: &mut Record) -> Vec<Restored> {
    let mut report = undo_once(record);
    if !record.entries.is_empty() {
        report.retain(Restored::is_settled);
        report.extend(undo_once(record));
    }
    report
}

/// Undoes the entries of `record` in reverse order and keeps those that could not be undone.
fn undo_once(record: &mut Record) -> Vec<Restored> {
    let mut report = Vec::new();
    let mut left = Vec::new();
    for entry in record.entries.drain(..).rev() {
        let restored = undo::undo(&entry, record.owner);
        if !restored.is_settled() {
            left.push(entry);
        }
        report.push(restored);
    }
    left.reverse();
    record.entries = left;
    report
}

fn recover_one(file: &Path, boot: &str) -> Vec<Restored> {
    let mut record = match Record::load(file) {
        Ok(record) => record,
        Err(error) => return vec![Restored::unreadable(file, &error)],
    };
    if record.boot != boot {
        return finish(file, Restored::other_boot(file));
    }
    match owner::is_alive(record.owner) {
        Ok(false) => (),
        Ok(true) => return vec![Restored::living(file, record.owner)],
        Err(error) => return vec![Restored::failed(file, &error)],
    }
    let mut report = undo_all(&mut record);
    let stored = if record.entries.is_empty() {
        record::remove(file)
    } else {
        record.store(file)
    };
    if let Err(error) = stored {
        report.push(Restored::failed(file, &error));
    }
    report
}

/// Removes a journal of which nothing is to be undone.
fn finish(file: &Path, restored: Restored) -> Vec<Restored> {
    match record::remove(file) {
        Ok(()) => vec![restored],
        Err(error) => vec![restored, Restored::failed(file, &error)],
    }
}

fn held(path: &Path, other: &Record) -> JournalError {
    let path = path.to_owned();
    match owner::is_alive(other.owner) {
        Ok(true) => JournalError::HeldByLiving {
            path,
            owner: other.owner,
        },
        Ok(false) => JournalError::LeftByDead {
            path,
            owner: other.owner,
        },
        Err(error) => error,
    }
}

fn verify(path: &Path, wanted: &str) -> Result<(), JournalError> {
    let shown = value::read(path).map_err(|source| JournalError::Read {
        path: path.to_owned(),
        source,
    })?;
    if shown == wanted {
        return Ok(());
    }
    Err(JournalError::NotTaken {
        path: path.to_owned(),
        wanted: wanted.to_owned(),
        shown,
    })
}
