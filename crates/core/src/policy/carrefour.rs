//! `carrefour` and `carrefour-2m`: put pages where they are used.
//!
//! **Problem.** Memory far from who uses it is slow, and a node that everybody asks is slower still. **Signal.** Sampled
//! accesses: who, from which node, to which base page. **Decision.** Only while LAR is low or imbalance high: a page whose
//! samples all came from one node moves there; one that several nodes use moves to a node drawn at random. `carrefour`
//! works on base pages, and passes over huge ones; `carrefour-2m` on pages as they are mapped, huge ones as a whole.
//! **Targets.** Nodes with memory and room that every process mapping the page may use; pages that a memory policy binds
//! stay. A node without memory stands for the nearest one. **Once.** While imbalance is fine or unknown, a shared page is
//! drawn for once, since drawing again gains nothing.
//! **Parameters.** Below; presets `paper` and `released`. **Properties.** Never to a node that is not allowed, full or
//! without memory; the same seed gives the same plans; on one node nothing. **Known bad cases.** A hot page or one that
//! is falsely shared cannot be helped by placing: that is what `reactive` is for. **Source.** Carrefour (ASPLOS 2013) as the
//! paper on Carrefour-LP (ATC 2014) uses it, and its released code.

use super::numa::{Family, PagesOf, Parts, Placement};
use super::{Policy, Settings};
use crate::action::Switch;
use crate::params::ParamError;
use crate::units::{Ratio, Span};
use serde_json::Value;

/// The policy on base pages.
pub const NAME: &str = "carrefour";
/// The policy on pages as they are mapped.
pub const NAME_2M: &str = "carrefour-2m";

crate::parameters! {
    /// Carrefour's numbers, which all policies of the family use.
    pub struct CarrefourParams in "carrefour" {
        round_ms: Span = Span::secs(1), 10..=3_600_000, "ms",
            "Samples are gathered for this long, then judged once", "paper: 1 s";
        round_idle_ms: Span = Span::secs(1), 10..=3_600_000, "ms",
            "The same after a round whose actions did not help by 10 %", "released code: 5 s; the paper has none";
        samples_max: u64 = 10_000, 1..=1_000_000, "samples an interval",
            "Samples ordered at the most", "released code: 10,000 pages when cheap";
        samples_close: u64 = 30_000, 1..=1_000_000, "samples an interval",
            "Samples ordered at the most when looking closely", "released code: 30,000 pages";
        memory_rounds: u64 = 10, 1..=1_000, "rounds",
            "Rounds for which samples are kept", "ours; paper: 1";
        samples_min: u64 = 2, 1..=1_000, "samples",
            "Samples of a page before it moves to the node that they came from", "released code: 2; paper: 1";
        lar_low: Ratio = Ratio::new(0.80), 0..=1, "share of accesses",
            "Below this LAR pages are placed", "released code: 80 %; the paper has no number";
        lar_enough: Ratio = Ratio::new(0.98), 0..=1, "share of accesses",
            "Once begun, pages are placed until LAR is at least this", "ours; released code: 80 %";
        imbalance_high: f64 = 0.35, 0..=100, "deviation over mean",
            "Above this imbalance shared pages are spread", "released code: 35 %; the paper has no number";
        gates_apart: bool = true, 0..=0, "true or false",
            "LAR decides on migrating alone and imbalance on spreading alone; else either opens both", "released code: true; paper: false";
        accesses_min: f64 = 0.0, 0..=1_000_000, "accesses a µs and node",
            "Below this rate of accesses to memory nothing is placed", "released code: 15; the paper has none";
        to_less_loaded: bool = false, 0..=0, "true or false",
            "A shared page moves with the chance of its node's share of all traffic, to a node drawn with weight 1 less its share", "released code: true; paper: false";
        by_distance: bool = false, 0..=0, "true or false",
            "Nodes near those that use a shared page are drawn more often", "ours";
        huge_moves_max: u64 = 0, 0..=1_000_000, "moves",
            "Times that a huge page is moved at the most; 0 is without a bound", "released code: 1; paper: 0";
        uncertain_waits: bool = true, 0..=0, "true or false",
            "Where a threshold lies within an estimate's bounds, wait and look closer", "ours; paper: false";
        wait_rounds_max: u64 = 10, 0..=1_000, "rounds",
            "Rounds for which samples are kept longer while a decision waits", "ours";
        start_switches: bool = true, 0..=0, "true or false",
            "Set huge allocation and promotion at the start as the paper's runs have them", "paper, figure 4";
        seed: u64 = 1, 0..=4_294_967_295_u32, "number",
            "Of the random choices", "ours";
    }
}

impl CarrefourParams {
    /// As the paper has it; where it gives no number, the released code's or ours.
    #[must_use]
    pub fn paper() -> Self {
        Self {
            memory_rounds: 1,
            samples_min: 1,
            gates_apart: false,
            uncertain_waits: false,
            ..Self::default()
        }
    }

    /// As the released code has it.
    #[must_use]
    pub fn released() -> Self {
        Self {
            round_idle_ms: Span::secs(5),
            samples_min: 2,
            lar_enough: Ratio::new(0.80),
            gates_apart: true,
            accesses_min: 15.0,
            to_less_loaded: true,
            huge_moves_max: 1,
            ..Self::paper()
        }
    }
}

/// What of `paper` and `released` a value names.
///
/// # Errors
/// Where it is neither.
pub(super) fn preset<T>(
    section: &str,
    value: &Value,
    paper: fn() -> T,
    released: fn() -> T,
) -> Result<T, ParamError> {
    match value.as_str() {
        Some("paper") => Ok(paper()),
        Some("released") => Ok(released()),
        Some(_) | None => Err(ParamError::Value {
            name: format!("{section}.preset"),
            value: value.clone(),
            why: "must be paper or released".to_owned(),
        }),
    }
}

/// `carrefour` or `carrefour-2m`.
pub(super) fn policy(settings: &Settings, pages: PagesOf) -> Box<dyn Policy> {
    let (name, start) = match pages {
        PagesOf::Base => (NAME, Switch::Off),
        PagesOf::AsMapped => (NAME_2M, Switch::On),
    };
    Box::new(Family::new(Parts {
        name,
        start,
        params: settings.carrefour.clone(),
        placement: Placement::new(settings, pages),
        conservative: None,
        reactive: None,
        retraction: None,
    }))
}
