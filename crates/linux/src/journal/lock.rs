//! The directory of journals, and its lock: only who holds it looks at the others' journals and enters a change.

use super::JournalError;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for another instance that is writing its journal: that takes it milliseconds.
pub const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Is there such a directory?
pub(super) fn exists(dir: &Path) -> Result<bool, JournalError> {
    dir.try_exists().map_err(|source| JournalError::Directory {
        dir: dir.to_owned(),
        source,
    })
}

/// Makes the directory, for its owner alone, and refuses one that others can write.
pub(super) fn prepare_dir(dir: &Path) -> Result<(), JournalError> {
    let error = |source: io::Error| JournalError::Directory {
        dir: dir.to_owned(),
        source,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(error)?;
    let meta = std::fs::metadata(dir).map_err(error)?;
    let writable_by_others = meta.mode() & 0o022 != 0;
    if writable_by_others || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(JournalError::Untrusted {
            path: dir.to_owned(),
        });
    }
    Ok(())
}

/// The lock of a journal directory, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing the file unlocks it")] std::fs::File);

impl Lock {
    /// Waits at most [`LOCK_WAIT`].
    pub(super) fn take(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join("lock");
        let error = |source: io::Error| JournalError::Directory {
            dir: dir.to_owned(),
            source,
        };
        let file = std::fs::File::create(&path).map_err(error)?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_RETRY);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(JournalError::Locked { path }),
                Err(errno) => return Err(error(errno.into())),
            }
        }
    }
}
