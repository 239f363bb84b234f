//! What a collapse does, and when it does nothing.

use super::{Played, Watch, huge, look_and_collapse, private, written};
use crate::report::{Acted, CaseReport};
use crate::stage::{Memory, Stage};
use hugepilot_core::units::{BasePages, Bytes};

pub(super) fn collapse_full_slot<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_one_page_present<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 1)?;
    stage.write(&area, 17..18)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_never_touched<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 1)?;
    look_and_collapse(stage, &area)
}

/// Reading maps the shared zero page, and nothing else.
pub(super) fn collapse_only_read<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 1)?;
    stage.read(&area, 0..512)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_already_huge<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_advised_against<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.refuse_huge(&area)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_opted_out_process<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.opt_out(area.process)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_fork_shared<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.fork(area.process)?;
    look_and_collapse(stage, &area)
}

/// The pages are the parent's alone again, but still write-protected: they were not written since.
pub(super) fn collapse_after_child_exits<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.fork(area.process)?;
    stage.end_children(area.process)?;
    stage.write(&area, 0..512)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_locked<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.lock(&area)?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_pinned_then_unpinned<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    stage.pin(&area, BasePages(100))?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let pinned = watch.collapse(stage, &area, 0)?;
    stage.unpin(&area, BasePages(100))?;
    let unpinned = watch.collapse(stage, &area, 0)?;
    Ok(CaseReport::default().acted(pinned).acted(unpinned))
}

pub(super) fn collapse_region_too_small<S: Stage>(stage: &mut S) -> Played {
    let process = stage.start()?;
    let area = stage.map(process, Bytes::mib(1), Memory::Private)?;
    stage.write(&area, 0..256)?;
    look_and_collapse(stage, &area)
}

/// The region begins in the middle of the first slot; the second one is whole.
pub(super) fn collapse_region_unaligned<S: Stage>(stage: &mut S) -> Played {
    let area = private(stage, 2)?;
    stage.write(&area, 0..1024)?;
    stage.unmap(&area, 0..256)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let cut = watch.collapse(stage, &area, 0)?;
    let whole = watch.collapse(stage, &area, 1)?;
    Ok(CaseReport::default().acted(cut).acted(whole))
}

pub(super) fn collapse_shmem<S: Stage>(stage: &mut S) -> Played {
    let process = stage.start()?;
    let area = stage.map(process, Bytes::mib(2), Memory::Shmem)?;
    stage.write(&area, 0..512)?;
    look_and_collapse(stage, &area)
}

/// The collapse takes the slot out of everybody else's page tables. Until they touched it again it depends on through
/// whom one looks what is seen; and whether it is huge, also afterwards.
pub(super) fn collapse_shmem_through_second_process<S: Stage>(stage: &mut S) -> Played {
    let (first, second) = (stage.start()?, stage.start()?);
    let area = stage.map(first, Bytes::mib(2), Memory::Shmem)?;
    stage.write(&area, 0..512)?;
    let other = stage.share(&area, second)?;
    stage.read(&other, 0..512)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    let acted = watch.collapse(stage, &area, 0)?;
    stage.read(&area, 0..512)?;
    stage.read(&other, 0..512)?;
    watch.look(stage, &area)?;
    let after = watch.slot(area.slot(0));
    Ok(CaseReport::default()
        .acted(Acted {
            observed: None,
            ..acted
        })
        .fact("present_after_both_touched", after.present))
}

/// The copy does not fit beside the original.
pub(super) fn collapse_cgroup_full<S: Stage>(stage: &mut S) -> Played {
    let process = stage.start()?;
    stage.confine(process)?;
    let area = stage.map(process, Bytes::mib(2), Memory::Private)?;
    stage.write(&area, 0..512)?;
    stage.limit(process, Bytes::kib(512))?;
    look_and_collapse(stage, &area)
}

pub(super) fn collapse_after_pages_were_freed<S: Stage>(stage: &mut S) -> Played {
    let area = huge(stage)?;
    stage.free(&area, 0..256)?;
    look_and_collapse(stage, &area)
}

/// Between look and action the region goes.
pub(super) fn collapse_after_unmap<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    stage.unmap(&area, 0..512)?;
    Ok(CaseReport::default().acted(watch.collapse(stage, &area, 0)?))
}

/// Between look and action the process goes.
pub(super) fn collapse_vanished_process<S: Stage>(stage: &mut S) -> Played {
    let area = written(stage)?;
    let mut watch = Watch::new(stage)?;
    watch.look(stage, &area)?;
    stage.kill(area.process)?;
    Ok(CaseReport::default().acted(watch.collapse(stage, &area, 0)?))
}
