//! Where memory never goes, whatever is sampled; one node; and the laws by themselves.

use crate::common::*;
use crate::stage::*;
use hugepilot_core::action::Action;
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::NodeId;
use hugepilot_core::laws::{LawParams, Laws};
use hugepilot_core::look::Look;
use hugepilot_core::observation::*;
use hugepilot_core::plan::{Law, Planned};
use hugepilot_core::policy::Settings;
use hugepilot_core::reason::Reason;
use hugepilot_core::sample::Sample;
use hugepilot_core::units::{BasePages, Bytes, Instant};
use hugepilot_core::world::World;
use proptest::prelude::*;

const FAMILY: [&str; 5] = [
    "carrefour",
    "carrefour-2m",
    "conservative",
    "reactive",
    "carrefour-lp",
];

#[test]
fn on_one_node_there_is_nothing_to_do() {
    for policy in FAMILY {
        let alone = |stage: &mut Stage| stage.nodes.truncate(1);
        let (mut stage, first) = Stage::changed(policy, &Settings::default(), alone);
        assert_eq!(first, []);
        let samples = (0..64).map(|page| sample(0, page, 0, 0)).collect();
        assert_eq!(stage.round(samples), []);
        let sampled = |look: &Look| matches!(look, Look::Sample { .. } | Look::Nodes(_));
        assert!(
            !stage.looks.iter().any(sampled),
            "{policy} asks for nothing"
        );
        assert_eq!(
            stage.driver.pilot.notes(),
            ["one node: there is nothing to do"]
        );
    }
}

/// Node 0 and 1 may be used, 2 is forbidden, 3 is full; slot 9 is bound to its node.
fn hedged(stage: &mut Stage) {
    stage.process.nodes_allowed = Some(vec![NodeId(0), NodeId(1), NodeId(3)]);
    stage.nodes[3].free = Bytes::mib(1);
    let bound = Mapping {
        address: 9 * SLOT,
        offset: 9 * SLOT,
        length: Bytes(SLOT),
        placement_fixed: true,
        ..stage.object.mappings[0].clone()
    };
    stage.object.mappings = vec![
        Mapping {
            length: Bytes(9 * SLOT),
            ..bound.clone()
        }
        .unbound(0),
        bound.clone(),
        Mapping {
            length: Bytes((SLOTS - 10) * SLOT),
            ..bound
        }
        .unbound(10 * SLOT),
    ];
}

trait Unbound {
    fn unbound(self, at: u64) -> Self;
}

impl Unbound for Mapping {
    fn unbound(self, at: u64) -> Self {
        Self {
            address: at,
            offset: at,
            placement_fixed: false,
            ..self
        }
    }
}

fn any_round() -> impl Strategy<Value = Vec<Sample>> {
    let one = (0..SLOTS, 0..16_u64, 0..4_u16, 0..3_u16);
    prop::collection::vec(one, 0..300).prop_map(|all| {
        let each = all.into_iter();
        each.map(|(index, page, from, home)| sample(index, page, from, home))
            .collect()
    })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    prop_oneof![
        Just(Settings::default()),
        Just(preset("paper")),
        Just(with(
            preset("released"),
            "carrefour",
            "accesses_min",
            serde_json::json!(0)
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn memory_goes_only_where_it_may(
        policy in prop::sample::select(FAMILY.to_vec()),
        settings in any_settings(),
        rounds in prop::collection::vec(any_round(), 1..5),
    ) {
        let (mut stage, _) = Stage::changed(policy, &settings, hedged);
        for samples in rounds {
            for (slot, _, to) in moves(&stage.round(samples)) {
                prop_assert!(to < 2 && slot != 9, "slot {slot} to node {to}");
            }
        }
        let own = [Law::NodeForbidden, Law::NodeFull, Law::PlacementFixed];
        prop_assert!(!stage.laws.iter().any(|law| own.contains(law)), "the policy knows: {:?}", stage.laws);
    }

    #[test]
    fn the_same_observations_give_the_same_plans(
        policy in prop::sample::select(FAMILY.to_vec()),
        settings in any_settings(),
        rounds in prop::collection::vec(any_round(), 1..4),
    ) {
        let run = || {
            let (mut stage, first) = Stage::new(policy, &settings);
            let all: Vec<Vec<Planned>> = rounds.iter().map(|samples| stage.round(samples.clone())).collect();
            (first, all, stage.driver.pilot.policy().state())
        };
        prop_assert_eq!(run(), run());
    }
}

/// A world of two nodes with one process of 8 huge slots, as `change` has it.
fn world(change: impl Fn(&mut Observation)) -> World {
    let mut seen = Observation {
        at: Instant(1_000_000_000),
        nodes: (0..2).map(node_of).collect(),
        processes: vec![process_observed(1)],
        objects: vec![object_observed(1, 64)],
        slots: (0..64).map(|index| huge(1, index)).collect(),
        ..Observation::default()
    };
    change(&mut seen);
    let mut world = World::new(G);
    world.fold(&seen);
    world
}

fn move_slot(index: u64, to: u16) -> Planned {
    Planned {
        action: Action::MoveSlot {
            slot: slot(1, index),
            to: NodeId(to),
        },
        reason: Reason::OnCommand,
    }
}

fn refused(change: impl Fn(&mut Observation)) -> Vec<Law> {
    let world = world(change);
    let wanted = vec![move_slot(0, 1)];
    let (_, refused) = Laws::new(LawParams::default()).admit(&world, wanted);
    refused.iter().map(|refused| refused.law).collect()
}

#[test]
fn the_laws_hold_back_moves_that_nobody_should_ask_for() {
    assert_eq!(refused(|_| {}), []);
    let fixed = |seen: &mut Observation| seen.objects[0].mappings[0].placement_fixed = true;
    assert_eq!(refused(fixed), [Law::PlacementFixed]);
    let allowed = |seen: &mut Observation| seen.processes[0].nodes_allowed = Some(vec![NodeId(0)]);
    assert_eq!(refused(allowed), [Law::NodeForbidden]);
    assert_eq!(
        refused(|seen| seen.nodes[1].total = Bytes::ZERO),
        [Law::NodeForbidden]
    );
    assert_eq!(refused(|seen| drop(seen.nodes.pop())), [Law::NodeForbidden]);
    assert_eq!(
        refused(|seen| seen.nodes[1].free = Bytes::mib(2)),
        [Law::NodeFull]
    );
    assert_eq!(
        refused(|seen| seen.processes[0].thp = ThpConsent::Refused),
        [Law::OptedOut]
    );
}

#[test]
fn another_process_that_maps_the_object_counts_too() {
    let laws = refused(|seen| {
        let other = ProcessObserved {
            nodes_allowed: Some(vec![NodeId(0)]),
            ..process_observed(2)
        };
        seen.processes.push(other);
        let mapping = Mapping {
            process: process(2),
            ..seen.objects[0].mappings[0].clone()
        };
        seen.objects[0].mappings.push(mapping);
    });
    assert_eq!(laws, [Law::NodeForbidden]);
}

#[test]
fn moves_fill_a_node_no_further_than_it_may_and_copy_no_more_than_a_tick_has() {
    let room = world(|seen| seen.nodes[1].free = Bytes::mib(5) + Bytes::gib(16).share(share()));
    let wanted = |count: u64| (0..count).map(|index| move_slot(index, 1)).collect();
    let (admitted, held) = Laws::new(LawParams::default()).admit(&room, wanted(4));
    assert_eq!((admitted.len(), held.len()), (2, 2), "2 x 2 MiB fit into 5");
    let (admitted, held) = Laws::new(LawParams::default()).admit(&world(|_| {}), wanted(60));
    // 50 ms at 512 MiB a second, and one move more.
    assert_eq!(admitted.len(), 13);
    assert!(held.iter().all(|refused| refused.law == Law::TickBound));
}

fn share() -> hugepilot_core::units::Ratio {
    LawParams::default().node_free_share
}

#[test]
fn splitting_moves_nothing_and_is_not_held_back_by_placement() {
    let fixed = world(|seen| seen.objects[0].mappings[0].placement_fixed = true);
    let wanted = Planned {
        action: Action::Split {
            slot: slot(1, 0),
            order: Order::BASE,
        },
        reason: Reason::OnCommand,
    };
    let interleave = Planned {
        action: Action::Interleave {
            slot: slot(1, 1),
            nodes: vec![(NodeId(0), 1), (NodeId(1), 1)],
        },
        reason: Reason::OnCommand,
    };
    let pages = Planned {
        action: Action::MovePages {
            slot: slot(1, 2),
            pages: vec![(BasePages(3), NodeId(1))],
        },
        reason: Reason::OnCommand,
    };
    let (admitted, refused) =
        Laws::new(LawParams::default()).admit(&fixed, vec![wanted.clone(), interleave, pages]);
    assert_eq!(admitted, [wanted]);
    assert!(
        refused
            .iter()
            .all(|refused| refused.law == Law::PlacementFixed)
    );
}
