// SPDX-License-Identifier: GPL-2.0-or-later

//! Which accesses of a thread become samples, as IBS would choose.
//!
//! Every so many accesses one is due. As hardware does, the distance is varied a little, so that a
//! loop whose length divides it is not seen at one place only. A skid puts the sample off by so many
//! instructions: the first access after them is taken in place of the one that was due.

use hugepilot_vpmu::Sampling;

use crate::cache::Random;

/// The distance varies by up to this part of the period, to both sides.
const VARIATION: u64 = 8;

/// Of one thread.
#[derive(Debug)]
pub struct Sampler {
    /// To which `left` belongs.
    period: u64,
    /// Accesses until one is due.
    left: u64,
    /// A sample is due, once the CPU has executed so many instructions.
    due_at: Option<u64>,
    random: Random,
}

impl Sampler {
    pub fn new(seed: u64) -> Self {
        Self {
            period: 0,
            left: 0,
            due_at: None,
            random: Random::new(seed),
        }
    }

    /// One more access, after so many instructions of the CPU: is it sampled?
    pub fn takes(&mut self, sampling: &Sampling, instructions: u64) -> bool {
        if sampling.period_accesses != self.period {
            self.period = sampling.period_accesses;
            self.due_at = None;
            self.left = self.distance();
        }
        if self.period == 0 {
            return false;
        }
        self.left -= 1;
        if self.left == 0 {
            self.left = self.distance();
            self.due_at = Some(instructions + sampling.skid_instructions);
        }
        let due = self.due_at.is_some_and(|at| instructions >= at);
        if due {
            self.due_at = None;
        }
        due
    }

    fn distance(&mut self) -> u64 {
        let most = self.period / VARIATION;
        let variation = self.random.next() % (2 * most + 1);
        (self.period - most + variation).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(period_accesses: u64, skid_instructions: u64) -> Sampling {
        Sampling {
            period_accesses,
            skid_instructions,
            window_samples_max: 0,
        }
    }

    fn taken(sampling: &Sampling, accesses: u64) -> Vec<u64> {
        let mut sampler = Sampler::new(1);
        (0..accesses)
            .filter(|&access| sampler.takes(sampling, access))
            .collect()
    }

    #[test]
    fn one_access_in_a_period_is_taken() {
        let taken = taken(&sampling(1000, 0), 1_000_000);
        assert!((990..=1010).contains(&taken.len()), "{}", taken.len());
        let distances = taken.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(
            distances
                .clone()
                .all(|distance| (875..=1125).contains(&distance))
        );
        assert!(distances.clone().min() < distances.max());
    }

    #[test]
    fn both_accesses_of_a_loop_of_two_are_seen() {
        let taken = taken(&sampling(1000, 0), 1_000_000);
        let even = taken.iter().filter(|access| *access % 2 == 0).count();
        assert!((400..600).contains(&even), "{even}");
    }

    #[test]
    fn a_skid_puts_samples_off() {
        let exact = taken(&sampling(1000, 0), 10_000);
        let skidded = taken(&sampling(1000, 17), 10_000);
        let later: Vec<u64> = exact.iter().map(|access| access + 17).collect();
        assert_eq!(skidded, later);
    }

    #[test]
    fn without_a_period_nothing_is_taken() {
        assert_eq!(taken(&sampling(0, 0), 100_000).len(), 0);
        assert_eq!(taken(&sampling(1, 0), 5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_new_period_holds_from_the_next_access_on() {
        let mut sampler = Sampler::new(1);
        let mut taken = |period| {
            (0..100_000)
                .filter(|_| sampler.takes(&sampling(period, 0), 0))
                .count()
        };
        assert_eq!(taken(0), 0);
        assert!((950..1050).contains(&taken(100)));
        assert_eq!(taken(0), 0);
    }
}
