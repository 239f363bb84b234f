//! What a manager sees of the machine.
//!
//! As on the live machine: page tables are read where somebody looks, the first observation is a checkpoint, later ones
//! say what changed since a slot was last read. Accessed shares come from the simulator's own knowledge, one reading a
//! scan period for the slots that are tracked.

use crate::sim::Sim;
use crate::space::{Table, frame_of};
use hugepilot_core::action::Action;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, ProcessId, SlotId, SlotRange};
use hugepilot_core::look::{Answer, Look};
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{
    Accessed, Mapping, NodeObserved, ObjectObserved, Observation, ProcessObserved, SlotObserved,
    Tracker,
};
use hugepilot_core::outcome::Outcome;
use hugepilot_core::units::{BasePages, Bytes, Instant, Ratio, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

/// What was said before, and what is tracked.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    last: Option<Instant>,
    objects: BTreeMap<ObjectId, Vec<Mapping>>,
    slots: BTreeMap<SlotId, SlotObserved>,
    /// Regions, by process and start, that refused a huge page.
    pub(crate) refused: BTreeSet<(ProcessId, u64)>,
    /// Processes with their page faults so far.
    faults: BTreeMap<ProcessId, u64>,
    tracked: BTreeMap<SlotId, BTreeSet<u64>>,
    period: Span,
    reading_since: Instant,
}

impl Machine for Sim {
    type Error = Infallible;

    fn geometry(&self) -> Geometry {
        self.config.geometry
    }

    fn observe(&mut self, looks: &[Look]) -> Result<Observation, Infallible> {
        let mut seen = Observation {
            at: self.now,
            interval: self
                .seen
                .last
                .map_or(Span::ZERO, |last| self.now.since(last)),
            checkpoint: self.seen.last.is_none(),
            nodes: self.nodes_observed(),
            ..Observation::default()
        };
        seen.cgroups = self
            .frames
            .cgroups
            .all()
            .map(|cgroup| self.frames.cgroups.observed(cgroup, self.geometry()))
            .collect();
        self.observe_processes(&mut seen);
        self.observe_objects(&mut seen);
        if seen.checkpoint {
            self.scan_all(&mut seen);
        }
        looks.iter().for_each(|look| self.answer(look, &mut seen));
        self.read_accessed(&mut seen);
        seen.samples = self.sampling.read();
        self.seen.last = Some(self.now);
        seen.cost.slots = seen.scanned.iter().map(|range| range.count).sum();
        Ok(seen)
    }

    fn act(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        self.carry_out(action)
    }
}

impl Sim {
    fn nodes_observed(&self) -> Vec<NodeObserved> {
        let geometry = self.geometry();
        self.frames
            .nodes()
            .map(|(node, buddy)| NodeObserved {
                node,
                total: geometry.bytes(BasePages(u64::from(buddy.frames()))),
                free: geometry.bytes(buddy.free_pages()),
                free_blocks: buddy.free_blocks(),
                controller_requests: None,
                cpus: 1,
                distances: Vec::new(),
            })
            .collect()
    }

    fn observe_processes(&mut self, seen: &mut Observation) {
        let alive: BTreeMap<ProcessId, u64> = self
            .processes
            .iter()
            .map(|(id, process)| (*id, process.faults))
            .collect();
        seen.exited = self
            .seen
            .faults
            .keys()
            .filter(|id| !alive.contains_key(id))
            .copied()
            .collect();
        let ids = self.processes.keys();
        seen.processes = ids
            .map(|id| self.process_observed(*id, seen.interval))
            .collect();
        self.seen.faults = alive;
    }

    fn process_observed(&self, id: ProcessId, over: Span) -> ProcessObserved {
        let process = &self.processes[&id];
        let before = self.seen.faults.get(&id).copied().unwrap_or(process.faults);
        let children = self
            .processes
            .values()
            .filter(|child| child.forked_from == Some(id))
            .count();
        ProcessObserved {
            process: id,
            comm: process.comm.clone(),
            cgroup: Some(process.cgroup.id()),
            thp: process.consent,
            forked_children: u32::try_from(children).expect("few children"),
            resident: self.resident(id),
            faults: process.faults - before,
            over,
            l2_misses: None,
            l2_misses_by_walks: None,
            fault_time_share_max: None,
            nodes_allowed: None,
        }
    }

    fn resident(&self, id: ProcessId) -> Bytes {
        let geometry = self.geometry();
        let pages = |table: &Table| table.frames(geometry).len();
        let resident: usize = self.processes[&id].space.tables.values().map(pages).sum();
        geometry.bytes(BasePages(
            u64::try_from(resident).expect("a count of pages"),
        ))
    }

    fn observe_objects(&mut self, seen: &mut Observation) {
        let mut now: BTreeMap<ObjectId, Vec<Mapping>> = BTreeMap::new();
        for (object, mapping) in self
            .processes
            .iter()
            .flat_map(|(id, process)| self.all_mappings(*id, process))
        {
            now.entry(object).or_default().push(mapping);
        }
        for (object, mappings) in &now {
            if self.seen.objects.get(object) != Some(mappings) {
                seen.objects.push(ObjectObserved {
                    object: *object,
                    mappings: mappings.clone(),
                });
            }
        }
        for object in self
            .seen
            .objects
            .keys()
            .filter(|object| !now.contains_key(object))
        {
            seen.objects.push(ObjectObserved {
                object: *object,
                mappings: Vec::new(),
            });
        }
        self.seen
            .slots
            .retain(|slot, _| now.contains_key(&slot.object));
        self.seen
            .tracked
            .retain(|slot, _| now.contains_key(&slot.object));
        self.seen.objects = now;
    }

    fn answer(&mut self, look: &Look, seen: &mut Observation) {
        match look {
            Look::PageTables(range) => self.scan(*range, seen),
            Look::ZeroPages { slot, pages_max } => {
                let answer = self.count_zero_pages(*slot, *pages_max);
                seen.answers.push(answer);
            }
            Look::Nodes(slot) => {
                let mut state = self.slot_seen(*slot);
                state.nodes = self.slot_nodes(*slot);
                report(seen, state);
            }
            Look::Track { slots, period } => self.track(slots, *period),
            Look::Sample { samples_max } => self.sampling.order(*samples_max),
        }
    }

    /// For the checkpoint: every range that is mapped.
    fn scan_all(&mut self, seen: &mut Observation) {
        let shift = self.geometry().slot_shift();
        let of = |mapping: &Mapping| {
            let past = (mapping.offset + mapping.length.0).div_ceil(1 << shift);
            (mapping.offset >> shift, past)
        };
        let objects = seen.objects.clone();
        for object in &objects {
            let mut next = 0;
            for (first, end) in object
                .mappings
                .iter()
                .map(of)
                .collect::<BTreeSet<(u64, u64)>>()
            {
                let first = first.max(next);
                if end > first {
                    self.scan(
                        SlotRange {
                            object: object.object,
                            first,
                            count: end - first,
                        },
                        seen,
                    );
                    next = end;
                }
            }
        }
    }

    fn scan(&mut self, range: SlotRange, seen: &mut Observation) {
        seen.scanned.push(range);
        let known = self
            .seen
            .slots
            .keys()
            .filter(|slot| range.contains(**slot))
            .copied();
        let mut candidates: BTreeSet<SlotId> = known.collect();
        candidates.extend(self.populated(range.object, range.first, range.end()));
        for slot in candidates {
            let state = self.slot_seen(slot);
            let empty = holds_nothing(&state);
            let before = if empty {
                self.seen.slots.remove(&slot)
            } else {
                self.seen.slots.insert(slot, state.clone())
            };
            if before.as_ref() != (!empty).then_some(&state) {
                report(seen, state);
            }
        }
    }

    fn count_zero_pages(&self, slot: SlotId, pages_max: BasePages) -> Answer {
        let frames = self.slot_frames(slot);
        if frames.is_empty() {
            return Answer::Unanswered { slot };
        }
        let wanted =
            usize::try_from(pages_max.0).map_or(frames.len(), |max| max.clamp(1, frames.len()));
        let step = frames.len().div_ceil(wanted);
        let read = frames.iter().step_by(step);
        let count = |pages: usize| BasePages(u64::try_from(pages).expect("a count of pages"));
        Answer::ZeroPages {
            slot,
            read: count(read.len()),
            zero: count(read.filter(|frame| !self.frames.is_filled(**frame)).count()),
        }
    }

    fn track(&mut self, slots: &[SlotId], period: Span) {
        let mut before = std::mem::take(&mut self.seen.tracked);
        if before.is_empty() || period != self.seen.period {
            self.seen.reading_since = self.now;
        }
        self.seen.period = period;
        let kept = slots
            .iter()
            .map(|slot| (*slot, before.remove(slot).unwrap_or_default()));
        self.seen.tracked = kept.collect();
    }

    /// Remembers that a process accessed the base page at `address`.
    pub(crate) fn note_access(&mut self, id: ProcessId, address: u64) {
        if self.seen.tracked.is_empty() && !self.sampling.is_ordered() {
            return;
        }
        let geometry = *self.geometry();
        let mappings = self
            .processes
            .get(&id)
            .map_or_else(Vec::new, |process| self.all_mappings(id, process));
        let of_address = |mapping: &Mapping| {
            address
                .checked_sub(mapping.address)
                .filter(|into| *into < mapping.length.0)
        };
        for (object, mapping) in mappings {
            let Some(into) = of_address(&mapping) else {
                continue;
            };
            let offset = mapping.offset + into;
            let slot = SlotId {
                object,
                index: offset >> geometry.slot_shift(),
            };
            let page = (offset >> geometry.base_shift) % geometry.slot_pages().0;
            if let Some(pages) = self.seen.tracked.get_mut(&slot) {
                pages.insert(page);
            }
            if self.sampling.is_ordered() {
                let entry = self.processes[&id].space.entry(address, &geometry).0;
                let home = frame_of(&entry).map(|frame| self.frames.node_of(frame));
                self.sample_access(id, (slot, page), home);
            }
        }
    }

    /// Once a scan period: what was accessed of each tracked slot.
    fn read_accessed(&mut self, seen: &mut Observation) {
        if self.seen.tracked.is_empty()
            || self.now.since(self.seen.reading_since) < self.seen.period
        {
            return;
        }
        self.seen.reading_since = self.now;
        let readings: Vec<(SlotId, u64)> = self
            .seen
            .tracked
            .iter_mut()
            .map(|(slot, pages)| (*slot, std::mem::take(pages).len()))
            .map(|(slot, pages)| (slot, u64::try_from(pages).expect("a count of pages")))
            .collect();
        for (slot, pages) in readings {
            let mut state = self.slot_seen(slot);
            let all = self.geometry().slot_pages().0;
            let huge = state.is_huge(self.geometry().slot_order);
            let accessed = if huge && pages > 0 { all } else { pages };
            let share = Ratio::of(accessed, all);
            state.accessed = Some(Accessed {
                share,
                tracker: Tracker::Simulated,
            });
            report(seen, state);
        }
    }
}

/// Adds a slot to an observation; what is known of it already is completed.
fn report(seen: &mut Observation, state: SlotObserved) {
    match seen.slots.iter_mut().find(|slot| slot.slot == state.slot) {
        Some(known) => {
            let nodes = if state.nodes.is_empty() {
                std::mem::take(&mut known.nodes)
            } else {
                state.nodes
            };
            let accessed = state.accessed.or(known.accessed);
            *known = SlotObserved {
                nodes,
                accessed,
                ..state
            };
        }
        None => seen.slots.push(state),
    }
}

fn holds_nothing(state: &SlotObserved) -> bool {
    let pages = state.backing.present() + state.zero_mapped + state.swapped;
    pages == BasePages::ZERO
}
