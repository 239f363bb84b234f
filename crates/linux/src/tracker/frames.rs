//! Where huge slots lie in physical memory, from `/proc/PID/pagemap`.

use super::TrackedSlot;
use super::damon::Roots;
use super::layout::Place;
use crate::procfs::pagemap::{ENTRY_BYTES, PageEntry};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{Pid, SlotId};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The huge pages behind `slots` that can be found, and that begin at a multiple of their size: what is not (any more)
/// one huge page, has no place. Without `CAP_SYS_ADMIN` nothing has.
#[must_use]
pub fn places(roots: &Roots, slots: &[TrackedSlot]) -> Vec<Place> {
    let mut places = Vec::new();
    for of_one in slots.chunk_by(|one, next| one.process == next.process) {
        let Some(pagemap) = open(roots, of_one[0].process.pid) else {
            continue;
        };
        places.extend(of_one.iter().filter_map(|tracked| {
            let start = physical(&pagemap, &roots.geometry, tracked)?;
            let tracked = *tracked;
            Some(Place { tracked, start })
        }));
    }
    places
}

/// Those of `places` whose huge page is still where it was.
#[must_use]
pub fn starts<'a>(roots: &Roots, places: impl Iterator<Item = &'a Place>) -> HashSet<SlotId> {
    let (mut slots, mut was): (Vec<_>, Vec<_>) = places
        .map(|place| (place.tracked, (place.tracked.slot, place.start)))
        .unzip();
    slots.sort_unstable_by_key(|tracked| tracked.process);
    was.sort_unstable();
    self::places(roots, &slots)
        .iter()
        .filter(|now| was.binary_search(&(now.tracked.slot, now.start)).is_ok())
        .map(|now| now.tracked.slot)
        .collect()
}

/// A process whose file cannot be opened has gone, or is not ours to look at: its slots have no place.
pub(super) fn open(roots: &Roots, pid: Pid) -> Option<File> {
    File::open(roots.proc.process(pid, "pagemap")).ok()
}

/// The page frame behind an address, if one is present and the kernel shows it.
pub(super) fn frame(pagemap: &File, geometry: &Geometry, address: u64) -> Option<u64> {
    let offset = (address >> geometry.base_shift) * u64::try_from(ENTRY_BYTES).ok()?;
    let mut entry = [0; ENTRY_BYTES];
    pagemap.read_exact_at(&mut entry, offset).ok()?;
    PageEntry(u64::from_ne_bytes(entry)).frame()
}

fn physical(pagemap: &File, geometry: &Geometry, tracked: &TrackedSlot) -> Option<u64> {
    let start = frame(pagemap, geometry, tracked.address)? << geometry.base_shift;
    (start % tracked.bytes.0 == 0).then_some(start)
}
