//! Who writes a journal, and whether that process is still alive.
//!
//! A pid alone is used again; a pid with its start time is not, within one boot.

use super::JournalError;
use crate::procfs::stat;
use hugepilot_core::ids::{Pid, ProcessId};
use std::io;
use std::path::{Path, PathBuf};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// This process.
pub(super) fn this_process() -> Result<ProcessId, JournalError> {
    let pid = Pid(std::process::id());
    let start_ticks = start_of(pid)?.ok_or_else(|| JournalError::Proc {
        path: stat_path(pid),
        source: io::Error::from(io::ErrorKind::NotFound),
    })?;
    Ok(ProcessId { pid, start_ticks })
}

/// Does `owner` still run? One that ended and was not waited for does not.
pub(super) fn is_alive(owner: ProcessId) -> Result<bool, JournalError> {
    Ok(start_of(owner.pid)? == Some(owner.start_ticks))
}

/// Names this boot of the kernel.
pub(super) fn boot() -> Result<String, JournalError> {
    std::fs::read_to_string(BOOT_ID)
        .map(|text| text.trim().to_owned())
        .map_err(|source| JournalError::Proc {
            path: Path::new(BOOT_ID).to_owned(),
            source,
        })
}

fn stat_path(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/stat"))
}

/// When the process started, if it runs.
fn start_of(pid: Pid) -> Result<Option<u64>, JournalError> {
    let path = stat_path(pid);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if is_vanished(&error) => return Ok(None),
        Err(source) => return Err(JournalError::Proc { path, source }),
    };
    match stat::parse(&text) {
        Ok(stat) => Ok(stat.runs().then_some(stat.start_ticks)),
        Err(error) => Err(JournalError::Proc {
            path,
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        }),
    }
}

fn is_vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_its_namesake_of_another_time_is_not() {
        let me = this_process().expect("this process");
        assert!(is_alive(me).expect("readable"));
        let other = ProcessId {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert!(!is_alive(other).expect("readable"));
    }

    #[test]
    fn a_process_that_was_not_waited_for_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = Pid(child.id());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while start_of(pid).expect("readable").is_some() {
            assert!(std::time::Instant::now() < deadline, "it did not end");
            std::thread::yield_now();
        }
        child.wait().expect("ours to wait for");
    }
}
