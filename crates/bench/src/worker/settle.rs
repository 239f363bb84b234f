//! Waiting after the last touch, while somebody collapses behind the worker's back.

use super::WorkerSpec;
use super::mmap_watch::Quiet;
use super::touch::huge_share;
use crate::clock::monotonic;
use crate::error::BenchError;
use hugepilot_core::units::{Ratio, Span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The share at which memory counts as huge.
pub const MOSTLY_HUGE: f64 = 0.9;
/// How often the own share is read: 1 to 4 % of the time at 2 to 8 GiB in base pages.
const LOOK_EVERY: Span = Span::millis(500);

/// What became of the memory after the last touch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SettleResult {
    /// How long it waited.
    pub waited_ns: Span,
    /// Share of the memory that is huge at the end.
    pub huge_share_end: Ratio,
    /// When 90 % were huge, from the last touch on; none if that did not happen.
    pub mostly_huge_after_ns: Option<Span>,
}

/// Waits as `spec` says.
///
/// # Errors
/// If the own huge share cannot be read.
pub fn settle(spec: &WorkerSpec, quiet: &Quiet) -> Result<SettleResult, BenchError> {
    let began = monotonic();
    let mut result = SettleResult::default();
    loop {
        let share = quiet.disturb(|| huge_share(spec.bytes.0))?;
        result.waited_ns = monotonic().since(began);
        result.huge_share_end = share;
        if share.get() >= MOSTLY_HUGE && result.mostly_huge_after_ns.is_none() {
            result.mostly_huge_after_ns = Some(result.waited_ns);
        }
        let left = spec.settle_ns_max.growth_since(result.waited_ns);
        let reached = spec.settle_share.is_some_and(|stop| share.get() >= stop);
        if left == Span::ZERO || reached {
            return Ok(result);
        }
        std::thread::sleep(Duration::from_nanos(left.min(LOOK_EVERY).0));
    }
}
