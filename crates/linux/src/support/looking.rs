//! Page tables and contents of another process: three base pages are touched, and must be seen.

use super::Findings;
use super::env::{Answer, Child, Env, Extent};
use super::feature::Feature;
use super::finding::{Finding, State, errno_name};
use super::privileges::setcap;
use super::smaps::held;
use crate::procfs::pagemap::{ENTRY_BYTES, PageEntry, entries as parse};
use crate::sys::pagemap::category;
use hugepilot_core::units::{BasePages, Bytes};
use rustix::io::Errno;

/// Base pages touched.
const TOUCHED: u64 = 3;
/// Entries of pagemap read: the touched ones and as many beyond.
const ENTRIES: u64 = 8;
/// What the child writes into each page it touches.
const MARK: u8 = 0xA5;

/// Written since the last mark, in a pagemap entry.
const SOFT_DIRTY: u64 = 1 << 55;

/// Anonymous memory, in `/proc/kpageflags`.
const KPF_ANON: u64 = 1 << 12;

/// Each category of `PAGEMAP_SCAN` that has a feature.
const CATEGORIES: [(Feature, u64); 9] = [
    (Feature::ScanWritten, 1 << 1),
    (Feature::ScanFile, category::FILE),
    (Feature::ScanPresent, category::PRESENT),
    (Feature::ScanSwapped, category::SWAPPED),
    (Feature::ScanZero, category::PFNZERO),
    (Feature::ScanHuge, category::HUGE),
    (Feature::ScanSoftDirty, 1 << 7),
    (Feature::ScanGuard, category::GUARD),
    (Feature::ScanAccessed, 1 << 9),
];

/// Probes the group.
pub fn probe(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    let slot = child.map(1).and_then(|slot| {
        child.touch(slot.start, TOUCHED)?;
        Ok(slot)
    });
    // Without the child's slot every feature of the group stays unprobed, and `support::probe` says so.
    let Ok(slot) = slot else { return };
    findings.add(smaps(env, child.pid(), slot));
    by_pagemap(env, child.pid(), slot, findings);
    by_scan(env, child.pid(), slot, findings);
    findings.add(soft_dirty(env, child, slot));
    findings.add(procmap_query(env, child.pid(), slot));
    findings.add(process_vm_readv(env, child.pid(), slot));
}

fn smaps(env: &Env<'_>, pid: u32, slot: Extent) -> Finding {
    let feature = Feature::Smaps;
    match held(env, pid, slot) {
        Ok(held) if held.resident == env.geometry.bytes(BasePages(TOUCHED)) => {
            Finding::works(feature, "shows what was touched")
        }
        Ok(held) => Finding::new(feature, State::Partly, "does not show what was touched")
            .value("resident", held.resident),
        Err(errno) => Finding::refused(feature, "reading smaps", errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    }
}

/// The pagemap entries of the slot's first pages.
fn entries(env: &Env<'_>, pid: u32, slot: Extent) -> Answer<Vec<PageEntry>> {
    let page = slot.start / env.geometry.base_page().0;
    let bytes = env.calls.read(
        &env.of_process(pid, "pagemap"),
        page * 8,
        ENTRY_BYTES * usize::try_from(ENTRIES).expect("a few"),
    )?;
    Ok(parse(&bytes).collect())
}

fn by_pagemap(env: &Env<'_>, pid: u32, slot: Extent, findings: &mut Findings) {
    let seen = match entries(env, pid, slot) {
        Ok(seen) => seen,
        Err(errno) => {
            let refused = |feature| {
                Finding::refused(feature, "reading pagemap", errno)
                    .fix_if_forbidden(setcap("cap_sys_ptrace"))
            };
            findings.add(refused(Feature::Pagemap));
            findings.add(refused(Feature::PagemapPfn));
            findings.add(refused(Feature::PagemapExclusive));
            findings.add(refused(Feature::Kpageflags));
            return;
        }
    };
    let present = seen.iter().filter(|entry| entry.present()).count();
    let first = seen.first().copied();
    let frame = first.and_then(PageEntry::frame);
    findings.add(if u64::try_from(present) == Ok(TOUCHED) {
        Finding::works(Feature::Pagemap, "shows which base pages are present")
    } else {
        Finding::new(
            Feature::Pagemap,
            State::Absent,
            "does not show what was touched",
        )
        .value("present", present)
    });
    findings.add(pfn(frame));
    findings.add(exclusive(first.is_some_and(PageEntry::exclusive)));
    findings.add(kpageflags(env, frame));
}

fn pfn(frame: Option<u64>) -> Finding {
    let feature = Feature::PagemapPfn;
    match frame {
        Some(_) => Finding::works(feature, "shown"),
        None => Finding::new(feature, State::Forbidden, "hidden without CAP_SYS_ADMIN")
            .fix(setcap("cap_sys_admin")),
    }
}

fn exclusive(set: bool) -> Finding {
    let feature = Feature::PagemapExclusive;
    if set {
        return Finding::works(feature, "set on a page of one address space");
    }
    let detail = "not set on a page of one address space";
    Finding::new(feature, State::Absent, detail)
}

fn kpageflags(env: &Env<'_>, frame: Option<u64>) -> Finding {
    let feature = Feature::Kpageflags;
    let Some(frame) = frame else {
        return Finding::new(feature, State::Forbidden, "no page number to ask about")
            .fix(setcap("cap_sys_admin"));
    };
    let file = env.proc.join("kpageflags");
    let anonymous = KPF_ANON.to_ne_bytes();
    match env.calls.read(&file, frame * 8, anonymous.len()) {
        Ok(flags)
            if flags
                .iter()
                .zip(anonymous)
                .any(|(flag, bit)| flag & bit != 0) =>
        {
            Finding::works(feature, "shows an anonymous page as such")
        }
        Ok(_) => Finding::new(feature, State::Absent, "says nothing of an anonymous page"),
        Err(errno) => {
            Finding::refused(feature, "reading kpageflags", errno).fix_if_forbidden("run as root")
        }
    }
}

fn by_scan(env: &Env<'_>, pid: u32, slot: Extent, findings: &mut Findings) {
    let pagemap = env.of_process(pid, "pagemap");
    let scan = |any, tell| env.calls.pagemap_scan(&pagemap, slot, any, tell);
    let base = scan(category::PRESENT, category::PRESENT);
    findings.add(match &base {
        Ok(runs) => {
            let seen = runs.iter().map(|run| Bytes(run.extent.length)).sum();
            scanned(env, seen)
        }
        Err(errno) => Finding::refused(Feature::PagemapScan, "PAGEMAP_SCAN", *errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    });
    for (feature, bit) in CATEGORIES {
        let answer = match base {
            Ok(_) => scan(category::PRESENT | bit, bit),
            Err(errno) => Err(errno),
        };
        findings.add(match answer {
            Ok(_) => Finding::works(feature, "known"),
            Err(Errno::INVAL) => {
                Finding::new(feature, State::Absent, "not a category here: EINVAL")
                    .value("errno", errno_name(Errno::INVAL))
            }
            Err(errno) => Finding::refused(feature, "PAGEMAP_SCAN", errno),
        });
    }
}

fn scanned(env: &Env<'_>, seen: Bytes) -> Finding {
    let feature = Feature::PagemapScan;
    if seen == env.geometry.bytes(BasePages(TOUCHED)) {
        Finding::works(feature, "shows what was touched")
    } else {
        Finding::new(feature, State::Absent, "does not show what was touched").value("seen", seen)
    }
}

/// Marks all pages clean, touches the first, and looks whether the bit tells it from the second.
fn soft_dirty(env: &Env<'_>, child: &dyn Child, slot: Extent) -> Finding {
    let feature = Feature::SoftDirty;
    let cleared = env.set(&env.of_process(child.pid(), "clear_refs"), "4");
    let seen = cleared
        .and_then(|()| child.touch(slot.start, 1))
        .and_then(|()| entries(env, child.pid(), slot));
    match seen {
        Ok(seen) => match seen.get(..2) {
            Some([a, b]) if a.0 & SOFT_DIRTY != 0 && b.0 & SOFT_DIRTY == 0 => {
                Finding::works(feature, "tells a written page from another")
            }
            _ => Finding::new(
                feature,
                State::Absent,
                "does not tell a written page from another",
            ),
        },
        Err(errno) => Finding::refused(feature, "clear_refs", errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    }
}

fn procmap_query(env: &Env<'_>, pid: u32, slot: Extent) -> Finding {
    let feature = Feature::ProcmapQuery;
    match env
        .calls
        .procmap_query(&env.of_process(pid, "maps"), slot.start)
    {
        Ok(region) if region.start <= slot.start && region.end() >= slot.end() => {
            Finding::works(feature, "found the region")
        }
        Ok(_) => Finding::new(feature, State::Absent, "found another region"),
        Err(errno) => Finding::refused(feature, "PROCMAP_QUERY", errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    }
}

fn process_vm_readv(env: &Env<'_>, pid: u32, slot: Extent) -> Finding {
    let feature = Feature::ProcessVmReadv;
    match env.calls.process_vm_readv(pid, slot.start, ENTRY_BYTES) {
        Ok(bytes) if bytes.first() == Some(&MARK) => {
            Finding::works(feature, "read what the child wrote")
        }
        Ok(_) => Finding::new(feature, State::Absent, "read something else"),
        Err(errno) => Finding::refused(feature, "process_vm_readv", errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    }
}
