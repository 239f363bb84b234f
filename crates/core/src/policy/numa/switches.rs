//! Huge allocation and promotion: what is wanted, what was asked for, and what the machine can do.

use crate::action::{Action, Switch};
use crate::ids::Scope;
use crate::outcome::OutcomeClass;
use crate::plan::{Accounted, Planned};
use crate::reason::Reason;
use serde_json::{Value, json};

/// One of the two.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    to: Switch,
    reason: Reason,
    /// What was asked of the machine last; none before anything was.
    asked: Option<Switch>,
    /// The machine cannot do it.
    refused: Option<OutcomeClass>,
}

impl Wanted {
    fn want(&mut self, to: Switch, reason: Reason) {
        if self.to != to {
            self.to = to;
            self.reason = reason;
        }
    }

    fn wish(&mut self, action: impl Fn(Switch) -> Action) -> Option<Planned> {
        if self.asked == Some(self.to) || self.refused.is_some() {
            return None;
        }
        Some(Planned {
            action: action(self.to),
            reason: self.reason.clone(),
        })
    }

    fn account(&mut self, switch: Switch, class: OutcomeClass) {
        match class {
            OutcomeClass::Done | OutcomeClass::NoEffect => self.asked = Some(switch),
            OutcomeClass::Unsupported | OutcomeClass::Denied | OutcomeClass::Ineligible => {
                self.refused = Some(class);
            }
            OutcomeClass::NoMemory | OutcomeClass::Busy | OutcomeClass::Gone => {}
        }
    }
}

/// Both, for the whole machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Switches {
    allocation: Wanted,
    promotion: Wanted,
    begun: bool,
}

impl Switches {
    /// Both are taken to be as the policy begins, and nothing is asked for yet.
    pub(super) fn new(start: Switch) -> Self {
        let wanted = Wanted {
            to: start,
            reason: Reason::StartSetting,
            asked: Some(start),
            refused: None,
        };
        Self {
            allocation: wanted.clone(),
            promotion: wanted,
            begun: false,
        }
    }

    /// Asks once for the setting that the policy begins with.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.allocation.asked = None;
            self.promotion.asked = None;
        }
    }

    pub(super) fn allocation(&mut self, to: Switch, reason: Reason) {
        self.allocation.want(to, reason);
    }

    pub(super) fn promotion(&mut self, to: Switch, reason: Reason) {
        self.promotion.want(to, reason);
    }

    pub(super) fn allocation_is(&self, switch: Switch) -> bool {
        self.allocation.to == switch
    }

    pub(super) fn wishes(&mut self) -> Vec<Planned> {
        let scope = Scope::System;
        let allocation = self
            .allocation
            .wish(|switch| Action::HugeAllocation { scope, switch });
        let promotion = self
            .promotion
            .wish(|switch| Action::Promotion { scope, switch });
        allocation.into_iter().chain(promotion).collect()
    }

    pub(super) fn account(&mut self, done: &Accounted) {
        match &done.planned.action {
            Action::HugeAllocation { switch, .. } => {
                self.allocation.account(*switch, done.outcome.class);
            }
            Action::Promotion { switch, .. } => {
                self.promotion.account(*switch, done.outcome.class);
            }
            Action::Collapse { .. }
            | Action::Split { .. }
            | Action::MoveSlot { .. }
            | Action::MovePages { .. }
            | Action::Interleave { .. }
            | Action::Baseline { .. }
            | Action::CompactNode { .. }
            | Action::EvacuateBlock { .. }
            | Action::ResizePool { .. } => {}
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let each = [
            ("huge allocation", &self.allocation),
            ("promotion", &self.promotion),
        ];
        let refused = each
            .into_iter()
            .filter_map(|(what, of)| of.refused.map(|class| (what, class)));
        refused
            .map(|(what, class)| format!("{what} cannot be switched here: {class}"))
            .collect()
    }

    pub(super) fn state(&self) -> Value {
        let of = |wanted: &Wanted| json!({"to": wanted.to, "asked": wanted.asked, "refused": wanted.refused});
        json!({"allocation": of(&self.allocation), "promotion": of(&self.promotion), "begun": self.begun})
    }
}
