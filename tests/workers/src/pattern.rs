//! Contents that can be told right from wrong: every word is a function of a seed and its place.

/// A place's word under `seed` (SplitMix64 of the place, keyed by the seed); never zero in its lowest byte.
#[must_use]
pub const fn word(seed: u64, place: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(place.wrapping_mul(0xd134_2543_de82_ef95));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 1
}

/// Bytes in which two words differ.
#[must_use]
pub fn wrong_bytes(expected: u64, found: u64) -> u64 {
    if expected == found {
        return 0;
    }
    let differing = expected
        .to_ne_bytes()
        .iter()
        .zip(found.to_ne_bytes())
        .filter(|(e, f)| **e != *f)
        .count();
    u64::try_from(differing).expect("at most eight")
}

/// Numbers in a row from a seed, for choices.
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    place: u64,
}

impl Random {
    /// The row that belongs to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, place: 0 }
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.place += 1;
        word(self.seed, self.place) >> 1
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("usize is 64 bits");
        usize::try_from(self.next() % bound).expect("below a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_byte_counts() {
        assert_eq!(wrong_bytes(0x1122, 0x1122), 0);
        assert_eq!(wrong_bytes(0x1122, 0x1023), 2);
    }

    #[test]
    fn places_and_seeds_differ() {
        assert_ne!(word(1, 7), word(1, 8));
        assert_ne!(word(1, 7), word(2, 7));
    }
}
