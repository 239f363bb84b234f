//! From slots to DAMON's regions and back: pure.
//!
//! A slot becomes one region, or a power of two of equal ones where few slots are followed: each region gives one
//! sample an aggregation, so more regions sharpen the estimate without shortening the time over which it is taken.
//! Regions of a layout are all of one size; with as many allowed at the least and at the most as there are, DAMON
//! neither merges two (they would exceed its largest size) nor splits one (there would be too many).

use super::TrackedSlot;
use super::records::Region;
use hugepilot_core::ids::ProcessId;
use hugepilot_core::units::{Bytes, Ratio};

/// Where a slot lies in the addresses that are sampled: virtual ones of a process, or physical ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What is followed there.
    pub tracked: TrackedSlot,
    /// First sampled address.
    pub start: u64,
}

impl Place {
    const fn end(&self) -> u64 {
        self.start + self.tracked.bytes.0
    }
}

/// The regions of one of DAMON's targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whose addresses they are; `None`: physical ones.
    pub process: Option<ProcessId>,
    places: Vec<Place>,
    readings: Vec<Reading>,
}

/// What is known so far of one slot in the aggregation under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Reading {
    seen: u64,
    accessed: u64,
}

/// The targets and regions of one DAMON context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    targets: Vec<Target>,
    /// Regions a slot.
    parts: u64,
}

impl Layout {
    /// Virtual places: a target a process.
    #[must_use]
    pub fn of_processes(slots: &[TrackedSlot], parts: u64) -> Self {
        let mut slots = slots.to_vec();
        slots.sort_unstable_by_key(|s| (s.process, s.address));
        let targets = slots
            .chunk_by(|one, next| one.process == next.process)
            .map(|of_one| {
                let place = |tracked: &TrackedSlot| Place {
                    tracked: *tracked,
                    start: tracked.address,
                };
                Target::new(Some(of_one[0].process), of_one.iter().map(place).collect())
            })
            .collect();
        Self { targets, parts }
    }

    /// Physical places: one target. The parts of a huge page share one accessed bit, so a slot is one region.
    #[must_use]
    pub fn of_memory(places: Vec<Place>) -> Self {
        let targets = if places.is_empty() {
            Vec::new()
        } else {
            vec![Target::new(None, places)]
        };
        Self { targets, parts: 1 }
    }

    /// The targets, in DAMON's order.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Regions of all targets.
    #[must_use]
    pub fn regions(&self) -> u64 {
        self.places().count() as u64 * self.parts
    }

    /// First and last address of each region of `target`, in order.
    pub fn regions_of<'a>(&self, target: &'a Target) -> impl Iterator<Item = (u64, u64)> + 'a {
        target.regions(self.parts)
    }

    /// Adds what one region counted out of at most `accesses_max`; the slot's share once all of it has been counted.
    pub fn add(&mut self, region: &Region, accesses_max: u64) -> Option<(TrackedSlot, Ratio)> {
        let index = usize::try_from(region.target).ok()?;
        self.targets.get_mut(index)?.add(region, accesses_max)
    }

    /// Every followed slot with its place.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.targets.iter().flat_map(|target| &target.places)
    }
}

impl Target {
    /// Sorts, and keeps the first of places that overlap: a physical page that two slots map is sampled once.
    fn new(process: Option<ProcessId>, mut places: Vec<Place>) -> Self {
        places.sort_unstable_by_key(|place| place.start);
        let mut end = 0;
        places.retain(|place| {
            let apart = place.start >= end && place.tracked.bytes > Bytes::ZERO;
            if apart {
                end = place.end();
            }
            apart
        });
        Self {
            process,
            readings: vec![Reading::default(); places.len()],
            places,
        }
    }

    fn regions(&self, parts: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.places.iter().flat_map(move |place| {
            let part = place.tracked.bytes.0 / parts;
            (0..parts).map(move |n| (place.start + n * part, place.start + (n + 1) * part))
        })
    }

    fn add(&mut self, region: &Region, accesses_max: u64) -> Option<(TrackedSlot, Ratio)> {
        let after = self
            .places
            .partition_point(|place| place.start <= region.start);
        let at = after.checked_sub(1)?;
        let place = &self.places[at];
        let length = region.end.checked_sub(region.start)?;
        if region.end > place.end() {
            return None;
        }
        let reading = &mut self.readings[at];
        if region.start == place.start {
            *reading = Reading::default();
        } else if region.start != place.start + reading.seen {
            // A record before this one was lost: wait for the next aggregation.
            return None;
        }
        reading.seen += length;
        reading.accessed += length * region.accesses.min(accesses_max);
        if reading.seen < place.tracked.bytes.0 {
            return None;
        }
        let share = Ratio::of(reading.accessed, reading.seen * accesses_max);
        *reading = Reading::default();
        Some((place.tracked, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{ObjectId, Pid, SlotId};

    const SLOT: u64 = 2 << 20;

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid: Pid(pid),
            start_ticks: 1,
        }
    }

    fn tracked(pid: u32, index: u64) -> TrackedSlot {
        let process = process(pid);
        let object = ObjectId::Private(process);
        TrackedSlot {
            slot: SlotId { object, index },
            process,
            address: index * SLOT,
            bytes: Bytes(SLOT),
            huge: false,
        }
    }

    fn region(target: u64, start: u64, end: u64, accesses: u64) -> Region {
        Region {
            target,
            start,
            end,
            accesses,
        }
    }

    #[test]
    fn a_process_is_a_target_and_its_regions_rise() {
        let layout = Layout::of_processes(&[tracked(2, 9), tracked(1, 5), tracked(2, 4)], 2);
        let processes: Vec<_> = layout.targets().iter().map(|t| t.process).collect();
        assert_eq!(processes, [Some(process(1)), Some(process(2))]);
        let half = SLOT / 2;
        let regions: Vec<_> = layout.regions_of(&layout.targets()[1]).collect();
        let (four, nine) = (4 * SLOT, 9 * SLOT);
        assert_eq!(
            regions,
            [
                (four, four + half),
                (four + half, four + SLOT),
                (nine, nine + half),
                (nine + half, nine + SLOT),
            ]
        );
        assert_eq!(layout.regions(), 6);
    }

    #[test]
    fn a_slot_is_read_when_all_of_it_has_been_counted() {
        let slot = tracked(1, 5);
        let mut layout = Layout::of_processes(&[slot], 2);
        let (start, half) = (5 * SLOT, SLOT / 2);
        assert_eq!(layout.add(&region(0, start, start + half, 1), 1), None);
        let full = layout.add(&region(0, start + half, start + SLOT, 0), 1);
        assert_eq!(full, Some((slot, Ratio::new(0.5))));
        assert_eq!(layout.add(&region(0, start, start + half, 0), 1), None);
    }

    #[test]
    fn pieces_that_the_kernel_cut_itself_weigh_by_their_length() {
        let mut layout = Layout::of_processes(&[tracked(1, 5)], 1);
        let (start, quarter) = (5 * SLOT, SLOT / 4);
        assert_eq!(layout.add(&region(0, start, start + quarter, 4), 4), None);
        let read = layout.add(&region(0, start + quarter, start + SLOT, 1), 4);
        assert_eq!(read.map(|(_, share)| share), Some(Ratio::new(7.0 / 16.0)));
    }

    #[test]
    fn after_a_loss_the_next_aggregation_counts_alone() {
        let mut layout = Layout::of_processes(&[tracked(1, 5)], 2);
        let (start, half) = (5 * SLOT, SLOT / 2);
        let first = |accesses| region(0, start, start + half, accesses);
        let second = |accesses| region(0, start + half, start + SLOT, accesses);
        assert_eq!(layout.add(&second(1), 1), None, "its first half was lost");
        assert_eq!(layout.add(&first(1), 1), None);
        assert_eq!(
            layout.add(&first(0), 1),
            None,
            "the second half before it was lost"
        );
        let read = layout.add(&second(0), 1);
        assert_eq!(read.map(|(_, share)| share), Some(Ratio::ZERO));
    }

    #[test]
    fn what_is_not_followed_is_not_counted() {
        let mut layout = Layout::of_processes(&[tracked(1, 5)], 1);
        for (target, start, end) in [
            (1, 5 * SLOT, 6 * SLOT),
            (0, 4 * SLOT, 5 * SLOT),
            (0, 6 * SLOT, 7 * SLOT),
            (0, 5 * SLOT, 7 * SLOT),
            (0, 6 * SLOT, 5 * SLOT),
        ] {
            assert_eq!(layout.add(&region(target, start, end, 1), 1), None);
        }
    }

    #[test]
    fn one_physical_page_is_sampled_once() {
        let place = |pid, start| Place {
            tracked: tracked(pid, 3),
            start,
        };
        let layout = Layout::of_memory(vec![place(1, 8 * SLOT), place(2, 8 * SLOT), place(1, 0)]);
        assert_eq!(layout.regions(), 2);
        assert_eq!(Layout::of_memory(Vec::new()).targets(), []);
    }
}
