//! Actions that a round found and that are proposed until they are carried out or the next round finds others.

use crate::ids::ObjectId;
use crate::plan::{Accounted, Planned};
use crate::policy::turn::Turn;
use serde_json::{Value, json};

/// Actions that wait, at the most: what the laws admit in a second and more.
pub const PENDING_MAX: usize = 4096;

/// What waits, the best first.
#[derive(Debug, Clone, Default)]
pub(super) struct Pending {
    wanted: Vec<Planned>,
    turn: Turn,
    dropped: u64,
}

impl Pending {
    pub(super) fn replace(&mut self, mut wanted: Vec<Planned>) {
        let over = wanted.len().saturating_sub(PENDING_MAX);
        self.dropped += u64::try_from(over).expect("a count");
        wanted.truncate(PENDING_MAX);
        self.wanted = wanted;
        self.turn = Turn::default();
    }

    /// What to propose now; what does not `fit` any more is dropped.
    pub(super) fn take(&mut self, fits: impl Fn(&Planned) -> bool) -> Vec<Planned> {
        self.wanted.retain(fits);
        self.turn.take(self.wanted.iter().cloned())
    }

    /// Does nothing wait?
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// It was carried out, with whatever outcome.
    pub(super) fn account(&mut self, done: &Accounted) {
        let before = self.wanted.len();
        self.wanted
            .retain(|planned| planned.action != done.planned.action);
        if self.wanted.len() < before {
            self.turn.answered();
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        let of = |planned: &Planned| planned.action.slot().map(|slot| slot.object);
        self.wanted.retain(|planned| of(planned) != Some(object));
    }

    pub(super) fn state(&self) -> Value {
        json!({"wanted": self.wanted, "skipped": self.turn.skipped(), "dropped": self.dropped})
    }
}
