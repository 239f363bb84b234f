//! Why a policy wants an action: one typed value that the log, the dry run, `inspect` and the tests all print.

use crate::action::LinuxMode;
use crate::observation::Tracker;
use crate::units::{BasePages, Bytes, Ratio};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a present share was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PresentBy {
    /// The page tables show it.
    PageTables,
    /// By reading the memory: base pages that are not zero-filled.
    ZeroLook,
}

/// The accessed share that a decision rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AccessedShare {
    /// Mean over the history; of a huge slot the share of scans in which it was accessed.
    pub share: Ratio,
    /// Scans in the history.
    pub scans: u8,
    /// Who says so.
    pub tracker: Tracker,
}

/// The numbers that made the case for an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Reason {
    /// Enough of the slot is present, and used where a tracker can tell.
    PresentAndUsed {
        /// Present share.
        present: Ratio,
        /// It must be above this.
        present_min: Ratio,
        /// Accessed share, if tracked.
        accessed: Option<AccessedShare>,
        /// It must be above this.
        accessed_min: Ratio,
    },
    /// Enough of the slot is present; this policy asks for nothing else.
    Present {
        /// Present share.
        present: Ratio,
        /// It must be at least this.
        present_min: Ratio,
        /// Huge bytes of the process, by which fairness ranks.
        process_huge: Bytes,
    },
    /// Too little of a huge slot holds anything.
    Sparse {
        /// Present share.
        present: Ratio,
        /// It must not be below this.
        present_keep: Ratio,
        /// How it was found.
        by: PresentBy,
    },
    /// A huge slot is hardly used.
    Idle {
        /// Accessed share.
        accessed: AccessedShare,
        /// It must not be below this.
        accessed_keep: Ratio,
    },
    /// The program gave back base pages of a huge page.
    Freed {
        /// Base pages given back.
        freed: BasePages,
        /// Present share left.
        present: Ratio,
    },
    /// A huge page is mapped in part and holds memory that nobody can reach.
    PartiallyMapped {
        /// Present share.
        present: Ratio,
    },
    /// A quiet huge slot is split to see what of it is used.
    Probe {
        /// Scans without a change.
        quiet_scans: u32,
    },
    /// A baseline of the kernel's own.
    Baseline {
        /// Which.
        mode: LinuxMode,
    },
    /// Tests and tools act on command.
    OnCommand,
}

impl fmt::Display for AccessedShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} accessed over {} scans", self.share, self.scans)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PresentAndUsed {
                present,
                present_min,
                accessed,
                accessed_min,
            } => {
                write!(f, "{present} present (more than {present_min})")?;
                match accessed {
                    Some(accessed) => write!(f, ", {accessed} (more than {accessed_min})"),
                    None => write!(f, ", use unknown: no tracker"),
                }
            }
            Self::Present {
                present,
                present_min,
                process_huge,
            } => write!(
                f,
                "{present} present (at least {present_min}), process has {process_huge} huge"
            ),
            Self::Sparse {
                present,
                present_keep,
                by,
            } => {
                let how = match by {
                    PresentBy::PageTables => "present",
                    PresentBy::ZeroLook => "not zero-filled",
                };
                write!(f, "only {present} {how} (less than {present_keep})")
            }
            Self::Idle {
                accessed,
                accessed_keep,
            } => write!(f, "{accessed} (less than {accessed_keep})"),
            Self::Freed { freed, present } => {
                write!(f, "{} base pages freed, {present} left", freed.0)
            }
            Self::PartiallyMapped { present } => {
                write!(f, "partially mapped huge page, {present} reachable")
            }
            Self::Probe { quiet_scans } => {
                write!(f, "quiet for {quiet_scans} scans: looking inside")
            }
            Self::Baseline { mode } => write!(f, "baseline {mode}"),
            Self::OnCommand => f.write_str("on command"),
        }
    }
}
