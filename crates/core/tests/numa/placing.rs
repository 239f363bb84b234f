//! Carrefour itself: which pages go where, and when.

use crate::stage::*;
use hugepilot_core::ids::NodeId;
use hugepilot_core::look::Look;
use hugepilot_core::metrics::Estimate;
use hugepilot_core::observation::NodeObserved;
use hugepilot_core::reason::Reason;
use hugepilot_core::sample::Sample;
use hugepilot_core::units::Bytes;
use serde_json::json;

/// Base pages of slots that were split, each used by one node and lying on node 0.
fn of_one_node() -> Vec<Sample> {
    falsely_shared(0..4, 2)
        .into_iter()
        .map(|of| Sample {
            page_node: Some(NodeId(0)),
            ..of
        })
        .collect()
}

#[test]
fn huge_pages_are_passed_over_by_carrefour_and_moved_whole_by_carrefour_2m() {
    let (mut stage, _) = Stage::new("carrefour", &preset("paper"));
    assert_eq!(moves(&stage.round(misplaced())), []);
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("paper"));
    assert_eq!(moves(&stage.round(misplaced())).len(), 32);
}

#[test]
fn base_pages_go_to_the_node_that_uses_them() {
    let (mut stage, _) = Stage::new("carrefour-lp", &preset("paper"));
    stage.round(falsely_shared(0..4, 2));
    let done = stage.round(of_one_node());
    let found = moves(&done);
    assert_eq!(found.len(), 4 * 48, "a quarter of 4 x 64 is there already");
    let right = |(_, page, to): &(u64, Option<u64>, u16)| {
        *page.as_ref().expect("base pages") % 4 == u64::from(*to)
    };
    assert!(found.iter().all(right), "{found:?}");
}

#[test]
fn the_released_code_wants_two_samples() {
    let once = || misplaced().into_iter().filter(|of| of.base_page.0 == 0);
    let moved = |name: &str, samples: Vec<Sample>| {
        let open = with(preset(name), "carrefour", "accesses_min", json!(0));
        let (mut stage, _) = Stage::new("carrefour-2m", &open);
        moves(&stage.round(samples)).len()
    };
    assert_eq!(moved("paper", once().collect()), 32);
    assert_eq!(moved("released", once().collect()), 0);
    assert_eq!(moved("released", once().chain(once()).collect()), 32);
}

#[test]
fn the_released_code_moves_a_huge_page_once() {
    let open = with(preset("released"), "carrefour", "accesses_min", json!(0));
    let (mut stage, _) = Stage::new("carrefour-2m", &open);
    assert_eq!(moves(&stage.round(misplaced())).len(), 32);
    assert_eq!(moves(&stage.round(misplaced())).len(), 0);
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("paper"));
    stage.round(misplaced());
    assert_eq!(moves(&stage.round(misplaced())).len(), 32);
}

#[test]
fn the_released_code_does_nothing_where_memory_is_hardly_asked() {
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("released"));
    let twice = misplaced().into_iter().chain(misplaced());
    assert_eq!(
        moves(&stage.round(twice.collect())),
        [],
        "below 15 accesses a µs and node"
    );
    let often = misplaced().into_iter().chain(misplaced()).map(|of| Sample {
        rate: Some(100_000.0),
        ..of
    });
    assert_eq!(moves(&stage.round(often.collect())).len(), 32);
}

/// Everybody asks huge pages of node 0 alone.
fn crowded() -> Vec<Sample> {
    let slots = (0..32).flat_map(|index| (0..4).map(move |from| (index, from)));
    slots
        .flat_map(|(index, from)| (0..8).map(move |page| sample(index, page, from, 0)))
        .collect()
}

#[test]
fn shared_pages_are_spread_over_all_nodes() {
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("paper"));
    let done = stage.round(crowded());
    let found = moves(&done);
    let to = |node| found.iter().filter(|(_, _, to)| *to == node).count();
    assert_eq!(to(0), 0, "what stays is not moved");
    assert!((16..32).contains(&found.len()), "{found:?}");
    assert!((1..4).all(|node| to(node) >= 3), "{found:?}");
    let reason = &done.last().expect("moves").reason;
    let Reason::Placement {
        shared: 1,
        imbalance: Some(imbalance),
        ..
    } = reason
    else {
        panic!("{reason}");
    };
    assert!(
        (imbalance.value - 3.0_f64.sqrt()).abs() < 1e-9,
        "{imbalance}"
    );
}

#[test]
fn the_same_seed_draws_the_same_and_another_draws_otherwise() {
    let drawn = |seed: u64| {
        let settings = with(preset("paper"), "carrefour", "seed", json!(seed));
        let (mut stage, _) = Stage::new("carrefour-2m", &settings);
        moves(&stage.round(crowded()))
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn a_shared_page_is_drawn_for_once_unless_imbalance_is_high() {
    // Balanced, and LAR low: shared pages of all nodes.
    let even = || {
        crowded().into_iter().map(|of| Sample {
            page_node: Some(NodeId(u16::try_from(of.slot.index % 4).expect("few"))),
            ..of
        })
    };
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("paper"));
    let first = moves(&stage.round(even().collect())).len();
    assert!(first > 0);
    assert_eq!(moves(&stage.round(even().collect())), []);
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("paper"));
    stage.round(crowded());
    assert!(
        !moves(&stage.round(crowded())).is_empty(),
        "imbalance is still high"
    );
}

#[test]
fn by_distance_near_nodes_are_drawn_more_often() {
    let settings = with(preset("paper"), "carrefour", "by_distance", json!(true));
    let far = |number: u16| NodeObserved {
        distances: (0..4)
            .map(|to| (NodeId(to), if to / 2 == number / 2 { 10 } else { 250 }))
            .collect(),
        ..node_of(number)
    };
    let (mut stage, _) = Stage::changed("carrefour-2m", &settings, |stage| {
        stage.nodes = (0..4).map(far).collect();
    });
    let near: Vec<Sample> = crowded()
        .into_iter()
        .filter(|of| of.cpu_node.0 < 2)
        .collect();
    let found = moves(&stage.round(near));
    let near = found.iter().filter(|(_, _, to)| *to < 2).count();
    assert!(near * 4 > found.len() * 3, "{found:?}");
}

#[test]
fn a_processor_without_memory_stands_for_the_nearest_node() {
    let bare = |stage: &mut Stage| {
        stage.nodes[3] = NodeObserved {
            total: Bytes::ZERO,
            free: Bytes::ZERO,
            distances: vec![(NodeId(0), 30), (NodeId(1), 20), (NodeId(2), 30)],
            ..node_of(3)
        };
    };
    let (mut stage, _) = Stage::changed("carrefour-2m", &preset("paper"), bare);
    let samples: Vec<Sample> = (0..8).map(|page| sample(7, page, 3, 2)).collect();
    assert_eq!(moves(&stage.round(samples)), [(7, None, 1)]);
}

#[test]
fn reasons_say_their_numbers() {
    let reason = Reason::HotPage {
        share: Estimate::around(0.10, 0.02),
        share_max: hugepilot_core::units::Ratio::percent(6),
        nodes: 4,
    };
    assert_eq!(
        reason.to_string(),
        "hot: 10.0 % (8.0 to 12.0) of all accesses (more than 6.0 %), from 4 nodes"
    );
}

#[test]
fn where_pages_lie_is_asked_for_and_believed() {
    let lost = || {
        let samples = misplaced().into_iter();
        samples.map(|of| Sample {
            page_node: None,
            ..of
        })
    };
    let (mut stage, _) = Stage::new("carrefour-2m", &preset("paper"));
    assert_eq!(moves(&stage.round(lost().collect())), [], "LAR is unknown");
    let asked = stage.looks.iter().filter_map(|look| match look {
        Look::Nodes(slot) => Some(slot.index),
        Look::PageTables(_) | Look::ZeroPages { .. } | Look::Track { .. } | Look::Sample { .. } => {
            None
        }
    });
    assert_eq!(asked.collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
    stage.answer_nodes(|index| u16::try_from((index + 1) % 4).expect("few"));
    assert_eq!(moves(&stage.round(lost().collect())).len(), 32);
}
