//! What to scan of an object: each of its bytes once, through one of the processes that map it.
//!
//! The process with the most resident memory comes first, since its page table shows the most of a shared object; what
//! it does not map is seen through the next. Regions that lie side by side (an arena that `mprotect` cut in pieces)
//! become one range, so that they cost one call.

use super::regions::Placed;
use hugepilot_core::ids::ProcessId;
use hugepilot_core::units::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A stretch of an object as one process sees it: what is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRange {
    /// Through which process.
    pub via: ProcessId,
    /// Where it maps the stretch.
    pub address: u64,
    /// Where in the object the stretch begins.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

impl ScanRange {
    /// Where in the object it ends.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Address minus offset, which is the same all along the stretch.
    const fn shift(&self) -> u64 {
        self.address.wrapping_sub(self.offset)
    }
}

/// The ranges of an object with these regions, sorted by offset, without overlap. Whether a region is excluded plays no
/// part: excluded memory is looked at too, for the sums.
#[must_use]
pub fn plan(placed: &[Placed], resident: &BTreeMap<ProcessId, Bytes>) -> Vec<ScanRange> {
    let mut candidates: Vec<(Bytes, ScanRange)> = placed
        .iter()
        .filter(|placed| placed.worth_a_look)
        .map(|placed| &placed.mapping)
        .map(|mapping| {
            let resident = resident.get(&mapping.process).copied();
            let range = ScanRange {
                via: mapping.process,
                address: mapping.address,
                offset: mapping.offset,
                length: mapping.length.0,
            };
            (resident.unwrap_or(Bytes::ZERO), range)
        })
        .collect();
    // The largest process first, and of one process in the object's order.
    candidates.sort_by_key(|(resident, range)| {
        (Reverse(*resident), range.via, range.offset, range.address)
    });
    let mut planned = Planned::default();
    for (_, range) in candidates {
        planned.add(range);
    }
    planned.joined()
}

/// Ranges by offset, without overlap: whoever comes first has a byte.
#[derive(Default)]
struct Planned(BTreeMap<u64, ScanRange>);

impl Planned {
    fn add(&mut self, range: ScanRange) {
        let mut at = range.offset;
        while at < range.end() {
            let taken = self
                .0
                .range(..=at)
                .next_back()
                .map(|(_, taken)| taken.end());
            if let Some(end) = taken.filter(|&end| end > at) {
                at = end;
                continue;
            }
            let next = self
                .0
                .range(at..)
                .next()
                .map_or(u64::MAX, |(offset, _)| *offset);
            let end = range.end().min(next);
            let piece = ScanRange {
                address: range.address + (at - range.offset),
                offset: at,
                length: end - at,
                ..range
            };
            self.0.insert(at, piece);
            at = end;
        }
    }

    fn joined(self) -> Vec<ScanRange> {
        let mut ranges: Vec<ScanRange> = Vec::new();
        for range in self.0.into_values() {
            match ranges.last_mut() {
                Some(last)
                    if last.via == range.via
                        && last.end() == range.offset
                        && last.shift() == range.shift() =>
                {
                    last.length += range.length;
                }
                Some(_) | None => ranges.push(range),
            }
        }
        ranges
    }
}

/// Is every byte of `old` in `new`, so that nothing went away?
#[must_use]
pub fn covers_all(new: &[ScanRange], old: &[ScanRange]) -> bool {
    old.iter().all(|old| {
        let after = new.partition_point(|range| range.offset <= old.offset);
        after > 0 && new[after - 1].end() >= old.end()
    })
}
