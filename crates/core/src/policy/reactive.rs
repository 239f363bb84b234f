//! `reactive`: begin with huge pages, and split those that placing cannot help.
//!
//! **Problem.** A hot huge page overloads a node; threads that share no data share a huge page, and wherever it lies it
//! is remote to one of them. **Signal.** Samples with the base page that was accessed: LAR if pages were placed, and LAR if
//! they were split first ([`crate::metrics::what_if`]). **Decision.** Algorithm 1, lines 10 to 19. Placing gains more than
//! `place_gain_min` → clear the latch; else splitting gains more than `split_gain_min` → set it; else it stays as it is. While it is set,
//! **or huge allocation is off**, all shared huge pages are split and huge allocation is kept off. Huge pages with more
//! than `hot_share_min` of all accesses are split and interleaved, always.
//! **Reading of line 17.** The authors' switch stops the kernel's promotion as well, as THP set to `madvise` does; so does
//! ours (`split_stops_promotion`). **Probes.** Where it is uncertain whether splitting gains, a few shared huge pages are split
//! to see below: of a huge page hinting faults show one base page a scan. That is ours, and off in `paper`.
//! **Parameters.** Below, and those of `carrefour`. **Properties.** The latch has the exact rule for being cleared; few samples
//! wait instead of splitting. **Known bad cases.** In `paper`, few samples make every base page look as if one node used
//! it, and pages are split in vain (SSCA). Nothing turns huge pages on again: that is what `carrefour-lp` adds.
//! **Source.** The paper on Carrefour-LP, section 3.2.1 and figure 4, and its released code.

use super::numa::{Family, Numbers, PagesOf, Parts, Placement};
use super::{Policy, Settings};
use crate::action::{Action, Switch};
use crate::geometry::Order;
use crate::ids::{NodeId, SlotId};
use crate::metrics::{Estimate, Over, PageUse, SharedBy, SharedTo, WhatIf, hot_pages};
use crate::plan::{Accounted, Planned};
use crate::reason::Reason;
use crate::units::{Ratio, Span};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The policy's name.
pub const NAME: &str = "reactive";
/// The paper's share of a hot page: half of what a node of eight is due.
pub(super) const HOT_SHARE_MIN: Ratio = Ratio::percent(6);

crate::parameters! {
    /// The reactive component's numbers.
    pub struct ReactiveParams in "reactive" {
        place_gain_min: f64 = 0.15, 0..=100, "LAR",
            "Placing alone is enough if it gains more than this", "paper: 15 %";
        place_gain_relative: bool = false, 0..=0, "true or false",
            "That gain is relative to LAR now; else in points", "released code: true; the paper does not say";
        split_gain_min: f64 = 0.05, 0..=1, "LAR, points over 100",
            "Splitting pays if it gains more than this", "paper: 5 %";
        split_gain_rounds: u64 = 1, 1..=1_000, "rounds",
            "Rounds in a row in which splitting must pay", "released code: 2; paper: 1";
        split_lar_min: Ratio = Ratio::ZERO, 0..=1, "share of accesses",
            "Below this LAR that splitting pays is not believed", "released code: 10 %; the paper has none";
        split_accesses_min: f64 = 0.0, 0..=1_000_000, "accesses a µs and node",
            "Below this rate of accesses to memory nothing is split", "released code: 90; the paper has none";
        split_time_share_max: Ratio = Ratio::ONE, 0..=1, "share of the round",
            "Splitting stops when it took this much of a round", "released code: 3 %; the paper has none";
        split_stops_promotion: bool = true, 0..=0, "true or false",
            "With huge allocation promotion goes off too", "released code: THP set to madvise";
        hot_share_min: Ratio = HOT_SHARE_MIN, 0..=1, "share of accesses",
            "A huge page with more than this is hot", "paper: 6 %; slides: 5 %; released code: 7 %";
        hot_nodes_min: u64 = 2, 1..=64, "nodes",
            "A hot page is accessed by at least so many", "released code and slides; paper: 1";
        shared_by_nodes: bool = true, 0..=0, "true or false",
            "A page is shared if several nodes access it; else if several threads do", "released code: true; paper: false";
        what_if_best_node: bool = false, 0..=0, "true or false",
            "The what-if places a shared page at the node that uses it most; else at a random one", "slides: true; paper: false";
        probe_slots: u64 = 4, 0..=64, "huge pages",
            "Shared huge pages split to see below, where it is uncertain whether splitting pays", "ours; paper: 0";
    }
}

impl ReactiveParams {
    /// As the paper has it.
    #[must_use]
    pub fn paper() -> Self {
        Self {
            shared_by_nodes: false,
            hot_nodes_min: 1,
            probe_slots: 0,
            ..Self::default()
        }
    }

    /// As the released code has it.
    #[must_use]
    pub fn released() -> Self {
        Self {
            place_gain_relative: true,
            split_gain_rounds: 2,
            split_lar_min: Ratio::percent(10),
            split_accesses_min: 90.0,
            split_time_share_max: Ratio::percent(3),
            hot_share_min: Ratio::percent(7),
            hot_nodes_min: 2,
            shared_by_nodes: true,
            probe_slots: 0,
            ..Self::default()
        }
    }
}

/// What lines 10 to 14 came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing is known of where accesses go.
    Blind,
    /// Line 11: the latch is clear.
    PlacingSuffices,
    /// Line 13: the latch is set.
    SplittingPays,
    /// Neither gains enough: the latch stays as it is.
    Neither,
    /// It is uncertain what placing gains: wait.
    Waits,
    /// It is uncertain what splitting gains: wait, and look below.
    Probes,
}

impl Judgement {
    /// Is the decision put off until more samples are there?
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Waits | Self::Probes)
    }
}

/// The component.
#[derive(Debug, Clone)]
pub(super) struct Reactive {
    params: ReactiveParams,
    /// Uncertain estimates wait.
    guarded: bool,
    split_pages: bool,
    /// Rounds in a row in which splitting paid.
    paid: u64,
    probed: u64,
    split_time: Span,
}

impl Reactive {
    pub(super) const fn new(params: ReactiveParams, guarded: bool) -> Self {
        Self {
            params,
            guarded,
            split_pages: false,
            paid: 0,
            probed: 0,
            split_time: Span::ZERO,
        }
    }

    /// Lines 10 to 14. While the latch is `held` clear, it is not set.
    pub(super) fn judge(&mut self, numbers: &Numbers, held: bool) -> Judgement {
        let judgement = self.weigh(numbers, held);
        match judgement {
            Judgement::PlacingSuffices => self.unlatch(),
            Judgement::SplittingPays => self.split_pages = true,
            Judgement::Neither => self.paid = 0,
            Judgement::Blind | Judgement::Waits | Judgement::Probes => {}
        }
        if !judgement.waits() {
            self.probed = 0;
        }
        judgement
    }

    fn weigh(&mut self, numbers: &Numbers, held: bool) -> Judgement {
        let (Some(placed), Some(split)) = (numbers.placed, numbers.split) else {
            return Judgement::Blind;
        };
        match self.over(self.place_gain(&placed), self.params.place_gain_min) {
            Over::Yes => return Judgement::PlacingSuffices,
            Over::Uncertain => return Judgement::Waits,
            Over::No => {}
        }
        if held || self.is_doubtful(numbers) {
            return Judgement::Neither;
        }
        match self.over(split.gain, self.params.split_gain_min) {
            Over::No => Judgement::Neither,
            Over::Uncertain => Judgement::Probes,
            Over::Yes => {
                self.paid += 1;
                if self.paid >= self.params.split_gain_rounds {
                    Judgement::SplittingPays
                } else {
                    Judgement::Waits
                }
            }
        }
    }

    /// What splitting must gain to pay, in LAR.
    pub(super) const fn split_gain_min(&self) -> f64 {
        self.params.split_gain_min
    }

    /// Above the threshold? Without the guard the estimate's own value decides.
    fn over(&self, gain: Estimate, threshold: f64) -> Over {
        if self.guarded {
            gain.over(threshold)
        } else if gain.value > threshold {
            Over::Yes
        } else {
            Over::No
        }
    }

    fn place_gain(&self, placed: &WhatIf) -> Estimate {
        if self.params.place_gain_relative && placed.now.value > 0.0 {
            placed.gain.times(1.0 / placed.now.value)
        } else {
            placed.gain
        }
    }

    /// Is LAR, or the traffic, too low for the released code to believe that splitting pays?
    fn is_doubtful(&self, numbers: &Numbers) -> bool {
        let lar_min = self.params.split_lar_min.get();
        let low = numbers.lar.is_some_and(|lar| lar.0.value < lar_min);
        let idle = |rate: f64| rate < self.params.split_accesses_min;
        low || numbers.accesses_per_us.is_some_and(idle)
    }

    /// `SPLIT_PAGES`.
    pub(super) const fn split_pages(&self) -> bool {
        self.split_pages
    }

    pub(super) const fn unlatch(&mut self) {
        self.split_pages = false;
        self.paid = 0;
    }

    pub(super) const fn stops_promotion(&self) -> bool {
        self.params.split_stops_promotion
    }

    pub(super) const fn shared_by(&self) -> SharedBy {
        if self.params.shared_by_nodes {
            SharedBy::Nodes
        } else {
            SharedBy::Threads
        }
    }

    pub(super) const fn shared_to(&self) -> SharedTo {
        if self.params.what_if_best_node {
            SharedTo::Best
        } else {
            SharedTo::Random
        }
    }

    pub(super) const fn hot_share_min(&self) -> Ratio {
        self.params.hot_share_min
    }

    /// Why shared huge pages are being split.
    pub(super) fn reason(&self, numbers: &Numbers) -> Reason {
        match (numbers.placed, numbers.split) {
            (Some(placed), Some(split)) if self.split_pages => Reason::SplittingPays {
                placing: placed.gain,
                splitting: split.gain,
            },
            (Some(_), Some(_)) | (None, _) | (_, None) => Reason::AllocationOff,
        }
    }

    /// Line 16: all shared huge pages, but those in `hot`.
    pub(super) fn splits(
        &self,
        world: &World,
        pages: &[PageUse],
        numbers: &Numbers,
        hot: &BTreeSet<SlotId>,
    ) -> Vec<Planned> {
        let gain = numbers.split.map(|split| split.gain);
        let gain = gain.filter(|_| self.split_pages);
        self.shared(world, pages)
            .filter(|page| !hot.contains(&page.slot))
            .map(|page| split_of(page, gain))
            .collect()
    }

    /// A few shared huge pages, those with most samples first, to see below.
    pub(super) fn probes(
        &mut self,
        world: &World,
        pages: &[PageUse],
        numbers: &Numbers,
    ) -> Vec<Planned> {
        let left = self.params.probe_slots.saturating_sub(self.probed);
        let gain = numbers.split.map(|split| split.gain);
        let mut shared: Vec<&PageUse> = self.shared(world, pages).collect();
        shared.sort_by_key(|page| std::cmp::Reverse(page.samples()));
        shared.truncate(usize::try_from(left).expect("at most 64"));
        self.probed += u64::try_from(shared.len()).expect("at most 64");
        shared
            .into_iter()
            .map(|page| split_of(page, gain))
            .collect()
    }

    fn shared<'a>(
        &self,
        world: &'a World,
        pages: &'a [PageUse],
    ) -> impl Iterator<Item = &'a PageUse> + use<'a> {
        let by = self.shared_by();
        pages
            .iter()
            .filter(move |page| is_huge(page) && by.shares(page) && may_act(world, page.slot))
    }

    /// Line 19: hot huge pages are split and interleaved.
    pub(super) fn hot(
        &self,
        world: &World,
        pages: &[PageUse],
        numbers: &Numbers,
        targets: impl Fn(SlotId) -> Vec<NodeId>,
    ) -> Vec<Planned> {
        let share_max = self.params.hot_share_min;
        let hot = hot_pages(pages, numbers.volume, share_max);
        let fits = |(page, share): &(&PageUse, Estimate)| {
            let nodes = u64::try_from(page.nodes()).expect("a count of nodes");
            is_huge(page)
                && nodes >= self.params.hot_nodes_min
                && may_act(world, page.slot)
                && !world.is_placement_fixed(page.slot)
                && self.over(*share, share_max.get()) == Over::Yes
        };
        hot.into_iter()
            .filter(fits)
            .filter_map(|(page, share)| interleave_of(page, share, share_max, &targets(page.slot)))
            .collect()
    }

    /// Splitting took what it may of a round of this length.
    pub(super) fn is_tired(&self, round: Span) -> bool {
        let most = self.params.split_time_share_max.get() * round.as_secs_f64();
        self.split_time.as_secs_f64() > most
    }

    pub(super) const fn begin_round(&mut self) {
        self.split_time = Span::ZERO;
    }

    pub(super) fn account(&mut self, done: &Accounted) {
        let splits = matches!(
            done.planned.action,
            Action::Split { .. } | Action::Interleave { .. }
        );
        if splits {
            self.split_time += done.outcome.took;
        }
    }

    pub(super) fn state(&self) -> Value {
        json!({"split_pages": self.split_pages, "paid": self.paid, "probed": self.probed, "split_time": self.split_time})
    }
}

const fn is_huge(page: &PageUse) -> bool {
    page.page.is_none()
}

fn may_act(world: &World, slot: SlotId) -> bool {
    world.is_reachable(slot)
}

fn split_of(page: &PageUse, gain: Option<Estimate>) -> Planned {
    Planned {
        action: Action::Split {
            slot: page.slot,
            order: Order::BASE,
        },
        reason: Reason::SharedHuge {
            threads: page.threads,
            nodes: u32::try_from(page.nodes()).expect("a count of nodes"),
            gain,
        },
    }
}

/// Base pages in turn to all nodes that they may go to.
fn interleave_of(
    page: &PageUse,
    share: Estimate,
    share_max: Ratio,
    targets: &[NodeId],
) -> Option<Planned> {
    if targets.len() < 2 {
        return None;
    }
    Some(Planned {
        action: Action::Interleave {
            slot: page.slot,
            nodes: targets.iter().map(|node| (*node, 1)).collect(),
        },
        reason: Reason::HotPage {
            share,
            share_max,
            nodes: u32::try_from(page.nodes()).expect("a count of nodes"),
        },
    })
}

/// The policy: the component, and Carrefour on pages as they are mapped.
pub(super) fn policy(settings: &Settings) -> Box<dyn Policy> {
    Box::new(Family::new(Parts {
        name: NAME,
        start: Switch::On,
        params: settings.carrefour.clone(),
        placement: Placement::new(settings, PagesOf::AsMapped),
        conservative: None,
        reactive: Some(of(settings)),
        retraction: None,
    }))
}

/// The component as the settings have it.
pub(super) fn of(settings: &Settings) -> Reactive {
    Reactive::new(
        settings.reactive.clone(),
        settings.carrefour.uncertain_waits,
    )
}
