//! Budgets: how much of something may be used over time, told by the time in the observation.

use crate::units::{Instant, Ratio, Span};

/// A budget of time: it fills with a share of the time that passes, up to a burst, and may be overdrawn by one use.
///
/// Overdrawing is what makes it exact over the long run: the cost of a use is known only afterwards, and a debt is paid
/// off before the next one is allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeBudget {
    share: Ratio,
    burst: Span,
    /// Nanoseconds, negative in debt.
    balance: f64,
    filled_at: Option<Instant>,
}

impl TimeBudget {
    /// A full budget of `share` of the time, with at most `burst` saved up.
    #[must_use]
    pub fn new(share: Ratio, burst: Span) -> Self {
        Self {
            share,
            burst,
            balance: nanoseconds(burst),
            filled_at: None,
        }
    }

    /// Lets time pass up to `at`.
    pub fn fill(&mut self, at: Instant) {
        let passed = self.filled_at.map_or(Span::ZERO, |before| at.since(before));
        self.filled_at = Some(at);
        self.balance =
            (self.balance + nanoseconds(passed) * self.share.get()).min(nanoseconds(self.burst));
    }

    /// May something be used now?
    #[must_use]
    pub fn allows(&self) -> bool {
        self.balance > 0.0
    }

    /// Uses `cost`.
    pub fn spend(&mut self, cost: Span) {
        self.balance -= nanoseconds(cost);
    }

    /// How long until something may be used again; zero where it may now.
    #[must_use]
    pub fn wait(&self) -> Span {
        if self.allows() {
            return Span::ZERO;
        }
        Span::from_secs_f64(-self.balance / 1e9 / self.share.get().max(1e-9)) + Span::micros(1)
    }

    /// What may be used now without a debt.
    #[must_use]
    pub fn left(&self) -> Span {
        Span::from_secs_f64(self.balance / 1e9)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "spans within a run are far below 2^53 ns"
)]
fn nanoseconds(span: Span) -> f64 {
    span.0 as f64
}

/// A running mean in which older values count less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothed {
    value: f64,
    weight: f64,
}

impl Smoothed {
    /// Starts at `value`; a new value counts `weight` (0 to 1).
    #[must_use]
    pub const fn new(value: f64, weight: f64) -> Self {
        Self { value, weight }
    }
    /// Takes a new value in.
    pub fn add(&mut self, value: f64) {
        self.value += (value - self.value) * self.weight;
    }
    /// The mean.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.value
    }
}

/// Waiting after failure, longer each time, until something succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    step: Span,
    until: Instant,
}

impl BackOff {
    /// Not waiting.
    pub const IDLE: Self = Self {
        step: Span::ZERO,
        until: Instant(0),
    };

    /// A failure at `at`: wait `first`, or twice as long as the last time, at most `longest`.
    pub fn fail(&mut self, at: Instant, first: Span, longest: Span) {
        self.step = Span((self.step.0 * 2).clamp(first.0, longest.0.max(first.0)));
        self.until = at.after(self.step);
    }

    /// It worked: no more waiting.
    pub fn succeed(&mut self) {
        *self = Self::IDLE;
    }

    /// Is it still waiting at `at`?
    #[must_use]
    pub fn waits(&self, at: Instant) -> bool {
        at < self.until
    }

    /// Until when it waits.
    #[must_use]
    pub const fn until(&self) -> Instant {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_long_run_no_more_than_the_share_is_spent() {
        let mut budget = TimeBudget::new(Ratio::new(0.01), Span::millis(5));
        let mut spent = Span::ZERO;
        for ms in 0..100_000 {
            budget.fill(Instant(Span::millis(ms).0));
            if budget.allows() {
                budget.spend(Span::millis(3));
                spent += Span::millis(3);
            }
        }
        let bound = Span::millis(1_000 + 5 + 3);
        assert!(spent <= bound, "{spent} spent of {bound}");
        assert!(spent >= Span::millis(990), "only {spent} spent");
    }

    #[test]
    fn waiting_doubles_up_to_the_longest_and_ends_with_success() {
        let mut wait = BackOff::IDLE;
        let now = Instant(0);
        for expected in [1, 2, 4, 5, 5] {
            wait.fail(now, Span::secs(1), Span::secs(5));
            assert_eq!(wait.until().since(now), Span::secs(expected));
        }
        wait.succeed();
        assert!(!wait.waits(now));
    }
}
