//! What observations say, and what they do not say twice.

use super::{Played, Watch, await_partly_mapped, await_true, huge, private, written};
use crate::report::CaseReport;
use crate::stage::{Area, Memory, Stage};
use hugepilot_core::look::{Answer, Look};
use hugepilot_core::observation::{Observation, ProcessObserved, ThpConsent};
use hugepilot_core::units::{BasePages, Bytes};

fn says(seen: &Observation, area: &Area) -> bool {
    seen.slots
        .iter()
        .any(|slot| area.range().contains(slot.slot))
}

pub(super) fn first_observation_is_a_checkpoint<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    let mut watch = Watch::new(stage)?;
    let first = watch.observe(stage, &[])?;
    let second = watch.observe(stage, &[])?;
    let object = |seen: &Observation| {
        seen.objects
            .iter()
            .any(|object| object.object == area.object)
    };
    let process = first
        .processes
        .iter()
        .any(|process| process.process == area.process);
    Ok(CaseReport::default()
        .fact("first_is_checkpoint", first.checkpoint)
        .fact("second_is_checkpoint", second.checkpoint)
        .fact("first_says_process", process)
        .fact("first_says_object", object(&first))
        .fact("second_repeats_object", object(&second)))
}

pub(super) fn unchanged_slots_are_not_repeated<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let unchanged = watch.look(stage, &area)?;
    stage.free(&area, 0..1)?;
    let changed = watch.look(stage, &area)?;
    Ok(CaseReport::default()
        .fact("said_unchanged", says(&unchanged, &area))
        .fact("said_changed", says(&changed, &area)))
}

pub(super) fn present_pages_are_counted<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 3)?;
    stage.write(&area, 0..512)?;
    stage.write(&area, 600..611)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    Ok(CaseReport::default()
        .fact("full", watch.slot(area.slot(0)).present)
        .fact("sparse", watch.slot(area.slot(1)).present)
        .fact("untouched", watch.slot(area.slot(2)).present))
}

pub(super) fn zero_pages_do_not_count_as_present<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 1)?;
    stage.write(&area, 0..10)?;
    stage.read(&area, 10..30)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let slot = watch.slot(area.slot(0));
    Ok(CaseReport::default()
        .fact("present", slot.present)
        .fact("zero_mapped", slot.zero_mapped))
}

pub(super) fn freed_inside_a_huge_page<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let before = watch.slot(area.slot(0));
    stage.free(&area, 8..9)?;
    watch.look(stage, &area)?;
    let after = watch.slot(area.slot(0));
    let partly = await_partly_mapped(stage, &mut watch, &area, true)?;
    Ok(CaseReport::default()
        .fact("huge_before", before.huge)
        .fact("huge_after", after.huge)
        .fact("present_after", after.present)
        .fact("partially_mapped_after", partly))
}

pub(super) fn emptied_slots_are_reported<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let before = watch.slot(area.slot(0)).present;
    stage.free(&area, 0..512)?;
    let seen = watch.look(stage, &area)?;
    Ok(CaseReport::default()
        .fact("present_before", before)
        .fact("said", says(&seen, &area))
        .fact("present_after", watch.slot(area.slot(0)).present))
}

pub(super) fn unmapped_object_is_reported<S: Stage>(stage: &mut S) -> Played {
    let process = stage.start()?;
    let area = stage.map(process, Bytes::mib(2), Memory::Shmem)?;
    stage.write(&area, 0..512)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    stage.unmap(&area, 0..512)?;
    let gone = await_true(stage, &mut watch, |seen| {
        seen.objects
            .iter()
            .any(|object| object.object == area.object && object.mappings.is_empty())
    })?;
    Ok(CaseReport::default().fact("said_gone", gone))
}

pub(super) fn exit_is_reported<S: Stage>(stage: &mut S) -> Played {
    let (survivor, area) = (stage.start()?, written(stage)?);
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    stage.kill(area.process)?;
    let exited = |seen: &Observation| seen.exited.contains(&area.process);
    let said = await_true(stage, &mut watch, exited)?;
    let again = watch.observe(stage, &[])?;
    Ok(CaseReport::default()
        .fact("said", said)
        .fact("said_again", exited(&again))
        .fact("said_of_survivor", again.exited.contains(&survivor)))
}

pub(super) fn shared_object_is_seen_once<S: Stage>(stage: &mut S) -> Played {
    let (first, second) = (stage.start()?, stage.start()?);
    let area = stage.map(first, Bytes::mib(2), Memory::Shmem)?;
    stage.write(&area, 0..512)?;
    let other = stage.share(&area, second)?;
    stage.read(&other, 0..512)?;
    let mut watch = Watch::new(stage)?;
    let seen = watch.observe(stage, &[Look::PageTables(area.range())])?;
    let objects: Vec<_> = seen
        .objects
        .iter()
        .filter(|object| object.object == area.object)
        .collect();
    let mappings = objects
        .iter()
        .map(|object| object.mappings.len())
        .sum::<usize>();
    watch.look(stage, &area)?;
    Ok(CaseReport::default()
        .fact("objects", objects.len())
        .fact("mappings", mappings)
        .fact("same_object", area.object == other.object)
        .fact("present", watch.slot(area.slot(0)).present))
}

pub(super) fn fork_is_seen<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    stage.fork(area.process)?;
    let children = |wanted: u32| {
        move |seen: &Observation| {
            let of = |process: &&ProcessObserved| process.process == area.process;
            seen.processes
                .iter()
                .find(of)
                .is_some_and(|process| process.forked_children == wanted)
        }
    };
    let forked = await_true(stage, &mut watch, children(1))?;
    stage.end_children(area.process)?;
    let ended = await_true(stage, &mut watch, children(0))?;
    Ok(CaseReport::default()
        .fact("child_counted", forked)
        .fact("end_counted", ended))
}

pub(super) fn refusals_are_seen<S: Stage>(stage: &mut S) -> Played {
    let process = stage.start()?;
    let area = stage.map(process, Bytes::mib(2), Memory::Private)?;
    stage.opt_out(process)?;
    let mut watch = Watch::new(stage)?;
    let seen = watch.look(stage, &area)?;
    let of = |seen: &&ProcessObserved| seen.process == process;
    let consent = seen.processes.iter().find(of).map(|seen| seen.thp);
    Ok(CaseReport::default().fact("process_refuses", consent == Some(ThpConsent::Refused)))
}

/// A region's advice is not looked at before an action; once one was refused, it is known.
pub(super) fn refusal_is_said_after_it<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.refuse_huge(&area)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let before = watch.is_excluded(area.slot(0));
    let refused = watch.collapse(stage, &area, 0)?;
    let after = watch.is_excluded(area.slot(0));
    let again = watch.collapse(stage, &area, 0)?;
    Ok(CaseReport::default()
        .acted(refused)
        .acted(again)
        .fact("excluded_before", before)
        .fact("excluded_after", after))
}

pub(super) fn zero_filled_pages_are_counted<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.zero(&area, 128..512)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let seen = watch.observe(
        stage,
        &[Look::ZeroPages {
            slot: area.slot(0),
            pages_max: BasePages(512),
        }],
    )?;
    let counted = seen.answers.iter().find_map(|answer| match answer {
        Answer::ZeroPages { slot, read, zero } if *slot == area.slot(0) => Some((*read, *zero)),
        Answer::ZeroPages { .. } | Answer::Unanswered { .. } => None,
    });
    let (read, zero) = counted.unwrap_or_default();
    Ok(CaseReport::default().fact("read", read).fact("zero", zero))
}
