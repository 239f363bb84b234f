//! LAR, imbalance, PAMUP, NHP and PSP, as the paper on Carrefour-LP defines them.

use super::estimate::{Estimate, Weights, half_width};
use super::page_use::{NodeUse, PageUse};
use super::table::Volume;
use crate::ids::NodeId;
use crate::units::Ratio;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Local access ratio: "the percentage of accesses to local memory", here as a share from 0 to 1. Local is an access
/// to memory of the accessing processor's own node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lar(pub Estimate);

/// Traffic imbalance: "the standard deviation of the memory request rate across the controllers, expressed as the
/// percent of the mean", here as a share (1 is 100 %). The deviation is that of the whole population of nodes with
/// memory, nodes that nobody asks included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Imbalance(pub Estimate);

/// "The percentage of total accesses to the most used page", here as a share from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pamup(pub Estimate);

/// "The number of hot pages, defined as pages comprising more than 6 % of the total accesses"; the share is a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nhp {
    /// Pages above it.
    pub value: u32,
    /// Pages above it, spread and all.
    pub low: u32,
    /// Pages that may be above it.
    pub high: u32,
}

/// "The percentage of memory accesses to pages shared by at least two threads", here as a share from 0 to 1. The high
/// bound takes every page with a single sample for shared: one sample cannot show a second thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Psp(pub Estimate);

/// Between whom a page is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedBy {
    /// At least two threads: the paper.
    Threads,
    /// Threads of at least two nodes: the released code.
    Nodes,
}

impl SharedBy {
    /// Is this page shared so?
    #[must_use]
    pub fn shares(self, page: &PageUse) -> bool {
        match self {
            Self::Threads => page.threads >= 2,
            Self::Nodes => page.nodes() >= 2,
        }
    }
}

fn weights(pages: &[PageUse]) -> Weights {
    let mut all = Weights::default();
    for of in pages.iter().flat_map(|page| &page.by_node) {
        all.add(of.weight, of.samples);
    }
    all
}

/// LAR of the pages as they lie; `None` where no sample shows where a page lies.
#[must_use]
pub fn lar(pages: &[PageUse]) -> Option<Lar> {
    let placed: f64 = pages.iter().map(|page| page.placed_weight).sum();
    let local: f64 = pages.iter().map(|page| page.local_weight).sum();
    let all = weights(pages);
    let samples = all.effective() * placed / all.sum;
    (placed > 0.0).then(|| Lar(Estimate::share((local / placed).min(1.0), samples)))
}

/// Imbalance over `nodes`, all nodes with memory; `None` where volume is unknown, or nothing went anywhere.
///
/// The bounds come from the counts' own variance (each destination's count varies by its size) carried through the
/// formula; what pure chance adds, `(nodes − 1) / samples` to the square, is taken off the low bound.
#[must_use]
pub fn imbalance(
    to: &BTreeMap<NodeId, NodeUse>,
    nodes: &[NodeId],
    volume: Volume,
) -> Option<Imbalance> {
    if volume == Volume::Unknown {
        return None;
    }
    let mut all = Weights::default();
    for of in to.values() {
        all.add(of.weight, of.samples);
    }
    let requests: Vec<f64> = nodes
        .iter()
        .map(|node| to.get(node).map_or(0.0, |of| of.weight))
        .collect();
    imbalance_of(&requests, all.effective())
}

/// Imbalance of requests counted by the controllers themselves: exact.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "53 bits of a count of requests suffice"
)]
pub fn imbalance_of_requests(requests: &[u64]) -> Option<Imbalance> {
    let requests: Vec<f64> = requests.iter().map(|requests| *requests as f64).collect();
    imbalance_of(&requests, f64::INFINITY)
}

fn imbalance_of(requests: &[f64], samples: f64) -> Option<Imbalance> {
    let nodes = f64::from(u32::try_from(requests.len()).ok()?);
    let sum: f64 = requests.iter().sum();
    if sum <= 0.0 {
        return None;
    }
    let mean = sum / nodes;
    let relative = requests.iter().map(|of| of / mean - 1.0);
    let square = relative.clone().map(|off| off * off).sum::<f64>() / nodes;
    let value = square.sqrt();
    // d(value)/d(share of a node) times the share's own deviation, over all nodes.
    let slopes = relative.map(|off| off * off * (1.0 + off)).sum::<f64>();
    let error = if value > 0.0 {
        (slopes / (nodes * samples)).sqrt() / value
    } else {
        0.0
    };
    let chance = (nodes - 1.0) / samples;
    let low = (square - chance).max(0.0).sqrt() - super::Z * error;
    let high = (square + chance).sqrt() + super::Z * error;
    Some(Imbalance(Estimate {
        value,
        low: low.max(0.0),
        high,
    }))
}

/// Share of each page in all accesses, with its spread.
fn shares(pages: &[PageUse]) -> impl Iterator<Item = Estimate> {
    let all = weights(pages);
    pages
        .iter()
        .map(move |page| Estimate::share((page.weight() / all.sum).min(1.0), all.effective()))
}

/// PAMUP; `None` where volume is unknown or there are no samples.
#[must_use]
pub fn pamup(pages: &[PageUse], volume: Volume) -> Option<Pamup> {
    if volume == Volume::Unknown {
        return None;
    }
    shares(pages)
        .max_by(|a, b| a.value.total_cmp(&b.value))
        .map(Pamup)
}

/// NHP above `hot`; `None` where volume is unknown.
#[must_use]
pub fn nhp(pages: &[PageUse], volume: Volume, hot: Ratio) -> Option<Nhp> {
    if volume == Volume::Unknown {
        return None;
    }
    let count = |of: fn(&Estimate) -> f64| {
        let above = shares(pages).filter(|share| of(share) > hot.get()).count();
        u32::try_from(above).expect("a page above a share of all: few")
    };
    Some(Nhp {
        value: count(|share| share.value),
        low: count(|share| share.low),
        high: count(|share| share.high),
    })
}

/// The hot pages: those with more than `hot` of all accesses, each with its share, hottest first; none where volume is
/// unknown.
#[must_use]
pub fn hot_pages(pages: &[PageUse], volume: Volume, hot: Ratio) -> Vec<(&PageUse, Estimate)> {
    if volume == Volume::Unknown {
        return Vec::new();
    }
    let mut found: Vec<(&PageUse, Estimate)> = pages
        .iter()
        .zip(shares(pages))
        .filter(|(_, share)| share.value > hot.get())
        .collect();
    found.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    found
}

/// PSP; `None` without samples.
#[must_use]
pub fn psp(pages: &[PageUse], by: SharedBy) -> Option<Psp> {
    let all = weights(pages);
    if all.sum <= 0.0 {
        return None;
    }
    let share = |counts: &dyn Fn(&PageUse) -> bool| {
        let weight: f64 = pages
            .iter()
            .filter(|page| counts(page))
            .map(PageUse::weight)
            .sum();
        (weight / all.sum).min(1.0)
    };
    let value = share(&|page| by.shares(page));
    let single = share(&|page| page.samples() == 1);
    let half = half_width(value * (1.0 - value), all.effective());
    let estimate = Estimate {
        value,
        low: value - half,
        high: value + single + half,
    };
    Some(Psp(estimate.within(0.0, 1.0)))
}

macro_rules! shown {
    ($($name:ident $word:literal),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", $word, self.0)
            }
        }
    )*};
}

shown! { Lar "LAR", Imbalance "imbalance", Pamup "PAMUP", Psp "PSP" }

impl fmt::Display for Nhp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NHP {} ({} to {})", self.value, self.low, self.high)
    }
}
