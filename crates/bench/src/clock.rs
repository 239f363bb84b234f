//! The clock of a single touch: the time-stamp counter where it runs at a constant rate, else the kernel's monotonic
//! clock.
//!
//! A touch of a base page takes about half a microsecond. Reading the counter takes about 10 ns, the monotonic clock
//! 20 to 50 ns, and far more where a hypervisor makes it a system call.

use crate::sys;
use hugepilot_core::units::{Instant, Span};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// How long the counter is compared with the monotonic clock: at a clock error of 100 ns this is one part in 200,000.
const CALIBRATION: Span = Span::millis(20);
/// Fraction bits of the factor from ticks to nanoseconds.
const SHIFT: u32 = 32;

/// Which clock times the touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// The processor's time-stamp counter.
    TimeStamp,
    /// CLOCK_MONOTONIC.
    Monotonic,
}

/// A calibrated clock. Its ticks mean nothing but by [`Clock::span`].
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    kind: ClockKind,
    ns_per_tick_shifted: u64,
}

/// A reading of a [`Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(u64);

/// Now, by the kernel's monotonic clock, which all processes share.
#[must_use]
pub fn monotonic() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).expect("the monotonic clock is not negative");
    Instant(part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec))
}

impl Clock {
    /// The best clock of this machine.
    #[must_use]
    pub fn calibrated() -> Self {
        #[cfg(target_arch = "x86_64")]
        if sys::has_invariant_time_stamp() {
            if let Some(clock) = Self::from_time_stamp() {
                return clock;
            }
        }
        Self::MONOTONIC
    }

    /// The clock that every machine has.
    pub const MONOTONIC: Self = Self {
        kind: ClockKind::Monotonic,
        ns_per_tick_shifted: 1 << SHIFT,
    };

    #[cfg(target_arch = "x86_64")]
    fn from_time_stamp() -> Option<Self> {
        let (began, first) = (monotonic(), sys::time_stamp());
        while monotonic().since(began) < CALIBRATION {
            std::hint::spin_loop();
        }
        let (ended, last) = (monotonic(), sys::time_stamp());
        let factor = factor(last.checked_sub(first)?, ended.since(began))?;
        Some(Self {
            kind: ClockKind::TimeStamp,
            ns_per_tick_shifted: factor,
        })
    }

    /// Which clock it is.
    #[must_use]
    pub const fn kind(&self) -> ClockKind {
        self.kind
    }

    /// A reading.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        match self.kind {
            #[cfg(target_arch = "x86_64")]
            ClockKind::TimeStamp => Ticks(sys::time_stamp()),
            #[cfg(not(target_arch = "x86_64"))]
            ClockKind::TimeStamp => Ticks(monotonic().0),
            ClockKind::Monotonic => Ticks(monotonic().0),
        }
    }

    /// From one reading to a later one; zero where two processors' counters disagree by a hair.
    #[inline]
    #[must_use]
    pub fn span(&self, from: Ticks, to: Ticks) -> Span {
        let ticks = u128::from(to.0.saturating_sub(from.0));
        let ns = (ticks * u128::from(self.ns_per_tick_shifted)) >> SHIFT;
        Span(u64::try_from(ns).expect("a run is shorter than 500 years"))
    }

    /// The reading that is due `span` after `from`.
    #[inline]
    #[must_use]
    pub fn after(&self, from: Ticks, span: Span) -> Ticks {
        let ticks = (u128::from(span.0) << SHIFT) / u128::from(self.ns_per_tick_shifted);
        Ticks(from.0 + u64::try_from(ticks).expect("a run is shorter than 500 years"))
    }

    /// What two readings in a row are apart: the least of many tries.
    #[must_use]
    pub fn overhead(&self) -> Span {
        const TRIES: usize = 1_000;
        (0..TRIES)
            .map(|_| {
                let from = self.now();
                self.span(from, self.now())
            })
            .min()
            .unwrap_or(Span::ZERO)
    }
}

fn factor(ticks: u64, span: Span) -> Option<u64> {
    let shifted = (u128::from(span.0) << SHIFT).checked_div(u128::from(ticks))?;
    u64::try_from(shifted).ok().filter(|factor| *factor > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_of_a_third_of_a_nanosecond() {
        let clock = Clock {
            kind: ClockKind::Monotonic,
            ns_per_tick_shifted: factor(3_000_000_000, Span::secs(1)).expect("a rate"),
        };
        let from = Ticks(17);
        let to = clock.after(from, Span::millis(5));
        assert_eq!(to.0, 17 + 15_000_000);
        assert!(clock.span(from, to).0.abs_diff(5_000_000) <= 1);
    }

    #[test]
    fn a_counter_that_stands_still_is_no_clock() {
        assert_eq!(factor(0, Span::secs(1)), None);
        assert_eq!(factor(1 << 40, Span(0)), None);
    }

    #[test]
    fn counters_of_two_processors_never_give_a_negative_time() {
        assert_eq!(Clock::MONOTONIC.span(Ticks(9), Ticks(3)), Span::ZERO);
    }
}
