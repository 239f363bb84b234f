//! A small stage for the core's tests: one process with one region, observed as the test says.
#![allow(dead_code, reason = "each test file uses a part of it")]

use hugepilot_core::action::Action;
use hugepilot_core::backing::Backing;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{CgroupId, NodeId, ObjectId, Pid, ProcessId, SlotId, SlotRange};
use hugepilot_core::observation::*;
use hugepilot_core::outcome::{Outcome, OutcomeClass};
use hugepilot_core::plan::{Accounted, Law, Plan, Planned};
use hugepilot_core::policy::Settings;
use hugepilot_core::reason::Reason;
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{BasePages, Bytes, Instant, Span};

pub const G: Geometry = Geometry::X86_64;
pub const SLOT: u64 = 2 << 20;

pub fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid: Pid(pid),
        start_ticks: 1,
    }
}

pub fn object(pid: u32) -> ObjectId {
    ObjectId::Private(process(pid))
}

pub fn slot(pid: u32, index: u64) -> SlotId {
    SlotId {
        object: object(pid),
        index,
    }
}

pub fn process_observed(pid: u32) -> ProcessObserved {
    ProcessObserved {
        process: process(pid),
        comm: "test".to_owned(),
        cgroup: Some(CgroupId(1)),
        thp: ThpConsent::Allowed,
        forked_children: 0,
        resident: Bytes::ZERO,
        faults: 0,
        over: Span::secs(1),
        l2_misses: None,
        l2_misses_by_walks: None,
        fault_time_share_max: None,
        nodes_allowed: None,
    }
}

/// The private object of `pid`, one anonymous region of `slots` slots from address 0.
pub fn object_observed(pid: u32, slots: u64) -> ObjectObserved {
    let mapping = Mapping {
        process: process(pid),
        address: 0,
        length: Bytes(slots * SLOT),
        offset: 0,
        kind: MemoryKind::Anonymous,
        writable: true,
        excluded: false,
        placement_fixed: false,
    };
    ObjectObserved {
        object: object(pid),
        mappings: vec![mapping],
    }
}

pub fn base(pid: u32, index: u64, pages: u64) -> SlotObserved {
    SlotObserved::new(
        slot(pid, index),
        Backing::uniform(Order::BASE, BasePages(pages)),
    )
}

pub fn huge(pid: u32, index: u64) -> SlotObserved {
    SlotObserved::new(slot(pid, index), Backing::uniform(Order(9), BasePages(512)))
}

pub fn blind() -> BlindSpot {
    BlindSpot {
        process: None,
        what: Unseen::AccessedShare,
        why: "no tracker".to_owned(),
    }
}

pub fn whole(pid: u32, slots: u64) -> SlotRange {
    SlotRange {
        object: object(pid),
        first: 0,
        count: slots,
    }
}

/// A pilot driven by hand: each `see` is one tick a second after the one before.
pub struct Driver {
    pub pilot: Pilot,
    pub seconds: u64,
}

impl Driver {
    pub fn new(policy: &str, settings: &Settings) -> Self {
        let policy = settings.policy(policy).expect("a known policy");
        Self {
            pilot: Pilot::new(G, policy, settings),
            seconds: 0,
        }
    }

    pub fn see(&mut self, seen: Observation) -> Plan {
        self.seconds += 1;
        self.see_at(Span::secs(self.seconds), seen)
    }

    pub fn see_at(&mut self, at: Span, mut seen: Observation) -> Plan {
        seen.at = Instant(at.0);
        if seen.nodes.is_empty() {
            seen.nodes.push(node(Bytes::gib(8)));
        }
        self.pilot.plan(&seen)
    }

    /// The first tick: a process with one region and these slots, all of them scanned.
    pub fn start(&mut self, slots: Vec<SlotObserved>) -> Plan {
        self.see(Observation {
            checkpoint: true,
            processes: vec![process_observed(1)],
            objects: vec![object_observed(1, 1024)],
            scanned: vec![whole(1, 1024)],
            slots,
            blind: vec![blind()],
            ..Observation::default()
        })
    }

    pub fn outcome(&mut self, planned: &Planned, class: OutcomeClass, after: Option<SlotObserved>) {
        let outcome = Outcome {
            took: Span::micros(500),
            after,
            ..Outcome::new(class)
        };
        self.pilot.account(&Accounted {
            planned: planned.clone(),
            via: Some(process(1)),
            outcome,
        });
    }
}

pub fn node(free: Bytes) -> NodeObserved {
    NodeObserved {
        node: NodeId(0),
        total: Bytes::gib(16),
        free,
        free_blocks: Vec::new(),
        controller_requests: None,
        cpus: 0,
        distances: Vec::new(),
    }
}

pub fn collapses(plan: &Plan) -> Vec<u64> {
    plan.actions
        .iter()
        .filter(|planned| matches!(planned.action, Action::Collapse { .. }))
        .filter_map(|planned| planned.action.slot())
        .map(|slot| slot.index)
        .collect()
}

pub fn splits(plan: &Plan) -> Vec<u64> {
    plan.actions
        .iter()
        .filter(|planned| matches!(planned.action, Action::Split { .. }))
        .filter_map(|planned| planned.action.slot())
        .map(|slot| slot.index)
        .collect()
}

pub fn laws(plan: &Plan) -> Vec<Law> {
    plan.refused.iter().map(|refused| refused.law).collect()
}

pub fn first_reason(plan: &Plan) -> &Reason {
    &plan.actions.first().expect("an action").reason
}
