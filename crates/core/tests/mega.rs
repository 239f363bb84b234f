//! MEGA's properties.

mod common;

use common::*;
use hugepilot_core::look::{Answer, Look};
use hugepilot_core::observation::*;
use hugepilot_core::outcome::{Outcome, OutcomeClass};
use hugepilot_core::plan::{Accounted, Plan};
use hugepilot_core::policy::Settings;
use hugepilot_core::reason::{PresentBy, Reason};
use hugepilot_core::units::{BasePages, Bytes, Ratio};

fn driver() -> Driver {
    Driver::new("mega", &Settings::default())
}

fn tracked(mut slot: SlotObserved, share: f64) -> SlotObserved {
    slot.accessed = Some(Accessed {
        share: Ratio::new(share),
        tracker: Tracker::Simulated,
    });
    slot
}

/// A start with a tracker, and `scans` scans of slot 0 as given.
fn with_tracker(slot: &SlotObserved, share: f64, scans: usize) -> (Driver, Plan) {
    let mut settings = Settings::default();
    settings
        .set("mega", "split_idle", &true.into())
        .expect("a parameter");
    let mut driver = Driver::new("mega", &settings);
    let mut plan = driver.see(Observation {
        processes: vec![process_observed(1)],
        objects: vec![object_observed(1, 1024)],
        slots: vec![slot.clone()],
        ..Observation::default()
    });
    for _ in 0..scans {
        let slots = vec![tracked(slot.clone(), share)];
        plan = driver.see(Observation {
            slots,
            scanned: vec![whole(1, 1)],
            ..Observation::default()
        });
    }
    (driver, plan)
}

fn zero_looks(plan: &Plan) -> Vec<(u64, u64)> {
    let of = |look: &Look| match look {
        Look::ZeroPages { slot, pages_max } => Some((slot.index, pages_max.0)),
        Look::PageTables(_) | Look::Nodes(_) | Look::Track { .. } | Look::Sample { .. } => None,
    };
    plan.looks.iter().filter_map(of).collect()
}

fn zeros(index: u64, read: u64, zero: u64) -> Observation {
    let (slot, read, zero) = (slot(1, index), BasePages(read), BasePages(zero));
    Observation {
        answers: vec![Answer::ZeroPages { slot, read, zero }],
        ..Observation::default()
    }
}

#[test]
fn collapses_above_ninety_percent_present_and_not_at_it() {
    let mut driver = driver();
    let plan = driver.start(vec![base(1, 0, 512), base(1, 1, 461), base(1, 2, 460)]);
    assert_eq!(
        collapses(&plan),
        [0, 1],
        "461 of 512 are 90.04 %, 460 are 89.8 %"
    );
    assert!(
        driver
            .pilot
            .notes()
            .iter()
            .any(|note| note.contains("no tracker"))
    );
    assert!(
        driver
            .pilot
            .notes()
            .contains(&"without compaction".to_owned())
    );
}

#[test]
fn with_a_tracker_what_is_present_but_unused_stays_in_base_pages() {
    assert_eq!(
        collapses(&with_tracker(&base(1, 0, 512), 0.5, 10).1),
        [0; 0]
    );
    assert_eq!(collapses(&with_tracker(&base(1, 0, 512), 0.6, 10).1), [0]);
}

#[test]
fn with_a_tracker_nothing_is_collapsed_before_it_has_spoken() {
    assert_eq!(collapses(&with_tracker(&base(1, 0, 512), 1.0, 0).1), [0; 0]);
    assert_eq!(collapses(&with_tracker(&base(1, 0, 512), 1.0, 1).1), [0; 0]);
    assert_eq!(collapses(&with_tracker(&base(1, 0, 512), 1.0, 2).1), [0]);
}

#[test]
fn a_huge_slot_is_split_when_it_was_idle_over_a_full_history() {
    assert_eq!(splits(&with_tracker(&huge(1, 0), 0.0, 9).1), [0; 0]);
    let (_, plan) = with_tracker(&huge(1, 0), 0.0, 10);
    assert_eq!(splits(&plan), [0]);
    assert!(matches!(first_reason(&plan), Reason::Idle { .. }));
    assert_eq!(splits(&with_tracker(&huge(1, 0), 0.25, 10).1), [0; 0]);
}

#[test]
fn unless_asked_for_idle_huge_slots_are_left_whole() {
    let mut driver = driver();
    driver.start(vec![huge(1, 0)]);
    for _ in 0..12 {
        let slots = vec![tracked(huge(1, 0), 0.0)];
        let plan = driver.see(Observation {
            slots,
            ..Observation::default()
        });
        assert_eq!(splits(&plan), [0; 0]);
    }
}

#[test]
fn what_was_split_as_idle_is_not_rejoined_by_presence() {
    let (mut driver, plan) = with_tracker(&huge(1, 0), 0.0, 10);
    let blinded = Observation {
        blind: vec![blind()],
        ..Observation::default()
    };
    driver.outcome(&plan.actions[0], OutcomeClass::Done, Some(base(1, 0, 512)));
    assert_eq!(collapses(&driver.see(blinded)), [0; 0]);
    for _ in 0..2 {
        let slots = vec![tracked(base(1, 0, 512), 0.9)];
        driver.see(Observation {
            slots,
            ..Observation::default()
        });
    }
    assert_eq!(
        collapses(&driver.see(Observation::default())),
        [0],
        "seen used, it comes back"
    );
}

#[test]
fn a_quiet_huge_slot_is_sampled_then_read_whole_then_split() {
    let mut driver = driver();
    driver.start(vec![huge(1, 7)]);
    let quiet = Observation {
        scanned: vec![whole(1, 1024)],
        ..Observation::default()
    };
    assert_eq!(zero_looks(&driver.see(quiet)), [(7, 8)]);
    assert_eq!(zero_looks(&driver.see(zeros(7, 8, 6))), [(7, 512)]);
    let plan = driver.see(zeros(7, 512, 400));
    assert_eq!(splits(&plan), [7]);
    let Reason::Sparse { present, by, .. } = first_reason(&plan) else {
        panic!("{plan:?}")
    };
    assert_eq!(*by, PresentBy::ZeroLook);
    assert_eq!(*present, Ratio::of(112, 512));
}

#[test]
fn a_huge_slot_in_use_is_not_read_whole_nor_again_at_once() {
    let mut driver = driver();
    driver.start(vec![huge(1, 7)]);
    let quiet = || Observation {
        scanned: vec![whole(1, 1024)],
        ..Observation::default()
    };
    assert_eq!(zero_looks(&driver.see(quiet())), [(7, 8)]);
    assert_eq!(zero_looks(&driver.see(zeros(7, 8, 2))), []);
    assert_eq!(zero_looks(&driver.see(quiet())), []);
    driver.seconds += 300;
    let later = [driver.see(quiet()), driver.see(quiet())];
    assert!(later.iter().any(|plan| zero_looks(plan) == [(7, 8)]));
}

#[test]
fn a_look_that_was_not_answered_is_asked_again() {
    let mut driver = driver();
    driver.start(vec![huge(1, 7)]);
    let quiet = || Observation {
        scanned: vec![whole(1, 1024)],
        ..Observation::default()
    };
    assert_eq!(zero_looks(&driver.see(quiet())), [(7, 8)]);
    assert_eq!(zero_looks(&driver.see(zeros(7, 8, 6))), [(7, 512)]);
    let unanswered = Observation {
        answers: vec![Answer::Unanswered { slot: slot(1, 7) }],
        ..Observation::default()
    };
    let asked = [
        driver.see(unanswered),
        driver.see(quiet()),
        driver.see(quiet()),
    ];
    assert!(asked.iter().any(|plan| zero_looks(plan) == [(7, 512)]));
}

#[test]
fn sparse_slots_are_read_whole_a_few_a_tick() {
    let mut driver = driver();
    driver.start((0..64).map(|index| huge(1, index)).collect());
    let mut plan = driver.see(Observation {
        scanned: vec![whole(1, 1024)],
        ..Observation::default()
    });
    let mut split = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let looks = zero_looks(&plan);
        let bytes: u64 = looks.iter().map(|(_, pages)| pages * 4096).sum();
        assert!(bytes <= 16 << 20, "{bytes} bytes in one tick");
        let answer = |(index, pages): (u64, u64)| Answer::ZeroPages {
            slot: slot(1, index),
            read: BasePages(pages),
            zero: BasePages(pages - 1),
        };
        let answers = looks.into_iter().map(answer).collect();
        plan = driver.see(Observation {
            answers,
            ..Observation::default()
        });
        split.extend(splits(&plan));
    }
    assert_eq!(split.len(), 64);
}

#[test]
fn zero_looks_stay_within_their_bytes_a_second() {
    let mut settings = Settings::default();
    settings
        .set("mega", "zero_look_bytes_per_s", &(1 << 20).into())
        .expect("in range");
    let mut driver = Driver::new("mega", &settings);
    driver.start((0..512).map(|index| huge(1, index)).collect());
    let mut pages = 0;
    for _ in 0..10 {
        let plan = driver.see(Observation {
            scanned: vec![whole(1, 1024)],
            ..Observation::default()
        });
        pages += zero_looks(&plan).iter().map(|look| look.1).sum::<u64>();
    }
    assert!(pages > 0 && pages * 4096 <= 11 << 20, "{pages} pages");
}

#[test]
fn where_splitting_frees_nothing_it_stops() {
    let mut driver = driver();
    driver.start((0..64).map(|index| huge(1, index)).collect());
    driver.see(Observation {
        scanned: vec![whole(1, 1024)],
        ..Observation::default()
    });
    let mut done = 0;
    for index in 0..64 {
        let plan = driver.see(zeros(index, 512, 512));
        for planned in &plan.actions {
            let index = planned.action.slot().expect("a slot").index;
            driver.outcome(planned, OutcomeClass::Done, Some(base(1, index, 512)));
            done += 1;
        }
    }
    assert_eq!(done, 8);
}

#[test]
fn where_splitting_frees_it_goes_on() {
    let mut driver = driver();
    driver.start((0..64).map(|index| huge(1, index)).collect());
    let mut done = 0;
    for index in 0..64 {
        for planned in &driver.see(zeros(index, 512, 511)).actions {
            let after = Some(base(1, planned.action.slot().expect("a slot").index, 1));
            let freed = Bytes(511 * 4096);
            let outcome = Outcome {
                after,
                freed,
                ..Outcome::new(OutcomeClass::Done)
            };
            driver.pilot.account(&Accounted {
                planned: planned.clone(),
                via: None,
                outcome,
            });
            done += 1;
        }
    }
    assert_eq!(done, 64);
}

#[test]
fn a_partially_mapped_huge_page_is_freed_unless_it_is_full_enough_to_collapse() {
    let partial = |index, pages| {
        let mut slot = base(1, index, pages);
        slot.partially_mapped = Some(true);
        slot
    };
    let plan = driver().start(vec![partial(4, 100), partial(5, 460), partial(6, 461)]);
    assert_eq!(splits(&plan), [4, 5]);
    assert_eq!(collapses(&plan), [6]);
    assert!(matches!(
        first_reason(&plan),
        Reason::PartiallyMapped { .. }
    ));
}

#[test]
fn only_slots_half_present_are_tracked_and_those_under_a_quarter_dropped() {
    let mut driver = driver();
    let tracks = |plan: &Plan| {
        plan.looks.iter().find_map(|look| match look {
            Look::Track { slots, .. } => {
                Some(slots.iter().map(|slot| slot.index).collect::<Vec<_>>())
            }
            Look::PageTables(_) | Look::ZeroPages { .. } | Look::Nodes(_) | Look::Sample { .. } => {
                None
            }
        })
    };
    let plan = driver.start(vec![base(1, 0, 255), base(1, 1, 256), huge(1, 2)]);
    assert_eq!(tracks(&plan), Some(vec![1, 2]));
    driver.seconds += 10;
    assert_eq!(
        tracks(&driver.see(Observation {
            slots: vec![base(1, 1, 128)],
            ..Observation::default()
        })),
        None
    );
    driver.seconds += 10;
    let plan = driver.see(Observation {
        slots: vec![base(1, 1, 127)],
        ..Observation::default()
    });
    assert_eq!(tracks(&plan), Some(vec![2]));
}

#[test]
fn more_slots_than_can_be_tracked_take_turns() {
    let mut settings = Settings::default();
    settings
        .set("mega", "track_max", &10.into())
        .expect("in range");
    let mut driver = Driver::new("mega", &settings);
    let mut plan = driver.start((0..25).map(|index| base(1, index, 300)).collect());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        for look in &plan.looks {
            if let Look::Track { slots, .. } = look {
                assert_eq!(slots.len(), 10);
                seen.extend(slots.iter().map(|slot| slot.index));
            }
        }
        driver.seconds += 10;
        plan = driver.see(Observation::default());
    }
    assert_eq!(seen.len(), 25);
}

#[test]
fn the_same_observations_give_the_same_plans() {
    let run = || {
        let mut driver = driver();
        let mut plans = vec![
            driver.start(
                (0..50)
                    .map(|index| base(1, index, 400 + 3 * index))
                    .collect(),
            ),
        ];
        for index in 0..20 {
            plans.push(driver.see(zeros(index, 16, index % 17)));
        }
        plans
    };
    assert_eq!(run(), run());
}

#[test]
fn it_forgets_a_process_that_ended() {
    let mut driver = driver();
    driver.start((0..50).map(|index| base(1, index, 512)).collect());
    let plan = driver.see(Observation {
        exited: vec![process(1)],
        ..Observation::default()
    });
    assert_eq!(plan.actions, []);
    assert_eq!(driver.pilot.bytes(), 0);
}

#[test]
fn a_slot_costs_at_most_56_bytes_here() {
    let mut driver = driver();
    driver.start((0..1024).map(|index| base(1, index, 300)).collect());
    let bytes = driver.pilot.bytes() - 1024 * size_of::<hugepilot_core::ids::SlotId>();
    assert!(bytes <= 56 * 1024, "{} bytes a slot", bytes / 1024);
}
