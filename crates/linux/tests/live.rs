//! The machine on the kernel that runs the tests. What is asserted is what the kernel shows, not what we believe.
//!
//! Needs CAP_SYS_NICE and CAP_SYS_PTRACE (root has them), and the worker: `cargo build -p hugepilot-workers`.

mod common;

use common::{SLOT, Stage, touch_base_pages, verdict};
use hugepilot_core::action::{Action, LinuxMode};
use hugepilot_core::ids::{NodeId, ObjectId, Pid};
use hugepilot_core::look::{Answer, Look};
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{MemoryKind, Sharing, ThpConsent, Unseen};
use hugepilot_core::outcome::{Cause, OutcomeClass};
use hugepilot_core::units::{BasePages, Bytes};
use hugepilot_linux::machine::LiveMachine;
use hugepilot_linux::sensors::selection::Selection;
use hugepilot_workers::client::Kind;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

#[test]
fn the_first_observation_says_everything() {
    let stage = Stage::new(4, &Kind::Anonymous, SLOT + 40960);
    let first = &stage.first;
    assert!(first.checkpoint);
    assert_eq!(first.processes[0].process, stage.process);
    assert_eq!(first.processes[0].thp, ThpConsent::Allowed);
    assert!(first.processes[0].resident > Bytes(SLOT));
    assert!(first.nodes[0].total > Bytes::mib(64));
    assert_eq!(stage.pages(0), (512, 0));
    assert_eq!(stage.pages(1), (10, 0));
    assert_eq!(stage.pages(2), (0, 0));
    let object = first
        .objects
        .iter()
        .find(|object| object.object == stage.slot(0).object);
    let mapping = object
        .and_then(|object| {
            object
                .mappings
                .iter()
                .find(|mapping| mapping.address_of(stage.region.address).is_some())
        })
        .expect("the region");
    assert_eq!(mapping.kind, MemoryKind::Anonymous);
    assert!(mapping.writable && !mapping.excluded);
}

#[test]
fn later_observations_say_what_changed() {
    let mut stage = Stage::new(4, &Kind::Anonymous, SLOT);
    let untouched = stage.slot(0);
    stage.touch(2 * SLOT, 4096 * 7);
    stage.wait("7 pages", |stage| stage.pages(2) == (7, 0));
    assert!(!stage.last.checkpoint);
    assert!(stage.last.slots.iter().all(|slot| slot.slot != untouched));
    stage.ask(&format!("free a {} {SLOT}", 2 * SLOT));
    stage.wait("freed pages", |stage| stage.pages(2) == (0, 0));
}

#[test]
fn unmapped_memory_is_said_to_be_empty() {
    let mut stage = Stage::new(4, &Kind::Anonymous, 4 * SLOT);
    stage.ask(&format!("punch a {} {}", 2 * SLOT, 2 * SLOT));
    stage.wait("unmapped slots", |stage| stage.pages(3) == (0, 0));
    assert_eq!(stage.pages(1), (512, 0));
    let outcome = stage.collapse(3);
    assert_eq!(outcome.class, OutcomeClass::Gone);
}

#[test]
fn a_slot_collapses_and_splits() {
    let mut stage = Stage::new(2, &Kind::Anonymous, 400 * 4096);
    let outcome = stage.collapse(0);
    assert_eq!(verdict(&outcome), (OutcomeClass::Done, None));
    assert!(outcome.took.0 > 0);
    let after = outcome.after.expect("looked at afterwards");
    assert!(after.is_huge(stage.machine.geometry().slot_order));
    assert_eq!(after.sharing, Sharing::Exclusive);
    stage.look(&[]);
    assert_eq!(
        stage.pages(0),
        (512, 512),
        "acted slots are looked at again"
    );
    let again = stage.collapse(0);
    assert_eq!(
        verdict(&again),
        (OutcomeClass::Done, Some(Cause::AlreadyDone))
    );

    let outcome = stage.split(0);
    assert_eq!(verdict(&outcome), (OutcomeClass::Done, None));
    stage.look(&[]);
    let (present, huge) = stage.pages(0);
    assert_eq!(huge, 0);
    // From 6.12 the 112 base pages of zeros are freed with it.
    assert!(present == 400 || present == 512, "{present}");
    assert_eq!(outcome.freed, Bytes((512 - present) * 4096));
    let again = stage.split(0);
    assert_eq!(
        verdict(&again),
        (OutcomeClass::Done, Some(Cause::AlreadyDone))
    );
}

#[test]
fn shared_memory_is_one_object_whoever_maps_it() {
    let mut stage = Stage::new(2, &Kind::Shmem, 2 * SLOT);
    assert_eq!(stage.pages(0), (512, 0));
    let outcome = stage.collapse(1);
    assert_eq!(verdict(&outcome), (OutcomeClass::Done, None));
    stage.look(&[]);
    assert_eq!(stage.pages(1), (512, 512));
    let outcome = stage.split(1);
    assert_eq!(verdict(&outcome), (OutcomeClass::Done, None));
    assert_eq!(
        outcome.freed,
        Bytes::ZERO,
        "its pages stay in the page cache"
    );
    stage.look(&[]);
    assert_eq!(stage.pages(1).1, 0);
}

#[test]
fn memory_shared_by_fork_is_left_alone() {
    let mut stage = Stage::new(2, &Kind::Anonymous, SLOT);
    stage.ask("collapse a 0");
    stage.touch(SLOT, SLOT);
    stage.ask("fork");
    stage.wait("a forked child", |stage| {
        stage
            .last
            .processes
            .iter()
            .any(|process| process.forked_children == 1)
    });
    let collapse = stage.collapse(1);
    assert_eq!(
        verdict(&collapse),
        (OutcomeClass::Ineligible, Some(Cause::ForkShared))
    );
    assert_eq!(
        collapse.after.expect("looked at").sharing,
        Sharing::ForkShared
    );
    let split = stage.split(0);
    assert_eq!(
        verdict(&split),
        (OutcomeClass::NoEffect, Some(Cause::ForkShared))
    );
    stage.ask("unfork");
    stage.wait("no forked child", |stage| {
        stage
            .last
            .processes
            .iter()
            .any(|process| process.forked_children == 0)
    });
    assert_eq!(stage.split(0).class, OutcomeClass::Done);
}

#[test]
fn a_pinned_page_is_called_so() {
    let mut stage = Stage::new(1, &Kind::Anonymous, SLOT);
    stage.ask("collapse a 0");
    stage.ask("pin a 4096");
    let split = stage.split(0);
    assert_eq!(
        verdict(&split),
        (OutcomeClass::NoEffect, Some(Cause::Pinned))
    );
    stage.ask("unpin a 4096");
    assert_eq!(stage.split(0).class, OutcomeClass::Done);
    stage.ask("pin a 4096");
    assert_eq!(
        verdict(&stage.collapse(0)),
        (OutcomeClass::Busy, Some(Cause::Pinned))
    );
}

#[test]
fn locked_memory_is_not_split() {
    let mut stage = Stage::new(1, &Kind::Anonymous, SLOT);
    stage.ask("collapse a 0");
    stage.ask("mlock a");
    assert_eq!(
        verdict(&stage.split(0)),
        (OutcomeClass::Ineligible, Some(Cause::Locked))
    );
}

#[test]
fn a_region_that_opted_out_is_excluded_from_then_on() {
    let mut stage = Stage::new(2, &Kind::Anonymous, 2 * SLOT);
    stage.ask("collapse a 0");
    stage.ask("advise a nohugepage");
    let split = stage.split(0);
    assert_eq!(
        verdict(&split),
        (OutcomeClass::Ineligible, Some(Cause::OptedOut))
    );
    let excluded = |stage: &Stage| {
        let all = stage
            .last
            .objects
            .iter()
            .flat_map(|object| &object.mappings);
        all.filter(|mapping| mapping.excluded).count()
    };
    stage.look(&[]);
    assert_eq!(excluded(&stage), 1);
    assert_eq!(
        verdict(&stage.collapse(1)),
        (OutcomeClass::Ineligible, Some(Cause::OptedOut))
    );
}

#[test]
fn a_collapse_that_the_region_refuses_is_told_from_others() {
    let mut stage = Stage::new(2, &Kind::Anonymous, SLOT);
    assert_eq!(
        verdict(&stage.collapse(1)),
        (OutcomeClass::Ineligible, None),
        "never touched"
    );
    stage.ask("advise a nohugepage");
    assert_eq!(
        verdict(&stage.collapse(0)),
        (OutcomeClass::Ineligible, Some(Cause::OptedOut))
    );
}

#[test]
fn a_slot_across_two_regions_is_not_collapsed() {
    let mut stage = Stage::new(2, &Kind::Anonymous, 2 * SLOT);
    stage.ask(&format!("punch a {} 4096", SLOT + 8192));
    stage.observe();
    assert_eq!(stage.pages(1), (511, 0));
    let outcome = stage.collapse(1);
    assert_eq!(
        verdict(&outcome),
        (OutcomeClass::Ineligible, Some(Cause::NotMappedWhole))
    );
}

#[test]
fn the_dead_are_gone() {
    let mut stage = Stage::new(2, &Kind::Anonymous, 2 * SLOT);
    stage.worker.kill().expect("killed");
    let outcome = stage.collapse(0);
    assert_eq!(
        verdict(&outcome),
        (OutcomeClass::Gone, Some(Cause::ProcessGone))
    );
    stage.wait("news of the end", |stage| {
        stage.last.exited == [stage.process]
    });
    assert!(stage.machine.watched().is_empty());
    let object = stage.slot(0).object;
    let gone = stage.last.objects.iter().find(|gone| gone.object == object);
    assert!(gone.expect("said").mappings.is_empty());
}

#[test]
fn exec_makes_all_memory_new() {
    let mut stage = Stage::new(2, &Kind::Anonymous, 2 * SLOT);
    stage.ask("exec");
    stage.wait("the old memory gone", |stage| stage.pages(0) == (0, 0));
    stage.region = stage
        .worker
        .map("b", 2 * SLOT, &Kind::Anonymous)
        .expect("mapped");
    touch_base_pages(&mut stage.worker, "b", 0, SLOT);
    stage.wait("the new memory", |stage| stage.pages(0) == (512, 0));
    assert_eq!(stage.collapse(0).class, OutcomeClass::Done);
}

#[test]
fn zero_pages_are_counted_on_demand() {
    let mut stage = Stage::new(1, &Kind::Anonymous, 100 * 4096);
    assert_eq!(stage.collapse(0).class, OutcomeClass::Done);
    let slot = stage.slot(0);
    let look = |pages| Look::ZeroPages {
        slot,
        pages_max: BasePages(pages),
    };
    let answers = stage.look(&[look(512)]).answers.clone();
    let all = Answer::ZeroPages {
        slot,
        read: BasePages(512),
        zero: BasePages(412),
    };
    assert_eq!(answers, [all]);
    assert_eq!(stage.last.cost.contents, Bytes(SLOT));
    let answers = stage.look(&[look(8)]).answers.clone();
    // Every 64th: 0 and 64 were written.
    let some = Answer::ZeroPages {
        slot,
        read: BasePages(8),
        zero: BasePages(6),
    };
    assert_eq!(answers, [some]);
}

#[test]
fn pages_lie_on_nodes() {
    let mut stage = Stage::new(1, &Kind::Anonymous, 10 * 4096);
    let slot = stage.slot(0);
    let seen = stage.look(&[Look::Nodes(slot)]);
    let on: u64 = seen.slots[0].nodes.iter().map(|(_, pages)| pages.0).sum();
    assert_eq!(on, 10);
}

#[test]
fn a_slot_is_moved_to_where_it_is() {
    let mut stage = Stage::new(1, &Kind::Anonymous, 10 * 4096);
    let (slot, to) = (stage.slot(0), NodeId(0));
    let nodes = stage.look(&[Look::Nodes(slot)]).slots[0].nodes.clone();
    let outcome = stage.act(&Action::MoveSlot {
        slot,
        to: nodes[0].0,
    });
    if nodes.len() == 1 {
        assert_eq!(
            verdict(&outcome),
            (OutcomeClass::Done, Some(Cause::AlreadyDone))
        );
    }
    assert_eq!(
        outcome
            .after
            .expect("looked at")
            .nodes
            .iter()
            .map(|node| node.1.0)
            .sum::<u64>(),
        10
    );
    let nowhere = stage.act(&Action::MoveSlot {
        slot,
        to: NodeId(1000),
    });
    assert_eq!(nowhere.class, OutcomeClass::Ineligible);
    let outcome = stage.act(&Action::Interleave {
        slot,
        nodes: vec![(to, 1)],
    });
    assert_eq!(outcome.class, OutcomeClass::Done);
}

#[test]
fn a_freed_part_of_a_huge_page_is_found_and_given_back() {
    let mut stage = Stage::new(1, &Kind::Anonymous, SLOT);
    stage.ask("collapse a 0");
    stage.ask(&format!("free a 0 {}", 256 * 4096));
    stage.observe();
    assert_eq!(stage.pages(0), (256, 0));
    let partial = |stage: &Stage| stage.slots[&stage.slot(0)].partially_mapped;
    if hugepilot_linux::procfs::read(std::path::Path::new("/proc/kpageflags")).is_err() {
        // Without page frames such a page cannot be told, and the observation said so.
        assert!(blind_to(&stage, Unseen::PartialMappings));
        assert_eq!(partial(&stage), None);
        return;
    }
    stage.wait("found", |stage| partial(stage) == Some(true));
    let outcome = stage.split(0);
    assert_eq!(verdict(&outcome), (OutcomeClass::Done, None));
    assert_eq!(outcome.freed, Bytes(256 * 4096));
    stage.wait("whole again", |stage| partial(stage) == Some(false));
}

#[test]
fn what_is_not_about_a_slot_is_unsupported_without_switches() {
    let mut stage = Stage::new(1, &Kind::Anonymous, 0);
    let outcome = stage.act(&Action::Baseline {
        mode: LinuxMode::Never,
    });
    assert_eq!(outcome.class, OutcomeClass::Unsupported);
}

#[test]
fn a_stranger_is_not_acted_upon() {
    let mut stage = Stage::new(1, &Kind::Anonymous, SLOT);
    let mut slot = stage.slot(0);
    let ObjectId::Private(mut process) = slot.object else {
        panic!("private memory");
    };
    process.start_ticks += 1;
    slot.object = ObjectId::Private(process);
    let outcome = stage.act(&Action::Collapse {
        slot,
        order: stage.machine.geometry().slot_order,
    });
    assert_eq!(
        verdict(&outcome),
        (OutcomeClass::Gone, Some(Cause::ProcessGone))
    );
}

#[test]
fn nobody_is_watched_where_nobody_is_selected() {
    let mut stage = Stage::new(1, &Kind::Anonymous, SLOT);
    let selection = Selection::pid(Pid(u32::MAX));
    stage.machine.select(selection);
    stage.look(&[]);
    assert_eq!(stage.last.exited, [stage.process]);
}

/// Capabilities belong to a thread, and each test has its own: what this one gives up it alone loses.
#[test]
fn the_main_job_needs_two_capabilities() {
    let mut stage = Stage::new(2, &Kind::Anonymous, SLOT);
    let two = CapabilitySet::SYS_NICE | CapabilitySet::SYS_PTRACE;
    let sets = CapabilitySets {
        effective: two,
        permitted: two,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).expect("giving up is always allowed");
    // A machine of its own, so that it probes and opens everything without the others.
    stage.machine = LiveMachine::builder()
        .select(Selection::pid(stage.process.pid))
        .build()
        .expect("a live machine");
    stage.first = stage.machine.observe(&[]).expect("an observation");
    assert!(
        blind_to(&stage, Unseen::PartialMappings),
        "page frames are hidden"
    );
    stage.observe();
    assert_eq!(stage.pages(0), (512, 0));
    if blind_to(&stage, Unseen::HugeMappings) {
        // Before 6.7 a huge mapping shows by its frames alone, and what cannot be verified is not done.
        assert_eq!(stage.split(0).class, OutcomeClass::Unsupported);
        return;
    }
    assert_eq!(verdict(&stage.collapse(0)), (OutcomeClass::Done, None));
    assert_eq!(verdict(&stage.split(0)), (OutcomeClass::Done, None));
    let slot = stage.slot(0);
    let look = Look::ZeroPages {
        slot,
        pages_max: BasePages(512),
    };
    stage.look(&[look, Look::Nodes(slot)]);
    assert!(matches!(stage.last.answers[..], [Answer::ZeroPages { .. }]));
    assert!(!stage.slots[&slot].nodes.is_empty());
}

fn blind_to(stage: &Stage, what: Unseen) -> bool {
    stage.first.blind.iter().any(|spot| spot.what == what)
}
