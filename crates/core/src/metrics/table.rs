//! Samples added up: who accessed which base page, from where, how often.
//!
//! A tally is one base page, one thread, one node. Where a page lies is kept beside: what the last sample of it said, or
//! an actuator, or a look. At most [`TALLIES_MAX`] tallies are held (some 50 bytes each); what finds no room is counted.

use super::page_use::{Grain, NodeUse, PageUse};
use crate::ids::{NodeId, ObjectId, ProcessId, SlotId, Tid};
use crate::sample::{Sample, Sampler, ServedBy};
use crate::units::BasePages;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Tallies held at the most: some 13 MB.
pub const TALLIES_MAX: usize = 262_144;

/// Do the samples tell how often?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Volume {
    /// Each stands for as many accesses as any other, or says how many.
    Known,
    /// They tell who, not how often.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Tally {
    page: u32,
    thread: (ProcessId, Tid),
    node: NodeId,
    samples: u32,
    weight: f64,
    from_memory: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct SlotTallies {
    /// Sorted by page, thread and node.
    tallies: Vec<Tally>,
    /// Where base pages lie, sorted by page.
    homes: Vec<(u32, NodeId)>,
}

/// Samples added up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessTable {
    #[serde(with = "as_pairs")]
    slots: BTreeMap<SlotId, SlotTallies>,
    held: usize,
    samples: u64,
    unrated: u64,
    unheld: u64,
}

impl AccessTable {
    /// Adds a sample that stands for `weight` accesses. First touches are no use and are passed over.
    pub fn add(&mut self, sample: &Sample, weight: f64) {
        let rated = match (sample.sampler, sample.rate) {
            (Sampler::FirstTouch, _) => return,
            (Sampler::HintingFault, None) => false,
            (Sampler::HintingFault, Some(_))
            | (Sampler::Pebs | Sampler::Ibs | Sampler::Virtual, _) => true,
        };
        let Ok(page) = u32::try_from(sample.base_page.0) else {
            return self.pass_over();
        };
        if self.held >= TALLIES_MAX && !self.slots.contains_key(&sample.slot) {
            return self.pass_over();
        }
        self.samples += 1;
        self.unrated += u64::from(!rated);
        let slot = self.slots.entry(sample.slot).or_default();
        self.held += usize::from(slot.add(page, sample, weight));
        if let Some(home) = sample.page_node {
            slot.set_home(page, home);
        }
    }

    fn pass_over(&mut self) {
        self.unheld += 1;
    }

    /// Samples held.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Samples that found no room.
    #[must_use]
    pub const fn unheld(&self) -> u64 {
        self.unheld
    }

    /// Do they tell how often?
    #[must_use]
    pub const fn volume(&self) -> Volume {
        if self.unrated == 0 {
            Volume::Known
        } else {
            Volume::Unknown
        }
    }

    /// The pages that were accessed, each slot at the grain that `grain` says, in order.
    pub fn pages(&self, mut grain: impl FnMut(SlotId) -> Grain) -> Vec<PageUse> {
        let mut pages = Vec::new();
        for (slot, tallies) in &self.slots {
            match grain(*slot) {
                Grain::Huge => pages.push(tallies.page_use(*slot, None, &tallies.tallies)),
                Grain::Base => pages.extend(
                    tallies
                        .tallies
                        .chunk_by(|a, b| a.page == b.page)
                        .map(|of_page| tallies.page_use(*slot, Some(of_page[0].page), of_page)),
                ),
            }
        }
        pages.retain(|page| page.from_memory);
        pages
    }

    /// Accesses by destination node, of those that are known to have gone somewhere.
    #[must_use]
    pub fn destinations(&self) -> BTreeMap<NodeId, NodeUse> {
        let mut all: BTreeMap<NodeId, NodeUse> = BTreeMap::new();
        for slot in self.slots.values() {
            for tally in &slot.tallies {
                if let Some(node) = slot.home(tally.page) {
                    let to = all.entry(node).or_insert(NodeUse {
                        node,
                        samples: 0,
                        weight: 0.0,
                    });
                    to.samples += tally.samples;
                    to.weight += tally.weight;
                }
            }
        }
        all
    }

    /// The access matrix: accesses by accessing node and destination node.
    #[must_use]
    pub fn matrix(&self) -> BTreeMap<(NodeId, NodeId), f64> {
        let mut matrix = BTreeMap::new();
        for slot in self.slots.values() {
            for tally in &slot.tallies {
                if let Some(home) = slot.home(tally.page) {
                    *matrix.entry((tally.node, home)).or_default() += tally.weight;
                }
            }
        }
        matrix
    }

    /// The threads that accessed a slot, each with the base pages that it accessed: who falsely shares what.
    #[must_use]
    pub fn threads_of(&self, slot: SlotId) -> BTreeMap<(ProcessId, Tid), BTreeSet<BasePages>> {
        let mut threads: BTreeMap<(ProcessId, Tid), BTreeSet<BasePages>> = BTreeMap::new();
        for tally in self.slots.get(&slot).into_iter().flat_map(|of| &of.tallies) {
            let pages = threads.entry(tally.thread).or_default();
            pages.insert(BasePages(u64::from(tally.page)));
        }
        threads
    }

    /// Where a base page lies, as far as its samples tell.
    #[must_use]
    pub fn home(&self, slot: SlotId, page: BasePages) -> Option<NodeId> {
        self.slots.get(&slot)?.home(u32::try_from(page.0).ok()?)
    }

    /// Slots with a sample of which it is not known where it went: at most `most`, those behind `after`.
    #[must_use]
    pub fn homeless(&self, after: Option<SlotId>, most: usize) -> Vec<SlotId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let homeless = self
            .slots
            .range((from, Bound::Unbounded))
            .filter(|(_, of)| {
                let lost = |tally: &Tally| of.home(tally.page).is_none();
                of.tallies.iter().any(lost)
            });
        homeless.map(|(slot, _)| *slot).take(most).collect()
    }

    /// The whole slot lies on `node`.
    pub fn place_slot(&mut self, slot: SlotId, node: NodeId) {
        if let Some(of) = self.slots.get_mut(&slot) {
            let pages: BTreeSet<u32> = of.tallies.iter().map(|tally| tally.page).collect();
            of.homes = pages.into_iter().map(|page| (page, node)).collect();
        }
    }

    /// These base pages of the slot lie there now.
    pub fn place_pages(&mut self, slot: SlotId, pages: &[(BasePages, NodeId)]) {
        if let Some(of) = self.slots.get_mut(&slot) {
            for (page, node) in pages {
                if let Ok(page) = u32::try_from(page.0) {
                    of.set_home(page, *node);
                }
            }
        }
    }

    /// Forgets a slot's samples: it was spread, and nobody knows what lies where.
    pub fn forget_slot(&mut self, slot: SlotId) {
        if let Some(of) = self.slots.remove(&slot) {
            self.held -= of.tallies.len();
        }
    }

    /// Forgets an object that is gone.
    pub fn forget_object(&mut self, object: ObjectId) {
        let gone: Vec<SlotId> = self
            .slots
            .keys()
            .filter(|slot| slot.object == object)
            .copied()
            .collect();
        gone.into_iter().for_each(|slot| self.forget_slot(slot));
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let homes: usize = self.slots.values().map(|of| of.homes.len()).sum();
        self.held * size_of::<Tally>() + homes * size_of::<(u32, NodeId)>()
    }
}

impl SlotTallies {
    /// Adds a sample; says whether it took a tally of its own.
    fn add(&mut self, page: u32, sample: &Sample, weight: f64) -> bool {
        let from_memory = match sample.served_by {
            ServedBy::Dram | ServedBy::Unknown => true,
            ServedBy::Cache => false,
        };
        let thread = (sample.process, sample.thread);
        let key = (page, thread, sample.cpu_node);
        let at = self
            .tallies
            .binary_search_by_key(&key, |tally| (tally.page, tally.thread, tally.node));
        match at {
            Ok(at) => {
                let tally = &mut self.tallies[at];
                tally.samples += 1;
                tally.weight += weight;
                tally.from_memory |= from_memory;
                false
            }
            Err(at) => {
                let tally = Tally {
                    page,
                    thread,
                    node: sample.cpu_node,
                    samples: 1,
                    weight,
                    from_memory,
                };
                self.tallies.insert(at, tally);
                true
            }
        }
    }

    fn home(&self, page: u32) -> Option<NodeId> {
        let at = self.homes.binary_search_by_key(&page, |(page, _)| *page);
        at.ok().map(|at| self.homes[at].1)
    }

    fn set_home(&mut self, page: u32, node: NodeId) {
        match self.homes.binary_search_by_key(&page, |(page, _)| *page) {
            Ok(at) => self.homes[at].1 = node,
            Err(at) => self.homes.insert(at, (page, node)),
        }
    }

    fn page_use(&self, slot: SlotId, page: Option<u32>, tallies: &[Tally]) -> PageUse {
        let mut by_node: Vec<NodeUse> = Vec::new();
        let mut threads: Vec<(ProcessId, Tid)> = Vec::new();
        let mut home = tallies.first().and_then(|tally| self.home(tally.page));
        let (mut placed_weight, mut local_weight) = (0.0, 0.0);
        for tally in tallies {
            add_use(&mut by_node, tally);
            if threads.last() != Some(&tally.thread) {
                threads.push(tally.thread);
            }
            let at = self.home(tally.page);
            home = home.filter(|_| at == home);
            if let Some(node) = at {
                placed_weight += tally.weight;
                local_weight += if node == tally.node {
                    tally.weight
                } else {
                    0.0
                };
            }
        }
        by_node.sort_unstable_by_key(|of| of.node);
        threads.sort_unstable();
        threads.dedup();
        PageUse {
            slot,
            page: page.map(|page| BasePages(u64::from(page))),
            home,
            by_node,
            threads: u32::try_from(threads.len()).expect("bounded by the tallies"),
            placed_weight,
            local_weight,
            from_memory: tallies.iter().any(|tally| tally.from_memory),
        }
    }
}

fn add_use(by_node: &mut Vec<NodeUse>, tally: &Tally) {
    match by_node.iter_mut().find(|of| of.node == tally.node) {
        Some(of) => {
            of.samples += tally.samples;
            of.weight += tally.weight;
        }
        None => by_node.push(NodeUse {
            node: tally.node,
            samples: tally.samples,
            weight: tally.weight,
        }),
    }
}

/// A map whose keys are no text, as a list of pairs.
mod as_pairs {
    use super::{SlotId, SlotTallies};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<SlotId, SlotTallies>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<SlotId, SlotTallies>, D::Error> {
        Vec::<(SlotId, SlotTallies)>::deserialize(from).map(|pairs| pairs.into_iter().collect())
    }
}
