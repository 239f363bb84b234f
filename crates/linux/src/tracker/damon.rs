//! Accessed shares by DAMON, on virtual or on physical addresses.
//!
//! **What is measured.** DAMON picks one random base page of each region, clears its accessed bit, waits one sampling
//! interval, and looks. We make the sampling interval as long as the scan period (seconds) and count once a period, so
//! one look says whether a random base page of the region was accessed *within the period*; its default of 5 ms would
//! make nearly every heap look idle. The mean over looks estimates the share of base pages accessed within a period. A
//! base page that is not present counts as not accessed: the share is over the slot's base pages, as the policy wants.
//!
//! **How good it is.** One look is 0 or 1. A slot gets as many regions, and so looks a period, as [`REGIONS_MAX`]
//! allows, at most [`PARTS_MAX`]: 8 looks over 10 periods put a share of 50 % within about 6 points (one standard
//! deviation), 1 look within 16. Under a huge page all looks see the one accessed bit there is: 0 or 1 a period.
//!
//! **Known bad case.** DAMON does not flush the TLB when it clears a bit, and a processor sets the bit only when it
//! loads a translation. A page whose translation stays in the TLB for a whole period reads as idle, however hot it is.
//! That takes a program that has its processors nearly to itself, unmaps nothing, and has few hot pages: a handful of
//! hot *huge* pages. We saw it in guests (12 huge pages, 2 processors: 8 hot ones read idle; right with one processor
//! or once the program unmapped something each round). So a policy should not split a huge slot on an idle reading
//! alone where the process has fewer hot huge pages than its processors' TLBs have entries. Base pages are hardly
//! concerned: a TLB holds few megabytes of them.
//!
//! **Physical addresses** are for kernels whose DAMON knows no others, and for huge slots alone: a huge page's frame
//! comes from pagemap (`CAP_SYS_ADMIN`), is one region, and is looked up again when a reading arrives; a page that has
//! moved since gives no reading. All processes that map the page count.
//!
//! **Bounds.** [`REGIONS_MAX`] regions and [`SLOTS_MAX`] slots at a time; more take turns ([`super::rotation`]). Readings
//! come through a ring, nothing is waited for. A set-up writes two files a region.

use super::aggregations::{Aggregations, CountsUnavailable, Tracepoint};
use super::kdamond::{DamonUnavailable, Kdamond, Space, TakeDamon};
use super::layout::{Layout, Place};
use super::rotation::Rotation;
use super::{AccessTracker, TrackedSlot, frames};
use crate::journal::Journal;
use crate::procfs::{ProcRoot, SysRoot, stat};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, Pid, ProcessId, SlotId};
use hugepilot_core::observation::{Accessed, BlindSpot, Tracker, Unseen};
use hugepilot_core::units::{Instant, Ratio, Span};

/// Regions at a time. Setting one up costs some 63,000 instructions (about 20 µs), once a turn; sampling one 3,000 and
/// reading it 1,000, each period: at 4 s a period and ten periods a turn 0.2 % of a processor, 0.1 % where all slots fit.
pub const REGIONS_MAX: u64 = 2048;

/// Slots at a time: at the worst, a region each.
pub const SLOTS_MAX: usize = 2048;

/// Regions a slot at the most: eight looks a period.
pub const PARTS_MAX: u64 = 8;

/// How much is followed at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Regions.
    pub regions_max: u64,
    /// Slots.
    pub slots_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            regions_max: REGIONS_MAX,
            slots_max: SLOTS_MAX,
        }
    }
}

/// One sample a period: a region's count is 0 or 1.
const ACCESSES_MAX: u64 = 1;

/// Where this machine's files are, and its page sizes.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/sys`.
    pub sys: SysRoot,
    /// `/proc`.
    pub proc: ProcRoot,
    /// Page sizes.
    pub geometry: Geometry,
}

/// Why this tracker cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TrackerUnavailable {
    /// DAMON is not ours to use.
    #[error(transparent)]
    Damon(#[from] DamonUnavailable),
    /// What it counts cannot be read.
    #[error(transparent)]
    Counts(#[from] CountsUnavailable),
}

/// A tracker that has DAMON to itself until it is dropped.
#[derive(Debug)]
pub struct DamonTracker {
    // Dropped in this order: first the listening ends, then the kdamond.
    running: Option<Running>,
    kdamond: Kdamond,
    tracepoint: Tracepoint,
    roots: Roots,
    bounds: Bounds,
    rotation: Rotation,
    trouble: Option<String>,
    counted: u64,
    lost: u64,
    retry_at: Option<Instant>,
}

/// One set-up under way.
#[derive(Debug)]
struct Running {
    counts: Aggregations,
    layout: Layout,
    /// When something was counted last, or it was set up.
    heard: Instant,
}

/// After so many periods without a count we look whether the kdamond ended, as it does when its processes have.
const SILENT_PERIODS_MAX: u64 = 3;

impl DamonTracker {
    /// Takes DAMON and tries that it works: with two slots' worth of this process's own addresses, or of low memory.
    ///
    /// # Errors
    /// Why not; everything is as it was then.
    pub fn take(
        roots: &Roots,
        journal: &Journal,
        space: Space,
        take: TakeDamon,
    ) -> Result<Self, TrackerUnavailable> {
        let tracepoint = Tracepoint::find()?;
        let kdamond = Kdamond::take(&roots.sys, journal, space, take)?;
        let mut tracker = Self {
            running: None,
            kdamond,
            tracepoint,
            roots: roots.clone(),
            bounds: Bounds::default(),
            rotation: Rotation::default(),
            trouble: None,
            counted: 0,
            lost: 0,
            retry_at: None,
        };
        tracker.try_on(journal.owner())?;
        Ok(tracker)
    }

    /// The same with other bounds, to measure what they cost.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    fn try_on(&mut self, me: ProcessId) -> Result<(), TrackerUnavailable> {
        let object = ObjectId::Private(me);
        let bytes = self.roots.geometry.slot();
        let tracked = TrackedSlot {
            slot: SlotId { object, index: 1 },
            process: me,
            address: bytes.0,
            bytes,
            huge: true,
        };
        let layout = match self.kdamond.space() {
            Space::Virtual => Layout::of_processes(&[tracked], 1),
            Space::Physical => Layout::of_memory(vec![Place {
                tracked,
                start: bytes.0,
            }]),
        };
        self.start(layout, Span::secs(1), Instant(0))?;
        self.stop()
    }

    fn start(
        &mut self,
        layout: Layout,
        period: Span,
        at: Instant,
    ) -> Result<(), TrackerUnavailable> {
        self.running = None;
        self.kdamond.start(&layout, period)?;
        let thread = self.kdamond.thread()?;
        let geometry = &self.roots.geometry;
        let counts = Aggregations::listen(&self.tracepoint, thread, layout.regions(), geometry)?;
        self.running = Some(Running {
            counts,
            layout,
            heard: at,
        });
        Ok(())
    }

    fn stop(&mut self) -> Result<(), TrackerUnavailable> {
        self.running = None;
        Ok(self.kdamond.stop()?)
    }

    /// Follows the next set of slots.
    fn turn(&mut self, at: Instant) {
        let chosen = self.rotation.next(at, self.bounds.slots_max);
        let period = self.rotation.period();
        let layout = self.lay_out(&chosen);
        let done = if layout.regions() == 0 {
            self.stop()
        } else {
            self.start(layout, period, at)
        };
        self.trouble = done.err().map(|error| error.to_string());
        let idle = self.running.is_none() && !chosen.is_empty();
        self.retry_at = idle.then(|| at.after(period));
    }

    fn lay_out(&self, chosen: &[TrackedSlot]) -> Layout {
        let living: Vec<TrackedSlot> = by_process(chosen)
            .filter(|of_one| self.lives(of_one[0].process))
            .flatten()
            .copied()
            .collect();
        match self.kdamond.space() {
            Space::Virtual => {
                Layout::of_processes(&living, parts(living.len(), self.bounds.regions_max))
            }
            Space::Physical => Layout::of_memory(frames::places(&self.roots, &living)),
        }
    }

    /// Is it still that process? A file that cannot be read is one that has gone.
    fn lives(&self, process: ProcessId) -> bool {
        let path = self.roots.proc.process(process.pid, "stat");
        let read = crate::procfs::read(&path);
        read.is_ok_and(|text| {
            stat::parse(&text).is_ok_and(|s| s.runs() && s.start_ticks == process.start_ticks)
        })
    }

    fn readings(&mut self, at: Instant) -> Vec<(TrackedSlot, Ratio)> {
        let Some(running) = &mut self.running else {
            return Vec::new();
        };
        let batch = running.counts.take();
        self.lost += batch.lost;
        self.counted += u64::try_from(batch.regions.len()).unwrap_or(u64::MAX);
        if !batch.regions.is_empty() {
            running.heard = at;
        }
        batch
            .regions
            .iter()
            .filter_map(|region| running.layout.add(region, ACCESSES_MAX))
            .collect()
    }

    /// Must another set be followed now?
    fn is_due(&self, at: Instant) -> bool {
        match self.retry_at {
            Some(retry_at) => at >= retry_at,
            None => self.rotation.is_due(at, self.bounds.slots_max) || self.ended(at),
        }
    }

    /// Did the kdamond end by itself? One that cannot be asked has.
    fn ended(&self, at: Instant) -> bool {
        let patience = Span(self.rotation.period().0 * SILENT_PERIODS_MAX);
        self.running.as_ref().is_some_and(|running| {
            at.since(running.heard) > patience && !self.kdamond.is_on().unwrap_or(false)
        })
    }

    /// Drops readings of huge pages that are not where they were.
    fn still_there(&self, readings: Vec<(TrackedSlot, Ratio)>) -> Vec<(TrackedSlot, Ratio)> {
        let Some(running) = self.running.as_ref().filter(|_| !readings.is_empty()) else {
            return Vec::new();
        };
        match self.kdamond.space() {
            Space::Virtual => readings,
            Space::Physical => {
                let now = frames::starts(&self.roots, running.layout.places());
                readings
                    .into_iter()
                    .filter(|(tracked, _)| now.contains(&tracked.slot))
                    .collect()
            }
        }
    }

    /// The kernel thread that samples, while something is followed.
    #[must_use]
    pub fn thread(&self) -> Option<Pid> {
        self.running.as_ref()?;
        self.kdamond.thread().ok()
    }

    /// Regions that the kernel reported so far, once an aggregation each.
    #[must_use]
    pub const fn counted(&self) -> u64 {
        self.counted
    }

    /// Records that the kernel dropped so far because we came too late.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

impl AccessTracker for DamonTracker {
    fn kind(&self) -> Tracker {
        match self.kdamond.space() {
            Space::Virtual => Tracker::DamonVirtual,
            Space::Physical => Tracker::DamonPhysical,
        }
    }

    fn track(&mut self, slots: &[TrackedSlot], period: Span) {
        let eligible: Vec<TrackedSlot> = slots
            .iter()
            .filter(|tracked| tracked.huge || self.kdamond.space() == Space::Virtual)
            .copied()
            .collect();
        self.rotation.wish(&eligible, period);
    }

    fn poll(&mut self, at: Instant) -> Vec<(SlotId, Accessed)> {
        let readings = self.readings(at);
        let readings = self.still_there(readings);
        if self.is_due(at) {
            self.turn(at);
        }
        let tracker = self.kind();
        readings
            .into_iter()
            .filter(|(tracked, _)| self.rotation.wants(tracked.slot))
            .map(|(tracked, share)| (tracked.slot, Accessed { share, tracker }))
            .collect()
    }

    fn blind(&self) -> Vec<BlindSpot> {
        let spot = |why: &String| BlindSpot {
            process: None,
            what: Unseen::AccessedShare,
            why: why.clone(),
        };
        self.trouble.iter().map(spot).collect()
    }
}

/// Regions a slot: as many as there is room for, a power of two.
fn parts(slots: usize, regions_max: u64) -> u64 {
    let slots = u64::try_from(slots).unwrap_or(u64::MAX).max(1);
    let room = (regions_max / slots).clamp(1, PARTS_MAX);
    1 << room.ilog2()
}

fn by_process(slots: &[TrackedSlot]) -> impl Iterator<Item = &[TrackedSlot]> {
    slots.chunk_by(|one, next| one.process == next.process)
}

#[cfg(test)]
mod tests {
    use super::{REGIONS_MAX, parts};

    #[test]
    fn few_slots_get_many_looks_and_many_get_one() {
        for (slots, looks) in [
            (0, 8),
            (256, 8),
            (257, 4),
            (1024, 2),
            (2048, 1),
            (1 << 30, 1),
        ] {
            assert_eq!(parts(slots, REGIONS_MAX), looks, "{slots} slots");
        }
    }
}
