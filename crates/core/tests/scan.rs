//! What is read next, and that it stays within its budget.

mod common;

use common::*;
use hugepilot_core::look::Look;
use hugepilot_core::observation::*;
use hugepilot_core::plan::Plan;
use hugepilot_core::policy::Settings;
use hugepilot_core::units::{Bytes, Span};

fn ranges(plan: &Plan) -> Vec<(u64, u64)> {
    let of = |look: &Look| match look {
        Look::PageTables(range) => Some((range.first, range.end())),
        Look::ZeroPages { .. } | Look::Nodes(_) | Look::Track { .. } | Look::Sample { .. } => None,
    };
    plan.looks.iter().filter_map(of).collect()
}

/// An answer to all page-table looks of a plan: nothing changed, and it cost `ns_per_slot`.
fn answer(plan: &Plan, ns_per_slot: u64) -> Observation {
    let mut seen = Observation::default();
    for look in &plan.looks {
        if let Look::PageTables(range) = look {
            seen.scanned.push(*range);
            seen.cost.slots += range.count;
        }
    }
    seen.cost.scan = Span(seen.cost.slots * ns_per_slot);
    seen.cost.cpu = seen.cost.scan;
    seen
}

fn region(slots: u64) -> Observation {
    Observation {
        processes: vec![process_observed(1)],
        objects: vec![object_observed(1, slots)],
        ..Observation::default()
    }
}

#[test]
fn a_new_object_is_read_at_once_and_whole() {
    let mut driver = Driver::new("mega", &Settings::default());
    assert_eq!(ranges(&driver.see(region(100))), [(0, 100)]);
}

#[test]
fn a_large_object_is_read_in_pieces() {
    let mut driver = Driver::new("mega", &Settings::default());
    let plan = driver.see(region(5000));
    assert_eq!(ranges(&plan), [(0, 2048)]);
    let plan = driver.see(answer(&plan, 10));
    assert_eq!(ranges(&plan), [(2048, 4096)]);
    let plan = driver.see(answer(&plan, 10));
    assert_eq!(ranges(&plan), [(4096, 5000)]);
}

#[test]
fn only_slots_that_a_region_covers_whole_are_read() {
    let mut driver = Driver::new("mega", &Settings::default());
    let mut seen = region(10);
    seen.objects[0].mappings[0].address = 4096;
    seen.objects[0].mappings[0].offset = 4096;
    assert_eq!(
        ranges(&driver.see(seen)),
        [(1, 10)],
        "the region now ends at slot 10 and a page"
    );
    let mut driver = Driver::new("mega", &Settings::default());
    let mut seen = region(10);
    seen.objects[0].mappings[0].address = 4096;
    assert_eq!(
        ranges(&driver.see(seen)),
        [],
        "offset and address differ within a slot"
    );
}

#[test]
fn two_processes_that_share_an_object_have_it_read_once() {
    let mut driver = Driver::new("mega", &Settings::default());
    let mut seen = region(64);
    let mut second = seen.objects[0].mappings[0].clone();
    second.process = process(2);
    seen.objects[0].mappings.push(second);
    seen.processes.push(process_observed(2));
    assert_eq!(ranges(&driver.see(seen)), [(0, 64)]);
}

#[test]
fn what_is_not_managed_is_not_read() {
    for kind in [MemoryKind::File, MemoryKind::Hugetlb, MemoryKind::Special] {
        let mut driver = Driver::new("mega", &Settings::default());
        let mut seen = region(64);
        seen.objects[0].mappings[0].kind = kind;
        assert_eq!(ranges(&driver.see(seen)), [], "{kind:?}");
    }
}

/// Time spent reading in `seconds` of an object of `slots` slots that never changes.
fn spent(slots: u64, ns_per_slot: u64, faults: u64, seconds: u64) -> (Span, u64) {
    let mut driver = Driver::new("mega", &Settings::default());
    let mut plan = driver.see_at(Span::ZERO, region(slots));
    let (mut at, mut cpu, mut read) = (Span::ZERO, Span::ZERO, 0);
    while at < Span::secs(seconds) {
        at += plan.next_tick;
        let mut seen = answer(&plan, ns_per_slot);
        let mut process = process_observed(1);
        process.faults = faults;
        seen.processes = vec![process];
        cpu += seen.cost.cpu;
        read += seen.cost.slots;
        plan = driver.see_at(at, seen);
    }
    (cpu, read)
}

#[test]
fn sixty_four_gib_in_base_pages_cost_no_more_than_one_percent() {
    let (cpu, read) = spent(32_768, 3_200, 1_000, 600);
    assert!(cpu <= Span::millis(6_000 + 30), "{cpu} in 600 s");
    assert!(read >= 32_768 * 30, "only {read} slots read");
}

#[test]
fn dear_looks_are_paid_off_by_the_time_between_them() {
    let mut driver = Driver::new("mega", &Settings::default());
    driver.see_at(Span::ZERO, region(64));
    // Half a percent of the time, but more at once than is ever saved up.
    let dear = |at| {
        let mut seen = Observation::default();
        seen.cost.cpu = Span::millis(50);
        (Span::secs(at), seen)
    };
    let read: usize = (1..=40)
        .map(|n| dear(10 * n))
        .map(|(at, seen)| ranges(&driver.see_at(at, seen)).len())
        .sum();
    assert!(read >= 10, "{read} looks in 400 s");
}

#[test]
fn quiet_memory_is_read_ever_less_often() {
    let (_, read) = spent(1024, 3_200, 0, 160);
    assert!(
        (1024 * 9..=1024 * 16).contains(&read),
        "{} sweeps",
        read / 1024
    );
    let (_, read) = spent(1024, 10, 1_000, 160);
    assert!(
        (1024 * 36..=1024 * 45).contains(&read),
        "{} sweeps of memory whose process faults elsewhere",
        read / 1024
    );
}

#[test]
fn an_object_that_is_gone_is_not_read_again() {
    let mut driver = Driver::new("mega", &Settings::default());
    driver.see(region(64));
    driver.seconds += 100;
    let exited = Observation {
        exited: vec![process(1)],
        ..Observation::default()
    };
    assert_eq!(ranges(&driver.see(exited)), []);
    assert_eq!(driver.pilot.world().huge_bytes(object(1)), Bytes::ZERO);
}
