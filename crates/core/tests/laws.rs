//! The laws of acting, one test a law: each shows the same collapse admitted once the law's ground is gone.

mod common;

use common::*;
use hugepilot_core::ids::CgroupId;
use hugepilot_core::observation::*;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::plan::Law;
use hugepilot_core::policy::Settings;
use hugepilot_core::units::{BasePages, Bytes, Ratio, Span};

fn start_with(change: impl Fn(&mut Observation)) -> hugepilot_core::plan::Plan {
    let mut driver = Driver::new("ingens", &Settings::default());
    let mut seen = Observation {
        checkpoint: true,
        processes: vec![process_observed(1)],
        objects: vec![object_observed(1, 64)],
        scanned: vec![whole(1, 64)],
        slots: vec![base(1, 3, 512)],
        ..Observation::default()
    };
    change(&mut seen);
    driver.see(seen)
}

fn check(law: Law, change: impl Fn(&mut Observation)) {
    assert_eq!(
        collapses(&start_with(|_| {})),
        [3],
        "without the law's ground it is done"
    );
    let plan = start_with(change);
    assert_eq!(collapses(&plan), [0; 0]);
    assert_eq!(laws(&plan), [law]);
}

fn cgroup(current: Bytes, max: Bytes) -> CgroupObserved {
    CgroupObserved {
        cgroup: CgroupId(1),
        path: "/test".to_owned(),
        current,
        high: None,
        max: Some(max),
        anon_thp: None,
        pressure: None,
    }
}

#[test]
fn never_what_opted_out() {
    check(Law::OptedOut, |seen| {
        seen.processes[0].thp = ThpConsent::Refused
    });
}

#[test]
fn never_an_excluded_region() {
    let plan = start_with(|seen| seen.objects[0].mappings[0].excluded = true);
    assert_eq!((plan.actions.len(), plan.refused_total), (0, 0));
}

#[test]
fn never_under_a_living_forked_child() {
    check(Law::LivingChild, |seen| {
        seen.processes[0].forked_children = 1
    });
}

#[test]
fn never_a_fork_shared_slot() {
    check(Law::ForkShared, |seen| {
        seen.slots[0].sharing = Sharing::ForkShared
    });
}

#[test]
fn never_with_swapped_pages() {
    check(Law::Swapped, |seen| seen.slots[0].swapped = BasePages(1));
}

#[test]
fn never_under_pressure() {
    check(Law::Pressure, |seen| seen.pressure = Some(Ratio::new(0.5)));
}

#[test]
fn never_without_headroom_on_the_machine() {
    check(Law::Headroom, |seen| {
        seen.nodes = vec![node(Bytes::mib(65))]
    });
}

#[test]
fn headroom_in_the_cgroup_is_five_percent_or_64_mib() {
    check(Law::Headroom, |seen| {
        seen.cgroups = vec![cgroup(Bytes::mib(512 - 65), Bytes::mib(512))];
    });
    check(Law::Headroom, |seen| {
        seen.cgroups = vec![cgroup(Bytes::mib(10_240 - 513), Bytes::mib(10_240))];
    });
    let roomy =
        start_with(|seen| seen.cgroups = vec![cgroup(Bytes::mib(512 - 66), Bytes::mib(512))]);
    assert_eq!(collapses(&roomy), [3]);
}

#[test]
fn headroom_counts_what_the_tick_already_takes() {
    let plan = start_with(|seen| {
        seen.cgroups = vec![cgroup(Bytes::mib(512 - 64 - 4), Bytes::mib(512))];
        seen.slots = (0..8).map(|index| base(1, index, 512)).collect();
    });
    assert_eq!(collapses(&plan).len(), 2);
}

/// Ticks for `seconds` when the plans say with a process that faults `rate` times a second; counts collapses that are all done.
fn collapses_while_faulting(rate: u64, seconds: u64) -> usize {
    let mut driver = Driver::new("ingens", &Settings::default());
    let slots: Vec<_> = (0..1024).map(|index| base(1, index, 512)).collect();
    let mut faulting = process_observed(1);
    faulting.faults = rate;
    let mut seen = Observation {
        processes: vec![faulting.clone()],
        objects: vec![object_observed(1, 1024)],
        slots,
        ..Observation::default()
    };
    let mut done = 0;
    let mut at = Span::ZERO;
    while at < Span::secs(seconds) {
        let plan = driver.see_at(at, seen);
        at += plan.next_tick;
        for planned in &plan.actions {
            let slot = planned.action.slot().expect("a slot");
            driver.outcome(planned, OutcomeClass::Done, Some(huge(1, slot.index)));
            done += 1;
        }
        seen = Observation {
            processes: vec![faulting.clone()],
            ..Observation::default()
        };
    }
    done
}

#[test]
fn a_faulting_process_is_made_to_wait_no_more_than_its_budget() {
    // 0.4 % of 50 s are 200 ms: 400 collapses of 500 µs, and the burst; the first are priced at 600 µs.
    let done = collapses_while_faulting(100_000, 50);
    assert!((300..=410).contains(&done), "{done}");
}

#[test]
fn a_quiet_process_is_collapsed_at_the_speed_of_copying() {
    assert!(collapses_while_faulting(0, 16) >= 1000);
}

#[test]
fn a_slow_collapse_makes_its_process_wait() {
    let mut driver = Driver::new("ingens", &Settings::default());
    let plan = driver.start(vec![base(1, 0, 512), base(1, 1, 512)]);
    let mut slow = hugepilot_core::outcome::Outcome::new(OutcomeClass::Done);
    slow.took = Span::millis(31);
    slow.after = Some(huge(1, 0));
    driver.pilot.account(&hugepilot_core::plan::Accounted {
        planned: plan.actions[0].clone(),
        via: Some(process(1)),
        outcome: slow,
    });
    driver.seconds -= 1;
    assert_eq!(laws(&driver.see(Observation::default())), [Law::BackOff]);
    driver.seconds += 2;
    assert_eq!(collapses(&driver.see(Observation::default())), [1]);
}

#[test]
fn a_lack_of_memory_stops_all_collapses_for_a_while() {
    let mut driver = Driver::new("ingens", &Settings::default());
    let plan = driver.start(vec![base(1, 0, 512), base(1, 1, 512)]);
    driver.outcome(&plan.actions[0], OutcomeClass::NoMemory, None);
    driver.seconds -= 1;
    assert_eq!(
        laws(&driver.see(Observation::default())),
        [Law::BackOff, Law::BackOff]
    );
    driver.seconds += 2;
    assert!(!collapses(&driver.see(Observation::default())).is_empty());
}

#[test]
fn what_the_kernel_calls_ineligible_is_left_alone_until_it_is_mapped_anew() {
    let mut driver = Driver::new("ingens", &Settings::default());
    let plan = driver.start(vec![base(1, 0, 512)]);
    driver.outcome(
        &plan.actions[0],
        OutcomeClass::Ineligible,
        Some(base(1, 0, 512)),
    );
    driver.seconds += 120;
    assert_eq!(laws(&driver.see(Observation::default())), [Law::BackOff]);
    let grown = Observation {
        objects: vec![object_observed(1, 2048)],
        ..Observation::default()
    };
    assert_eq!(
        laws(&driver.see(grown)),
        [Law::BackOff],
        "it grew elsewhere"
    );
    let mut moved = object_observed(1, 2048);
    moved.mappings[0].kind = MemoryKind::Shmem;
    let remapped = Observation {
        objects: vec![moved],
        ..Observation::default()
    };
    assert_eq!(collapses(&driver.see(remapped)), [0]);
}

#[test]
fn no_more_actions_a_tick_than_the_bound() {
    let mut settings = Settings::default();
    settings
        .set("laws", "actions_per_tick_max", &5.into())
        .expect("in range");
    let mut driver = Driver::new("ingens", &settings);
    let plan = driver.start((0..100).map(|index| base(1, index, 512)).collect());
    assert_eq!(plan.actions.len(), 5);
    assert_eq!(plan.refused_total, 95);
    assert_eq!(plan.next_tick, Span::millis(20));
}
