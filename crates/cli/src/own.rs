//! What we use ourselves.

use crate::manage::report::OwnCost;
use hugepilot_core::units::{Bytes, Instant, Span};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of all our threads so far.
pub fn cpu() -> Span {
    Span(nanoseconds(ClockId::ProcessCPUTime))
}

/// Now, on a clock that stands still while the machine sleeps.
pub fn now() -> Instant {
    Instant(nanoseconds(ClockId::Monotonic))
}

/// Most memory that we had resident; `None` where `/proc` does not say.
pub fn peak() -> Option<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .trim()
        .parse()
        .ok()
        .map(Bytes::kib)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks start at zero");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect("0 to 10^9")
}

/// Measures what a run costs, from here on.
pub struct Meter {
    began: Instant,
    cpu: Span,
}

impl Meter {
    /// Starts now.
    pub fn start() -> Self {
        Self {
            began: now(),
            cpu: cpu(),
        }
    }

    /// What was used since.
    pub fn cost(&self) -> OwnCost {
        OwnCost {
            wall: now().since(self.began),
            cpu: cpu().growth_since(self.cpu),
            peak: peak(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_take_memory_and_time() {
        assert!(peak().expect("VmHWM is always there") > Bytes::mib(1));
        assert!(cpu() > Span::ZERO);
    }
}
