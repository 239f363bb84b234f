// SPDX-License-Identifier: GPL-2.0-or-later

//! Models of caches: sets and ways of tags. TLBs are made of the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cache line, as a shift.
pub const LINE_SHIFT: u32 = 6;

/// How large a cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Lines of a cache, entries of a TLB.
    pub entries: usize,
    /// Places that an entry may be in.
    pub ways: usize,
}

impl Shape {
    /// `None` where the entries are no power of two of full sets.
    pub fn new(entries: usize, ways: usize) -> Option<Self> {
        let fits = ways > 0 && entries % ways == 0 && (entries / ways).is_power_of_two();
        fits.then_some(Self { entries, ways })
    }

    fn sets(self) -> usize {
        self.entries / self.ways
    }
}

/// Where a key's set begins in an array of all ways.
fn set_start(key: u64, shape: Shape) -> usize {
    let mask = shape.sets() - 1;
    // A set's number is what fits the mask: the high bits do not matter.
    let low = usize::try_from(key & u64::try_from(mask).expect("fits")).expect("masked");
    low * shape.ways
}

/// One CPU's own, least recently used.
#[derive(Debug)]
pub struct Cache {
    shape: Shape,
    /// Of each set, the newest first; 0: empty, else the key and 1.
    tags: Box<[u64]>,
}

impl Cache {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            tags: vec![0; shape.entries].into(),
        }
    }

    /// Whether it was there; now it is.
    pub fn touch(&mut self, key: u64) -> bool {
        let start = set_start(key, self.shape);
        let set = &mut self.tags[start..start + self.shape.ways];
        let tag = key + 1;
        if set[0] == tag {
            return true;
        }
        let found = set.iter().position(|&held| held == tag);
        let until = found.unwrap_or(set.len() - 1);
        set.copy_within(0..until, 1);
        set[0] = tag;
        found.is_some()
    }
}

/// What several CPUs use at a time. A race between two of them loses or doubles a line, no more.
#[derive(Debug)]
pub struct SharedCache {
    shape: Shape,
    tags: Box<[AtomicU64]>,
}

impl SharedCache {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            tags: (0..shape.entries).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether it was there; now it is, in the place of another if need be.
    pub fn touch(&self, key: u64, random: &mut Random) -> bool {
        let start = set_start(key, self.shape);
        let set = &self.tags[start..start + self.shape.ways];
        let tag = key + 1;
        let mut free = None;
        for (way, held) in set.iter().enumerate() {
            match held.load(Ordering::Relaxed) {
                held if held == tag => return true,
                0 => free = free.or(Some(way)),
                _ => {}
            }
        }
        let victim = free.unwrap_or_else(|| random.below(self.shape.ways));
        set[victim].store(tag, Ordering::Relaxed);
        false
    }
}

/// Numbers that look random, the same ones after the same seed (xorshift).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("64 bits");
        usize::try_from(self.next() % bound).expect("below a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(cache: &mut Cache, keys: impl Iterator<Item = u64>) -> usize {
        keys.filter(|&key| cache.touch(key)).count()
    }

    #[test]
    fn what_fits_hits_from_the_second_round_on() {
        let mut cache = Cache::new(Shape::new(512, 8).unwrap());
        assert_eq!(hits(&mut cache, 0..512), 0);
        assert_eq!(hits(&mut cache, 0..512), 512);
    }

    #[test]
    fn a_round_through_more_than_fits_never_hits() {
        let mut cache = Cache::new(Shape::new(512, 8).unwrap());
        assert_eq!(hits(&mut cache, (0..577).cycle().take(2000)), 0);
    }

    #[test]
    fn the_least_recently_used_goes() {
        let mut cache = Cache::new(Shape::new(2, 2).unwrap());
        let touched: Vec<bool> = [1, 2, 1, 3, 1, 2].map(|key| cache.touch(key)).into();
        assert_eq!(touched, [false, false, true, false, true, false]);
    }

    #[test]
    fn keys_of_one_set_fight_and_others_do_not() {
        let mut cache = Cache::new(Shape::new(64, 1).unwrap());
        assert_eq!(hits(&mut cache, [0, 64, 0, 64].into_iter()), 0);
        assert_eq!(hits(&mut cache, [1, 66, 1, 66].into_iter()), 2);
    }

    #[test]
    fn a_shared_cache_holds_what_fits() {
        let cache = SharedCache::new(Shape::new(1024, 16).unwrap());
        let mut random = Random::new(1);
        let mut hits = || {
            (0..1024)
                .filter(|&key| cache.touch(key, &mut random))
                .count()
        };
        assert_eq!((hits(), hits()), (0, 1024));
    }

    #[test]
    fn a_shared_cache_of_half_the_size_serves_less_than_half() {
        let cache = SharedCache::new(Shape::new(1024, 16).unwrap());
        let mut random = Random::new(1);
        let rounds = (0..2048).cycle().take(20 * 2048);
        let hits = rounds.filter(|&key| cache.touch(key, &mut random)).count();
        assert!((1..20 * 1024).contains(&hits), "{hits}");
    }

    #[test]
    fn odd_shapes_are_refused() {
        assert_eq!(Shape::new(96, 16), None);
        assert_eq!(Shape::new(100, 8), None);
        assert_eq!(Shape::new(8, 0), None);
        assert!(Shape::new(96, 3).is_some());
    }
}
