//! A second thread that times the process's own mmap and munmap: what somebody else's walks and collapses do to a
//! program that only wants a mapping.
//!
//! The worker's own reading of `smaps_rollup` takes the same lock; a pair that overlaps it is thrown away.

use super::as_len;
use crate::clock::Clock;
use crate::error::BenchError;
use crate::latency::{Latencies, LatencySummary};
use crate::sys::Mapping;
use hugepilot_core::units::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes mapped and unmapped again, untouched: a thread's small stack, or an allocator's extent.
const PIECE: Bytes = Bytes::kib(128);
/// Pause between two pairs: thousands of pairs a second make a 99.9th percentile, at a few per cent of a core.
const PAUSE: Duration = Duration::from_micros(100);
const ORDERING: Ordering = Ordering::SeqCst;

/// Counts up before and after each time that the worker disturbs itself: odd while it does.
#[derive(Debug, Default)]
pub struct Quiet(AtomicU64);

impl Quiet {
    /// Does something that would spoil a measurement.
    pub fn disturb<T>(&self, noise: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, ORDERING);
        let result = noise();
        self.0.fetch_add(1, ORDERING);
        result
    }

    /// Does `work`; `None` if it was disturbed.
    pub fn undisturbed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let before = self.0.load(ORDERING);
        let result = work();
        (before % 2 == 0 && self.0.load(ORDERING) == before).then_some(result)
    }
}

/// The running thread.
#[derive(Debug)]
pub struct MmapWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<LatencySummary, BenchError>>,
}

impl MmapWatch {
    /// Starts it.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start(clock: Clock, quiet: Arc<Quiet>) -> Result<Self, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("mmap-watch".to_owned())
            .spawn(move || watch(&clock, &quiet, &stopped))
            .map_err(|source| BenchError::Io {
                what: "starting the thread that times mmap",
                source,
            })?;
        Ok(Self { stop, thread })
    }

    /// Ends it: the latency of mmap and munmap together.
    ///
    /// # Errors
    /// If a mapping failed.
    ///
    /// # Panics
    /// If the thread did.
    pub fn stop(self) -> Result<LatencySummary, BenchError> {
        self.stop.store(true, ORDERING);
        self.thread.join().expect("the watching thread panicked")
    }
}

fn watch(clock: &Clock, quiet: &Quiet, stop: &AtomicBool) -> Result<LatencySummary, BenchError> {
    let mut latencies = Latencies::new()?;
    loop {
        let timed = quiet.undisturbed(|| {
            let from = clock.now();
            let mapped = Mapping::anonymous(as_len(PIECE)).map(drop);
            mapped.map(|()| clock.span(from, clock.now()))
        });
        if let Some(timed) = timed {
            let failed = |source| BenchError::Map {
                bytes: PIECE,
                source,
            };
            latencies.record(timed.map_err(failed)?);
        }
        if stop.load(ORDERING) {
            return Ok(latencies.summary());
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_a_disturbance_is_thrown_away() {
        let quiet = Quiet::default();
        assert_eq!(quiet.undisturbed(|| 1), Some(1));
        assert_eq!(quiet.undisturbed(|| quiet.disturb(|| 2)), None);
        assert_eq!(quiet.disturb(|| quiet.undisturbed(|| 3)), None);
        assert_eq!(quiet.undisturbed(|| 4), Some(4));
    }
}
