//! Collapsing one slot: one call, one slot.
//!
//! One slot a call, because the kernel stops at the first slot that it cannot collapse, and because it holds the
//! target's lock for the length of one copy each time: between two calls the target runs.
//!
//! Just before the call the slot is looked at page by page. A page that a forked process shares would be copied for us
//! alone and memory would double; a swapped page would be read back in. Both are refused here, whatever the plan
//! believed. Just after it the page table must show a huge mapping, or nothing was done.

use super::Verdict;
use super::errno::{Call, verdict_of};
use super::target::{Pages, Target, timed};
use crate::sensors::fingerprints::SlotCounts;
use crate::sys::Errno;
use crate::sys::advise::{Advice, process_madvise};
use hugepilot_core::geometry::Order;
use hugepilot_core::observation::Sharing;
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};

/// Backs the target by one page of `order`.
#[must_use]
pub fn collapse(target: &mut Target<'_>, order: Order) -> Outcome {
    if order != target.geometry.slot_order {
        return Outcome::new(OutcomeClass::Unsupported);
    }
    attempt(target).unwrap_or_else(Outcome::from)
}

fn attempt(target: &mut Target<'_>) -> Result<Outcome, Verdict> {
    target.still_there()?;
    let before = target.look()?;
    if let Some(verdict) = obstacle(target, &before) {
        return Ok(target.with(verdict, &before));
    }
    let (pidfd, address, bytes) = (target.process.pidfd(), target.address, target.bytes());
    let (called, took) = timed(|| process_madvise(pidfd, address, bytes, Advice::Collapse));
    let outcome = match called {
        Ok(_) => verified(target),
        Err(errno) => {
            let verdict = refused(target, errno);
            target.with_after(verdict)
        }
    };
    Ok(Outcome { took, ..outcome })
}

/// What the page table says against a collapse.
fn obstacle(target: &Target<'_>, pages: &Pages) -> Option<Verdict> {
    let ineligible = Verdict::new(OutcomeClass::Ineligible);
    if target.is_huge(pages.counts) {
        Some(Verdict::new(OutcomeClass::Done).because(Cause::AlreadyDone))
    } else if pages.sharing == Sharing::ForkShared {
        Some(ineligible.because(Cause::ForkShared))
    } else if pages.counts.swapped > 0 {
        Some(ineligible.because(Cause::Swapped))
    } else if pages.write_protected {
        // userfaultfd write-protects it: the kernel would refuse, and for another reason than an opt-out.
        Some(ineligible)
    } else {
        None
    }
}

fn verified(target: &mut Target<'_>) -> Outcome {
    let Ok(after) = target.look() else {
        return Outcome::new(OutcomeClass::Gone).because(Cause::ProcessGone);
    };
    // Where huge mappings cannot be seen, a slot whose every page is there now is as much as can be verified.
    let full = u64::from(after.counts.present()) == target.geometry.slot_pages().0;
    let done = target.is_huge(after.counts) || (!target.sees_huge() && full);
    let class = if done {
        OutcomeClass::Done
    } else {
        OutcomeClass::NoEffect
    };
    target.with(Verdict::new(class), &after)
}

fn refused(target: &mut Target<'_>, errno: Errno) -> Verdict {
    let verdict = verdict_of(Call::Collapse, errno);
    match errno {
        Errno::NOMEM => no_memory_or_gone(target, verdict),
        Errno::INVAL => ineligible_why(target, verdict),
        Errno::AGAIN => verdict.because(Cause::Pinned),
        _ => verdict,
    }
}

/// `ENOMEM` means no huge page, or a hole in the range: the region tells. Where a kernel before 6.11 cannot be asked for
/// it, the page table does: of a slot that holds nothing the kernel says `EINVAL`, unless it is not mapped at all.
fn no_memory_or_gone(target: &mut Target<'_>, verdict: Verdict) -> Verdict {
    if let Err(gone) = target.still_there() {
        return gone;
    }
    match target.look() {
        Ok(pages) if pages.counts == SlotCounts::EMPTY => Verdict::new(OutcomeClass::Gone),
        Ok(_) => verdict,
        Err(gone) => gone,
    }
}

/// The kernel says `EINVAL` for many reasons. The others were ruled out before the call; a slot that holds something and
/// is refused all the same is one whose region or process opted out.
fn ineligible_why(target: &mut Target<'_>, verdict: Verdict) -> Verdict {
    match target.look() {
        Ok(pages) if pages.sharing == Sharing::ForkShared => verdict.because(Cause::ForkShared),
        Ok(pages) if pages.counts.present() > 0 => verdict.because(Cause::OptedOut),
        Ok(_) => verdict,
        Err(gone) => gone,
    }
}
