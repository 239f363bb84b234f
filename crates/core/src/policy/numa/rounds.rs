//! Rounds: gathering samples and counters over ticks, and how many samples are asked for.

use super::Numbers;
use crate::ids::{NodeId, ObjectId, SlotId};
use crate::look::Look;
use crate::metrics::{
    AccessTable, Grain, Imbalance, PageUse, SharedBy, SharedTo, Traffic, if_placed,
    imbalance_of_requests, nhp, pamup, psp,
};
use crate::observation::{Observation, ProcessObserved};
use crate::policy::carrefour::CarrefourParams;
use crate::policy::reactive::Reactive;
use crate::sample::{Sample, Sampler};
use crate::units::{Instant, Ratio, Span};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Slots asked in one round for the nodes that they lie on, at the most: 30 µs each on a live machine.
pub const NODE_LOOKS_MAX: usize = 64;
/// Slots whose node is remembered from looks and moves, at the most.
const HOMES_MAX: usize = 65_536;
/// A round with at least so many actions asks for more samples in the next (the released code's number).
const BUSY_ACTIONS: usize = 10;
/// An action helped if LAR rose, or imbalance fell, by more than this share (the released code's number).
const HELPED: f64 = 0.10;

/// What the counters of one round add up to.
#[derive(Debug, Clone, Default)]
struct Counters {
    l2_misses: Option<u64>,
    l2_misses_by_walks: Option<u64>,
    fault_time: Option<Ratio>,
    requests: Option<Vec<u64>>,
    coverage: Option<Ratio>,
    rated: bool,
}

/// The gathering.
#[derive(Debug, Clone)]
pub(super) struct Rounds {
    params: CarrefourParams,
    pub(super) table: AccessTable,
    traffic: Traffic,
    counters: Counters,
    began: Option<Instant>,
    length: Span,
    /// Rounds that the table holds.
    kept: u64,
    /// The standing order of samples.
    ordered: Option<u64>,
    closely: bool,
    /// The last slot asked where it lies, and the answers: the table does not outlive a round in `paper`.
    asked: Option<SlotId>,
    homes: BTreeMap<SlotId, NodeId>,
    before: Option<(f64, f64)>,
}

impl Rounds {
    pub(super) fn new(params: &CarrefourParams) -> Self {
        Self {
            params: params.clone(),
            table: AccessTable::default(),
            traffic: Traffic::default(),
            counters: Counters::default(),
            began: None,
            length: params.round_ms,
            kept: 0,
            ordered: None,
            closely: false,
            asked: None,
            homes: BTreeMap::new(),
            before: None,
        }
    }

    pub(super) const fn length(&self) -> Span {
        self.length
    }

    /// Takes in what a tick brought.
    pub(super) fn take(&mut self, world: &World, seen: &Observation) {
        self.began.get_or_insert(seen.at);
        let samples = seen.samples.taken.iter();
        samples.for_each(|sample| self.add(world, sample));
        for slot in &seen.slots {
            if let [(node, _)] = slot.nodes.as_slice() {
                self.table.place_slot(slot.slot, *node);
                self.lies_on(slot.slot, *node);
            }
        }
        seen.processes.iter().for_each(|of| self.count(of));
        self.count_requests(world);
        self.counters.coverage = seen.samples.coverage.or(self.counters.coverage);
    }

    fn add(&mut self, world: &World, sample: &Sample) {
        if sample.sampler == Sampler::FirstTouch {
            return;
        }
        let weight = weight_of(world, sample);
        self.table.add(sample, weight);
        let mut home = self.table.home(sample.slot, sample.base_page);
        if let (None, Some(node)) = (home, self.homes.get(&sample.slot)) {
            let page = (sample.base_page, *node);
            self.table.place_pages(sample.slot, &[page]);
            home = Some(*node);
        }
        self.traffic
            .add(sample.cpu_node, sample.page_node.or(home), weight);
        self.counters.rated |= sample.rate.is_some();
    }

    /// The whole slot lies on `node`, for all that is known.
    pub(super) fn lies_on(&mut self, slot: SlotId, node: NodeId) {
        if self.homes.len() < HOMES_MAX || self.homes.contains_key(&slot) {
            self.homes.insert(slot, node);
        }
    }

    /// The slot's pages were moved apart, or are gone.
    pub(super) fn lies_anywhere(&mut self, slot: SlotId) {
        self.homes.remove(&slot);
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.table.forget_object(object);
        self.homes.retain(|slot, _| slot.object != object);
    }

    fn count(&mut self, of: &ProcessObserved) {
        let counters = &mut self.counters;
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0) + more);
            }
        };
        // Only processes that count both count: otherwise the share would be of unlike sums.
        if of.l2_misses_by_walks.is_some() {
            add(&mut counters.l2_misses, of.l2_misses);
            add(&mut counters.l2_misses_by_walks, of.l2_misses_by_walks);
        }
        let worst = [counters.fault_time, of.fault_time_share_max];
        counters.fault_time = worst
            .into_iter()
            .flatten()
            .max_by(|a, b| a.get().total_cmp(&b.get()));
    }

    fn count_requests(&mut self, world: &World) {
        let with_memory = world.nodes.iter().filter(|node| node.total.0 > 0);
        let now: Option<Vec<u64>> = with_memory.map(|node| node.controller_requests).collect();
        let Some(now) = now else { return };
        let known = self.counters.requests.take();
        self.counters.requests = Some(match known {
            Some(sums) if sums.len() == now.len() => {
                sums.iter().zip(now).map(|(sum, more)| sum + more).collect()
            }
            Some(_) | None => now,
        });
    }

    pub(super) fn is_over(&self, at: Instant) -> bool {
        self.began
            .is_some_and(|began| at.since(began) >= self.length)
    }

    /// What the round came to.
    pub(super) fn numbers(
        &self,
        world: &World,
        pages: &[PageUse],
        rejoined: Option<&[PageUse]>,
        reactive: Option<&Reactive>,
    ) -> Numbers {
        let nodes = world.memory_nodes();
        let count = u32::try_from(nodes.len()).expect("nodes are few");
        let volume = self.table.volume();
        let to = reactive.map_or(SharedTo::Random, Reactive::shared_to);
        let by = reactive.map_or(SharedBy::Threads, Reactive::shared_by);
        let counters = &self.counters;
        let split = reactive.and_then(|_| if_placed(&self.table.pages(|_| Grain::Base), to, count));
        let walks = counters.l2_misses_by_walks.zip(counters.l2_misses);
        Numbers {
            at: world.at,
            samples: self.traffic.samples(),
            volume,
            lar: self.traffic.lar(),
            imbalance: self
                .imbalance_of_requests()
                .or_else(|| self.traffic.imbalance(&nodes, volume)),
            pamup: pamup(pages, volume),
            nhp: nhp(pages, volume, reactive.map_or(HOT, Reactive::hot_share_min)),
            psp: psp(pages, by),
            placed: if_placed(pages, to, count),
            split,
            rejoined: rejoined.and_then(|pages| if_placed(pages, to, count)),
            page_walks: walks.map(|(walks, all)| Ratio::of(walks, all)),
            fault_time: counters.fault_time,
            accesses_per_us: self.accesses_per_us(world.at, count),
            coverage: counters.coverage,
            traffic: self.traffic.clone(),
        }
    }

    fn imbalance_of_requests(&self) -> Option<Imbalance> {
        imbalance_of_requests(self.counters.requests.as_ref()?)
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    fn accesses_per_us(&self, at: Instant, nodes: u32) -> Option<f64> {
        let micros = at.since(self.began?).as_secs_f64() * 1e6;
        let accesses = match &self.counters.requests {
            Some(requests) => requests.iter().sum::<u64>() as f64,
            None if self.counters.rated => self.traffic.accesses(),
            None => return None,
        };
        (micros > 0.0).then(|| accesses / micros / f64::from(nodes.max(1)))
    }

    /// Begins the next round. Where the last one left a decision waiting, the samples are kept longer and more are asked
    /// for.
    pub(super) fn end(&mut self, at: Instant, waits: bool, actions: usize, numbers: &Numbers) {
        self.kept += 1;
        let patience = if waits {
            self.params.wait_rounds_max
        } else {
            0
        };
        if self.kept >= self.params.memory_rounds + patience {
            self.table = AccessTable::default();
            self.kept = 0;
        }
        self.closely = waits || actions >= BUSY_ACTIONS;
        let now = of(numbers);
        let idle = matches!((self.before, now), (Some(before), Some(now)) if !helped(before, now));
        self.length = if idle {
            self.params.round_idle_ms
        } else {
            self.params.round_ms
        };
        self.before = now.filter(|_| actions > 0);
        self.traffic = Traffic::default();
        self.counters = Counters::default();
        self.began = Some(at);
    }

    /// The standing order of samples, where it changes.
    pub(super) fn order(&mut self) -> Option<Look> {
        let wanted = if self.closely {
            self.params.samples_close
        } else {
            self.params.samples_max
        };
        if self.ordered.replace(wanted) == Some(wanted) {
            return None;
        }
        let samples_max = u32::try_from(wanted).unwrap_or(u32::MAX);
        Some(Look::Sample { samples_max })
    }

    /// Asks where slots lie of whose samples nobody knows it; they take turns.
    pub(super) fn node_looks(&mut self) -> Vec<Look> {
        let lost = self.table.homeless(self.asked, NODE_LOOKS_MAX);
        self.asked = lost
            .last()
            .copied()
            .filter(|_| lost.len() == NODE_LOOKS_MAX);
        lost.into_iter().map(Look::Nodes).collect()
    }

    pub(super) fn state(&self) -> Value {
        json!({
            "table": self.table,
            "traffic": self.traffic,
            "began": self.began,
            "length": self.length,
            "kept": self.kept,
            "ordered": self.ordered,
            "closely": self.closely,
            "asked": self.asked,
            "homes": self.homes.iter().collect::<Vec<_>>(),
            "before": self.before,
        })
    }
}

/// The paper's share of a hot page, for policies that do not split any and show the number.
const HOT: Ratio = crate::policy::reactive::HOT_SHARE_MIN;

/// Accesses that a sample stands for. A hinting fault comes once a page and scan, whatever the page's size: without a
/// rate it stands for the memory of its page.
fn weight_of(world: &World, sample: &Sample) -> f64 {
    let hint = sample.sampler == Sampler::HintingFault;
    let pages = match super::as_mapped(world, sample.slot) {
        Grain::Huge if hint => world.geometry.slot_pages().0,
        Grain::Huge | Grain::Base => 1,
    };
    let pages = u32::try_from(pages).expect("base pages of a slot");
    sample.rate.unwrap_or(f64::from(pages))
}

fn of(numbers: &Numbers) -> Option<(f64, f64)> {
    let lar = numbers.lar?.0.value;
    let imbalance = numbers.imbalance.map_or(0.0, |of| of.0.value);
    Some((lar, imbalance))
}

fn helped((lar_before, imbalance_before): (f64, f64), (lar, imbalance): (f64, f64)) -> bool {
    lar > lar_before * (1.0 + HELPED) || imbalance < imbalance_before * (1.0 - HELPED)
}
