//! What a split does, what it gives back, and when it does nothing.

use super::{Played, Watch, await_partly_mapped, huge, look_and_split, private, written};
use crate::report::CaseReport;
use crate::stage::{Memory, Stage};
use hugepilot_core::units::{BasePages, Bytes};

pub(super) fn split_huge<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    look_and_split(stage, &area)
}

pub(super) fn split_base_pages<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    look_and_split(stage, &area)
}

pub(super) fn split_never_touched<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 1)?;
    look_and_split(stage, &area)
}

/// Half of the huge page was overwritten by zeros.
pub(super) fn split_zero_filled<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.zero(&area, 256..512)?;
    look_and_split(stage, &area)
}

pub(super) fn split_one_page_used<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 1)?;
    stage.write(&area, 5..6)?;
    stage.make_huge(&area, 0)?;
    look_and_split(stage, &area)
}

pub(super) fn split_fork_shared<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.fork(area.process)?;
    look_and_split(stage, &area)
}

pub(super) fn split_locked<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.lock(&area)?;
    look_and_split(stage, &area)
}

pub(super) fn split_pinned_then_unpinned<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.pin(&area, BasePages(100))?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let pinned = watch.split(stage, &area, 0)?;
    stage.unpin(&area, BasePages(100))?;
    let unpinned = watch.split(stage, &area, 0)?;
    Ok(CaseReport::default().acted(pinned).acted(unpinned))
}

/// The program gave back half of a huge page: its memory is still held, until the split.
pub(super) fn split_partially_mapped<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.free(&area, 0..256)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let before = await_partly_mapped(stage, &mut watch, &area, true)?;
    let acted = watch.split(stage, &area, 0)?;
    let whole_after = await_partly_mapped(stage, &mut watch, &area, false)?;
    Ok(CaseReport::default()
        .acted(acted)
        .fact("partially_mapped_before", before)
        .fact("not_so_after", whole_after))
}

/// Shared memory is unmapped by the split, and comes back as base pages.
pub(super) fn split_shmem<S: Stage>(stage: &mut S) -> Played {
    let process = stage.start()?;
    let area = stage.map(process, Bytes::mib(2), Memory::Shmem)?;
    stage.write(&area, 0..512)?;
    stage.make_huge(&area, 0)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let acted = watch.split(stage, &area, 0)?;
    stage.read(&area, 0..512)?;
    watch.look(stage, &area)?;
    let touched = watch.slot(area.slot(0));
    Ok(CaseReport::default()
        .acted(acted)
        .fact("huge_after_touch", touched.huge)
        .fact("present_after_touch", touched.present))
}

pub(super) fn split_vanished_process<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    stage.kill(area.process)?;
    Ok(CaseReport::default().acted(watch.split(stage, &area, 0)?))
}

pub(super) fn split_and_collapse_again<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let split = watch.split(stage, &area, 0)?;
    let collapsed = watch.collapse(stage, &area, 0)?;
    let again = watch.split(stage, &area, 0)?;
    Ok(CaseReport::default()
        .acted(split)
        .acted(collapsed)
        .acted(again))
}

pub(super) fn split_advised_against<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.refuse_huge(&area)?;
    look_and_split(stage, &area)
}
