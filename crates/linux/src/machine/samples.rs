//! The phase of an observation that takes in samples of accesses.
//!
//! A sampler tells of threads and virtual addresses; here each becomes a slot, a base page and a node. Memory that nobody
//! manages (files, devices) is passed over; an address in no region that we know of counts as lost.
//!
//! **Where the page lies** is asked of the kernel where the sampler does not know it, for at most [`NODES_ASKED_MAX`]
//! pages in one observation; of the others it stays unknown.
//!
//! **The price** is a budget of its own, beside the one of looking: what was used beyond it, to look up nodes for example, is
//! paid by taking in less afterwards.

use super::{LiveMachine, Tick};
use crate::sampler::{Access, AccessSampler, FirstTouches, Intake, Taken};
use crate::sensors::budget::Budget;
use crate::sys::{move_pages, time};
use hugepilot_core::ids::{NodeId, ObjectId, Pid, SlotId};
use hugepilot_core::observation::{MemoryKind, Unseen};
use hugepilot_core::sample::{Sample, Sampler, Samples};
use hugepilot_core::units::{BasePages, Ratio};
use std::collections::BTreeMap;

/// Pages whose node is asked for in one observation, at the most: some 250 µs.
const NODES_ASKED_MAX: usize = 4096;

/// Sampling, and how it stands.
pub(super) struct Sampling {
    sampler: Option<Box<dyn AccessSampler>>,
    /// Samples wanted in one interval; none wants no sampling.
    samples_max: u32,
    touches: FirstTouches,
    budget: Budget,
    /// A different choice of samples each time.
    round: u64,
}

impl Sampling {
    pub(super) fn new(sampler: Option<Box<dyn AccessSampler>>, share: Ratio) -> Self {
        Self {
            sampler,
            samples_max: 0,
            touches: FirstTouches::default(),
            budget: Budget::new(share),
            round: 0,
        }
    }
}

impl LiveMachine {
    /// The sampler that was chosen.
    #[must_use]
    pub fn sampler(&self) -> Option<Sampler> {
        self.sampling.sampler.as_ref().map(|sampler| sampler.kind())
    }

    /// So many samples an interval are wanted from now on.
    pub(super) fn order_samples(&mut self, samples_max: u32, tick: &mut Tick) {
        let Some(sampler) = &mut self.sampling.sampler else {
            if samples_max > 0 {
                let why = "nothing samples accesses; `hugepilot doctor` says what could";
                tick.blind(None, Unseen::Accesses, why);
            }
            return;
        };
        if sampler.kind() == Sampler::HintingFault && samples_max > 0 {
            let why = "hinting faults tell who accesses a page, not how often";
            tick.blind(None, Unseen::AccessRates, why);
        }
        match sampler.switch(samples_max > 0) {
            Ok(()) => self.sampling.samples_max = samples_max,
            Err(why) => {
                self.sampling.samples_max = 0;
                tick.blind(None, Unseen::Accesses, why.to_string());
            }
        }
        if samples_max == 0 {
            self.sampling.touches.clear();
        }
    }

    pub(super) const fn samples_wanted(&self) -> bool {
        self.sampling.samples_max > 0
    }

    /// Takes in what was sampled since the last observation.
    pub(super) fn take_samples(&mut self, tick: &mut Tick) {
        if self.sampling.samples_max == 0 {
            return;
        }
        let before = time::thread_cpu();
        self.sampling.budget.refill(tick.now);
        let Some((kind, taken)) = self.drain() else {
            return;
        };
        tick.observation.samples = self.understand(kind, taken);
        let used = time::thread_cpu().growth_since(before);
        self.sampling.budget.spend(used);
    }

    fn drain(&mut self) -> Option<(Sampler, Taken)> {
        let processes = &self.processes;
        let watched = |pid: Pid| processes.is_watched(pid);
        let sampling = &mut self.sampling;
        let sampler = sampling.sampler.as_mut()?;
        let kept_max = usize::try_from(sampling.samples_max).expect("32 bits fit");
        sampling.round += 1;
        let mut intake = Intake::new(&watched, kept_max, sampling.budget.left(), sampling.round);
        sampler.drain(&mut intake);
        Some((sampler.kind(), intake.finish()))
    }

    /// Accesses as samples of slots.
    fn understand(&mut self, kind: Sampler, taken: Taken) -> Samples {
        let mut samples = Samples {
            lost: taken.lost,
            sampler: Some(kind),
            ..Samples::default()
        };
        let nodes = self.page_nodes(&taken.kept);
        for access in &taken.kept {
            match self.place_access(access) {
                Placed::Slot(slot, page) => {
                    let mut sample = self.sample(kind, access, slot, page);
                    if sample.page_node.is_none() {
                        sample.page_node = nodes.get(&self.page_of(access)).copied();
                    }
                    samples.taken.push(sample);
                }
                Placed::NotManaged => {}
                Placed::Unknown => samples.lost += 1,
            }
        }
        let present = self.processes.resident();
        let sampler = self.sampling.sampler.as_mut();
        samples.coverage = sampler.and_then(|sampler| sampler.coverage(present));
        samples
    }

    fn sample(&mut self, kind: Sampler, access: &Access, slot: SlotId, page: BasePages) -> Sample {
        let (watched, _) = self
            .processes
            .with_memory(access.pid)
            .expect("it was placed through that process");
        let process = watched.id;
        Sample {
            process,
            thread: access.tid,
            cpu: access.cpu,
            cpu_node: self.nodes.topology.node_of(access.cpu),
            slot,
            base_page: page,
            page_node: access.page_node,
            served_by: access.served_by,
            rate: access.rate,
            sampler: self.told_by(kind, slot, page),
        }
    }

    /// A hinting fault, or a first touch? Samplers of accesses know what they see.
    fn told_by(&mut self, kind: Sampler, slot: SlotId, page: BasePages) -> Sampler {
        match kind {
            Sampler::HintingFault => {
                let slot_pages = self.geometry.slot_pages();
                let counts = self
                    .objects
                    .get(slot.object)
                    .map(|object| object.seen.get(slot.index));
                let full = counts.is_some_and(|counts| {
                    u64::from(counts.base) + u64::from(counts.huge) == slot_pages.0
                });
                self.sampling.touches.tell(slot, page, slot_pages, full)
            }
            Sampler::Pebs | Sampler::Ibs | Sampler::Virtual | Sampler::FirstTouch => kind,
        }
    }

    /// Which slot and which of its base pages the address is of.
    fn place_access(&self, access: &Access) -> Placed {
        let Some((_, memory)) = self.processes.with_memory(access.pid) else {
            return Placed::Unknown;
        };
        let Some(placed) = memory.placed_at(access.address) else {
            return Placed::Unknown;
        };
        match placed.mapping.kind {
            MemoryKind::Anonymous | MemoryKind::Shmem => {}
            MemoryKind::File | MemoryKind::Hugetlb | MemoryKind::Special => {
                return Placed::NotManaged;
            }
        }
        let offset = placed.mapping.offset + (access.address - placed.mapping.address);
        let slot = SlotId {
            object: placed.object,
            index: offset >> self.geometry.slot_shift(),
        };
        let within = offset - slot.start(&self.geometry);
        Placed::Slot(slot, BasePages(within >> self.geometry.base_shift))
    }

    fn page_of(&self, access: &Access) -> (Pid, u64) {
        (access.pid, access.address >> self.geometry.base_shift)
    }

    /// Where the pages lie whose node no sampler told. A process that is gone has none.
    fn page_nodes(&self, accesses: &[Access]) -> BTreeMap<(Pid, u64), NodeId> {
        let mut wanted: BTreeMap<Pid, Vec<u64>> = BTreeMap::new();
        let unknown = accesses.iter().filter(|access| access.page_node.is_none());
        for access in unknown.take(NODES_ASKED_MAX) {
            let (pid, page) = self.page_of(access);
            wanted.entry(pid).or_default().push(page);
        }
        let mut nodes = BTreeMap::new();
        let mut status = Vec::new();
        for (pid, mut pages) in wanted {
            pages.sort_unstable();
            pages.dedup();
            let addresses: Vec<u64> = pages
                .iter()
                .map(|page| page << self.geometry.base_shift)
                .collect();
            if move_pages::query(pid, &addresses, &mut status).is_ok() {
                let found = pages.iter().zip(&status);
                let found = found.filter_map(|(page, status)| {
                    Some(((pid, *page), NodeId(u16::try_from(*status).ok()?)))
                });
                nodes.extend(found);
            }
        }
        nodes
    }

    /// Nothing is known any more of what was touched in these objects.
    pub(super) fn forget_touches(&mut self, objects: impl Iterator<Item = ObjectId>) {
        objects.for_each(|object| self.sampling.touches.forget(object));
    }
}

/// What an address is of.
enum Placed {
    /// A base page of a slot.
    Slot(SlotId, BasePages),
    /// Memory that is never managed.
    NotManaged,
    /// No region that we know of.
    Unknown,
}
