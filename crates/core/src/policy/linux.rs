//! `linux`: what the kernel does by itself.
//!
//! **Problem.** A policy is worth what it gains over the kernel's own. **Decision.** Set the system's switches as one of
//! four modes has them, once, and do nothing else. **Parameters.** `mode`. **Properties.** One action in a run; the
//! machine restores the switches at its end. **Known bad cases.** The switches are the whole machine's: every other
//! process gets the mode too. **Source.** The kernel's `transhuge` documentation; the papers' baselines.

use super::{Policy, Tick};
use crate::action::{Action, LinuxMode};
use crate::plan::{Accounted, Planned, Wish};
use crate::reason::Reason;
use crate::world::{SlotChange, World};
use serde_json::{Value, json};

/// The policy's name.
pub const NAME: &str = "linux";

crate::parameters! {
    /// The baseline's numbers.
    pub struct LinuxParams in "linux" {
        mode: LinuxMode = LinuxMode::Madvise, 0..=0, "mode",
            "What the kernel does by itself while the run lasts", "the papers' baselines";
    }
}

/// The policy.
#[derive(Debug, Clone)]
pub struct Linux {
    params: LinuxParams,
    asked: bool,
}

impl Linux {
    /// Nothing set yet.
    #[must_use]
    pub fn new(params: LinuxParams) -> Self {
        Self {
            params,
            asked: false,
        }
    }
}

impl Policy for Linux {
    fn name(&self) -> &'static str {
        NAME
    }

    fn notes(&self, _: &World) -> Vec<String> {
        vec![format!(
            "sets the whole machine's THP switches to {} until it ends",
            self.params.mode
        )]
    }

    fn plan(&mut self, _: &Tick) -> Wish {
        if std::mem::replace(&mut self.asked, true) {
            return Wish::default();
        }
        let mode = self.params.mode;
        let planned = Planned {
            action: Action::Baseline { mode },
            reason: Reason::Baseline { mode },
        };
        Wish {
            actions: vec![planned],
            looks: Vec::new(),
        }
    }

    fn account(&mut self, _: &World, _: &Accounted, _: Option<&SlotChange>) {}

    fn watches(&self) -> bool {
        false
    }

    fn state(&self) -> Value {
        json!({"asked": self.asked})
    }

    fn bytes(&self) -> usize {
        0
    }
}
