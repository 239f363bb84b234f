//! Acting: one action, carried out once, judged by what the kernel then shows.
//!
//! Actions on slots are here. What is switched for a process, a cgroup or the whole machine goes through
//! [`SystemSwitches`], since it must be remembered and restored.

pub mod baseline;
pub mod collapse;
pub mod collisions;
pub mod errno;
pub mod moving;
pub mod split;
pub mod switches;
pub mod target;

use hugepilot_core::action::Action;
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};

/// What came of an action, or stands in its way, without the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Its class.
    pub class: OutcomeClass,
    /// Why, where known.
    pub cause: Option<Cause>,
}

impl Verdict {
    /// Without a cause.
    #[must_use]
    pub const fn new(class: OutcomeClass) -> Self {
        Self { class, cause: None }
    }

    /// The same with a cause.
    #[must_use]
    pub const fn because(self, cause: Cause) -> Self {
        Self {
            cause: Some(cause),
            ..self
        }
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        Self {
            cause: verdict.cause,
            ..Self::new(verdict.class)
        }
    }
}

/// Carries out the actions that are not about a slot, and remembers what to restore.
pub trait SystemSwitches {
    /// Carries out `action`, which is not about a slot, and verifies it by what can be read back.
    fn switch(&mut self, action: &Action) -> Outcome;
}
