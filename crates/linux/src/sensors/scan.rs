//! Scanning: one step reads the page tables behind a few neighbouring slots, counts, and says which slots changed.
//!
//! A step takes whole slots, so that a slot which several regions share is counted once and whole; between two steps a
//! pass can be put off until the budget allows more. A step spans 16 MiB of the object where base pages are found, and
//! 128 MiB where all is huge, up to 1 GiB where nothing is, so that reserved and never touched address space costs little. How long one *call*
//! holds the target's lock is bounded in `page_tables` all the same.

use super::fingerprints::SlotCounts;
use super::objects::Object;
use super::page_tables::{ClassRun, Expecting, PageClass, PageTables};
use super::ranges::ScanRange;
use crate::sys::Errno;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::ProcessId;
use std::fs::File;

/// Slots of a step where base pages are found: 16 MiB.
const STEP_SLOTS_MIN: u64 = 8;
/// Slots of a step where all is huge: 128 MiB.
const STEP_SLOTS_HUGE: u64 = 64;
/// Slots of a step where nothing is found: 1 GiB.
const STEP_SLOTS_MAX: u64 = 512;

/// What one step read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The first slot.
    pub first: u64,
    /// The slot past the last.
    pub end: u64,
    /// Slots that look otherwise than before.
    pub changed: Vec<(u64, SlotCounts)>,
    /// A process through which nothing could be read.
    pub unreadable: Option<(ProcessId, Errno)>,
}

/// Makes steps. Keeps its buffers and the length of the next step.
#[derive(Debug)]
pub struct Scanner {
    geometry: Geometry,
    step_slots: u64,
    expecting: Expecting,
    counts: Vec<SlotCounts>,
}

impl Scanner {
    /// For slots of this size.
    #[must_use]
    pub const fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            step_slots: STEP_SLOTS_MIN,
            expecting: Expecting::Base,
            counts: Vec::new(),
        }
    }

    /// Reads the slots of `object` from `cursor` on, at most up to `limit`. `None`: there is nothing left to read.
    pub fn step<'f>(
        &mut self,
        object: &mut Object,
        cursor: u64,
        limit: u64,
        tables: &mut PageTables,
        pagemap: impl Fn(ProcessId) -> Option<&'f File>,
    ) -> Option<Step> {
        let (first, end) = self.extent(&object.ranges, cursor, limit)?;
        let mut step = Step {
            first,
            end,
            ..Step::default()
        };
        let length = usize::try_from(end - first).expect("a step has few slots");
        self.counts.clear();
        self.counts.resize(length, SlotCounts::EMPTY);
        for range in intersecting(&object.ranges, first, end, &self.geometry) {
            let Some(pagemap) = pagemap(range.via) else {
                continue; // Not watched any more; its mappings go with the next observation.
            };
            if let Err(errno) = self.count(&range, first, tables, pagemap) {
                step.unreadable = Some((range.via, errno));
                return Some(step);
            }
        }
        self.adapt();
        self.compare(object, &mut step);
        Some(step)
    }

    /// The slots of the next step.
    fn extent(&self, ranges: &[ScanRange], cursor: u64, limit: u64) -> Option<(u64, u64)> {
        let slot = self.geometry.slot().0;
        let at = ranges.partition_point(|range| range.end() <= cursor.saturating_mul(slot));
        let first = cursor.max(ranges.get(at)?.offset / slot);
        let most = (first + self.step_slots).min(limit);
        let within = ranges.partition_point(|range| range.offset < most.saturating_mul(slot));
        let last = ranges[at..within.max(at)].last()?;
        let end = most.min(last.end().div_ceil(slot));
        (first < end).then_some((first, end))
    }

    /// Adds up the pages of one range.
    fn count(
        &mut self,
        range: &ScanRange,
        first: u64,
        tables: &mut PageTables,
        pagemap: &File,
    ) -> Result<(), Errno> {
        let (geometry, counts) = (self.geometry, &mut self.counts);
        let base = range.address;
        tables.read(pagemap, base, base + range.length, self.expecting, |run| {
            let offset = |address: u64| range.offset + (address - base);
            let run = ClassRun {
                start: offset(run.start.max(base)),
                end: offset(run.end.min(base + range.length)),
                class: run.class,
            };
            add(counts, first, &run, &geometry);
        })
    }

    /// A new pass begins: nothing is known of what comes.
    pub const fn restart(&mut self) {
        self.step_slots = STEP_SLOTS_MIN;
        self.expecting = Expecting::Base;
    }

    /// Longer steps where nothing is, or only huge pages are; short ones where base pages are.
    fn adapt(&mut self) {
        let all = |like: fn(&SlotCounts) -> bool| self.counts.iter().all(like);
        let longer = self.step_slots * 2;
        (self.step_slots, self.expecting) = if all(|counts| *counts == SlotCounts::EMPTY) {
            (longer.min(STEP_SLOTS_MAX), Expecting::Base)
        } else if all(|counts| counts.base == 0 && counts.zero == 0 && counts.swapped == 0) {
            (
                longer.clamp(STEP_SLOTS_MIN, STEP_SLOTS_HUGE),
                Expecting::Huge,
            )
        } else {
            (STEP_SLOTS_MIN, Expecting::Base)
        };
    }

    fn compare(&self, object: &mut Object, step: &mut Step) {
        let nothing = self
            .counts
            .iter()
            .all(|&counts| counts == SlotCounts::EMPTY);
        if nothing && object.seen.nothing_in(step.first, step.end) {
            return;
        }
        for (index, &counts) in (step.first..).zip(&self.counts) {
            if object.seen.set(index, counts) {
                step.changed.push((index, counts));
            }
        }
    }
}

/// The parts of `ranges` within the slots `first .. end`.
fn intersecting(ranges: &[ScanRange], first: u64, end: u64, geometry: &Geometry) -> Vec<ScanRange> {
    let slot = geometry.slot().0;
    let (start, stop) = (first * slot, end * slot);
    let at = ranges.partition_point(|range| range.end() <= start);
    ranges[at..]
        .iter()
        .take_while(|range| range.offset < stop)
        .map(|range| {
            let offset = range.offset.max(start);
            ScanRange {
                via: range.via,
                address: range.address + (offset - range.offset),
                offset,
                length: range.end().min(stop) - offset,
            }
        })
        .collect()
}

/// Adds a run of pages, in offsets of the object, to the slots from `first` on.
fn add(counts: &mut [SlotCounts], first: u64, run: &ClassRun, geometry: &Geometry) {
    let slot = geometry.slot().0;
    let mut at = run.start;
    while at < run.end {
        let stop = (at / slot + 1).saturating_mul(slot).min(run.end);
        let place = usize::try_from(at / slot - first)
            .ok()
            .and_then(|index| counts.get_mut(index));
        if let Some(counts) = place {
            let pages = u16::try_from((stop - at) >> geometry.base_shift).unwrap_or(u16::MAX);
            let count = match run.class {
                PageClass::Base => &mut counts.base,
                PageClass::Huge => &mut counts.huge,
                PageClass::Zero => &mut counts.zero,
                PageClass::Swapped => &mut counts.swapped,
            };
            *count = count.saturating_add(pages);
        }
        at = stop;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::Pid;

    const G: Geometry = Geometry::X86_64;
    const SLOT: u64 = 2 << 20;

    fn range(offset: u64, length: u64) -> ScanRange {
        ScanRange {
            via: ProcessId {
                pid: Pid(1),
                start_ticks: 1,
            },
            address: offset + 0x1000_0000,
            offset,
            length,
        }
    }

    #[test]
    fn a_run_across_slots_is_counted_in_each() {
        let mut counts = vec![SlotCounts::EMPTY; 2];
        let run = ClassRun {
            start: 3 * SLOT - 8192,
            end: 3 * SLOT + 4096,
            class: PageClass::Base,
        };
        add(&mut counts, 2, &run, &G);
        assert_eq!((counts[0].base, counts[1].base), (2, 1));
    }

    #[test]
    fn steps_skip_what_nobody_maps() {
        let scanner = Scanner::new(G);
        let ranges = [range(SLOT + 4096, 4096), range(100 * SLOT, 3 * SLOT)];
        assert_eq!(scanner.extent(&ranges, 0, u64::MAX), Some((1, 2)));
        assert_eq!(scanner.extent(&ranges, 2, u64::MAX), Some((100, 103)));
        assert_eq!(scanner.extent(&ranges, 103, u64::MAX), None);
        assert_eq!(scanner.extent(&ranges, 0, 1), None);
    }

    #[test]
    fn only_what_is_in_the_step_is_read() {
        let ranges = [range(0, 4 * SLOT), range(5 * SLOT, SLOT)];
        let parts = intersecting(&ranges, 3, 5, &G);
        assert_eq!(
            parts,
            [ScanRange {
                length: SLOT,
                offset: 3 * SLOT,
                address: 3 * SLOT + 0x1000_0000,
                ..ranges[0]
            }]
        );
    }
}
