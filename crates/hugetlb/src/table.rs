//! Which mapping belongs to a pointer that was handed out.
//!
//! *Problem*: the pointer to give back may lie inside its mapping (colouring), the kernel merges mappings of base pages
//! side by side, and `/proc/self/maps` tells neither where one of ours begins nor how long it is.
//!
//! *What*: a hash table in segments, each twice as large as the one before, made when those before it have no room in a
//! pointer's bucket, never freed. A pointer may be in its bucket of any segment, so taking one out leaves nothing behind
//! that others must step over. A place is claimed by one atomic exchange; nobody waits for anybody. A child forked in
//! the middle of it loses one place of 24 bytes at most.
//!
//! *Properties*: what was put in is found once and only once, also by threads at once; a pointer that is put in again
//! (its mapping was unmapped behind our back) replaces the older entry.

use crate::sys::{Errno, Mapping, Published};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Places of the first segment.
const FIRST: usize = 1024;
/// Places of a bucket: three cache lines.
const BUCKET: usize = 8;
/// Segments after the first: room for 16 million regions, 256 times as many as a process may map by default.
const SEGMENTS: usize = 14;

/// A free place.
const FREE: usize = 0;
/// A place that is being written. No pointer is 1.
const CLAIMED: usize = 1;

/// One region that was handed out: its pointer, and the start and length of its mapping.
type Place = [AtomicUsize; 3];

fn claim([pointer, _, _]: &Place, from: usize) -> bool {
    let (ok, no) = (Ordering::Acquire, Ordering::Relaxed);
    pointer.compare_exchange(from, CLAIMED, ok, no).is_ok()
}

fn write([pointer, start, length]: &Place, value: usize, mapping: Mapping) {
    start.store(mapping.start, Ordering::Relaxed);
    length.store(mapping.length, Ordering::Relaxed);
    pointer.store(value, Ordering::Release);
}

fn read_and_free([pointer, start, length]: &Place) -> Mapping {
    let mapping = Mapping {
        start: start.load(Ordering::Relaxed),
        length: length.load(Ordering::Relaxed),
    };
    pointer.store(FREE, Ordering::Release);
    mapping
}

/// The table.
pub struct Table {
    first: [Place; FIRST],
    more: [Published<Place>; SEGMENTS],
}

impl Table {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            first: [const { [const { AtomicUsize::new(FREE) }; 3] }; FIRST],
            more: [const { Published::new() }; SEGMENTS],
        }
    }

    /// Remembers the mapping of a pointer.
    pub fn put(&self, pointer: usize, mapping: Mapping) -> Result<(), Errno> {
        let from = [pointer, FREE];
        let place = from.into_iter().find_map(|from| self.claim(pointer, from));
        if let Some(place) = place {
            write(place, pointer, mapping);
            return Ok(());
        }
        for (segment, count) in self.more.iter().zip(counts()) {
            let places = segment.get_or_make(count, |_zeroed| {})?;
            if let Some(place) = bucket(places, pointer)
                .iter()
                .find(|place| claim(place, FREE))
            {
                write(place, pointer, mapping);
                return Ok(());
            }
        }
        Err(Errno::ENOMEM)
    }

    /// The mapping of a pointer, which is forgotten.
    pub fn take(&self, pointer: usize) -> Option<Mapping> {
        if pointer == FREE || pointer == CLAIMED {
            return None;
        }
        self.claim(pointer, pointer).map(read_and_free)
    }

    /// Claims a place with the given content in the pointer's bucket of any segment.
    fn claim(&self, pointer: usize, content: usize) -> Option<&Place> {
        let more = self.more.iter().map_while(places_of);
        core::iter::once(&self.first[..])
            .chain(more)
            .flat_map(|places| bucket(places, pointer))
            .find(|place| claim(place, content))
    }
}

fn places_of(segment: &Published<Place>) -> Option<&[Place]> {
    segment.get()
}

/// How many places the segments after the first have.
fn counts() -> impl Iterator<Item = usize> {
    core::iter::successors(Some(FIRST * 2), |count| count.checked_mul(2))
}

/// The bucket of a pointer among places, whose number is a power of two.
fn bucket(places: &[Place], pointer: usize) -> &[Place] {
    /// The golden ratio's part of a word, which spreads neighbours (Fibonacci hashing).
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let buckets = places.len() / BUCKET;
    let hash = u64::try_from(pointer).unwrap_or(0).wrapping_mul(SPREAD) >> 32;
    let number = usize::try_from(hash).unwrap_or(0) & buckets.wrapping_sub(1);
    let from = number.wrapping_mul(BUCKET);
    places
        .get(from..)
        .and_then(|rest| rest.get(..BUCKET))
        .unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    fn mapping(number: usize) -> Mapping {
        Mapping {
            start: number << 21,
            length: number,
        }
    }

    fn pointer(number: usize) -> usize {
        number << 21
    }

    #[test]
    fn what_is_put_in_is_taken_out_once() {
        let table = Table::new();
        for number in 1..=20_000 {
            table.put(pointer(number), mapping(number)).expect("memory");
        }
        for number in (1..=20_000).rev() {
            assert_eq!(table.take(pointer(number)), Some(mapping(number)));
            assert_eq!(table.take(pointer(number)), None);
        }
    }

    #[test]
    fn places_are_used_again() {
        let table = Table::new();
        for number in 1..=1_000_000 {
            table.put(pointer(number), mapping(number)).expect("memory");
            assert_eq!(table.take(pointer(number)), Some(mapping(number)));
        }
        assert!(
            table.more[0].get().is_none(),
            "the first segment was enough"
        );
    }

    #[test]
    fn a_pointer_put_in_again_has_the_newer_mapping() {
        let table = Table::new();
        table.put(pointer(1), mapping(1)).expect("memory");
        table.put(pointer(1), mapping(2)).expect("memory");
        assert_eq!(table.take(pointer(1)), Some(mapping(2)));
        assert_eq!(table.take(pointer(1)), None);
    }

    #[test]
    fn what_no_pointer_can_be_is_never_found() {
        let table = Table::new();
        assert_eq!((table.take(FREE), table.take(CLAIMED)), (None, None));
    }

    #[test]
    fn of_many_takers_one_gets_it() {
        const THREADS: usize = 8;
        const COUNT: usize = 5_000;
        let table = &*Box::leak(Box::new(Table::new()));
        let own = move |thread: usize| (1..=COUNT).map(move |number| number * THREADS + thread);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    own(thread).for_each(|n| table.put(pointer(n), mapping(n)).expect("memory"))
                });
            }
        });
        let taken: Vec<usize> = thread::scope(|scope| {
            let take_all = |_| {
                (0..THREADS)
                    .flat_map(own)
                    .filter(|n| table.take(pointer(*n)).is_some())
                    .collect()
            };
            let takers: Vec<_> = (0..THREADS)
                .map(|t| scope.spawn(move || -> Vec<usize> { take_all(t) }))
                .collect();
            takers
                .into_iter()
                .flat_map(|taker| taker.join().expect("no panic"))
                .collect()
        });
        assert_eq!(taken.len(), THREADS * COUNT);
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
    }
}
