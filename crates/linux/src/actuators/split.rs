//! Splitting a slot's huge page, from outside, without a debug interface.
//!
//! `MADV_COLD` on one base page inside a huge page splits that page: the kernel will not age a part of it otherwise. The
//! one base page loses its accessed bit; nothing else changes, except that kernels from 6.12 free base pages that hold
//! nothing but zeros. The same call on a huge page that is mapped here only in part, by base-page entries, splits it too
//! and frees what nobody can reach.
//!
//! The kernel says yes and does nothing where a page is shared after a fork, or held by somebody: so the page table is
//! read afterwards, and where nothing changed it tells the two apart.

use super::Verdict;
use super::errno::{Call, verdict_of};
use super::target::{Pages, Target, timed};
use crate::procfs::pagemap::PageEntry;
use crate::sensors::frames::PartialFolio;
use crate::sys::Errno;
use crate::sys::advise::{Advice, process_madvise};
use hugepilot_core::geometry::Order;
use hugepilot_core::observation::{Sharing, SlotObserved};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::{Bytes, Span};

/// A held page may be held for a moment only: this many tries before we say that it is pinned.
const TRIES: usize = 2;

/// Is the region known to consent to THP, or must it be asked?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// Asked lately.
    Given,
    /// Not asked yet.
    Unknown,
}

/// Breaks the target's huge pages down to `order`.
#[must_use]
pub fn split(target: &mut Target<'_>, order: Order, consent: Consent) -> Outcome {
    if order != Order::BASE {
        return Outcome::new(OutcomeClass::Unsupported);
    }
    attempt(target, consent).unwrap_or_else(Outcome::from)
}

fn attempt(target: &mut Target<'_>, consent: Consent) -> Result<Outcome, Verdict> {
    target.still_there()?;
    let before = target.look()?;
    if !target.sees_huge() {
        // Nothing could be verified, and an action that cannot be verified is not done.
        return Err(Verdict::new(OutcomeClass::Unsupported).because(Cause::Capability));
    }
    if before.counts.huge == 0 {
        return split_partial(target, &before);
    }
    if consent == Consent::Unknown {
        ask_consent(target)?;
    }
    let mut took = Span::ZERO;
    let mut after = before.clone();
    for _ in 0..TRIES {
        took += chill(target, after.first_present.unwrap_or(target.address))?;
        after = target.look()?;
        if after.counts.huge == 0 {
            return Ok(done(target, &before, &after, took));
        }
        if after.sharing == Sharing::ForkShared {
            break;
        }
    }
    Ok(Outcome {
        took,
        ..target.with(without_effect(&after), &after)
    })
}

/// The kernel said yes, and the page is as it was.
const fn without_effect(after: &Pages) -> Verdict {
    let cause = match after.sharing {
        Sharing::ForkShared => Cause::ForkShared,
        Sharing::Exclusive | Sharing::Unknown => Cause::Pinned,
    };
    Verdict::new(OutcomeClass::NoEffect).because(cause)
}

fn done(target: &Target<'_>, before: &Pages, after: &Pages, took: Span) -> Outcome {
    // A slot of shared memory is only unmapped; its pages stay where they are.
    let went = before
        .counts
        .present()
        .saturating_sub(after.counts.present());
    let freed = match before.sharing {
        Sharing::Exclusive | Sharing::ForkShared => target.bytes_of(u64::from(went)),
        Sharing::Unknown => Bytes::ZERO,
    };
    Outcome {
        took,
        freed,
        ..target.with(Verdict::new(OutcomeClass::Done), after)
    }
}

/// Cools one base page at `address`, which splits the huge page that it is in.
fn chill(target: &Target<'_>, address: u64) -> Result<Span, Verdict> {
    let page = target.geometry.base_page();
    let pidfd = target.process.pidfd();
    let (called, took) = timed(|| process_madvise(pidfd, address, page, Advice::Cold));
    match called {
        Ok(_) => Ok(took),
        Err(Errno::INVAL) => Err(verdict_of(Call::Cold, Errno::INVAL).because(Cause::Locked)),
        Err(errno) => Err(verdict_of(Call::Cold, errno)),
    }
}

/// Collapsing what is huge already changes nothing, and is refused where the region is advised against THP: a question
/// without a side effect. (`MADV_COLD` itself would not refuse.)
fn ask_consent(target: &Target<'_>) -> Result<(), Verdict> {
    let pidfd = target.process.pidfd();
    match process_madvise(pidfd, target.address, target.bytes(), Advice::Collapse) {
        Err(Errno::INVAL) => Err(verdict_of(Call::Collapse, Errno::INVAL).because(Cause::OptedOut)),
        Err(errno @ (Errno::SRCH | Errno::PERM | Errno::ACCESS)) => {
            Err(verdict_of(Call::Collapse, errno))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The slot is mapped by base pages. Some of them may be parts of a huge page that nobody maps as a whole any more.
fn split_partial(target: &mut Target<'_>, before: &Pages) -> Result<Outcome, Verdict> {
    let entries = target
        .tables
        .slot_entries(&target.process.pagemap, target.address)
        .map_err(|errno| verdict_of(Call::Look, errno))?;
    let folios = match target.tables.frames().partially_mapped(&entries) {
        Some(folios) if !folios.is_empty() => folios,
        // Where frames are hidden, it cannot be told whether there is such a page.
        Some(_) | None => {
            let already = Verdict::new(OutcomeClass::Done).because(Cause::AlreadyDone);
            return Ok(target.with(already, before));
        }
    };
    let (mut took, mut freed) = (Span::ZERO, Bytes::ZERO);
    for folio in &folios {
        let Some(address) = page_of(target, &entries, folio) else {
            continue;
        };
        took += chill(target, address)?;
        if target.tables.frames().is_huge_folio(folio.first) == Some(false) {
            freed += target.bytes_of(folio.unmapped);
        }
    }
    let after = target.look()?;
    let split = freed > Bytes::ZERO;
    let verdict = if split {
        Verdict::new(OutcomeClass::Done)
    } else {
        without_effect(&after)
    };
    let observed = SlotObserved {
        partially_mapped: Some(!split),
        ..target.observed(&after)
    };
    Ok(Outcome {
        took,
        freed,
        after: Some(observed),
        ..verdict.into()
    })
}

/// The address of a page of the slot that belongs to `folio`.
fn page_of(target: &Target<'_>, entries: &[PageEntry], folio: &PartialFolio) -> Option<u64> {
    let frames = folio.first..folio.first + target.geometry.slot_pages().0;
    (target.address..)
        .step_by(usize::try_from(target.geometry.base_page().0).ok()?)
        .zip(entries)
        .find(|(_, entry)| entry.frame().is_some_and(|frame| frames.contains(&frame)))
        .map(|(address, _)| address)
}
