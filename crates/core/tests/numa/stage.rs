//! A machine of several nodes, played by hand: rounds of samples go in, actions come out and are reported done.

use crate::common::*;
use hugepilot_core::action::{Action, Switch};
use hugepilot_core::ids::{CpuId, NodeId, SlotId, Tid};
use hugepilot_core::look::Look;
use hugepilot_core::observation::*;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::plan::{Law, Planned};
use hugepilot_core::policy::Settings;
use hugepilot_core::sample::{Sample, Sampler, Samples, ServedBy};
use hugepilot_core::units::{BasePages, Bytes, Ratio, Span};
use serde_json::json;

/// Slots of the process, all huge at first.
pub const SLOTS: u64 = 32;
/// Ticks after a round in which its actions are carried out, at the most.
const TICKS_MAX: u64 = 45;

pub fn preset(name: &str) -> Settings {
    with(Settings::default(), "carrefour-lp", "preset", json!(name))
}

pub fn with(
    mut settings: Settings,
    section: &str,
    field: &str,
    value: serde_json::Value,
) -> Settings {
    settings
        .set(section, field, &value)
        .unwrap_or_else(|error| panic!("{error}"));
    settings
}

/// An access to base page `page` of slot `index` from node `from` to node `home`; one thread a node.
pub fn sample(index: u64, page: u64, from: u16, home: u16) -> Sample {
    Sample {
        process: process(1),
        thread: Tid(u32::from(from)),
        cpu: CpuId(u32::from(from)),
        cpu_node: NodeId(from),
        slot: slot(1, index),
        base_page: BasePages(page),
        page_node: Some(NodeId(home)),
        served_by: ServedBy::Dram,
        rate: Some(1000.0),
        sampler: Sampler::Virtual,
    }
}

/// All accesses local, every slot its node's own.
pub fn local() -> Vec<Sample> {
    let slots = (0..SLOTS).map(|index| (index, u16::try_from(index % 4).expect("four nodes")));
    slots
        .flat_map(|(index, node)| (0..64).map(move |page| sample(index, page, node, node)))
        .collect()
}

/// Every slot used by one node alone, and lying on another.
pub fn misplaced() -> Vec<Sample> {
    let slots = (0..SLOTS).map(|index| (index, u16::try_from(index % 4).expect("four nodes")));
    slots
        .flat_map(|(index, node)| {
            (0..64).map(move |page| sample(index, page, node, (node + 1) % 4))
        })
        .collect()
}

/// Threads of all four nodes on base pages in turn, `times` times, of these slots; slot by slot on all nodes.
pub fn falsely_shared(slots: std::ops::Range<u64>, times: usize) -> Vec<Sample> {
    let pages = slots.flat_map(|index| (0..64_u64).map(move |page| (index, page)));
    let samples = pages.flat_map(|(index, page)| {
        let home = u16::try_from(index % 4).expect("four nodes");
        let from = u16::try_from(page % 4).expect("four nodes");
        std::iter::repeat_n(sample(index, page, from, home), times)
    });
    samples.collect()
}

/// What the counters say in a round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Page walks per hundred L2 misses.
    pub walks: Option<u64>,
    pub faults: Option<Ratio>,
}

pub struct Stage {
    pub driver: Driver,
    pub nodes: Vec<NodeObserved>,
    pub process: ProcessObserved,
    pub object: ObjectObserved,
    pub laws: Vec<Law>,
    pub looks: Vec<Look>,
    at_ms: u64,
}

pub fn node_of(number: u16) -> NodeObserved {
    NodeObserved {
        node: NodeId(number),
        cpus: 1,
        ..node(Bytes::gib(8))
    }
}

impl Stage {
    /// Four nodes and one process, whose slots are all huge; the first tick is over.
    pub fn new(policy: &str, settings: &Settings) -> (Self, Vec<Planned>) {
        Self::changed(policy, settings, |_| {})
    }

    /// The same, with something else about the machine.
    pub fn changed(
        policy: &str,
        settings: &Settings,
        change: impl Fn(&mut Self),
    ) -> (Self, Vec<Planned>) {
        let mut stage = Self {
            driver: Driver::new(policy, settings),
            nodes: (0..4).map(node_of).collect(),
            process: process_observed(1),
            object: object_observed(1, SLOTS),
            laws: Vec::new(),
            looks: Vec::new(),
            at_ms: 1000,
        };
        change(&mut stage);
        let first = Observation {
            checkpoint: true,
            processes: vec![stage.process.clone()],
            objects: vec![stage.object.clone()],
            scanned: vec![whole(1, SLOTS)],
            slots: (0..SLOTS).map(|index| huge(1, index)).collect(),
            ..Observation::default()
        };
        let done = stage.see(first);
        (stage, done)
    }

    /// One tick; what was admitted is reported done.
    fn see(&mut self, mut seen: Observation) -> Vec<Planned> {
        seen.nodes.clone_from(&self.nodes);
        let plan = self.driver.see_at(Span::millis(self.at_ms), seen);
        self.laws.extend(laws(&plan));
        self.looks.extend(plan.looks.clone());
        for planned in &plan.actions {
            let after = planned
                .action
                .slot()
                .map(|slot| after(&planned.action, slot));
            self.driver
                .outcome(planned, OutcomeClass::Done, after.flatten());
        }
        plan.actions
    }

    /// Says of every slot on which node it lies.
    pub fn answer_nodes(&mut self, home: impl Fn(u64) -> u16) {
        let on = |index| SlotObserved {
            nodes: vec![(NodeId(home(index)), BasePages(512))],
            ..huge(1, index)
        };
        self.at_ms += 20;
        self.see(Observation {
            slots: (0..SLOTS).map(on).collect(),
            ..Observation::default()
        });
    }

    /// A round with these samples, and all that comes of it before the next.
    pub fn round(&mut self, samples: Vec<Sample>) -> Vec<Planned> {
        self.round_with(samples, Counters::default())
    }

    pub fn round_with(&mut self, samples: Vec<Sample>, counters: Counters) -> Vec<Planned> {
        self.at_ms = (self.at_ms / 1000 + 1) * 1000;
        let process = ProcessObserved {
            l2_misses: counters.walks.map(|_| 100),
            l2_misses_by_walks: counters.walks,
            fault_time_share_max: counters.faults,
            ..self.process.clone()
        };
        let samples = Samples {
            taken: samples,
            ..Samples::default()
        };
        let mut done = self.see(Observation {
            processes: vec![process],
            samples,
            ..Observation::default()
        });
        for _ in 0..TICKS_MAX {
            self.at_ms += 20;
            done.extend(self.see(Observation::default()));
        }
        done
    }
}

fn after(action: &Action, slot: SlotId) -> Option<SlotObserved> {
    match action {
        Action::Split { .. } | Action::Interleave { .. } => Some(base(1, slot.index, 512)),
        Action::Collapse { .. } => Some(huge(1, slot.index)),
        Action::MoveSlot { .. }
        | Action::MovePages { .. }
        | Action::HugeAllocation { .. }
        | Action::Promotion { .. }
        | Action::Baseline { .. }
        | Action::CompactNode { .. }
        | Action::EvacuateBlock { .. }
        | Action::ResizePool { .. } => None,
    }
}

/// The slots that were split.
pub fn split(done: &[Planned]) -> Vec<u64> {
    let splits = done
        .iter()
        .filter(|planned| matches!(planned.action, Action::Split { .. }));
    let mut slots: Vec<u64> = splits
        .filter_map(|planned| planned.action.slot().map(|slot| slot.index))
        .collect();
    slots.sort_unstable();
    slots
}

/// Huge allocation and promotion as they were switched, in order.
pub fn switched(done: &[Planned]) -> (Vec<Switch>, Vec<Switch>) {
    let (mut allocation, mut promotion) = (Vec::new(), Vec::new());
    for planned in done {
        if let Action::HugeAllocation { switch, .. } = planned.action {
            allocation.push(switch);
        }
        if let Action::Promotion { switch, .. } = planned.action {
            promotion.push(switch);
        }
    }
    (allocation, promotion)
}

/// Where actions put memory: slot, base page if it is not the whole slot, node.
pub fn moves(done: &[Planned]) -> Vec<(u64, Option<u64>, u16)> {
    let mut moves = Vec::new();
    for planned in done {
        if let Action::MoveSlot { slot, to } = &planned.action {
            moves.push((slot.index, None, to.0));
        }
        if let Action::MovePages { slot, pages } = &planned.action {
            let each = pages.iter();
            moves.extend(each.map(|(page, to)| (slot.index, Some(page.0), to.0)));
        }
        if let Action::Interleave { slot, nodes } = &planned.action {
            moves.extend(nodes.iter().map(|(to, _)| (slot.index, None, to.0)));
        }
    }
    moves
}
