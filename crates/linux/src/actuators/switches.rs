//! The system's own switches of huge pages: where they are, and setting them through the journal.
//!
//! Per-size switches of mTHP (`hugepages-64kB/enabled` and the like) are no part of it: they are left alone, whatever
//! is asked for.

use super::Verdict;
use super::errno::{Call, verdict_of};
use crate::journal::{Journal, JournalError, value};
use crate::procfs::{ProcRoot, SysRoot};
use crate::sys::Errno;
use hugepilot_core::outcome::OutcomeClass;
use std::io;
use std::path::PathBuf;

/// One switch of the whole system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SysSwitch {
    /// May anonymous memory be huge: `always`, `madvise`, `never`.
    ThpEnabled,
    /// May a page fault wait for a huge page: `always`, `defer`, `defer+madvise`, `madvise`, `never`.
    ThpDefrag,
    /// The same of shared memory.
    ShmemEnabled,
    /// May khugepaged compact: `0`, `1`.
    KhugepagedDefrag,
    /// Milliseconds that khugepaged sleeps between two rounds.
    KhugepagedScanSleep,
    /// Base pages that khugepaged looks at in a round.
    KhugepagedPagesToScan,
    /// Base pages that may be absent from what khugepaged collapses.
    KhugepagedMaxPtesNone,
    /// Milliseconds that khugepaged sleeps after it found no huge page.
    KhugepagedAllocSleep,
    /// The kernel's own balancing between nodes: `0`, `1`, `2`.
    NumaBalancing,
    /// DAMON's statistics, which keep DAMON from everybody else: `Y`, `N`.
    DamonStat,
}

impl SysSwitch {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ThpEnabled,
        Self::ThpDefrag,
        Self::ShmemEnabled,
        Self::KhugepagedDefrag,
        Self::KhugepagedScanSleep,
        Self::KhugepagedPagesToScan,
        Self::KhugepagedMaxPtesNone,
        Self::KhugepagedAllocSleep,
        Self::NumaBalancing,
        Self::DamonStat,
    ];

    /// Its file.
    #[must_use]
    pub fn path(self, roots: &SwitchRoots) -> PathBuf {
        let thp = |file: &str| {
            roots
                .sys
                .path(&format!("kernel/mm/transparent_hugepage/{file}"))
        };
        match self {
            Self::ThpEnabled => thp("enabled"),
            Self::ThpDefrag => thp("defrag"),
            Self::ShmemEnabled => thp("shmem_enabled"),
            Self::KhugepagedDefrag => thp("khugepaged/defrag"),
            Self::KhugepagedScanSleep => thp("khugepaged/scan_sleep_millisecs"),
            Self::KhugepagedPagesToScan => thp("khugepaged/pages_to_scan"),
            Self::KhugepagedMaxPtesNone => thp("khugepaged/max_ptes_none"),
            Self::KhugepagedAllocSleep => thp("khugepaged/alloc_sleep_millisecs"),
            Self::NumaBalancing => roots.proc.system("sys/kernel/numa_balancing"),
            Self::DamonStat => roots.sys.path("module/damon_stat/parameters/enabled"),
        }
    }
}

/// Where the switches are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwitchRoots {
    /// `/sys`.
    pub sys: SysRoot,
    /// `/proc`.
    pub proc: ProcRoot,
}

/// Sets switches, all through one journal.
#[derive(Debug, Clone)]
pub struct Switches {
    journal: Journal,
    roots: SwitchRoots,
}

impl Switches {
    /// The switches below `roots`.
    #[must_use]
    pub const fn new(journal: Journal, roots: SwitchRoots) -> Self {
        Self { journal, roots }
    }

    /// What a switch shows; `None` where this kernel does not have it.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub fn read(&self, switch: SysSwitch) -> Result<Option<String>, JournalError> {
        let path = switch.path(&self.roots);
        match value::read(&path) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(JournalError::Read { path, source }),
        }
    }

    /// Sets a switch and reads it back.
    ///
    /// # Errors
    /// As [`Journal::set`].
    pub fn set(&self, switch: SysSwitch, value: &str) -> Result<(), JournalError> {
        self.journal.set(&switch.path(&self.roots), value)
    }

    /// Puts one switch back as it was found. One that we did not change stays.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn release(&self, switch: SysSwitch) -> Result<(), JournalError> {
        self.journal.release(&switch.path(&self.roots)).map(drop)
    }

    /// The journal.
    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }
}

/// What a setting that was not made means for the action.
#[must_use]
pub fn verdict(error: &JournalError) -> Verdict {
    match error {
        JournalError::HeldByLiving { .. }
        | JournalError::LeftByDead { .. }
        | JournalError::Locked { .. } => Verdict::new(OutcomeClass::Busy),
        JournalError::NotTaken { .. } => Verdict::new(OutcomeClass::NoEffect),
        JournalError::Untrusted { .. } | JournalError::Damaged { .. } => {
            Verdict::new(OutcomeClass::Denied)
        }
        JournalError::Directory { source, .. }
        | JournalError::Store { source, .. }
        | JournalError::Load { source, .. }
        | JournalError::Proc { source, .. }
        | JournalError::Read { source, .. }
        | JournalError::Write { source, .. } => of_io(source),
    }
}

fn of_io(error: &io::Error) -> Verdict {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    verdict_of(Call::Setting, errno)
}
