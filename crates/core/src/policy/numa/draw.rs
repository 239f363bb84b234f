//! Random choices from a seed that is part of the state.

use serde::{Deserialize, Serialize};

/// A generator (SplitMix64): small, and the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, not with, 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of `weighted` with a chance by its weight; `None` where all weigh nothing.
    pub(super) fn one_of<T: Copy>(&mut self, weighted: &[(T, f64)]) -> Option<T> {
        let all: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        let mut at = self.share() * all;
        for (item, weight) in weighted.iter().filter(|(_, weight)| *weight > 0.0) {
            if at < *weight {
                return Some(*item);
            }
            at -= weight;
        }
        let last = weighted.iter().rfind(|(_, weight)| *weight > 0.0);
        last.map(|(item, _)| *item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_chances() {
        let mut draw = Draw::new(7);
        let mut drawn = [0_u32; 3];
        for _ in 0..10_000 {
            let one = draw.one_of(&[(0, 1.0), (1, 0.0), (2, 3.0)]);
            drawn[one.expect("something weighs")] += 1;
        }
        assert_eq!(drawn[1], 0);
        assert!((2_300..2_700).contains(&drawn[0]), "{drawn:?}");
        assert_eq!(draw.one_of::<u8>(&[(0, 0.0)]), None);
    }
}
