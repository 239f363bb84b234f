//! Clocks.

use hugepilot_core::units::{Instant, Span};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since boot, suspended time included: the time of observations.
#[must_use]
pub fn since_boot() -> Instant {
    Instant(nanoseconds(clock_gettime(ClockId::Boottime)))
}

/// Nanoseconds of the monotonic clock: for the length of a call.
#[must_use]
pub fn monotonic() -> Instant {
    Instant(nanoseconds(clock_gettime(ClockId::Monotonic)))
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Span {
    Span(nanoseconds(clock_gettime(ClockId::ThreadCPUTime)))
}

/// These clocks start at zero and do not reach 2^64 ns (584 years).
fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).expect("clocks since boot are not negative");
    let nanoseconds = u64::try_from(time.tv_nsec).expect("the kernel keeps tv_nsec in 0..10^9");
    seconds * 1_000_000_000 + nanoseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_move_forward() {
        let (boot, cpu, monotonic_before) = (since_boot(), thread_cpu(), monotonic());
        assert!(since_boot() >= boot);
        assert!(thread_cpu() >= cpu);
        assert!(monotonic() >= monotonic_before);
    }
}
