//! Reproducible randomness: a counter through a mixing function, so that value `n` needs no value before it.

/// The odd number next to 2^64 over the golden ratio: steps that visit all words and look unlike the last.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A word that looks random and depends on every bit of `word` (the finalizer of SplitMix64).
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A sequence.
#[derive(Debug, Clone, Copy)]
pub struct Random(u64);

impl Random {
    /// The sequence number `stream` of those that `seed` has.
    #[must_use]
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(STEP))))
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If nothing is below it.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        self.0 = self.0.wrapping_add(STEP);
        let scaled = (u128::from(mix(self.0)) * u128::from(bound)) >> u64::BITS;
        u64::try_from(scaled).expect("less than the bound")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_come_about_equally_often() {
        let mut counts = [0_u32; 8];
        let mut random = Random::new(1, 2);
        for _ in 0..8_000 {
            counts[usize::try_from(random.below(8)).expect("below 8")] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1_100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let first = |stream| Random::new(7, stream).below(u64::MAX);
        assert_ne!(first(0), first(1));
        assert_eq!(first(3), first(3));
    }
}
