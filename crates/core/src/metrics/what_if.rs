//! What LAR would be if pages were placed: as they are, or after splitting, which is the same fold at another grain.
//!
//! The paper's estimate: a page whose samples came from one node is placed there and all its accesses are local; a
//! shared page goes to a random node, so that one in as many accesses as there are nodes is local (the slides place it
//! where it is used most).
//!
//! Its bounds: the leave-one-out score below and its standard error, that is, what placing by these samples can be
//! counted on to give. Where too few samples could be scored, the bounds reach from a random node to the estimate. The
//! estimate itself may lie above its bounds: then it is too good, as the paper's was for SSCA.

use super::estimate::{Estimate, Weights, half_width};
use super::page_use::PageUse;
use serde::{Deserialize, Serialize};

/// Samples that must have been scored before the pages with a single sample are judged by them.
pub const SCORED_MIN: u32 = 20;

/// Where the what-if places a shared page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedTo {
    /// A random node: the paper. The expectation is taken.
    Random,
    /// The node that uses it most: the slides.
    Best,
}

/// A what-if: LAR now, LAR then, and the difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// LAR of the pages as they lie.
    pub now: Estimate,
    /// LAR if they were placed.
    pub then: Estimate,
    /// `then - now`, in points over 100.
    pub gain: Estimate,
}

/// Share of a page's accesses that would be local: by the paper's estimate, and by the leave-one-out score if it can be
/// scored.
struct Score {
    estimate: f64,
    left_out: Option<f64>,
}

/// LAR if these pages were placed, over `nodes` nodes. Pages of which it is not known where they lie are left out; `None`
/// where none is left.
#[must_use]
pub fn if_placed(pages: &[PageUse], to: SharedTo, nodes: u32) -> Option<WhatIf> {
    let chance = 1.0 / f64::from(nodes.max(1));
    let placed: Vec<(&PageUse, Score)> = pages
        .iter()
        .filter(|page| page.placed_weight > 0.0)
        .map(|page| (page, score(page, to, chance)))
        .collect();
    let fallback = fallback(&placed, chance);
    let mut sums = Sums::default();
    for (page, score) in &placed {
        sums.add(page, score, fallback.local);
    }
    sums.what_if(fallback.comparisons)
}

/// What pages with a single sample count for.
struct Fallback {
    /// Share of their accesses that would be local.
    local: f64,
    /// The effective number of samples that say so; none where nothing was scored and chance is taken.
    comparisons: Option<f64>,
}

/// Pages with a single sample count for what the others came to. The first sample of a page has none to be compared with.
fn fallback(placed: &[(&PageUse, Score)], chance: f64) -> Fallback {
    let (mut local, mut samples, mut pages) = (0.0, 0, 0);
    let mut weights = Weights::default();
    for (page, score) in placed {
        if let Some(left_out) = score.left_out {
            local += left_out * page.placed_weight;
            weights.add(page.placed_weight, page.samples());
            samples += page.samples();
            pages += 1;
        }
    }
    if samples < SCORED_MIN {
        return Fallback {
            local: chance,
            comparisons: None,
        };
    }
    let compared = f64::from(samples - pages) / f64::from(samples);
    Fallback {
        local: local / weights.sum,
        comparisons: Some(weights.effective() * compared),
    }
}

fn score(page: &PageUse, to: SharedTo, chance: f64) -> Score {
    let most = page.by_node.iter().map(|of| of.weight).fold(0.0, f64::max);
    let estimate = match (page.single_node(), to) {
        (Some(_), _) => 1.0,
        (None, SharedTo::Random) => chance,
        (None, SharedTo::Best) => most / page.weight(),
    };
    Score {
        estimate,
        left_out: left_out(page, to, chance),
    }
}

/// Each sample in turn is taken out and its page placed by the others: the share that this serves. `None` for a page
/// with a single sample.
fn left_out(page: &PageUse, to: SharedTo, chance: f64) -> Option<f64> {
    let samples = page.samples();
    if samples < 2 {
        return None;
    }
    let served = page.by_node.iter().enumerate().map(|(out, of)| {
        let rest: Vec<u32> = page
            .by_node
            .iter()
            .enumerate()
            .map(|(at, of)| of.samples - u32::from(at == out))
            .collect();
        f64::from(of.samples) * served_by(&rest, out, to, chance)
    });
    Some(served.sum::<f64>() / f64::from(samples))
}

/// The chance that a page with the samples `rest` is placed at node number `at`.
fn served_by(rest: &[u32], at: usize, to: SharedTo, chance: f64) -> f64 {
    let used = rest.iter().filter(|samples| **samples > 0).count();
    match (used, to) {
        (1, _) => f64::from(u8::from(rest[at] > 0)),
        (_, SharedTo::Random) => chance,
        (_, SharedTo::Best) => {
            let most = rest.iter().copied().max().unwrap_or(0);
            let best = rest.iter().filter(|samples| **samples == most).count();
            let ties = f64::from(u32::try_from(best).unwrap_or(u32::MAX));
            if rest[at] == most { 1.0 / ties } else { 0.0 }
        }
    }
}

/// Sums over pages, weighted by accesses.
#[derive(Debug, Default)]
struct Sums {
    weights: Weights,
    now: f64,
    then: f64,
    left_out: f64,
    /// Squares of the differences between then and now.
    squares: f64,
    left_out_squares: f64,
}

impl Sums {
    fn add(&mut self, page: &PageUse, score: &Score, fallback: f64) {
        let weight = page.placed_weight;
        let now = (page.local_weight / weight).min(1.0);
        self.weights.add(weight, page.samples());
        self.now += page.local_weight;
        self.then += score.estimate * weight;
        self.squares += weight * square(now, score.estimate);
        self.left_out += score.left_out.unwrap_or(fallback) * weight;
        // A page that could not be scored will be served or not: its share is a chance.
        self.left_out_squares += weight
            * score.left_out.map_or_else(
                || now + fallback - 2.0 * now * fallback,
                |left_out| square(now, left_out),
            );
    }

    /// `comparisons` is the effective number of samples that the leave-one-out score rests on, if it rests on any.
    fn what_if(self, comparisons: Option<f64>) -> Option<WhatIf> {
        let (sum, samples) = (self.weights.sum, self.weights.effective());
        if sum <= 0.0 {
            return None;
        }
        let share = |local: f64| (local / sum).clamp(0.0, 1.0);
        let (now, then, left_out) = (share(self.now), share(self.then), share(self.left_out));
        let half = half_width(left_out * (1.0 - left_out), comparisons.unwrap_or(samples));
        let (gain, sure) = (then - now, left_out - now);
        let doubt = half_width(
            self.left_out_squares / sum - sure * sure,
            comparisons.unwrap_or(samples),
        );
        let (then_high, gain_high) = match comparisons {
            Some(_) => (left_out + half, sure + doubt),
            None => (
                then.max(left_out) + half_width(then * (1.0 - then), samples),
                gain.max(sure) + half_width(self.squares / sum - gain * gain, samples),
            ),
        };
        let then = Estimate {
            value: then,
            low: left_out - half,
            high: then_high,
        };
        Some(WhatIf {
            now: Estimate::share(now, samples),
            then: then.within(0.0, 1.0),
            gain: Estimate {
                value: gain,
                low: sure - doubt,
                high: gain_high,
            },
        })
    }
}

/// The mean square of the difference between a share that is served then and accesses that are local now or not.
fn square(now: f64, then: f64) -> f64 {
    now * (1.0 - then) * (1.0 - then) + (1.0 - now) * then * then
}
