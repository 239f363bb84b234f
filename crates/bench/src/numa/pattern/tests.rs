//! What the shapes promise, for any number of threads.

use super::*;
use crate::numa::cpus::Cpu;
use crate::numa::spec::tests::spec;
use std::collections::BTreeMap;

fn for_threads(name: Name, threads: u32) -> Spec {
    Spec {
        cpus: (0..threads).map(|cpu| Cpu { cpu, node: cpu }).collect(),
        bytes: Bytes::mib(4 * u64::from(threads) + 2),
        ..spec(name)
    }
}

fn all_threads(threads: u32) -> impl Iterator<Item = Who> {
    (0..threads).map(move |thread| Who { thread, threads })
}

/// Which thread touches which line first.
fn first_touches(pattern: &dyn Pattern, threads: u32) -> BTreeMap<u64, u32> {
    let mut first = BTreeMap::new();
    for round in 0..pattern.rounds() {
        for who in all_threads(threads) {
            for line in pattern.touched(who, round).into_iter().flatten() {
                assert!(line < pattern.lines());
                let before = first.insert(line, who.thread);
                assert_eq!(before, None, "line {line} is touched twice");
            }
        }
    }
    first
}

#[test]
fn no_line_is_touched_twice_and_threads_compare_all_that_was_touched() {
    for name in Name::ALL {
        for threads in [1, 3, 4, 8] {
            let pattern = of(&for_threads(name, threads));
            let touched = first_touches(&*pattern, threads).len();
            let kept: u64 = all_threads(threads)
                .flat_map(|who| pattern.kept(who))
                .map(|lines| lines.end - lines.start)
                .sum();
            assert_eq!(
                u64::try_from(touched).expect("few"),
                kept,
                "{name}, {threads}"
            );
        }
    }
}

/// In how many slots each thread is the first, by round.
fn first_in_slots(pattern: &dyn Pattern, threads: u32) -> BTreeMap<u32, u32> {
    let mut slots: BTreeMap<u64, u32> = BTreeMap::new();
    for round in 0..pattern.rounds() {
        let mut in_round: BTreeMap<u64, u32> = BTreeMap::new();
        for who in all_threads(threads) {
            for lines in pattern.touched(who, round) {
                for slot in lines.start / LINES_PER_SLOT..lines.end.div_ceil(LINES_PER_SLOT) {
                    let other = in_round.insert(slot, who.thread);
                    assert!(
                        other.is_none_or(|other| other == who.thread),
                        "a race for slot {slot}"
                    );
                }
            }
        }
        for (slot, thread) in in_round {
            slots.entry(slot).or_insert(thread);
        }
    }
    let mut count = BTreeMap::new();
    for thread in slots.values() {
        *count.entry(*thread).or_insert(0) += 1;
    }
    count
}

#[test]
fn whose_huge_page_it_is_is_no_race() {
    let pattern = of(&for_threads(Name::FalseSharing, 4));
    let count = first_in_slots(&*pattern, 4);
    assert!(
        count.values().all(|slots| (2..=3).contains(slots)),
        "{count:?}"
    );
    let pattern = of(&for_threads(Name::HotVector, 4));
    assert_eq!(first_in_slots(&*pattern, 4).len(), 4);
}

#[test]
fn the_hot_vector_has_fewer_huge_pages_than_there_are_nodes() {
    for nodes in [2, 4, 8] {
        let pattern = hot_vector::HotVector::new(33, nodes, nodes);
        let first = first_touches(&pattern, nodes);
        let owners: Vec<u32> = (0..u64::from(nodes / 2))
            .map(|slot| first[&(slot * LINES_PER_SLOT)])
            .collect();
        let expected: Vec<u32> = (0..nodes).step_by(2).collect();
        assert_eq!(owners, expected);
    }
}

#[test]
fn a_falsely_shared_slot_holds_the_runs_of_many_threads() {
    let pattern = of(&for_threads(Name::FalseSharing, 8));
    let first = first_touches(&*pattern, 8);
    let owners: std::collections::BTreeSet<u32> = first
        .range(..LINES_PER_SLOT)
        .map(|(_, thread)| *thread)
        .collect();
    assert_eq!(owners.len(), 8);
}

/// Accesses of a thread by the thread that touched the line first.
fn accesses_by_owner(name: Name, interval: u32) -> BTreeMap<u32, u64> {
    let spec = for_threads(name, 4);
    let pattern = of(&spec);
    let owners = first_touches(&*pattern, 4);
    let arena = Arena::map(pattern.lines(), spec.seed, spec.backing).expect("a small arena");
    let mut count = BTreeMap::new();
    for who in all_threads(4) {
        for lines in (0..pattern.rounds()).flat_map(|round| pattern.touched(who, round)) {
            arena.fill(lines);
        }
    }
    // Every update is remembered by its line, so the memory itself tells whose lines were used.
    let who = Who {
        thread: 1,
        threads: 4,
    };
    let mut step = Step {
        arena: &arena,
        who,
        interval,
        stage: 0,
        accesses: 20_000,
        random: Random::new(1, 1),
        tally: Tally::default(),
    };
    pattern.work(&mut step).expect("works");
    assert_eq!(step.tally.wrong, 0);
    for (line, owner) in owners {
        *count.entry(owner).or_insert(0) += arena.verify(line..line + 1).updates;
    }
    assert_eq!(count.values().sum::<u64>(), step.tally.updates);
    count
}

#[test]
fn a_thread_updates_its_own_data_until_the_phase_changes() {
    assert_eq!(accesses_by_owner(Name::FalseSharing, 5)[&1], 2_000);
    assert_eq!(accesses_by_owner(Name::FalseSharingPhases, 1)[&1], 2_000);
    assert_eq!(accesses_by_owner(Name::FalseSharingPhases, 2)[&2], 2_000);
}

#[test]
fn everybody_uses_the_table() {
    let count = accesses_by_owner(Name::HashTable, 0);
    assert!(
        count.values().all(|updates| (800..1_200).contains(updates)),
        "{count:?}"
    );
}

#[test]
fn map_reduce_does_as_many_accesses_as_asked_or_one_turn() {
    let stages = |accesses| map_reduce::MapReduce::new(8, 4, accesses).stages();
    assert_eq!(stages(1), 3);
    assert_eq!(stages(2 * 2 * LINES_PER_SLOT), 3);
    assert_eq!(stages(10 * 2 * 2 * LINES_PER_SLOT), 30);
}
