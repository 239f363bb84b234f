//! Why a policy wants an action: one typed value that the log, the dry run, `inspect` and the tests all print.

use crate::action::LinuxMode;
use crate::ids::NodeId;
use crate::metrics::Estimate;
use crate::observation::Tracker;
use crate::units::{BasePages, Bytes, Ratio};
use serde::{Deserialize, Serialize};
use std::fmt;

mod numa;

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
    /// Pages go where they are used, or are spread where several nodes use them.
    Placement {
        /// Pages that one node alone uses, and that go there.
        one_node: u32,
        /// Pages that several nodes use, and that go to a node drawn at random.
        shared: u32,
        /// Samples of these pages.
        samples: u32,
        /// The first page's new node.
        to: NodeId,
        /// LAR of the round, if known.
        lar: Option<Estimate>,
        /// Imbalance of the round, if known.
        imbalance: Option<Estimate>,
    },
    /// One huge page takes too many of all accesses.
    HotPage {
        /// Its share.
        share: Estimate,
        /// It must not be above this.
        share_max: Ratio,
        /// Nodes that access it.
        nodes: u32,
    },
    /// A huge page is shared, and shared huge pages are split.
    SharedHuge {
        /// Threads that access it.
        threads: u32,
        /// Nodes that access it.
        nodes: u32,
        /// Expected gain in LAR by splitting, where that is why.
        gain: Option<Estimate>,
    },
    /// Splitting is expected to raise LAR where placing alone is not.
    SplittingPays {
        /// Expected gain by placing alone.
        placing: Estimate,
        /// Expected gain by splitting and placing.
        splitting: Estimate,
    },
    /// Page walks cause too many L2 misses.
    PageWalks {
        /// Share of L2 misses.
        share: Ratio,
        /// It must not be above this.
        share_max: Ratio,
    },
    /// A core spends too much time in page faults.
    FaultTime {
        /// The worst core's share of time.
        share: Ratio,
        /// It must not be above this.
        share_max: Ratio,
    },
    /// The policy begins with this setting.
    StartSetting,
    /// Huge allocation is off, and what is shared is split.
    AllocationOff,
    /// Splitting did not help, or would not, and is taken back.
    SplitInVain {
        /// LAR before it; none where only probes were split.
        lar_before: Option<Estimate>,
        /// LAR now, if known.
        lar: Option<Estimate>,
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
            Self::Placement { .. }
            | Self::HotPage { .. }
            | Self::SharedHuge { .. }
            | Self::SplittingPays { .. }
            | Self::PageWalks { .. }
            | Self::FaultTime { .. }
            | Self::StartSetting
            | Self::AllocationOff
            | Self::SplitInVain { .. } => numa::fmt(self, f),
        }
    }
}
