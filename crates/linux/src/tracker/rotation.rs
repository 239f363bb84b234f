//! Which of the wished slots are followed now: pure.
//!
//! **Problem.** A region costs the kernel a walk of page tables a sampling interval, and setting one up costs three
//! writes to sysfs. A large machine has more slots than may be followed at once.
//!
//! **Decision.** Follow at most `slots_max` slots, for [`PERIODS_PER_TURN`] periods (as many as MEGA's history has
//! scans), then the next ones in their order, around and around. Setting up anew before the turn is over is worth its
//! cost only where much changed: more than a quarter of what should be followed is not, and at least
//! [`PERIODS_MIN`] periods have passed.

use super::TrackedSlot;
use hugepilot_core::ids::SlotId;
use hugepilot_core::units::{Instant, Span};

/// Periods for which one set of slots is followed: the length of MEGA's history.
pub const PERIODS_PER_TURN: u64 = 10;

/// Periods that every set gets, whatever changes: two readings a set-up.
pub const PERIODS_MIN: u64 = 2;

/// The wish, and how far around it we are.
#[derive(Debug, Clone, Default)]
pub struct Rotation {
    /// Sorted by slot.
    wished: Vec<TrackedSlot>,
    period: Span,
    /// The last slot of the turn before.
    after: Option<SlotId>,
    /// What is followed, sorted, and since when.
    followed: Vec<SlotId>,
    since: Option<Instant>,
    /// How many of the followed slots are still wished for.
    still: usize,
    changed: bool,
}

impl Rotation {
    /// From now on these slots should be followed, one reading a `period`.
    pub fn wish(&mut self, slots: &[TrackedSlot], period: Span) {
        self.wished = slots.to_vec();
        self.wished.sort_unstable_by_key(|tracked| tracked.slot);
        self.wished.dedup_by_key(|tracked| tracked.slot);
        self.changed |= period != self.period || self.wished.is_empty();
        self.period = period;
        self.still = self
            .followed
            .iter()
            .filter(|slot| self.wants(**slot))
            .count();
    }

    /// The period wished for.
    #[must_use]
    pub const fn period(&self) -> Span {
        self.period
    }

    /// Is this slot wished for?
    #[must_use]
    pub fn wants(&self, slot: SlotId) -> bool {
        self.wished
            .binary_search_by_key(&slot, |tracked| tracked.slot)
            .is_ok()
    }

    /// Is it time to follow another set?
    #[must_use]
    pub fn is_due(&self, at: Instant, slots_max: usize) -> bool {
        if self.changed {
            return true;
        }
        let Some(since) = self.since.filter(|_| !self.followed.is_empty()) else {
            return !self.wished.is_empty();
        };
        let periods = at.since(since).0 / self.period.0.max(1);
        let should = self.wished.len().min(slots_max);
        let missing = should - self.still.min(should);
        (periods >= PERIODS_PER_TURN && self.wished.len() > self.still)
            || (periods >= PERIODS_MIN && missing * 4 > should)
    }

    /// The next set, at most `slots_max`, sorted by slot.
    pub fn next(&mut self, at: Instant, slots_max: usize) -> Vec<TrackedSlot> {
        let count = self.wished.len().min(slots_max);
        let first = self
            .after
            .map_or(0, |after| self.wished.partition_point(|t| t.slot <= after));
        let around = self.wished[first..].iter().chain(&self.wished[..first]);
        let mut chosen: Vec<TrackedSlot> = around.take(count).copied().collect();
        self.after = chosen.last().map(|tracked| tracked.slot);
        chosen.sort_unstable_by_key(|tracked| tracked.slot);
        self.followed = chosen.iter().map(|tracked| tracked.slot).collect();
        self.still = self.followed.len();
        self.since = Some(at);
        self.changed = false;
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{ObjectId, Pid, ProcessId};
    use hugepilot_core::units::Bytes;

    const PERIOD: Span = Span::secs(4);

    fn tracked(index: u64) -> TrackedSlot {
        let process = ProcessId {
            pid: Pid(1),
            start_ticks: 1,
        };
        let object = ObjectId::Private(process);
        TrackedSlot {
            slot: SlotId { object, index },
            process,
            address: index << 21,
            bytes: Bytes::mib(2),
            huge: false,
        }
    }

    fn slots(range: std::ops::Range<u64>) -> Vec<TrackedSlot> {
        range.map(tracked).collect()
    }

    fn after(periods: u64) -> Instant {
        Instant(0).after(Span(PERIOD.0 * periods))
    }

    fn indices(rotation: &mut Rotation, at: Instant, slots_max: usize) -> Vec<u64> {
        let chosen = rotation.next(at, slots_max);
        chosen.iter().map(|tracked| tracked.slot.index).collect()
    }

    #[test]
    fn nothing_wished_is_never_due() {
        assert!(!Rotation::default().is_due(after(99), 8));
    }

    #[test]
    fn what_fits_is_followed_and_stays() {
        let mut rotation = Rotation::default();
        rotation.wish(&slots(0..4), PERIOD);
        assert!(rotation.is_due(after(0), 8));
        assert_eq!(indices(&mut rotation, after(0), 8), [0, 1, 2, 3]);
        assert!(!rotation.is_due(after(99), 8));
    }

    #[test]
    fn what_does_not_fit_takes_turns_and_each_slot_gets_one() {
        let mut rotation = Rotation::default();
        rotation.wish(&slots(0..10), PERIOD);
        assert_eq!(indices(&mut rotation, after(0), 4), [0, 1, 2, 3]);
        assert!(!rotation.is_due(after(9), 4));
        assert!(rotation.is_due(after(10), 4));
        assert_eq!(indices(&mut rotation, after(10), 4), [4, 5, 6, 7]);
        assert_eq!(indices(&mut rotation, after(20), 4), [0, 1, 8, 9]);
        assert_eq!(indices(&mut rotation, after(30), 4), [2, 3, 4, 5]);
    }

    #[test]
    fn a_few_new_slots_wait_for_the_turn_and_many_do_not() {
        let mut rotation = Rotation::default();
        rotation.wish(&slots(0..8), PERIOD);
        rotation.next(after(0), 100);
        rotation.wish(&slots(0..10), PERIOD);
        assert!(!rotation.is_due(after(9), 100));
        assert!(rotation.is_due(after(10), 100));
        rotation.wish(&slots(0..16), PERIOD);
        assert!(!rotation.is_due(after(1), 100));
        assert!(rotation.is_due(after(2), 100));
    }

    #[test]
    fn another_period_or_no_wish_at_all_is_due_at_once() {
        let mut rotation = Rotation::default();
        rotation.wish(&slots(0..8), PERIOD);
        rotation.next(after(0), 100);
        rotation.wish(&slots(0..8), Span::secs(2));
        assert!(rotation.is_due(after(0), 100));
        rotation.next(after(0), 100);
        rotation.wish(&[], PERIOD);
        assert!(rotation.is_due(after(0), 100));
        assert!(indices(&mut rotation, after(0), 100).is_empty());
        assert!(!rotation.is_due(after(99), 100));
    }

    #[test]
    fn slots_that_went_away_are_no_reason() {
        let mut rotation = Rotation::default();
        rotation.wish(&slots(0..8), PERIOD);
        rotation.next(after(0), 100);
        rotation.wish(&slots(0..2), PERIOD);
        assert!(!rotation.is_due(after(99), 100));
        assert!(rotation.wants(tracked(1).slot));
        assert!(!rotation.wants(tracked(5).slot));
    }
}
