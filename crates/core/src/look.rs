//! Looks: what a policy asks to see next, bounded in number, and their answers.

use crate::ids::{SlotId, SlotRange};
use crate::units::{BasePages, Span};
use serde::{Deserialize, Serialize};

/// A question to the sensors; the next observation answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// Read the page tables of these slots: answered by `Observation::{scanned, slots}`.
    PageTables(SlotRange),
    /// Count zero-filled base pages of a slot by reading at most `pages_max` of them, spread evenly: answered by
    /// [`Answer::ZeroPages`].
    ZeroPages {
        /// The slot.
        slot: SlotId,
        /// Base pages to read at the most.
        pages_max: BasePages,
    },
    /// On which nodes the slot's pages lie: answered by `SlotObserved::nodes`.
    Nodes(SlotId),
    /// Track the accessed share of exactly these slots from now on, one reading a `period`: answered by
    /// `SlotObserved::accessed`. An empty list stops tracking.
    Track {
        /// The slots, sorted.
        slots: Vec<SlotId>,
        /// One scan.
        period: Span,
    },
    /// Sample accesses of all watched processes from now on, at most so many an interval: answered by
    /// `Observation::samples`. Zero stops it.
    Sample {
        /// Samples in one interval, at the most; what is lost to it is counted.
        samples_max: u32,
    },
}

/// The answer to a look that is not a slot's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Look::ZeroPages`].
    ZeroPages {
        /// The slot.
        slot: SlotId,
        /// Base pages read.
        read: BasePages,
        /// Those that held nothing but zeros.
        zero: BasePages,
    },
    /// The slot could not be read.
    Unanswered {
        /// The slot.
        slot: SlotId,
    },
}
