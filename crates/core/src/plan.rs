//! A plan: actions, each with its reason, and what to look at next.

use crate::action::Action;
use crate::ids::ProcessId;
use crate::look::Look;
use crate::outcome::Outcome;
use crate::reason::Reason;
use crate::units::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One action with the case for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// The laws of acting, which hold whatever a policy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// The process or the region opted out, or the user excluded it.
    OptedOut,
    /// The slot is shared copy-on-write after a fork.
    ForkShared,
    /// A living forked child shares the process's memory.
    LivingChild,
    /// Pages of the slot are swapped out.
    Swapped,
    /// The cgroup or the machine has too little room.
    Headroom,
    /// The machine or the cgroup is short of memory.
    Pressure,
    /// The process faults too much for its lock to be taken now.
    LockBudget,
    /// Collapses got slow, or the slot failed before: wait.
    BackOff,
    /// The bound on actions a tick was reached.
    TickBound,
    /// Nobody knows the slot, or nothing maps it as a whole.
    Unmapped,
    /// A memory policy binds the pages where they are.
    PlacementFixed,
    /// The node has no memory, or the process may not have memory there.
    NodeForbidden,
    /// The node has too little free memory.
    NodeFull,
}

impl Law {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::OptedOut,
        Self::ForkShared,
        Self::LivingChild,
        Self::Swapped,
        Self::Headroom,
        Self::Pressure,
        Self::LockBudget,
        Self::BackOff,
        Self::TickBound,
        Self::Unmapped,
        Self::PlacementFixed,
        Self::NodeForbidden,
        Self::NodeFull,
    ];

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OptedOut => "opted out of THP or excluded",
            Self::ForkShared => "shared copy-on-write after a fork",
            Self::LivingChild => "a living forked child shares this process's memory",
            Self::Swapped => "pages are swapped out",
            Self::Headroom => "too little headroom in the cgroup or on the machine",
            Self::Pressure => "memory pressure",
            Self::LockBudget => "the process faults too much to take its lock now",
            Self::BackOff => "backing off after slow or failed actions",
            Self::TickBound => "the bound on actions a tick was reached",
            Self::Unmapped => "not mapped as a whole by a watched process",
            Self::PlacementFixed => "a memory policy binds these pages to nodes",
            Self::NodeForbidden => "the node has no memory, or the process may not use it",
            Self::NodeFull => "the node has too little free memory",
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// An action that a law held back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// What was asked for.
    pub planned: Planned,
    /// What forbids it, now.
    pub law: Law,
}

/// What a policy wants of one tick, the best first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// Actions, the best first.
    pub actions: Vec<Planned>,
    /// Looks.
    pub looks: Vec<Look>,
}

/// What is done in one tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Actions to carry out, in order.
    pub actions: Vec<Planned>,
    /// Looks to answer in the next observation.
    pub looks: Vec<Look>,
    /// What laws held back, capped; `refused_total` counts all.
    pub refused: Vec<Refused>,
    /// All that laws held back in this tick.
    pub refused_total: u64,
    /// How long to wait before the next observation.
    pub next_tick: Span,
}

/// An action with what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accounted {
    /// What was planned.
    pub planned: Planned,
    /// The process through which it was done, if it was one.
    pub via: Option<ProcessId>,
    /// What came of it.
    pub outcome: Outcome,
}
