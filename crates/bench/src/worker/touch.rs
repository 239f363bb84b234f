//! Touching fresh memory a base page at a time, each touch timed.

use super::{STALL, SlotMemory};
use crate::clock::{Clock, Ticks, monotonic};
use crate::error::BenchError;
use crate::latency::{Latencies, LatencySummary};
use crate::procfs;
use hugepilot_core::units::{BasePages, Instant, Ratio, Span};
use serde::{Deserialize, Serialize};

/// When the next touch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// When the last is done.
    Closed,
    /// At a fixed time, or at once if that has passed.
    Open {
        /// Touches a second.
        per_second: u32,
    },
}

/// One loop's figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TouchResult {
    /// Of a touch; in an open loop from the time it was due.
    pub latency: LatencySummary,
    /// Touches that themselves took longer than [`STALL`].
    pub stalls: Stalls,
    /// When it began, by CLOCK_MONOTONIC.
    pub began_ns: Instant,
    /// When it ended.
    pub ended_ns: Instant,
    /// From the first touch to the last.
    pub total_ns: Span,
    /// Share of the memory that is huge after the last touch.
    pub huge_share_end: Ratio,
}

/// Long touches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// The longest touch of all, stall or not.
    pub longest_ns: Span,
    /// All stalls together.
    pub total_ns: Span,
    /// Of the whole loop.
    pub share: Ratio,
}

impl Stalls {
    #[inline]
    fn count(&mut self, took: Span) {
        self.longest_ns = self.longest_ns.max(took);
        if took > STALL {
            self.count += 1;
            self.total_ns += took;
        }
    }
}

/// Touches all of `memory`, in rising order.
///
/// # Errors
/// If the own huge share cannot be read afterwards.
pub fn touch(
    memory: &mut SlotMemory,
    pace: Pace,
    clock: &Clock,
    latencies: &mut Latencies,
) -> Result<TouchResult, BenchError> {
    let mut stalls = Stalls::default();
    let began_ns = monotonic();
    let first = clock.now();
    for page in (0..memory.base_pages().0).map(BasePages) {
        let due = due(pace, clock, first, page);
        let started = clock.now();
        memory.touch(page);
        let done = clock.now();
        stalls.count(clock.span(started, done));
        latencies.record(clock.span(due.unwrap_or(started), done));
    }
    let total_ns = clock.span(first, clock.now());
    stalls.share = Ratio::of(stalls.total_ns.0, total_ns.0);
    Ok(TouchResult {
        latency: latencies.summary(),
        stalls,
        began_ns,
        ended_ns: monotonic(),
        total_ns,
        huge_share_end: huge_share(memory.bytes().0)?,
    })
}

const NS_PER_S: u64 = 1_000_000_000;

/// Waits until touch `page` is due. Spins: a sleep would add its own wake-up to the latency.
#[inline]
fn due(pace: Pace, clock: &Clock, first: Ticks, page: BasePages) -> Option<Ticks> {
    match pace {
        Pace::Closed => None,
        Pace::Open { per_second } => {
            let offset = Span(page.0 * NS_PER_S / u64::from(per_second));
            let due = clock.after(first, offset);
            while clock.now() < due {
                std::hint::spin_loop();
            }
            Some(due)
        }
    }
}

/// The own huge memory over `bytes`.
pub(super) fn huge_share(bytes: u64) -> Result<Ratio, BenchError> {
    let memory = procfs::anon_memory("self")?;
    Ok(Ratio::of(memory.huge.0, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_touches_are_stalls_but_the_longest_is_always_kept() {
        let mut stalls = Stalls::default();
        stalls.count(Span::micros(90));
        assert_eq!((stalls.count, stalls.longest_ns), (0, Span::micros(90)));
        stalls.count(Span::micros(250));
        stalls.count(Span::micros(150));
        assert_eq!(stalls.count, 2);
        assert_eq!(stalls.total_ns, Span::micros(400));
        assert_eq!(stalls.longest_ns, Span::micros(250));
    }

    #[test]
    fn an_open_loop_is_never_ahead_of_its_schedule() {
        let clock = Clock::MONOTONIC;
        let first = clock.now();
        let pace = Pace::Open { per_second: 10_000 };
        let due = due(pace, &clock, first, BasePages(7)).expect("an open loop");
        assert!(clock.now() >= due);
        assert_eq!(clock.span(first, due), Span::micros(700));
    }
}
