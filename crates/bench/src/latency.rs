//! Latencies in a histogram of fixed size: three significant digits from a nanosecond to a minute.
//!
//! All of its memory is written once at the start, so that recording neither allocates nor faults.

use crate::error::BenchError;
use hdrhistogram::Histogram;
use hugepilot_core::units::Span;
use serde::{Deserialize, Serialize};

/// The longest latency told apart; longer ones count as this.
pub const LONGEST: Span = Span::secs(60);
/// Significant decimal digits: about 220 KiB.
const DIGITS: u8 = 3;

/// Latencies as they come.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

/// Latencies in short. All in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: Span,
    /// 90th percentile.
    pub p90_ns: Span,
    /// 99th percentile.
    pub p99_ns: Span,
    /// 99.9th percentile.
    pub p999_ns: Span,
    /// The longest.
    pub max_ns: Span,
}

impl Latencies {
    /// An empty histogram whose memory is present.
    ///
    /// # Errors
    /// If the histogram refuses its constant bounds.
    pub fn new() -> Result<Self, BenchError> {
        let mut histogram =
            Histogram::new_with_bounds(1, LONGEST.0, DIGITS).map_err(BenchError::Histogram)?;
        for at in (0..64).map(|shift| 1u64 << shift) {
            histogram.saturating_record(at);
        }
        histogram.reset();
        Ok(Self(histogram))
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, latency: Span) {
        self.0.saturating_record(latency.0);
    }

    /// In short.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile: f64| Span(self.0.value_at_quantile(quantile));
        LatencySummary {
            count: self.0.len(),
            mean_ns: self.0.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: Span(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_shows_beyond_the_99th_percentile_only() {
        let mut latencies = Latencies::new().expect("constant bounds");
        for n in 0..1_000 {
            latencies.record(if n % 100 == 99 {
                Span::micros(500)
            } else {
                Span(700)
            });
        }
        let summary = latencies.summary();
        assert_eq!(summary.count, 1_000);
        assert!(summary.p99_ns.0.abs_diff(700) <= 1);
        assert!(summary.p999_ns.0.abs_diff(500_000) <= 500);
        assert!(summary.max_ns >= summary.p999_ns);
    }

    #[test]
    fn longer_than_a_minute_counts_as_a_minute() {
        let mut latencies = Latencies::new().expect("constant bounds");
        latencies.record(Span::secs(500));
        assert_eq!(latencies.summary().count, 1);
        assert!(latencies.summary().max_ns >= LONGEST);
    }

    #[test]
    fn a_fresh_histogram_is_empty() {
        let empty = Latencies::new().expect("constant bounds").summary();
        assert_eq!(empty.count, 0);
        assert_eq!(empty.max_ns, Span::ZERO);
    }
}
