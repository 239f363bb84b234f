//! Accessed shares by idle page tracking: `/sys/kernel/mm/page_idle/bitmap`.
//!
//! **Not run on a real kernel by us**: `CONFIG_IDLE_PAGE_TRACKING` is off in all of Debian's kernels (6.1 to 7.3) and
//! on our hosts; Fedora's and RHEL's have it. The logic is tested on a false bitmap.
//!
//! **What is measured.** A bit a page frame: writing a one marks the page idle and clears its accessed bits in all page
//! tables that map it; a one that is still there a period later says that nobody accessed it. Of each slot we mark
//! [`LOOKS`] base pages, spread evenly and shifted each period, or the one huge page there is; the share of the marked
//! and still present pages that lost their mark, where a page that is not present counts as not accessed, estimates
//! the accessed share over one period. A page that moved meanwhile gives no look.
//!
//! **Bounds.** A mark and a look each walk the page's mappings, about 1 µs: at most [`PAGES_PER_SECOND`] pages a second;
//! slots beyond that take turns ([`super::rotation`]).

use super::damon::Roots;
use super::rotation::Rotation;
use super::{AccessTracker, TrackedSlot, frames};
use hugepilot_core::ids::SlotId;
use hugepilot_core::observation::{Accessed, Tracker};
use hugepilot_core::units::{Instant, Ratio, Span};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Base pages looked at of each slot and period.
pub const LOOKS: u64 = 8;

/// Pages marked a second, at the most: about 0.5 % of a processor.
pub const PAGES_PER_SECOND: u64 = 2_500;

const WORD_BYTES: u64 = 8;
const WORD_BITS: u64 = 64;

/// Why this tracker cannot be had.
#[derive(Debug, thiserror::Error)]
#[error(
    "idle page tracking cannot be used ({path}: {source}); a kernel with CONFIG_IDLE_PAGE_TRACKING has it, for root",
    path = path.display()
)]
pub struct PageIdleUnavailable {
    path: PathBuf,
    source: io::Error,
}

/// A page that was marked.
#[derive(Debug, Clone, Copy)]
struct Marked {
    address: u64,
    frame: u64,
}

/// A slot whose pages were marked.
#[derive(Debug, Clone)]
struct Watched {
    tracked: TrackedSlot,
    looks: u64,
    marked: Vec<Marked>,
}

/// A tracker by idle bits.
#[derive(Debug)]
pub struct PageIdleTracker {
    bitmap: File,
    roots: Roots,
    rotation: Rotation,
    watched: Vec<Watched>,
    marked_at: Option<Instant>,
    round: u64,
}

impl PageIdleTracker {
    /// Opens the bitmap.
    ///
    /// # Errors
    /// Where there is none, or we may not.
    pub fn open(roots: &Roots) -> Result<Self, PageIdleUnavailable> {
        let path = roots.sys.path("kernel/mm/page_idle/bitmap");
        let bitmap = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| PageIdleUnavailable { path, source })?;
        Ok(Self {
            bitmap,
            roots: roots.clone(),
            rotation: Rotation::default(),
            watched: Vec::new(),
            marked_at: None,
            round: 0,
        })
    }

    fn slots_max(&self) -> usize {
        let pages = u128::from(self.rotation.period().0) * u128::from(PAGES_PER_SECOND);
        let slots = pages / u128::from(Span::secs(1).0) / u128::from(LOOKS);
        usize::try_from(slots).unwrap_or(usize::MAX).max(1)
    }

    /// Marks pages of the slots that are to be watched in the coming period.
    fn mark(&mut self, slots: &[TrackedSlot], at: Instant) {
        self.round += 1;
        self.watched.clear();
        for of_one in slots.chunk_by(|one, next| one.process == next.process) {
            let Some(pagemap) = frames::open(&self.roots, of_one[0].process.pid) else {
                continue;
            };
            for tracked in of_one {
                let watched = self.mark_slot(&pagemap, tracked);
                self.watched.push(watched);
            }
        }
        self.marked_at = Some(at);
    }

    fn mark_slot(&self, pagemap: &File, tracked: &TrackedSlot) -> Watched {
        let geometry = &self.roots.geometry;
        let pages = tracked.bytes.0 >> geometry.base_shift;
        let looks = if tracked.huge { 1 } else { LOOKS.min(pages) };
        let marked = (0..looks)
            .map(|look| tracked.address + (self.page_of(look, looks, pages) << geometry.base_shift))
            .map(|address| {
                if tracked.huge {
                    tracked.address
                } else {
                    address
                }
            })
            .filter_map(|address| {
                let frame = frames::frame(pagemap, geometry, address)?;
                self.set_idle(frame).ok()?;
                Some(Marked { address, frame })
            })
            .collect();
        Watched {
            tracked: *tracked,
            looks,
            marked,
        }
    }

    /// The base page of one look: even steps through the slot, shifted each round.
    const fn page_of(&self, look: u64, looks: u64, pages: u64) -> u64 {
        // An odd shift visits every page of a power of two before it repeats.
        const SHIFT: u64 = 37;
        (look * (pages / looks) + self.round * SHIFT) % pages
    }

    /// What came of the marks. A page that cannot be read any more gives no look.
    fn readings(&self) -> Vec<(TrackedSlot, Ratio)> {
        let mut readings = Vec::new();
        for of_one in self
            .watched
            .chunk_by(|one, next| one.tracked.process == next.tracked.process)
        {
            let Some(pagemap) = frames::open(&self.roots, of_one[0].tracked.process.pid) else {
                continue;
            };
            readings.extend(
                of_one
                    .iter()
                    .filter_map(|w| Some((w.tracked, self.read(&pagemap, w)?))),
            );
        }
        readings
    }

    fn read(&self, pagemap: &File, watched: &Watched) -> Option<Ratio> {
        let (mut looks, mut accessed) = (watched.looks, 0);
        for marked in &watched.marked {
            let frame = frames::frame(pagemap, &self.roots.geometry, marked.address);
            match self.is_idle(marked.frame) {
                Ok(idle) if frame == Some(marked.frame) => accessed += u64::from(!idle),
                Ok(_) | Err(_) => looks -= 1,
            }
        }
        (looks > 0).then(|| Ratio::of(accessed, looks))
    }

    fn set_idle(&self, frame: u64) -> io::Result<()> {
        let word: u64 = 1 << (frame % WORD_BITS);
        let offset = frame / WORD_BITS * WORD_BYTES;
        self.bitmap.write_all_at(&word.to_ne_bytes(), offset)
    }

    fn is_idle(&self, frame: u64) -> io::Result<bool> {
        let mut word = [0; 8];
        let offset = frame / WORD_BITS * WORD_BYTES;
        self.bitmap.read_exact_at(&mut word, offset)?;
        Ok(u64::from_ne_bytes(word) >> (frame % WORD_BITS) & 1 == 1)
    }
}

impl AccessTracker for PageIdleTracker {
    fn kind(&self) -> Tracker {
        Tracker::PageIdle
    }

    fn track(&mut self, slots: &[TrackedSlot], period: Span) {
        self.rotation.wish(slots, period);
    }

    fn poll(&mut self, at: Instant) -> Vec<(SlotId, Accessed)> {
        let period = self.rotation.period();
        if self
            .marked_at
            .is_some_and(|marked| at.since(marked) < period)
        {
            return Vec::new();
        }
        let readings = self.readings();
        let slots_max = self.slots_max();
        let slots = if self.rotation.is_due(at, slots_max) {
            self.rotation.next(at, slots_max)
        } else {
            self.watched.iter().map(|watched| watched.tracked).collect()
        };
        self.mark(&slots, at);
        let tracker = self.kind();
        readings
            .into_iter()
            .filter(|(tracked, _)| self.rotation.wants(tracked.slot))
            .map(|(tracked, share)| (tracked.slot, Accessed { share, tracker }))
            .collect()
    }
}

#[cfg(test)]
mod tests;
