//! Ingens' properties.

mod common;

use common::*;
use hugepilot_core::observation::*;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::policy::Settings;
use hugepilot_core::reason::Reason;
use hugepilot_core::units::BasePages;

fn driver(preset: &str) -> Driver {
    let mut settings = Settings::default();
    settings
        .set("ingens", "preset", &preset.into())
        .expect("a preset");
    Driver::new("ingens", &settings)
}

#[test]
fn collapses_at_its_share_and_not_below() {
    let slots = || vec![base(1, 0, 461), base(1, 1, 460), base(1, 2, 459)];
    assert_eq!(collapses(&driver("paper").start(slots())), [0]);
    assert_eq!(collapses(&driver("released").start(slots())), [0, 1]);
}

#[test]
fn a_base_page_freed_inside_a_huge_page_splits_it() {
    let mut driver = driver("paper");
    driver.start(vec![huge(1, 0)]);
    let plan = driver.see(Observation {
        slots: vec![base(1, 0, 511)],
        ..Observation::default()
    });
    assert_eq!(splits(&plan), [0]);
    assert_eq!(
        collapses(&plan),
        [0; 0],
        "not joined again in the same breath"
    );
    assert!(matches!(
        first_reason(&plan),
        Reason::Freed {
            freed: BasePages(1),
            ..
        }
    ));
    driver.outcome(&plan.actions[0], OutcomeClass::Done, Some(base(1, 0, 400)));
    let plan = driver.see(Observation::default());
    assert_eq!((splits(&plan), collapses(&plan)), (vec![], vec![]));
    let plan = driver.see(Observation {
        slots: vec![base(1, 0, 512)],
        ..Observation::default()
    });
    assert_eq!(collapses(&plan), [0], "full again");
}

#[test]
fn base_pages_freed_outside_huge_pages_split_nothing() {
    let mut driver = driver("paper");
    driver.start(vec![base(1, 0, 300)]);
    let plan = driver.see(Observation {
        slots: vec![base(1, 0, 200)],
        ..Observation::default()
    });
    assert_eq!(splits(&plan), [0; 0]);
}

#[test]
fn a_page_found_partially_mapped_is_split() {
    let mut partial = base(1, 0, 100);
    partial.partially_mapped = Some(true);
    assert_eq!(splits(&driver("paper").start(vec![partial])), [0]);
}

/// Two processes with full slots, the first with 10 huge slots already: who comes first?
fn first_of_two(preset: &str) -> u32 {
    let mut slots: Vec<_> = (0..10).map(|index| huge(1, index)).collect();
    slots.extend((10..16).map(|index| base(1, index, 512)));
    slots.extend((0..6).map(|index| base(2, index, 512)));
    let plan = driver(preset).see(Observation {
        processes: vec![process_observed(1), process_observed(2)],
        objects: vec![object_observed(1, 1024), object_observed(2, 1024)],
        slots,
        ..Observation::default()
    });
    assert_eq!(collapses(&plan).len(), 12);
    let first = plan.actions[0].action.slot().expect("a slot").object;
    if first == object(1) { 1 } else { 2 }
}

#[test]
fn who_has_less_huge_memory_comes_first_where_fairness_is_on() {
    assert_eq!(first_of_two("paper"), 2);
    assert_eq!(first_of_two("released"), 1);
}

#[test]
fn quiet_slots_come_before_those_being_filled() {
    let mut driver = driver("paper");
    let mut settings = Settings::default();
    settings
        .set("laws", "actions_per_tick_max", &1.into())
        .expect("in range");
    let mut one = Driver::new("ingens", &settings);
    one.start(vec![base(1, 0, 512), base(1, 1, 512)]);
    let plan = one.see(Observation {
        scanned: vec![whole(1, 1024)],
        slots: vec![base(1, 0, 511)],
        ..Observation::default()
    });
    assert_eq!(collapses(&plan), [1]);
    assert!(driver.start(vec![]).actions.is_empty());
    assert!(
        driver
            .pilot
            .notes()
            .contains(&"without compaction".to_owned())
    );
}
