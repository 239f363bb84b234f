//! What looking may cost: processor time, as a share of one core.
//!
//! The allowance grows with the clock and shrinks by what was used, and may be saved up for a few seconds. It may also
//! go below zero: a look that a policy asked for is answered, and the debt is paid by looking less afterwards, so that
//! the share holds over any longer time.

use hugepilot_core::units::{Instant, Ratio, Span};

/// Allowance is saved up for at most this long. Longer would let a quiet hour pay for a burst that a target feels.
const SAVED_MAX: Span = Span::secs(4);

/// An allowance of processor time.
#[derive(Debug, Clone)]
pub struct Budget {
    share: Ratio,
    left_ns: i64,
    at: Option<Instant>,
}

impl Budget {
    /// `share` of one core; nothing saved up yet.
    #[must_use]
    pub const fn new(share: Ratio) -> Self {
        Self {
            share,
            left_ns: 0,
            at: None,
        }
    }

    /// Time has come to `now`. Begins with what half the longest saving gives, so that the first tick can look at all.
    pub fn refill(&mut self, now: Instant) {
        let most = self.of(SAVED_MAX);
        let grown = match self.at {
            Some(before) => self.of(now.since(before)),
            None => most / 2,
        };
        self.at = Some(now);
        self.left_ns = self.left_ns.saturating_add(grown).min(most);
    }

    /// `used` was used.
    pub fn spend(&mut self, used: Span) {
        let used = i64::try_from(used.0).unwrap_or(i64::MAX);
        self.left_ns = self.left_ns.saturating_sub(used);
    }

    /// What may still be used now.
    #[must_use]
    pub fn left(&self) -> Span {
        Span(u64::try_from(self.left_ns).unwrap_or(0))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a share of nanoseconds; the cast saturates"
    )]
    fn of(&self, time: Span) -> i64 {
        (time.0 as f64 * self.share.get()) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_percent() -> Budget {
        let mut budget = Budget::new(Ratio::new(0.01));
        budget.refill(Instant(0));
        budget
    }

    #[test]
    fn it_grows_with_the_clock_up_to_a_bound() {
        let mut budget = one_percent();
        assert_eq!(budget.left(), Span::millis(20));
        budget.refill(Instant(0).after(Span::secs(1)));
        assert_eq!(budget.left(), Span::millis(30));
        budget.refill(Instant(0).after(Span::secs(1000)));
        assert_eq!(budget.left(), Span::millis(40));
    }

    #[test]
    fn a_debt_is_paid_before_anything_else() {
        let mut budget = one_percent();
        budget.spend(Span::millis(120));
        assert_eq!(budget.left(), Span::ZERO);
        budget.refill(Instant(0).after(Span::secs(10)));
        assert_eq!(budget.left(), Span::ZERO);
        budget.refill(Instant(0).after(Span::secs(11)));
        assert_eq!(budget.left(), Span::millis(10));
    }
}
