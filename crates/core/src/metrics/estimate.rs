//! A number with its spread.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Standard errors on each side of a bound: 95 %.
pub const Z: f64 = 1.96;

/// A number found from samples, with its bounds. Shares are between 0 and 1; gains may be below zero.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// As the paper computes it.
    pub value: f64,
    /// Not likely to be below this.
    pub low: f64,
    /// Not likely to be above this.
    pub high: f64,
}

/// Is an estimate above a threshold?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Also at its low bound.
    Yes,
    /// Not even at its high bound.
    No,
    /// The threshold lies within the bounds.
    Uncertain,
}

impl Estimate {
    /// `value ± half`.
    #[must_use]
    pub fn around(value: f64, half: f64) -> Self {
        Self {
            value,
            low: value - half,
            high: value + half,
        }
    }

    /// A share found in `samples` effective samples; its bounds stay between 0 and 1.
    #[must_use]
    pub fn share(value: f64, samples: f64) -> Self {
        Self::around(value, half_width(value * (1.0 - value), samples)).within(0.0, 1.0)
    }

    /// The same with its bounds cut to `min..=max`.
    #[must_use]
    pub fn within(self, min: f64, max: f64) -> Self {
        Self {
            value: self.value,
            low: self.low.clamp(min, max),
            high: self.high.clamp(min, max),
        }
    }

    /// Every number times `factor`, which must not be below zero.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        assert!(factor >= 0.0, "{factor} would swap the bounds");
        Self {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// Is it above `threshold`, spread and all?
    #[must_use]
    pub fn over(self, threshold: f64) -> Over {
        if self.low > threshold {
            Over::Yes
        } else if self.high <= threshold {
            Over::No
        } else {
            Over::Uncertain
        }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = [self.value, self.low, self.high].map(|number| number * 100.0);
        let [value, low, high] = percent;
        write!(f, "{value:.1} % ({low:.1} to {high:.1})")
    }
}

/// Half the width of the bounds of a mean over `samples` effective samples whose single values vary by `variance`.
///
/// `1/samples` is added to the variance: a handful of samples that all agree is no certainty.
pub(super) fn half_width(variance: f64, samples: f64) -> f64 {
    if samples <= 0.0 {
        return f64::INFINITY;
    }
    Z * ((variance.max(0.0) + 1.0 / samples) / samples).sqrt()
}

/// A sum of weights, and how many equal samples would say as much.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Weights {
    pub(super) sum: f64,
    squares: f64,
}

impl Weights {
    /// `samples` samples that weigh `weight` together.
    pub(super) fn add(&mut self, weight: f64, samples: u32) {
        self.sum += weight;
        if samples > 0 {
            self.squares += weight * weight / f64::from(samples);
        }
    }

    /// The effective number of samples.
    pub(super) fn effective(self) -> f64 {
        if self.squares == 0.0 {
            0.0
        } else {
            self.sum * self.sum / self.squares
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_that_agree_are_no_certainty() {
        assert_eq!(Estimate::share(1.0, 4.0).over(0.9), Over::Uncertain);
        assert_eq!(Estimate::share(1.0, 1000.0).over(0.9), Over::Yes);
        assert_eq!(Estimate::share(0.1, 1000.0).over(0.9), Over::No);
        assert_eq!(Estimate::share(0.5, 0.0).over(0.9), Over::Uncertain);
    }

    #[test]
    fn equal_samples_count_in_full_and_one_heavy_one_hardly() {
        let mut equal = Weights::default();
        equal.add(10.0, 10);
        equal.add(5.0, 5);
        assert!((equal.effective() - 15.0).abs() < 1e-9);
        let mut heavy = Weights::default();
        heavy.add(1000.0, 1);
        heavy.add(10.0, 10);
        assert!(heavy.effective() < 1.1);
    }
}
