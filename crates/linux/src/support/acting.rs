//! Collapse and split on another process: tried on the probe child, and judged by its smaps.

use super::Findings;
use super::env::{Answer, Child, Env, Extent, PseudoFs, Remote};
use super::feature::Feature;
use super::finding::{Finding, State, errno_name};
use super::privileges::setcap;
use super::smaps::held;
use hugepilot_core::units::{BasePages, Bytes};
use rustix::io::Errno;

/// Base pages touched in a slot before it is collapsed: an eighth of a slot on x86, so that a split has zero-filled base
/// pages to give back.
const TOUCHED: u64 = 64;
/// Base pages by which resident memory may exceed what was touched, after a split that gave the rest back.
const SLACK: u64 = 16;
/// Tries of a collapse that failed for a reason that may pass (no free huge page, page busy).
const TRIES_MAX: usize = 3;

/// Probes the group.
pub fn probe(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    findings.add(pidfd(env, child));
    let huge = huge_slot(env, child);
    findings.add(collapse(&huge));
    findings.add(collapse_past_holes(env, child));
    findings.add(collapse_fork_shared(env, child));
    let (split, frees) = split(env, child, &huge);
    findings.add(split);
    findings.add(frees);
    findings.add(debugfs(env));
    findings.add(debugfs_split(env, child));
    findings.add(unlocked(env));
    findings.add(except_advised(child));
}

fn pidfd(env: &Env<'_>, child: &dyn Child) -> Finding {
    match env.calls.pidfd_open(child.pid()) {
        Ok(()) => Finding::works(Feature::PidfdOpen, "opened"),
        Err(errno) => Finding::refused(Feature::PidfdOpen, "pidfd_open", errno),
    }
}

/// What came of making a huge slot.
enum Made {
    /// One slot, mapped huge.
    Huge(Extent),
    /// The kernel said yes, and the slot is as it was.
    NoEffect,
    /// The kernel said no.
    Refused(Errno),
    /// The child could not prepare, or its smaps not be read.
    Blind(Errno),
}

/// Touches a part of a fresh slot and collapses it.
fn huge_slot(env: &Env<'_>, child: &dyn Child) -> Made {
    let mut made = Made::NoEffect;
    for _ in 0..TRIES_MAX {
        made = match touched_slot(child) {
            Ok(slot) => collapse_one(env, child, slot),
            Err(errno) => Made::Blind(errno),
        };
        match made {
            Made::Refused(errno) if State::of_errno(errno) == State::Unknown => {}
            Made::Huge(_) | Made::NoEffect | Made::Refused(_) | Made::Blind(_) => break,
        }
    }
    made
}

fn touched_slot(child: &dyn Child) -> Answer<Extent> {
    let slot = child.map(1)?;
    child.touch(slot.start, TOUCHED)?;
    Ok(slot)
}

fn collapse_one(env: &Env<'_>, child: &dyn Child, slot: Extent) -> Made {
    if let Err(errno) = env
        .calls
        .process_madvise(child.pid(), slot, Remote::Collapse)
    {
        return Made::Refused(errno);
    }
    match held(env, child.pid(), slot) {
        Ok(held) if held.huge == Bytes(slot.length) => Made::Huge(slot),
        Ok(_) => Made::NoEffect,
        Err(errno) => Made::Blind(errno),
    }
}

/// What keeps one from verifying.
fn blind(feature: Feature, errno: Errno) -> Finding {
    Finding::new(
        feature,
        State::Unknown,
        format!(
            "the probe child's memory cannot be seen: {}",
            errno_name(errno)
        ),
    )
    .value("errno", errno_name(errno))
}

fn collapse(made: &Made) -> Finding {
    let feature = Feature::RemoteCollapse;
    match made {
        Made::Huge(_) => Finding::works(feature, "collapsed a slot of another process"),
        Made::NoEffect => Finding::new(
            feature,
            State::Absent,
            "the call succeeds and the slot stays in base pages",
        ),
        Made::Refused(Errno::NOMEM) => Finding::refused(feature, "MADV_COLLAPSE", Errno::NOMEM)
            .fix("echo 1 > /proc/sys/vm/compact_memory, or free memory"),
        Made::Refused(errno) => Finding::refused(feature, "MADV_COLLAPSE", *errno)
            .fix_if_forbidden(setcap("cap_sys_nice,cap_sys_ptrace")),
        Made::Blind(errno) => blind(feature, *errno),
    }
}

/// Three slots, the middle one never touched, collapsed in one call.
fn collapse_past_holes(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::CollapsePastHoles;
    let slot = env.geometry.slot().0;
    let ready = child.map(3).and_then(|range| {
        child.touch(range.start, TOUCHED)?;
        child.touch(range.start + 2 * slot, TOUCHED)?;
        Ok(range)
    });
    let range = match ready {
        Ok(range) => range,
        Err(errno) => return blind(feature, errno),
    };
    let said = env
        .calls
        .process_madvise(child.pid(), range, Remote::Collapse);
    match (said, held(env, child.pid(), range)) {
        (_, Err(errno)) => blind(feature, errno),
        (_, Ok(held)) if held.huge == Bytes(2 * slot) => {
            Finding::works(feature, "both touched slots of three were collapsed")
        }
        (Err(errno), Ok(held)) if held.huge == Bytes::ZERO => {
            Finding::refused(feature, "MADV_COLLAPSE", errno)
        }
        (said, Ok(held)) => Finding::new(
            feature,
            State::Absent,
            "the walk stops at an untouched slot; hugepilot collapses one slot a call",
        )
        .value("huge", held.huge)
        .value("answer", said.map_or_else(errno_name, |n| n.to_string())),
    }
}

fn collapse_fork_shared(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::CollapseForkShared;
    let forked = touched_slot(child).and_then(|slot| child.fork_hold().map(|()| slot));
    let made = match forked {
        Ok(slot) => collapse_one(env, child, slot),
        Err(errno) => Made::Blind(errno),
    };
    let released = child.release();
    match (made, released) {
        (Made::Blind(errno), _) | (_, Err(errno)) => blind(feature, errno),
        (Made::Huge(_), Ok(())) => Finding::works(feature, "collapsed, and thereby copied"),
        (Made::NoEffect, Ok(())) => {
            Finding::new(feature, State::Absent, "the call succeeds without effect")
        }
        (Made::Refused(errno), Ok(())) => Finding::refused(feature, "MADV_COLLAPSE", errno)
            .fix_if_forbidden(setcap("cap_sys_nice,cap_sys_ptrace")),
    }
}

/// Splits the slot that `collapse` made: does it split, and does it free the base pages that hold zeros?
fn split(env: &Env<'_>, child: &dyn Child, huge: &Made) -> (Finding, Finding) {
    let (split, frees) = (Feature::RemoteSplit, Feature::SplitFreesZero);
    let nothing = |feature, state: State, why: &str| Finding::new(feature, state, why);
    let Made::Huge(slot) = huge else {
        let why = "no huge page to split: see remote_collapse";
        return (
            nothing(split, State::Unknown, why),
            nothing(frees, State::Unknown, why),
        );
    };
    let page = Extent {
        start: slot.start,
        length: env.geometry.base_page().0,
    };
    if let Err(errno) = env.calls.process_madvise(child.pid(), page, Remote::Cold) {
        let refused = Finding::refused(split, "MADV_COLD", errno)
            .fix_if_forbidden(setcap("cap_sys_nice,cap_sys_ptrace"));
        let state = refused.state;
        return (refused, nothing(frees, state, "no split: see remote_split"));
    }
    match held(env, child.pid(), *slot) {
        Err(errno) => (blind(split, errno), blind(frees, errno)),
        Ok(held) if held.huge > Bytes::ZERO => (
            nothing(split, State::Absent, "the call succeeds without effect"),
            nothing(frees, State::Absent, "no split: see remote_split"),
        ),
        Ok(held) => (
            Finding::works(split, "split a huge page of another process"),
            freed(env, held.resident),
        ),
    }
}

fn freed(env: &Env<'_>, resident: Bytes) -> Finding {
    let feature = Feature::SplitFreesZero;
    let used = env.geometry.bytes(BasePages(TOUCHED + SLACK));
    let finding = if resident <= used {
        Finding::works(feature, "zero-filled base pages were given back")
    } else {
        Finding::new(
            feature,
            State::Absent,
            "after a split every base page stays resident, zero-filled ones too",
        )
    };
    finding.value("resident_after", resident)
}

fn debugfs(env: &Env<'_>) -> Finding {
    let feature = Feature::Debugfs;
    match env.calls.list(&env.sys.join("kernel/debug")) {
        Ok(names) if !names.is_empty() => return Finding::works(feature, "mounted"),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => {
            return Finding::refused(feature, "listing /sys/kernel/debug", errno)
                .fix_if_forbidden("run as root");
        }
    }
    match env.calls.mountable(PseudoFs::Debugfs) {
        Ok(()) => Finding::new(
            feature,
            State::Partly,
            "not mounted; hugepilot reaches it by a mount of its own",
        )
        .fix("mount -t debugfs none /sys/kernel/debug"),
        Err(errno) => Finding::refused(feature, "mounting debugfs", errno)
            .fix_if_forbidden(setcap("cap_sys_admin")),
    }
}

fn debugfs_split(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::DebugfsSplit;
    let Made::Huge(slot) = huge_slot(env, child) else {
        return Finding::new(
            feature,
            State::Unknown,
            "no huge page to split: see remote_collapse",
        );
    };
    let order = format!("{},{:#x},{:#x}", child.pid(), slot.start, slot.end());
    let file = env.sys.join("kernel/debug/split_huge_pages");
    let written = match env.set(&file, &order) {
        Err(Errno::NOENT) => {
            env.calls
                .write_unmounted(PseudoFs::Debugfs, "split_huge_pages", order.as_bytes())
        }
        answer => answer,
    };
    if let Err(errno) = written {
        return Finding::refused(feature, "writing split_huge_pages", errno)
            .fix_if_forbidden("root, and a kernel that is not locked down: see unlocked");
    }
    match held(env, child.pid(), slot) {
        Ok(held) if held.huge == Bytes::ZERO => {
            Finding::works(feature, "split a huge page of another process")
        }
        Ok(_) => Finding::new(feature, State::Absent, "the write succeeds without effect"),
        Err(errno) => blind(feature, errno),
    }
}

fn unlocked(env: &Env<'_>) -> Finding {
    let feature = Feature::Unlocked;
    let text = match env.text(&env.sys.join("kernel/security/lockdown")) {
        Ok(text) => Ok(text),
        Err(_unmounted) => env
            .calls
            .read_unmounted(PseudoFs::Securityfs, "lockdown")
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()),
    };
    let text = match text {
        Ok(text) => text,
        Err(Errno::NOENT | Errno::NODEV) => {
            return Finding::works(feature, "this kernel has no lockdown");
        }
        Err(errno) => {
            return Finding::refused(feature, "reading lockdown", errno)
                .fix_if_forbidden("run as root to see it; the other probes tell its effects");
        }
    };
    let finding = if text.contains("[none]") {
        Finding::works(feature, "lockdown is off")
    } else {
        Finding::new(
            feature,
            State::Forbidden,
            "locked down: no writes to debugfs",
        )
        .fix("boot without Secure Boot, or without lockdown= on the kernel's command line")
    };
    finding.value("lockdown", text)
}

fn except_advised(child: &dyn Child) -> Finding {
    let feature = Feature::ExceptAdvised;
    match child.except_advised() {
        Ok(()) => Finding::works(feature, "set, read back and unset in a child"),
        Err(errno) => Finding::refused(feature, "prctl", errno),
    }
}
