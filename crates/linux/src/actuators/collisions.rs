//! Keeping out of the way of the kernel's own migrations.
//!
//! **Problem.** Where the kernel balances between nodes it moves the same pages that we do. Whoever comes second finds them
//! busy, waits for locks, and may undo the other's work: one call for 16,384 pages took over 20 s so.
//!
//! **What.** A call names the pages of one slot at most. When pages of one were busy, and the kernel moved some since it was last
//! asked (`numa_pages_migrated` of `/proc/vmstat`), nothing is moved for a while, which doubles with every collision from
//! [`PAUSE_MIN`] to [`PAUSE_MAX`] and begins anew once a move went well. Moves in that time are `Busy`, for the policy to wish again.

use crate::procfs::ProcRoot;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::units::{Instant, Span};

/// The first pause: some of the kernel's own calls.
const PAUSE_MIN: Span = Span::millis(50);
/// The longest: two of its scan periods at their shortest.
const PAUSE_MAX: Span = Span::secs(2);

/// How moving gets along with the kernel's.
#[derive(Debug, Default)]
pub struct Collisions {
    /// Pages that the kernel had moved when last asked.
    moved: Option<u64>,
    pause: Span,
    until: Option<Instant>,
}

impl Collisions {
    /// May something be moved now?
    #[must_use]
    pub fn may_move(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Takes in what came of a move.
    pub fn learn(&mut self, class: OutcomeClass, proc: &ProcRoot, now: Instant) {
        match class {
            OutcomeClass::Busy => {
                let moved = std::fs::read_to_string(proc.system("vmstat"))
                    .ok()
                    .and_then(|text| pages_moved(&text));
                self.busy(moved, now);
            }
            OutcomeClass::Done => (self.pause, self.until) = (Span::ZERO, None),
            OutcomeClass::NoMemory
            | OutcomeClass::Gone
            | OutcomeClass::Ineligible
            | OutcomeClass::Unsupported
            | OutcomeClass::Denied
            | OutcomeClass::NoEffect => {}
        }
    }

    fn busy(&mut self, moved: Option<u64>, now: Instant) {
        let before = std::mem::replace(&mut self.moved, moved);
        if before.is_some() && before < moved {
            self.pause = Span(self.pause.0 * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.until = Some(now.after(self.pause));
        }
    }
}

/// Pages that the kernel's balancing moved since it started; `None` where it does not balance.
fn pages_moved(vmstat: &str) -> Option<u64> {
    let value = |line: &str| {
        line.strip_prefix("numa_pages_migrated ")?
            .trim()
            .parse()
            .ok()
    };
    vmstat.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_the_kernel_moves_too() {
        let mut collisions = Collisions {
            moved: Some(0),
            ..Collisions::default()
        };
        let mut pauses = Vec::new();
        for moved in 1..=8 {
            collisions.busy(Some(moved), Instant(0));
            pauses.push(collisions.pause.0 / 1_000_000);
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert!(!collisions.may_move(Instant(0)));
        assert!(collisions.may_move(Instant(0).after(Span::secs(2))));
        collisions.learn(OutcomeClass::Done, &ProcRoot::default(), Instant(0));
        assert!(collisions.may_move(Instant(0)));
    }

    #[test]
    fn a_page_that_is_busy_for_another_reason_stops_nothing() {
        let mut collisions = Collisions::default();
        collisions.busy(None, Instant(0));
        assert!(collisions.may_move(Instant(0)));
        collisions.moved = Some(7);
        collisions.busy(Some(7), Instant(0));
        assert!(collisions.may_move(Instant(0)));
    }

    #[test]
    fn what_the_kernel_moved_is_found() {
        assert_eq!(
            pages_moved("numa_hint_faults 3\nnuma_pages_migrated 12\n"),
            Some(12)
        );
        assert_eq!(pages_moved("nr_free_pages 3\n"), None);
    }
}
