//! Trackers: which share of a slot is accessed.
//!
//! A tracker is told which slots to follow and hands back readings; how it measures is its own. The machine asks for
//! readings once a tick and adds them to the slots of the observation.
//!
//! | tracker | what it sees | where |
//! | --- | --- | --- |
//! | [`damon`], virtual | share of base pages, or the huge page's own bit | `CONFIG_DAMON_VADDR`: Debian from 6.12 |
//! | [`page_idle`] | the same | `CONFIG_IDLE_PAGE_TRACKING`: Fedora, RHEL |
//! | [`damon`], physical | the huge page's own bit, of huge slots alone | `CONFIG_DAMON_PADDR` |
//!
//! [`probe_best`] takes the first that works, by trying it.

mod aggregations;
pub mod damon;
mod frames;
mod kdamond;
mod layout;
pub mod page_idle;
mod records;
mod rotation;

pub use aggregations::CountsUnavailable;
pub use damon::{DamonTracker, Roots, TrackerUnavailable};
pub use kdamond::{DamonUnavailable, Space, TakeDamon};
pub use page_idle::{PageIdleTracker, PageIdleUnavailable};

use crate::journal::Journal;
use hugepilot_core::ids::{ProcessId, SlotId};
use hugepilot_core::observation::{Accessed, BlindSpot, Tracker, Unseen};
use hugepilot_core::units::{Bytes, Instant, Span};

/// A slot to follow, with the place where one process maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedSlot {
    /// The slot.
    pub slot: SlotId,
    /// A process that maps all of it.
    pub process: ProcessId,
    /// Where that process maps it.
    pub address: u64,
    /// Its length.
    pub bytes: Bytes,
    /// Is it mapped huge now?
    pub huge: bool,
}

/// Measures accessed shares.
pub trait AccessTracker {
    /// Which tracker it is.
    fn kind(&self) -> Tracker;
    /// Follows exactly these slots from now on, one reading a `period`; none stops it.
    fn track(&mut self, slots: &[TrackedSlot], period: Span);
    /// The readings that are ready at `at`.
    fn poll(&mut self, at: Instant) -> Vec<(SlotId, Accessed)>;
    /// What it should follow and cannot, at present.
    fn blind(&self) -> Vec<BlindSpot> {
        Vec::new()
    }
}

/// The best tracker that works here, and what is not seen with it: why each better one cannot be had.
///
/// A tracker of huge slots alone leaves the accessed share of base-paged slots unseen, and says so.
#[must_use]
pub fn probe_best(
    roots: &Roots,
    journal: &Journal,
    take: TakeDamon,
) -> (Option<Box<dyn AccessTracker>>, Vec<BlindSpot>) {
    let mut blind = Vec::new();
    match DamonTracker::take(roots, journal, Space::Virtual, take) {
        Ok(tracker) => return (Some(Box::new(tracker)), blind),
        Err(why) => blind.push(unseen(format!("accessed base pages: {why}"))),
    }
    match PageIdleTracker::open(roots) {
        Ok(tracker) => return (Some(Box::new(tracker)), Vec::new()),
        Err(why) => blind.push(unseen(format!("accessed base pages: {why}"))),
    }
    match DamonTracker::take(roots, journal, Space::Physical, take) {
        Ok(tracker) => (Some(Box::new(tracker)), blind),
        Err(why) => {
            blind.push(unseen(format!("accessed huge pages: {why}")));
            (None, blind)
        }
    }
}

const fn unseen(why: String) -> BlindSpot {
    BlindSpot {
        process: None,
        what: Unseen::AccessedShare,
        why,
    }
}
