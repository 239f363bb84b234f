//! What came of an action. A failed collapse is an outcome, not an error.

use crate::observation::SlotObserved;
use crate::units::{Bytes, Span};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The classes of outcomes. Errno is mapped to them at one place of the live machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeClass {
    /// The machine's state shows it.
    Done,
    /// No free page of that order, or the cgroup had no room.
    NoMemory,
    /// A page was pinned, locked or under writeback: worth another try later.
    Busy,
    /// The process, the region or the memory is not there any more.
    Gone,
    /// The kernel will not do this here; do not try again.
    Ineligible,
    /// This kernel cannot do it at all.
    Unsupported,
    /// We may not.
    Denied,
    /// It said yes and the state is as it was.
    NoEffect,
}

impl OutcomeClass {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::NoMemory,
        Self::Busy,
        Self::Gone,
        Self::Ineligible,
        Self::Unsupported,
        Self::Denied,
        Self::NoEffect,
    ];

    /// Its name, as on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NoMemory => "no_memory",
            Self::Busy => "busy",
            Self::Gone => "gone",
            Self::Ineligible => "ineligible",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::NoEffect => "no_effect",
        }
    }
}

impl fmt::Display for OutcomeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an action had the outcome it had, where the machine can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Pages are shared with another process after a fork.
    ForkShared,
    /// Somebody holds a reference: DMA, vmsplice, `io_uring`.
    Pinned,
    /// The region is locked in memory.
    Locked,
    /// Pages are swapped out.
    Swapped,
    /// The region or the process opted out of THP.
    OptedOut,
    /// It already was as wanted.
    AlreadyDone,
    /// No process that we watch maps the slot as a whole at a fitting address.
    NotMappedWhole,
    /// The process ended, or its id belongs to another one by now.
    ProcessGone,
    /// A capability is missing.
    Capability,
}

/// What came of one action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its class.
    pub class: OutcomeClass,
    /// Why, where known.
    pub cause: Option<Cause>,
    /// How long the action's own call took: for a collapse an upper bound of the time the target's lock was held.
    pub took: Span,
    /// The slot as it was looked at afterwards: what makes `class` true.
    pub after: Option<SlotObserved>,
    /// Memory that came back, judged by base pages that are not present any more.
    pub freed: Bytes,
}

impl Outcome {
    /// An outcome of `class` of which nothing else is known.
    #[must_use]
    pub const fn new(class: OutcomeClass) -> Self {
        Self {
            class,
            cause: None,
            took: Span::ZERO,
            after: None,
            freed: Bytes::ZERO,
        }
    }

    /// The same with a cause.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Self {
            cause: Some(cause),
            ..self
        }
    }
}
