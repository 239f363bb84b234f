//! What samples of accesses show of placement: who accesses whose memory, which huge pages are hot, which are falsely
//! shared, and what placing or splitting would bring. Numbers are the core's; here they are gathered and shown.
//!
//! **Gathering.** [`Gathered`] holds the samples of the window under way and of the one before ([`WINDOW`]), so that what
//! is shown is recent and its memory bounded. It looks at nothing by itself: samples come while a policy asks for them, or
//! `inspect` does.
//!
//! **False sharing.** A huge page is listed where several nodes access it and splitting would make more of its accesses
//! local than placing it as a whole could.

mod render;

pub use render::{json, lines};

use crate::manage::session::Listener;
use crate::manage::tally::Tally;
use hugepilot_core::ids::{NodeId, ProcessId, SlotId, Tid};
use hugepilot_core::metrics::{
    AccessTable, Estimate, Grain, PageUse, SharedTo, Volume, hot_pages, if_placed, imbalance, lar,
};
use hugepilot_core::observation::Observation;
use hugepilot_core::sample::{Sample, Sampler};
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{BasePages, Instant, Ratio, Span};
use hugepilot_core::world::World;
use hugepilot_trace::TickRef;
use std::collections::BTreeMap;

/// Samples are shown of the last so long, or twice that.
const WINDOW: Span = Span::secs(10);
/// Hot and falsely shared pages that are listed, at the most, each.
const PAGES_MAX: usize = 8;
/// Base pages that are listed of a hot page, and threads of a shared one, at the most.
const PARTS_MAX: usize = 4;

impl Listener for Gathered {
    fn ticked(&mut self, tick: TickRef<'_>, pilot: &Pilot, _: &Tally) -> anyhow::Result<()> {
        self.take(pilot.world(), tick.observation);
        Ok(())
    }
}

/// Samples gathered lately.
#[derive(Debug, Default)]
pub struct Gathered {
    now: AccessTable,
    before: AccessTable,
    began: Option<Instant>,
    sampler: Option<Sampler>,
    lost: u64,
    first_touches: u64,
    /// Coverages of all intervals, added up: of the window under way, and of the one before.
    covered: Option<f64>,
    covered_before: Option<f64>,
}

impl Gathered {
    /// Takes in an observation's samples; `world` has folded it already.
    pub fn take(&mut self, world: &World, seen: &Observation) {
        let began = *self.began.get_or_insert(seen.at);
        if seen.at.since(began) >= WINDOW {
            self.before = std::mem::take(&mut self.now);
            self.covered_before = self.covered.take();
            self.began = Some(seen.at);
        }
        let samples = &seen.samples;
        self.sampler = samples.sampler.or(self.sampler);
        self.lost += samples.lost;
        if let Some(coverage) = samples.coverage {
            *self.covered.get_or_insert_default() += coverage.get();
        }
        for sample in &samples.taken {
            self.first_touches += u64::from(sample.sampler == Sampler::FirstTouch);
            self.now.add(sample, weight(world, sample));
        }
    }

    /// What the last whole window shows, or the one under way where none is over.
    fn shown(&self) -> (&AccessTable, Option<Ratio>) {
        let (table, covered) = if self.before.samples() > self.now.samples() {
            (&self.before, self.covered_before)
        } else {
            (&self.now, self.covered)
        };
        (table, covered.map(|covered| Ratio::new(covered.min(1.0))))
    }
}

/// Accesses that a sample stands for; a hinting fault without a rate stands for the memory of its page.
fn weight(world: &World, sample: &Sample) -> f64 {
    let pages = match (sample.sampler, grain(world, sample.slot)) {
        (Sampler::HintingFault, Grain::Huge) => world.geometry.slot_pages(),
        (Sampler::HintingFault, Grain::Base)
        | (Sampler::Pebs | Sampler::Ibs | Sampler::Virtual | Sampler::FirstTouch, _) => {
            BasePages(1)
        }
    };
    let pages = u32::try_from(pages.0).expect("base pages of a slot");
    sample.rate.unwrap_or(f64::from(pages))
}

fn grain(world: &World, slot: SlotId) -> Grain {
    match world.slots.get(slot) {
        Some(state) if state.is_huge(&world.geometry) => Grain::Huge,
        Some(_) | None => Grain::Base,
    }
}

/// A hot huge page.
#[derive(Debug, Clone, PartialEq)]
pub struct Hot {
    /// Where it is seen.
    pub address: u64,
    /// Its share of all accesses.
    pub share: Estimate,
    /// The base pages that make it hot, each with its share of the page's accesses.
    pub parts: Vec<(BasePages, f64)>,
}

/// A huge page that is falsely shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// Where it is seen.
    pub address: u64,
    /// Share of its accesses that is local, if it lies where it is used most.
    pub placed: f64,
    /// The same if it were split and every base page lay where it is used most.
    pub split: f64,
    /// Threads that access it, with the number of its base pages that each was seen to access.
    pub threads: Vec<((ProcessId, Tid), usize)>,
}

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// What sampled.
    pub sampler: Option<Sampler>,
    /// Samples of the window, those lost since the start, first touches since the start.
    pub samples: (u64, u64, u64),
    /// Share of memory that could be sampled in the window, at the most, where known.
    pub coverage: Option<Ratio>,
    /// Nodes with memory.
    pub nodes: Vec<NodeId>,
    /// Accesses by accessing node and destination.
    pub matrix: BTreeMap<(NodeId, NodeId), f64>,
    /// Local access ratio.
    pub lar: Option<Estimate>,
    /// Imbalance, where volume is known.
    pub imbalance: Option<Estimate>,
    /// LAR if pages were placed as they are mapped, and if all were split and placed.
    pub if_placed: Option<Estimate>,
    /// The second of them.
    pub if_split: Option<Estimate>,
    /// Hot huge pages.
    pub hot: Vec<Hot>,
    /// Falsely shared huge pages, those with most accesses first.
    pub shared: Vec<Shared>,
}

impl View {
    /// What `gathered` shows, pages with more than `hot_share_min` of the accesses being hot; `None` on a machine with one node, where placement is no question.
    #[must_use]
    pub fn of(gathered: &Gathered, world: &World, hot_share_min: Ratio) -> Option<Self> {
        let nodes = world.memory_nodes();
        if nodes.len() < 2 {
            return None;
        }
        let (table, coverage) = gathered.shown();
        let volume = table.volume();
        let mapped = table.pages(|slot| grain(world, slot));
        let base = table.pages(|_| Grain::Base);
        let count = u32::try_from(nodes.len()).expect("few nodes");
        let what_if =
            |pages: &[PageUse]| if_placed(pages, SharedTo::Best, count).map(|found| found.then);
        Some(Self {
            sampler: gathered.sampler,
            samples: (table.samples(), gathered.lost, gathered.first_touches),
            coverage,
            matrix: table.matrix(),
            lar: lar(&mapped).map(|lar| lar.0),
            imbalance: imbalance(&table.destinations(), &nodes, volume).map(|of| of.0),
            if_placed: what_if(&mapped),
            if_split: what_if(&base),
            hot: hot(&mapped, &base, (volume, hot_share_min), world),
            shared: shared(&mapped, &base, table, world),
            nodes,
        })
    }
}

fn address(world: &World, slot: SlotId) -> u64 {
    world
        .mapping_of(slot)
        .map_or(slot.start(&world.geometry), |(_, address)| address)
}

/// The base pages of a slot among `base`, which is sorted by slot.
fn parts_of(base: &[PageUse], slot: SlotId) -> impl Iterator<Item = &PageUse> {
    let first = base.partition_point(|page| page.slot < slot);
    base[first..]
        .iter()
        .take_while(move |page| page.slot == slot)
}

fn hot(
    mapped: &[PageUse],
    base: &[PageUse],
    (volume, share_min): (Volume, Ratio),
    world: &World,
) -> Vec<Hot> {
    let huge = hot_pages(mapped, volume, share_min)
        .into_iter()
        .filter(|(page, _)| page.page.is_none());
    huge.take(PAGES_MAX)
        .map(|(page, share)| {
            let mut parts: Vec<(BasePages, f64)> = parts_of(base, page.slot)
                .filter_map(|part| Some((part.page?, part.weight() / page.weight())))
                .collect();
            parts.sort_by(|a, b| b.1.total_cmp(&a.1));
            parts.truncate(PARTS_MAX);
            Hot {
                address: address(world, page.slot),
                share,
                parts,
            }
        })
        .collect()
}

/// The largest part of a page's accesses that one node makes.
fn most(page: &PageUse) -> f64 {
    page.by_node.iter().map(|of| of.weight).fold(0.0, f64::max)
}

fn shared(mapped: &[PageUse], base: &[PageUse], table: &AccessTable, world: &World) -> Vec<Shared> {
    let mut found: Vec<(f64, Shared)> = Vec::new();
    for page in mapped
        .iter()
        .filter(|page| page.page.is_none() && page.nodes() >= 2)
    {
        let (mut local, mut all) = (0.0, 0.0);
        for part in parts_of(base, page.slot) {
            local += most(part);
            all += part.weight();
        }
        let (placed, split) = (most(page) / page.weight(), local / all);
        if all > 0.0 && split > placed {
            let shared = Shared {
                address: address(world, page.slot),
                placed,
                split,
                threads: threads_of(table, page.slot),
            };
            found.push((page.weight(), shared));
            found.sort_by(|a, b| b.0.total_cmp(&a.0));
            found.truncate(PAGES_MAX);
        }
    }
    found.into_iter().map(|(_, shared)| shared).collect()
}

fn threads_of(table: &AccessTable, slot: SlotId) -> Vec<((ProcessId, Tid), usize)> {
    let mut threads: Vec<_> = table
        .threads_of(slot)
        .into_iter()
        .map(|(thread, pages)| (thread, pages.len()))
        .collect();
    threads.sort_by_key(|(thread, pages)| (std::cmp::Reverse(*pages), *thread));
    threads.truncate(PARTS_MAX);
    threads
}

#[cfg(test)]
mod tests;
