//! Regions that a memory policy binds to nodes: where they lie is their program's business.
//!
//! **Problem.** Only `numa_maps` tells a region's policy, and printing that walks all page tables under the target's lock.
//!
//! **What.** It is read once before anything of a process is moved, and again every [`PERIOD`], or later where reading takes
//! long: never more than [`SHARE_MAX`] of the time. A region that is mapped in between counts as free to be moved, until then.

use hugepilot_core::units::{Instant, Span};

/// Policies are seldom changed once memory is in use.
const PERIOD: Span = Span::secs(60);
/// Share of the time that may be spent on reading.
const SHARE_MAX: f64 = 0.001;

/// What is bound of one process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bound {
    /// Ranges of addresses, sorted.
    ranges: Vec<(u64, u64)>,
    due: Option<Instant>,
}

impl Bound {
    /// Was it read already?
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.due.is_some()
    }

    /// Should it be read?
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// These ranges are bound, as was found at `now` and took so long. Did that change anything?
    pub fn set(&mut self, ranges: Vec<(u64, u64)>, now: Instant, took: Span) -> bool {
        let pause = Span::from_secs_f64(took.as_secs_f64() / SHARE_MAX);
        self.due = Some(now.after(pause.max(PERIOD)));
        let before = std::mem::replace(&mut self.ranges, ranges);
        before != self.ranges
    }

    /// Is some of `start .. end` bound?
    #[must_use]
    pub fn touches(&self, start: u64, end: u64) -> bool {
        self.ranges
            .iter()
            .any(|range| range.0 < end && start < range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_that_takes_long_is_done_seldom() {
        let mut bound = Bound::default();
        assert!(bound.is_due(Instant(0)) && !bound.is_known());
        assert!(bound.set(vec![(10, 20)], Instant(0), Span::millis(200)));
        assert!(bound.is_known() && !bound.is_due(Instant(0).after(Span::secs(199))));
        assert!(bound.is_due(Instant(0).after(Span::secs(200))));
        assert!(!bound.set(vec![(10, 20)], Instant(0), Span::ZERO));
        assert!(!bound.is_due(Instant(0).after(Span::secs(59))));
    }

    #[test]
    fn a_part_suffices() {
        let mut bound = Bound::default();
        bound.set(vec![(10, 20)], Instant(0), Span::ZERO);
        assert!(bound.touches(0, 11) && bound.touches(19, 30));
        assert!(!bound.touches(0, 10) && !bound.touches(20, 30));
    }
}
