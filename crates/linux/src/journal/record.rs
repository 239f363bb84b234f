//! A journal's file: JSON, replaced as a whole.

use super::{JournalError, Undo};
use hugepilot_core::ids::ProcessId;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SUFFIX: &str = "journal.json";
const VERSION: u32 = 1;

/// What one instance has to undo.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// Who changed it.
    pub(super) owner: ProcessId,
    /// In which boot of the kernel: settings do not survive a reboot.
    pub(super) boot: String,
    /// The oldest first.
    pub(super) entries: Vec<Undo>,
}

impl Record {
    pub(super) const fn new(owner: ProcessId, boot: String) -> Self {
        Self {
            version: VERSION,
            owner,
            boot,
            entries: Vec::new(),
        }
    }

    pub(super) fn load(file: &Path) -> Result<Self, JournalError> {
        let error = |source| JournalError::Load {
            path: file.to_owned(),
            source,
        };
        let meta = fs::symlink_metadata(file).map_err(error)?;
        if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(JournalError::Untrusted {
                path: file.to_owned(),
            });
        }
        let text = fs::read_to_string(file).map_err(error)?;
        serde_json::from_str(&text).map_err(|source| JournalError::Damaged {
            path: file.to_owned(),
            source,
        })
    }

    /// Replaces `file`; on return it is on the disk, should the directory be on one.
    pub(super) fn store(&self, file: &Path) -> Result<(), JournalError> {
        let error = |source| JournalError::Store {
            path: file.to_owned(),
            source,
        };
        let text = serde_json::to_string_pretty(self).map_err(|e| error(io::Error::from(e)))?;
        let temporary = file.with_extension("tmp");
        let mut out = File::create(&temporary).map_err(error)?;
        out.write_all(text.as_bytes()).map_err(error)?;
        out.sync_all().map_err(error)?;
        fs::rename(&temporary, file).map_err(error)?;
        sync_parent(file).map_err(error)
    }
}

/// The name of an instance's file.
pub(super) fn file_name(owner: ProcessId) -> String {
    format!("{}-{}.{SUFFIX}", owner.pid, owner.start_ticks)
}

/// All journals in `dir`, sorted by name.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let error = |source| JournalError::Directory {
        dir: dir.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.to_string_lossy().ends_with(SUFFIX) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Removes a journal; one that is not there is as good.
pub(super) fn remove(file: &Path) -> Result<(), JournalError> {
    match fs::remove_file(file) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(JournalError::Store {
            path: file.to_owned(),
            source,
        }),
    }
}

fn sync_parent(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}
