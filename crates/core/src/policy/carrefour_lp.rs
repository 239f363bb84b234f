//! `carrefour-lp`: begin with huge pages, split them where they harm, make them again where they help.
//!
//! **Problem.** The reactive component errs where samples are few, and then huge pages are lost for nothing; the conservative
//! one acts too late. **Signal.** That of both. **Decision.** Algorithm 1 of the paper, a round a second: huge allocation and
//! promotion on at the start (line 1); the conservative component (4-9), the latch (10-14), splitting what is shared
//! while it is set or huge allocation is off (15-18), hot pages (19), Carrefour on pages as they are mapped (20).
//! **Taking back.** With `withdraw`, the effect of a split is judged, counting only rounds that began with nothing left to move,
//! since it is placing that gains (or after ten times as many, if the moves cannot be done): unless LAR rose or imbalance fell by `helped_min` within
//! `withdraw_rounds`, or as soon as LAR fell by `harm_max`, the latch is cleared, huge allocation and promotion go on again, and with
//! `rejoin` what was split is collapsed; the latch stays clear for a minute, then twice as long each time. The released code
//! withdraws so; collapsing by ourselves is ours, since without counters the conservative component never speaks.
//! **Parameters.** Below, and those of `carrefour`, `conservative` and `reactive`; the preset sets all four sections.
//! **Properties.** The branches are the paper's; a split in vain is taken back. **Known bad cases.** Phases shorter than a
//! few rounds; several programs with different needs under one manager, since the switches are the machine's.
//! **Source.** The paper on Carrefour-LP (ATC 2014), and its released code for `released`.

use super::conservative::Conservative;
use super::numa::{Family, Numbers, PagesOf, Parts, Placement};
use super::{Policy, Settings, reactive};
use crate::action::Switch;
use crate::budget::BackOff;
use crate::metrics::Estimate;
use crate::reason::Reason;
use crate::units::{Instant, Ratio, Span};
use serde_json::{Value, json};

/// The policy's name.
pub const NAME: &str = "carrefour-lp";
/// The latch is held clear for so long after a first split in vain.
const HOLD: Span = Span::secs(60);
/// And for so long at the most.
const HOLD_MAX: Span = Span::secs(3600);

/// Rounds in which moves wait, for each round of `withdraw_rounds`, until a split is judged all the same.
const UNPLACED: u64 = 10;

crate::parameters! {
    /// Taking back what did not help.
    pub struct CarrefourLpParams in "carrefour-lp" {
        withdraw: bool = true, 0..=0, "true or false",
            "A split that did not help is taken back", "released code: true; paper: false";
        withdraw_rounds: u64 = 10, 1..=1_000, "rounds",
            "Rounds after which the effect of a split is judged", "ours; released code: 1";
        helped_min: Ratio = Ratio::percent(10), 0..=1, "share of LAR or imbalance",
            "LAR must rise, or imbalance fall, by this share of itself", "released code: 10 %";
        harm_max: Ratio = Ratio::percent(5), 0..=1, "LAR, points over 100",
            "A fall of LAR by more than this after a split is harm", "released code: 5 %";
        rejoin: bool = true, 0..=0, "true or false",
            "What was split in vain is collapsed by us; else promotion is left to do it", "ours; paper: false";
        rejoin_per_round: u64 = 256, 1..=65_536, "slots",
            "Slots collapsed so in one round", "ours";
    }
}

impl CarrefourLpParams {
    /// As the paper has it: nothing is taken back but by the conservative component.
    #[must_use]
    pub fn paper() -> Self {
        Self {
            withdraw: false,
            rejoin: false,
            ..Self::default()
        }
    }

    /// As the released code has it.
    #[must_use]
    pub fn released() -> Self {
        Self {
            withdraw_rounds: 1,
            rejoin: false,
            ..Self::default()
        }
    }
}

/// What became of a split.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Nothing to take back, or not yet.
    Keep,
    /// It did not help.
    InVain(Reason),
}

/// LAR and imbalance when the latch was set.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Before {
    lar: Estimate,
    imbalance: Option<f64>,
    /// Rounds that began with everything placed.
    rounds: u64,
    /// Rounds that did not.
    unplaced: u64,
}

/// Was everything carried out that the last round found?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// Nothing is left to move.
    All,
    /// Moves wait.
    Some,
}

/// Judges splits and takes them back.
#[derive(Debug, Clone)]
pub(super) struct Retraction {
    params: CarrefourLpParams,
    before: Option<Before>,
    latched: bool,
    rejoin: Option<Reason>,
    hold: BackOff,
}

impl Retraction {
    pub(super) const fn new(params: CarrefourLpParams) -> Self {
        Self {
            params,
            before: None,
            latched: false,
            rejoin: None,
            hold: BackOff::IDLE,
        }
    }

    /// Is the latch held clear?
    pub(super) fn holds(&self, at: Instant) -> bool {
        self.hold.waits(at)
    }

    /// What a round says of the split that is in force. It stays in force when the latch is cleared: once pages are
    /// split, placing them is what gains.
    pub(super) fn judge(&mut self, latched: bool, placed: Placed, numbers: &Numbers) -> Verdict {
        let was = std::mem::replace(&mut self.latched, latched);
        if !self.params.withdraw {
            return Verdict::Keep;
        }
        let Some(lar) = numbers.lar.map(|lar| lar.0) else {
            return Verdict::Keep;
        };
        let imbalance = numbers.imbalance.map(|of| of.0.value);
        if self.before.is_none() && latched && !was {
            self.rejoin = None;
            self.before = Some(Before {
                lar,
                imbalance,
                rounds: 0,
                unplaced: 0,
            });
            return Verdict::Keep;
        }
        match (&mut self.before, placed) {
            (None, _) => Verdict::Keep,
            (Some(before), Placed::Some)
                if before.unplaced < UNPLACED * self.params.withdraw_rounds =>
            {
                before.unplaced += 1;
                Verdict::Keep
            }
            (Some(before), Placed::All | Placed::Some) => {
                before.rounds += 1;
                let before = *before;
                self.compare(before, lar, imbalance, numbers.at)
            }
        }
    }

    fn compare(
        &mut self,
        before: Before,
        lar: Estimate,
        imbalance: Option<f64>,
        at: Instant,
    ) -> Verdict {
        let share = self.params.helped_min.get();
        let fell = |(old, new): (f64, f64)| new < old * (1.0 - share);
        let helped = lar.value > before.lar.value * (1.0 + share)
            || before.imbalance.zip(imbalance).is_some_and(fell);
        let harmed = before.lar.value - lar.value > self.params.harm_max.get();
        if helped {
            self.before = None;
            self.hold.succeed();
            return Verdict::Keep;
        }
        if !harmed && before.rounds < self.params.withdraw_rounds {
            return Verdict::Keep;
        }
        self.before = None;
        self.latched = false;
        self.hold.fail(at, HOLD, HOLD_MAX);
        let reason = Reason::SplitInVain {
            lar_before: Some(before.lar),
            lar: Some(lar),
        };
        self.rejoin = self.params.rejoin.then(|| reason.clone());
        Verdict::InVain(reason)
    }

    /// Probes showed that splitting does not pay: they are rejoined.
    pub(super) fn rejoin_probes(&mut self, numbers: &Numbers) {
        if self.params.rejoin && self.rejoin.is_none() {
            self.rejoin = Some(Reason::SplitInVain {
                lar_before: None,
                lar: numbers.lar.map(|lar| lar.0),
            });
        }
    }

    /// Why split slots are collapsed now, and how many in this round.
    pub(super) fn rejoining(&self) -> Option<(Reason, usize)> {
        let most = usize::try_from(self.params.rejoin_per_round).unwrap_or(usize::MAX);
        self.rejoin.clone().map(|reason| (reason, most))
    }

    pub(super) fn state(&self) -> Value {
        json!({
            "latched": self.latched,
            "before": self.before.map(|before| (before.lar, before.imbalance, before.rounds, before.unplaced)),
            "rejoin": self.rejoin,
            "held_until": self.hold.until(),
        })
    }
}

/// The policy: everything.
pub(super) fn policy(settings: &Settings) -> Box<dyn Policy> {
    Box::new(Family::new(Parts {
        name: NAME,
        start: Switch::On,
        params: settings.carrefour.clone(),
        placement: Placement::new(settings, PagesOf::AsMapped),
        conservative: Some(Conservative::new(settings.conservative.clone())),
        reactive: Some(reactive::of(settings)),
        retraction: Some(Retraction::new(settings.carrefour_lp.clone())),
    }))
}
