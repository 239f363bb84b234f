//! Idle page tracking: a page is marked idle, stays so, is touched, and must not be idle any more.

use super::Findings;
use super::env::{Answer, Child, Env};
use super::feature::Feature;
use super::finding::{Finding, State};
use super::privileges::setcap;
use crate::procfs::pagemap::PageEntry;
use rustix::io::Errno;
use std::path::Path;

/// Base pages touched: more than wait in a processor's batch on their way to the LRU lists, where alone they can be
/// marked (31 from Linux 6.10 on).
const TOUCHED: u64 = 64;

/// Probes the group.
pub fn probe(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    findings.add(bitmap(env, child));
}

fn bitmap(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::PageIdle;
    let file = env.sys.join("kernel/mm/page_idle/bitmap");
    if let Err(errno) = env.calls.open_for_writing(&file) {
        return Finding::refused(feature, "opening the bitmap", errno)
            .fix_if_forbidden("run as root");
    }
    match tried(env, child, &file) {
        Ok((true, false)) => Finding::works(feature, "an idle page touched is idle no more"),
        Ok((marked, still)) => Finding::new(feature, State::Absent, "the bitmap does not tell")
            .value("marked", marked)
            .value("idle_after_touch", still),
        Err(Errno::PERM) => Finding::new(feature, State::Forbidden, "page numbers are hidden")
            .fix(setcap("cap_sys_admin")),
        Err(errno) => Finding::refused(feature, "using the bitmap", errno),
    }
}

/// Was the page idle after marking it, and after touching it?
fn tried(env: &Env<'_>, child: &dyn Child, file: &Path) -> Answer<(bool, bool)> {
    let slot = child.map(1)?;
    child.touch(slot.start, TOUCHED)?;
    let at = slot.start / env.geometry.base_page().0 * 8;
    let entry = env
        .calls
        .read(&env.of_process(child.pid(), "pagemap"), at, 8)?;
    let pfn = PageEntry(word(&entry)?).frame().ok_or(Errno::PERM)?;
    let (place, bit) = (pfn / 64 * 8, 1_u64 << (pfn % 64));
    env.calls.write(file, place, &bit.to_ne_bytes())?;
    let idle = || Ok(word(&env.calls.read(file, place, 8)?)? & bit != 0);
    let marked = idle()?;
    // Marking flushes no translation; the fork does, so that the next touch walks the page table.
    child.fork_hold()?;
    child.release()?;
    child.touch(slot.start, 1)?;
    Ok((marked, idle()?))
}

fn word(bytes: &[u8]) -> Answer<u64> {
    match bytes.try_into() {
        Ok(bytes) => Ok(u64::from_ne_bytes(bytes)),
        Err(_short) => Err(Errno::IO),
    }
}
