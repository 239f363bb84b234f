//! The tick as a whole, on arbitrary observations; and the parameters.

mod common;

use common::*;
use hugepilot_core::action::{Action, LinuxMode};
use hugepilot_core::observation::*;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::policy::{NAMES, Settings};
use hugepilot_core::units::Span;
use proptest::prelude::*;

fn any_slot() -> impl Strategy<Value = SlotObserved> {
    (0..64u64, 0..=512u64, any::<bool>(), any::<bool>()).prop_map(
        |(index, pages, is_huge, partial)| {
            let mut slot = if is_huge {
                huge(1, index)
            } else {
                base(1, index, pages)
            };
            slot.partially_mapped = Some(partial && !is_huge);
            slot
        },
    )
}

proptest! {
    /// Whatever is seen and whatever comes of actions: bounds hold, only known and mapped slots are acted on, and no
    /// slot is asked to be collapsed and split in one tick.
    #[test]
    fn plans_stay_within_the_laws(
        ticks in prop::collection::vec((prop::collection::vec(any_slot(), 0..40), 0..8usize), 1..30),
        policy in 0..2usize,
    ) {
        let mut driver = Driver::new(NAMES[policy], &Settings::default());
        driver.start(Vec::new());
        for (slots, class) in ticks {
            let mut latest = std::collections::BTreeMap::new();
            for slot in slots {
                latest.insert(slot.slot, slot);
            }
            let scanned = vec![whole(1, 1024)];
            let plan = driver.see(Observation { slots: latest.into_values().collect(), scanned, ..Observation::default() });
            prop_assert!(plan.actions.len() <= 64);
            let mut acted = std::collections::BTreeSet::new();
            for planned in &plan.actions {
                let slot = planned.action.slot().expect("these policies act on slots");
                prop_assert!(acted.insert(slot), "{slot} twice in one tick");
                let state = driver.pilot.world().slots.get(slot).expect("known");
                if matches!(planned.action, Action::Collapse { .. }) {
                    prop_assert!(state.backing.present().0 > 460 && !state.is_huge(&G));
                }
            }
            for planned in plan.actions {
                let index = planned.action.slot().expect("a slot").index;
                let class = OutcomeClass::ALL[class];
                let after = match (&planned.action, class) {
                    (Action::Collapse { .. }, OutcomeClass::Done) => Some(huge(1, index)),
                    (_, OutcomeClass::Done) => Some(base(1, index, 100)),
                    _ => None,
                };
                driver.outcome(&planned, class, after);
            }
        }
    }
}

#[test]
fn a_baseline_is_set_once() {
    let mut settings = Settings::default();
    settings
        .set("linux", "mode", &"always".into())
        .expect("a mode");
    let mut driver = Driver::new("linux", &settings);
    let plan = driver.start(vec![base(1, 0, 512)]);
    assert_eq!(plan.actions.len(), 1);
    assert_eq!(
        plan.actions[0].action,
        Action::Baseline {
            mode: LinuxMode::Always
        }
    );
    assert_eq!(plan.looks, []);
    assert_eq!(driver.see(Observation::default()).actions, []);
}

#[test]
fn with_nothing_to_do_it_sleeps() {
    let mut driver = Driver::new("mega", &Settings::default());
    assert_eq!(driver.start(Vec::new()).next_tick, Span::millis(250));
    driver.seconds += 60;
    let waits: Vec<Span> = (0..4)
        .map(|_| driver.see(Observation::default()))
        .map(|plan| plan.next_tick)
        .collect();
    assert_eq!(waits.last(), Some(&Span::secs(1)), "{waits:?}");
    let busy = Observation {
        processes: vec![ProcessObserved {
            faults: 1,
            ..process_observed(1)
        }],
        ..Observation::default()
    };
    assert_eq!(driver.see(busy).next_tick, Span::millis(250));
}

#[test]
fn every_parameter_takes_its_default_and_refuses_nonsense() {
    let mut settings = Settings::default();
    for spec in Settings::specs() {
        let (section, field) = spec.name.split_once('.').expect("section.field");
        settings
            .set(section, field, &spec.default)
            .unwrap_or_else(|error| panic!("{error}"));
        let error = settings
            .set(section, field, &serde_json::json!([]))
            .expect_err("not a list");
        assert!(
            error
                .to_string()
                .starts_with(&format!("{} = []: must be", spec.name)),
            "{error}"
        );
        assert!(!spec.what.is_empty() && !spec.unit.is_empty() && !spec.source.is_empty());
    }
    assert_eq!(settings, Settings::default());
}

#[test]
fn parameters_out_of_range_or_unknown_are_refused_with_what_would_do() {
    let mut settings = Settings::default();
    let mut refused = |section: &str, field: &str, value: serde_json::Value| {
        settings
            .set(section, field, &value)
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        refused("mega", "present_min", 1.5.into()),
        "mega.present_min = 1.5: must be a number from 0 to 1"
    );
    assert!(refused("mega", "presentmin", 1.into()).contains("[mega] has present_min"));
    assert!(
        refused("maga", "present_min", 1.into()).contains("the sections are watch, laws, mega")
    );
    assert!(
        refused("linux", "mode", "sometimes".into())
            .contains("never, madvise, always or khugepaged")
    );
    assert!(refused("ingens", "preset", "mine".into()).contains("paper or released"));
    assert!(refused("laws", "actions_per_tick_max", 1.5.into()).contains("whole number"));
}

#[test]
fn the_schema_knows_every_parameter() {
    let schema = Settings::schema();
    for spec in Settings::specs() {
        let (section, field) = spec.name.split_once('.').expect("section.field");
        let found = &schema["properties"][section]["properties"][field];
        assert_eq!(found["default"], spec.default, "{}", spec.name);
    }
}
