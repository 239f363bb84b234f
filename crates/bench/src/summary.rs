//! Rounds in short: median, extremes, and ratios within rounds.

use serde::{Deserialize, Serialize};

/// One figure over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Rounds that have the figure.
    pub count: u32,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Stats {
    /// Of any number of figures; `None` of none. What is not a number is not counted.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().filter(|f| f.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
        Some(Self {
            count: u32::try_from(sorted.len()).ok()?,
            median: f64::midpoint(sorted[low], sorted[high]),
            min,
            max,
        })
    }
}

/// The median of `figure / base` within each round. Rounds without both, or with a base of zero, do not count.
#[must_use]
pub fn median_ratio(figures: &[Option<f64>], bases: &[Option<f64>]) -> Option<f64> {
    let both = figures.iter().zip(bases);
    let ratio = |(figure, base): (&Option<f64>, &Option<f64>)| Some((*figure)? / (*base)?);
    Stats::of(both.filter_map(ratio)).map(|stats| stats.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let stats = Stats::of([4.0, 1.0, 3.0, 100.0]).expect("four");
        assert!((stats.median - 3.5).abs() < 1e-12);
        assert_eq!((stats.min, stats.max, stats.count), (1.0, 100.0, 4));
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Stats::of([]), None);
        assert_eq!(Stats::of([f64::NAN]), None);
    }

    #[test]
    fn ratios_are_taken_within_rounds_so_that_drift_cancels() {
        let drifting = [Some(10.0), Some(20.0), Some(40.0)];
        let twice = [Some(20.0), Some(40.0), Some(80.0)];
        assert_eq!(median_ratio(&twice, &drifting), Some(2.0));
    }

    #[test]
    fn rounds_that_cannot_be_compared_do_not_count() {
        let figures = [Some(6.0), None, Some(5.0)];
        let bases = [Some(2.0), Some(1.0), Some(0.0)];
        assert_eq!(median_ratio(&figures, &bases), Some(3.0));
    }
}
