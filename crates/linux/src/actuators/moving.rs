//! Moving a slot, or base pages of it, to other nodes.
//!
//! One address a huge page: one moves the whole, and naming several makes the kernel call all but the first busy. A page
//! that was busy is asked again where it lies, since a smaller folio is moved as a whole too. Each page's own status
//! decides the outcome. A call names the pages of one slot at the most.

use super::Verdict;
use super::errno::{Call, verdict_of};
use super::split::{Consent, split};
use super::target::{Target, timed};
use crate::sensors::placement::nodes_of_slot;
use crate::sys::{Errno, move_pages};
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::{NodeId, Pid};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::{BasePages, Span};

/// Moves all of the target to `node`.
#[must_use]
pub fn move_slot(target: &mut Target<'_>, node: NodeId) -> Outcome {
    let pages = match present(target) {
        Ok(pages) => pages,
        Err(verdict) => return verdict.into(),
    };
    let wanted: Vec<_> = pages.into_iter().map(|page| (page, node)).collect();
    carry_out(target, &wanted)
}

/// Moves single base pages, each to its node.
#[must_use]
pub fn move_base_pages(target: &mut Target<'_>, pages: &[(BasePages, NodeId)]) -> Outcome {
    match target.still_there().and_then(|()| target.look()) {
        // One page of a huge page would take the others along.
        Ok(look) if look.counts.huge > 0 => {
            target.with_after(Verdict::new(OutcomeClass::Ineligible))
        }
        Ok(_) => carry_out(target, pages),
        Err(verdict) => verdict.into(),
    }
}

/// Splits the target and spreads its base pages over nodes by weight.
#[must_use]
pub fn interleave(target: &mut Target<'_>, nodes: &[(NodeId, u32)], consent: Consent) -> Outcome {
    let split = split(target, Order::BASE, consent);
    if split.class != OutcomeClass::Done {
        return split;
    }
    let pages = match present(target) {
        Ok(pages) => pages,
        Err(verdict) => return verdict.into(),
    };
    let wanted: Vec<_> = pages.into_iter().zip(by_weight(nodes)).collect();
    if wanted.is_empty() {
        return target.with_after(Verdict::new(OutcomeClass::Ineligible));
    }
    let moved = carry_out(target, &wanted);
    Outcome {
        took: moved.took + split.took,
        freed: split.freed,
        ..moved
    }
}

/// Nodes in turn, each as often as its weight says and as evenly as may be; none where all weights are zero.
fn by_weight(nodes: &[(NodeId, u32)]) -> impl Iterator<Item = NodeId> + '_ {
    let total: i64 = nodes.iter().map(|(_, weight)| i64::from(*weight)).sum();
    let mut credit = vec![0_i64; nodes.len()];
    std::iter::from_fn(move || {
        if total == 0 {
            return None;
        }
        for (credit, (_, weight)) in credit.iter_mut().zip(nodes) {
            *credit += i64::from(*weight);
        }
        let richest = (0..nodes.len()).max_by_key(|&at| (credit[at], std::cmp::Reverse(at)))?;
        credit[richest] -= total;
        Some(nodes[richest].0)
    })
}

/// The pages to name: the first of a huge page, or each base page that is present.
fn present(target: &mut Target<'_>) -> Result<Vec<BasePages>, Verdict> {
    target.still_there()?;
    let look = target.look()?;
    if look.counts.huge > 0 {
        return Ok(vec![BasePages(0)]);
    }
    let entries = target
        .tables
        .slot_entries(&target.process.pagemap, target.address)
        .map_err(|errno| verdict_of(Call::Look, errno))?;
    let present = |(index, entry): (u64, crate::procfs::pagemap::PageEntry)| {
        entry.present().then_some(BasePages(index))
    };
    Ok((0..).zip(entries).filter_map(present).collect())
}

fn carry_out(target: &mut Target<'_>, pages: &[(BasePages, NodeId)]) -> Outcome {
    let addresses: Vec<u64> = pages
        .iter()
        .map(|(page, _)| target.address + target.bytes_of(page.0).0)
        .collect();
    let nodes: Vec<i32> = pages.iter().map(|(_, node)| i32::from(node.0)).collect();
    let pid = target.process.id.pid;
    let mut before = Vec::new();
    if let Err(errno) = move_pages::query(pid, &addresses, &mut before) {
        return verdict_of(Call::Move, errno).into();
    }
    let mut status = Vec::new();
    let (called, took) = timed(|| move_pages::move_to(pid, &addresses, &nodes, &mut status));
    let verdict = match called {
        Ok(()) => {
            settle(pid, &addresses, &mut status);
            judge(&before, &status, &nodes)
        }
        Err(errno) => verdict_of(Call::Move, errno),
    };
    with_nodes(target, verdict, took)
}

/// A page that was busy may be where it should be all the same: another page of its folio took it along. Where it lies
/// now is asked again.
fn settle(pid: Pid, addresses: &[u64], status: &mut [i32]) {
    let busy = -Errno::BUSY.raw_os_error();
    let again: Vec<usize> = (0..status.len()).filter(|&at| status[at] == busy).collect();
    let asked: Vec<u64> = again.iter().map(|&at| addresses[at]).collect();
    let mut lies = Vec::new();
    if asked.is_empty() || move_pages::query(pid, &asked, &mut lies).is_err() {
        return;
    }
    for (at, node) in again.into_iter().zip(lies) {
        // One that cannot be asked just now stays busy.
        if node >= 0 {
            status[at] = node;
        }
    }
}

/// Absent pages do not count; of the others the first that did not move decides.
fn judge(before: &[i32], status: &[i32], nodes: &[i32]) -> Verdict {
    let absent = |status: i32| {
        let errno = (status < 0).then(|| Errno::from_raw_os_error(-status));
        matches!(errno, Some(Errno::NOENT | Errno::FAULT))
    };
    let present = || {
        let all = before.iter().zip(status).zip(nodes);
        all.filter(|((_, status), _)| !absent(**status))
    };
    if present().next().is_none() {
        return Verdict::new(OutcomeClass::Ineligible);
    }
    match present().find(|((_, status), node)| status != node) {
        Some(((_, &status), _)) if status < 0 => {
            verdict_of(Call::MovedPage, Errno::from_raw_os_error(-status))
        }
        Some(_) => Verdict::new(OutcomeClass::NoEffect),
        None if present().all(|((before, _), node)| before == node) => {
            Verdict::new(OutcomeClass::Done).because(Cause::AlreadyDone)
        }
        None => Verdict::new(OutcomeClass::Done),
    }
}

fn with_nodes(target: &mut Target<'_>, verdict: Verdict, took: Span) -> Outcome {
    let mut outcome = target.with_after(verdict);
    if let Some(after) = &mut outcome.after {
        // Where it cannot be asked any more, no nodes are said.
        if let Ok(nodes) = nodes_of_slot(target.process.id.pid, target.address, &target.geometry) {
            after.nodes = nodes;
        }
    }
    Outcome { took, ..outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(before: &[i32], status: &[i32], nodes: &[i32]) -> OutcomeClass {
        judge(before, status, nodes).class
    }

    #[test]
    fn each_page_has_its_say() {
        assert_eq!(class(&[0, 0], &[1, -2], &[1, 1]), OutcomeClass::Done);
        assert_eq!(class(&[0, 0], &[1, -16], &[1, 1]), OutcomeClass::Busy);
        assert_eq!(class(&[0], &[-12], &[1]), OutcomeClass::NoMemory);
        assert_eq!(class(&[0], &[0], &[1]), OutcomeClass::NoEffect);
        assert_eq!(class(&[-2], &[-2], &[1]), OutcomeClass::Ineligible);
        let again = judge(&[1], &[1], &[1]);
        assert_eq!(again.cause, Some(Cause::AlreadyDone));
    }

    #[test]
    fn weights_are_kept_and_spread() {
        let nodes = [(NodeId(0), 1), (NodeId(1), 3)];
        let order: Vec<u16> = by_weight(&nodes).take(8).map(|node| node.0).collect();
        assert_eq!(order.iter().filter(|&&node| node == 0).count(), 2);
        assert_eq!(order[..4].iter().filter(|&&node| node == 0).count(), 1);
        assert_eq!(by_weight(&[(NodeId(0), 0)]).next(), None);
    }
}
