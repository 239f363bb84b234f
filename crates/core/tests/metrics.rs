//! The paper's measures on pages counted by hand, and the spread of estimates.

mod common;

use common::*;
use hugepilot_core::ids::{CpuId, NodeId, Tid};
use hugepilot_core::metrics::*;
use hugepilot_core::sample::{Sample, Sampler, ServedBy};
use hugepilot_core::units::{BasePages, Ratio};
use proptest::prelude::*;

/// A sample of base page `page` of slot `index`, from `from`, of memory that lies on `home`; a thread for each node.
fn sample(index: u64, page: u64, from: u16, home: u16) -> Sample {
    Sample {
        process: process(1),
        thread: Tid(u32::from(from)),
        cpu: CpuId(u32::from(from)),
        cpu_node: NodeId(from),
        slot: slot(1, index),
        base_page: BasePages(page),
        page_node: Some(NodeId(home)),
        served_by: ServedBy::Dram,
        rate: None,
        sampler: Sampler::Virtual,
    }
}

fn table(samples: impl IntoIterator<Item = Sample>) -> AccessTable {
    let mut table = AccessTable::default();
    for sample in samples {
        table.add(&sample, sample.rate.unwrap_or(1.0));
    }
    table
}

fn huge(table: &AccessTable) -> Vec<PageUse> {
    table.pages(|_| Grain::Huge)
}

fn based(table: &AccessTable) -> Vec<PageUse> {
    table.pages(|_| Grain::Base)
}

fn nodes(count: u16) -> Vec<NodeId> {
    (0..count).map(NodeId).collect()
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

/// Two threads on alternate base pages of `slots` huge pages, all on node 0, each base page `times` times.
fn falsely_shared(slots: u64, times: u64) -> AccessTable {
    let pages = (0..slots).flat_map(|slot| (0..512).map(move |page| (slot, page)));
    table(pages.flat_map(|(slot, page)| {
        let from = u16::from(page % 2 == 1);
        (0..times).map(move |_| sample(slot, page, from, 0))
    }))
}

#[test]
fn lar_is_the_share_of_local_accesses() {
    let all = table([
        sample(0, 0, 0, 0),
        sample(0, 1, 1, 0),
        sample(1, 0, 1, 1),
        sample(1, 1, 1, 1),
    ]);
    close(lar(&huge(&all)).expect("known").0.value, 0.75);
    close(lar(&based(&all)).expect("known").0.value, 0.75);
}

#[test]
fn imbalance_is_the_deviation_over_the_mean_of_all_nodes_with_memory() {
    let all = table([
        sample(0, 0, 0, 0),
        sample(0, 0, 1, 0),
        sample(0, 0, 2, 0),
        sample(1, 0, 0, 1),
    ]);
    let found = |count| {
        imbalance(&all.destinations(), &nodes(count), all.volume())
            .expect("known")
            .0
            .value
    };
    close(found(2), 0.5); // 3 and 1: mean 2, deviation 1
    close(found(4), 1.5_f64.sqrt()); // 3, 1, 0, 0: mean 1, deviation √1.5
    close(imbalance_of_requests(&[3, 1]).expect("known").0.value, 0.5);
    assert_eq!(imbalance_of_requests(&[0, 0]), None);
}

#[test]
fn the_most_used_page_the_hot_and_the_shared_ones() {
    // Slot 0: 10 accesses from node 0. Slots 1 to 90: one from node 1 each.
    let hot = (0..10).map(|_| sample(0, 7, 0, 0));
    let all = table(hot.chain((1..91).map(|index| sample(index, 0, 1, 1))));
    let pages = huge(&all);
    close(pamup(&pages, all.volume()).expect("known").0.value, 0.10);
    let six = Ratio::percent(6);
    assert_eq!(nhp(&pages, all.volume(), six).expect("known").value, 1);
    let ten = Ratio::percent(10);
    assert_eq!(
        nhp(&pages, all.volume(), ten).expect("known").value,
        0,
        "more than, not as much as"
    );
    close(psp(&pages, SharedBy::Threads).expect("known").0.value, 0.0);
    let shared = table([sample(0, 0, 0, 0), sample(0, 1, 1, 0), sample(1, 0, 1, 1)]);
    let psp = |pages: &[PageUse], by| psp(pages, by).expect("known").0.value;
    close(psp(&huge(&shared), SharedBy::Threads), 2.0 / 3.0);
    close(psp(&based(&shared), SharedBy::Threads), 0.0);
}

#[test]
fn threads_of_one_node_share_a_page_and_nodes_do_not() {
    let other = Sample {
        thread: Tid(9),
        ..sample(0, 1, 0, 0)
    };
    let pages = huge(&table([sample(0, 0, 0, 0), other]));
    close(psp(&pages, SharedBy::Threads).expect("known").0.value, 1.0);
    close(psp(&pages, SharedBy::Nodes).expect("known").0.value, 0.0);
}

#[test]
fn placing_puts_shared_pages_at_a_random_node_or_at_the_best() {
    let mut samples: Vec<Sample> = (0..3).map(|_| sample(0, 0, 1, 0)).collect();
    samples.push(sample(0, 1, 2, 0));
    samples.extend((0..4).map(|_| sample(1, 0, 3, 0)));
    let pages = huge(&table(samples));
    let then = |to| if_placed(&pages, to, 4).expect("known").then.value;
    close(then(SharedTo::Random), (4.0 / 4.0 + 4.0) / 8.0);
    close(then(SharedTo::Best), (3.0 + 4.0) / 8.0);
    close(
        if_placed(&pages, SharedTo::Best, 4)
            .expect("known")
            .gain
            .value,
        7.0 / 8.0,
    );
}

#[test]
fn splitting_is_the_same_fold_over_base_pages() {
    let all = falsely_shared(4, 4);
    let placed = if_placed(&huge(&all), SharedTo::Random, 2).expect("known");
    let split = if_placed(&based(&all), SharedTo::Random, 2).expect("known");
    close(placed.now.value, 0.5);
    close(placed.gain.value, 0.0);
    close(split.gain.value, 0.5);
    assert!(split.gain.low > 0.4, "{}", split.gain);
}

/// The paper's SSCA: all pages are used by all nodes alike, and hardly any base page has two samples. The estimate says
/// that splitting gains; the spread says that nothing is known of it.
#[test]
fn the_spread_tells_that_single_samples_look_like_single_nodes() {
    let all = table(scattered(3_000, 16_384, 4, 11));
    let split = if_placed(&based(&all), SharedTo::Random, 4).expect("known");
    assert!(
        split.then.value > 0.80,
        "the paper's estimate: {}",
        split.then
    );
    let truth = 0.25;
    assert!(
        split.then.low <= truth + 0.05 && split.then.high >= truth,
        "what is got must lie within: {}",
        split.then
    );
    assert_ne!(split.gain.over(0.05), Over::Yes, "{}", split.gain);
}

#[test]
fn with_many_samples_the_estimate_itself_is_right() {
    let all = table(scattered(40_000, 512, 4, 12));
    let split = if_placed(&based(&all), SharedTo::Random, 4).expect("known");
    assert!((split.then.value - 0.25).abs() < 0.02, "{}", split.then);
    assert_eq!(split.gain.over(0.05), Over::No);
}

/// `count` accesses to `pages` base pages, each from a node drawn at random, and lying anywhere.
fn scattered(count: u64, pages: u64, nodes: u64, seed: u64) -> Vec<Sample> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let samples = (0..count).map(|_| {
        let page = draw(pages);
        let from = u16::try_from(draw(nodes)).expect("few nodes");
        let home = u16::try_from((page / 512) % nodes).expect("few nodes");
        sample(page / 512, page % 512, from, home)
    });
    samples.collect()
}

#[test]
fn who_but_not_how_often_leaves_volume_unknown() {
    let hint = |rate| Sample {
        sampler: Sampler::HintingFault,
        rate,
        ..sample(0, 0, 0, 0)
    };
    let blind = table([hint(None), sample(1, 0, 1, 1)]);
    let pages = huge(&blind);
    assert_eq!(
        imbalance(&blind.destinations(), &nodes(2), blind.volume()),
        None
    );
    assert_eq!(pamup(&pages, blind.volume()), None);
    assert_eq!(nhp(&pages, blind.volume(), Ratio::percent(6)), None);
    assert!(lar(&pages).is_some());
    let rated = table([hint(Some(40.0)), sample(1, 0, 1, 1)]);
    assert!(pamup(&huge(&rated), rated.volume()).is_some());
}

#[test]
fn first_touches_and_pages_only_ever_cached_do_not_count() {
    let touch = Sample {
        sampler: Sampler::FirstTouch,
        ..sample(0, 0, 0, 0)
    };
    let cached = Sample {
        served_by: ServedBy::Cache,
        ..sample(1, 0, 0, 0)
    };
    let both = Sample {
        served_by: ServedBy::Cache,
        ..sample(2, 0, 0, 0)
    };
    let pages = huge(&table([touch, cached, both, sample(2, 0, 1, 0)]));
    assert_eq!(pages.len(), 1);
    assert_eq!(pages[0].samples(), 2, "all samples of a counted page count");
}

#[test]
fn a_page_that_moved_is_counted_where_it_is() {
    let mut all = table([sample(0, 3, 1, 0), sample(0, 4, 0, 0)]);
    all.place_pages(slot(1, 0), &[(BasePages(3), NodeId(1))]);
    close(lar(&based(&all)).expect("known").0.value, 1.0);
    all.place_slot(slot(1, 0), NodeId(1));
    close(lar(&huge(&all)).expect("known").0.value, 0.5);
    assert_eq!(huge(&all)[0].home, Some(NodeId(1)));
}

#[test]
fn a_table_is_written_and_read_back() {
    let all = falsely_shared(1, 1);
    let text = serde_json::to_string(&all).expect("serializable");
    let back: AccessTable = serde_json::from_str(&text).expect("readable");
    assert_eq!(back, all);
}

fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
    let one = (0..4_u64, 0..512_u64, 0..4_u16, 0..4_u16, 1..100_u32);
    prop::collection::vec(one, 1..200).prop_map(|all| {
        let sample = |(index, page, from, home, rate)| Sample {
            rate: Some(f64::from(rate)),
            ..sample(index, page, from, home)
        };
        all.into_iter().map(sample).collect()
    })
}

fn bounded(estimate: Estimate) -> bool {
    estimate.low <= estimate.high + 1e-9
}

fn ordered(estimate: Estimate) -> bool {
    estimate.low <= estimate.value + 1e-9 && estimate.value <= estimate.high + 1e-9
}

proptest! {
    /// Whatever was sampled, shares are shares and lie within their bounds, and splitting never looks worse to the paper's
    /// estimate than not splitting.
    #[test]
    fn estimates_lie_within_their_bounds(samples in any_samples()) {
        let all = table(samples);
        let (huge, based) = (huge(&all), based(&all));
        let found = [lar(&huge).expect("homes are known").0, pamup(&huge, all.volume()).expect("rated").0,
            psp(&huge, SharedBy::Threads).expect("samples").0];
        for share in found {
            prop_assert!(ordered(share) && (0.0..=1.0).contains(&share.value), "{share}");
        }
        let placed = if_placed(&huge, SharedTo::Random, 4).expect("homes are known");
        let split = if_placed(&based, SharedTo::Random, 4).expect("homes are known");
prop_assert!([placed.gain, split.gain, placed.then, split.then].into_iter().all(bounded));
        prop_assert!(split.then.value >= placed.then.value - 1e-9);
        prop_assert!((split.now.value - placed.now.value).abs() < 1e-9, "grain does not change LAR now");
        prop_assert!(ordered(imbalance(&all.destinations(), &nodes(4), all.volume()).expect("rated").0));
    }
}
