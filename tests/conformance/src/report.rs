//! What a case found, as data that can be recorded and compared.

use hugepilot_core::observation::SlotObserved;
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::{BasePages, Bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A slot, as far as all machines must agree on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotFacts {
    /// Mapped huge throughout.
    pub huge: bool,
    /// Base pages present.
    pub present: BasePages,
    /// Base pages that map the shared zero page.
    pub zero_mapped: BasePages,
}

impl SlotFacts {
    /// The facts of an observed slot, where a slot has `slot_pages`.
    #[must_use]
    pub fn of(seen: &SlotObserved, slot_pages: BasePages) -> Self {
        let orders = seen.backing.entries().map(|(order, _)| order);
        let huge = seen.backing.present() == slot_pages
            && orders
                .min()
                .is_some_and(|order| order.base_pages() >= slot_pages);
        Self {
            huge,
            present: seen.backing.present(),
            zero_mapped: seen.zero_mapped,
        }
    }
}

/// What an action came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Its class.
    pub class: OutcomeClass,
    /// Its cause, if one was given.
    pub cause: Option<Cause>,
    /// The slot as the outcome shows it; not asked for where nothing was tried, since nothing can have changed.
    pub after: Option<SlotFacts>,
    /// Base pages that came back.
    pub freed: BasePages,
    /// The slot as the next observation shows it, where its process lives.
    pub observed: Option<SlotFacts>,
}

impl Acted {
    /// From an outcome and what was observed next.
    #[must_use]
    pub fn of(
        outcome: &Outcome,
        observed: Option<SlotFacts>,
        slot_pages: BasePages,
        page: Bytes,
    ) -> Self {
        let shown = match outcome.class {
            OutcomeClass::Done
            | OutcomeClass::NoEffect
            | OutcomeClass::Busy
            | OutcomeClass::NoMemory => outcome.after.as_ref(),
            OutcomeClass::Gone
            | OutcomeClass::Ineligible
            | OutcomeClass::Unsupported
            | OutcomeClass::Denied => None,
        };
        Self {
            class: outcome.class,
            cause: outcome.cause,
            after: shown.map(|slot| SlotFacts::of(slot, slot_pages)),
            freed: BasePages(outcome.freed.0 / page.0),
            observed,
        }
    }
}

/// Anything else that a case found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// Yes or no.
    Is(bool),
    /// How many.
    Count(u64),
    /// A name.
    Name(String),
}

impl From<bool> for Fact {
    fn from(value: bool) -> Self {
        Self::Is(value)
    }
}

impl From<BasePages> for Fact {
    fn from(value: BasePages) -> Self {
        Self::Count(value.0)
    }
}

impl From<usize> for Fact {
    fn from(value: usize) -> Self {
        Self::Count(u64::try_from(value).expect("usize has at most 64 bits"))
    }
}

/// All that a case found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseReport {
    /// Its actions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Acted>,
    /// Whatever else it looked at, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Fact>,
}

impl CaseReport {
    /// With one more action.
    #[must_use]
    pub fn acted(mut self, acted: Acted) -> Self {
        self.actions.push(acted);
        self
    }

    /// With one more fact.
    #[must_use]
    pub fn fact(mut self, name: &str, fact: impl Into<Fact>) -> Self {
        self.facts.insert(name.to_owned(), fact.into());
        self
    }
}
