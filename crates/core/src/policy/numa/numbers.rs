//! What a round came to: the numbers that decide, and that are shown.

use crate::metrics::{Imbalance, Lar, Nhp, Pamup, Psp, Traffic, Volume, WhatIf};
use crate::units::{Instant, Ratio};
use serde::Serialize;

/// The numbers of one round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Numbers {
    /// When the round ended.
    pub at: Instant,
    /// Samples in it.
    pub samples: u64,
    /// Do they tell how often?
    pub volume: Volume,
    /// LAR of the round.
    pub lar: Option<Lar>,
    /// Imbalance of the round: by the controllers' own counts, else by samples.
    pub imbalance: Option<Imbalance>,
    /// PAMUP of the pages as they are mapped, over the samples kept.
    pub pamup: Option<Pamup>,
    /// NHP, likewise.
    pub nhp: Option<Nhp>,
    /// PSP, likewise.
    pub psp: Option<Psp>,
    /// LAR if the pages were placed as they are mapped.
    pub placed: Option<WhatIf>,
    /// LAR if huge pages were split and base pages placed.
    pub split: Option<WhatIf>,
    /// LAR if what was split were huge again, and placed; where anything was split.
    pub rejoined: Option<WhatIf>,
    /// Share of L2 misses that page walks made.
    pub page_walks: Option<Ratio>,
    /// The worst core's share of time in page faults.
    pub fault_time: Option<Ratio>,
    /// Accesses to memory, a µs and node.
    pub accesses_per_us: Option<f64>,
    /// Share of the watched memory that could have been sampled.
    pub coverage: Option<Ratio>,
    /// Where the round's accesses went.
    pub traffic: Traffic,
}

impl Numbers {
    /// Points of LAR that huge pages would cost again where they were split, once all is placed.
    #[must_use]
    pub fn cost_of_rejoining(&self) -> Option<f64> {
        let (split, rejoined) = (self.split?, self.rejoined?);
        Some(split.then.value - rejoined.then.value)
    }

    /// There were samples, and they do not tell how often.
    #[must_use]
    pub fn is_unrated(&self) -> bool {
        self.samples > 0 && self.volume == Volume::Unknown
    }
}
