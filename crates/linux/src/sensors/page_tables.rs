//! Reading page tables, by whichever of two interfaces the kernel has.
//!
//! * `PAGEMAP_SCAN` (Linux 6.7): runs of pages by category, huge mappings included, without page frame numbers.
//! * `pread` of pagemap: one word a base page. Whether a mapping is huge it does not say; where the kernel shows page
//!   frames (`CAP_SYS_ADMIN`), an aligned run of frames that is one folio counts as huge.
//!
//! Both hold the target's lock for reading while they walk, and who waits for it to write makes everybody else wait
//! too. So no call covers more than [`PAGES_A_CALL`] present pages, and between two calls the lock is free while we
//! count what the last one brought. (One call over 8 GiB stretched the target's own mmap to 70-99 ms, calls of 16 MiB to
//! 17 ms.)

use super::frames::Frames;
use crate::procfs::ProcRoot;
use crate::procfs::pagemap::{PageEntry, entries};
use crate::sys::pagemap::{Request, Run, category, scan};
use crate::sys::{Errno, errno_of};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::Pid;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Present base pages that one call reports at the most: 16 MiB of 4 KiB pages.
pub const PAGES_A_CALL: u64 = 4096;

/// The same where only huge mappings are expected: 128 MiB, which is 64 entries of the page table. Where the expectation
/// is wrong, once, it is a quarter of a millisecond.
pub const PAGES_A_CALL_HUGE: u64 = 32_768;

/// Runs that one call reports at the most: 24 KiB of them.
const RUNS_A_CALL: usize = 1024;

/// What a page table says of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageClass {
    /// Present, by an entry of its own.
    Base,
    /// Present, by a huge entry.
    Huge,
    /// The shared zero page.
    Zero,
    /// Swapped out, or under migration.
    Swapped,
}

/// What a range is expected to hold, from what lies before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expecting {
    /// Base pages, or nobody knows.
    Base,
    /// Huge mappings throughout.
    Huge,
}

impl Expecting {
    const fn pages_max(self) -> u64 {
        match self {
            Self::Base => PAGES_A_CALL,
            Self::Huge => PAGES_A_CALL_HUGE,
        }
    }
}

/// Pages `start .. end` of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassRun {
    /// First address.
    pub start: u64,
    /// Address past the last page.
    pub end: u64,
    /// What they are.
    pub class: PageClass,
}

/// Which interface is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `PAGEMAP_SCAN`.
    Scan,
    /// `pread`, with page frames: huge mappings are seen by their folios.
    ReadFrames,
    /// `pread`, without page frames: huge mappings are not seen.
    Read,
}

/// A reader of page tables.
#[derive(Debug)]
pub struct PageTables {
    method: Method,
    /// Categories that `PAGEMAP_SCAN` is asked to tell.
    told: u64,
    geometry: Geometry,
    frames: Frames,
    runs: Vec<Run>,
    bytes: Vec<u8>,
}

impl PageTables {
    /// Finds out, by trying on ourselves, what this kernel offers.
    #[must_use]
    pub fn probe(root: &ProcRoot, geometry: Geometry) -> Self {
        let mut tables = Self {
            method: Method::Read,
            told: category::PRESENT | category::SWAPPED | category::PFNZERO | category::HUGE,
            geometry,
            frames: Frames::open(root, geometry),
            runs: vec![Run::default(); RUNS_A_CALL],
            bytes: Vec::new(),
        };
        let ourselves = root.process(Pid(std::process::id()), "pagemap");
        if let Ok(ourselves) = File::open(ourselves) {
            tables.probe_on(&ourselves);
        }
        tables
    }

    fn probe_on(&mut self, ourselves: &File) {
        if scan_takes(ourselves, category::UNKNOWN) == Err(Errno::INVAL) {
            self.method = Method::Scan;
            if scan_takes(ourselves, category::GUARD).is_ok() {
                self.told |= category::GUARD;
            }
        }
        self.frames.probe_on(ourselves);
        if self.method == Method::Read && self.frames.visible() {
            self.method = Method::ReadFrames;
        }
    }

    /// Which interface is used.
    #[must_use]
    pub const fn method(&self) -> Method {
        self.method
    }

    /// Page frames, as far as they are shown.
    #[must_use]
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Tells `each` about the pages of `start .. end` that are not absent, in order.
    ///
    /// # Errors
    /// `ESRCH` where the address space is gone, and whatever else the kernel says.
    pub fn read(
        &mut self,
        pagemap: &File,
        start: u64,
        end: u64,
        expecting: Expecting,
        mut each: impl FnMut(ClassRun),
    ) -> Result<(), Errno> {
        match self.method {
            Method::Scan => self.scan_all(pagemap, start, end, expecting, &mut each),
            Method::ReadFrames | Method::Read => self.read_all(pagemap, start, end, &mut each),
        }
    }

    fn scan_all(
        &mut self,
        pagemap: &File,
        start: u64,
        end: u64,
        expecting: Expecting,
        each: &mut impl FnMut(ClassRun),
    ) -> Result<(), Errno> {
        let mut at = start;
        while at < end {
            let request = Request {
                start: at,
                end,
                pages_max: expecting.pages_max(),
                any_of: category::PRESENT | category::SWAPPED,
                told: self.told,
            };
            let (written, reached) = scan(pagemap.as_fd(), &request, &mut self.runs)?;
            self.runs[..written]
                .iter()
                .filter_map(classify)
                .for_each(&mut *each);
            if reached <= at {
                break; // No progress: nothing more is mapped here.
            }
            at = reached;
        }
        Ok(())
    }

    fn read_all(
        &mut self,
        pagemap: &File,
        start: u64,
        end: u64,
        each: &mut impl FnMut(ClassRun),
    ) -> Result<(), Errno> {
        let piece = PAGES_A_CALL << self.geometry.base_shift;
        let mut at = start;
        while at < end {
            let stop = (at / piece + 1).saturating_mul(piece).min(end);
            let mut bytes = std::mem::take(&mut self.bytes);
            let outcome = self.read_piece(pagemap, at, stop, &mut bytes, each);
            self.bytes = bytes;
            outcome?;
            at = stop;
        }
        Ok(())
    }

    fn read_piece(
        &self,
        pagemap: &File,
        start: u64,
        end: u64,
        bytes: &mut Vec<u8>,
        each: &mut impl FnMut(ClassRun),
    ) -> Result<(), Errno> {
        let shift = self.geometry.base_shift;
        read_entries(pagemap, start >> shift, end >> shift, bytes)?;
        let pages: Vec<PageEntry> = entries(bytes).collect();
        let slot = self.geometry.slot().0;
        let mut at = start;
        let mut rest = pages.as_slice();
        while at < end && !rest.is_empty() {
            let stop = (at / slot + 1).saturating_mul(slot).min(end);
            let count = usize::try_from((stop - at) >> shift).unwrap_or(rest.len());
            let (these, others) = rest.split_at(count.min(rest.len()));
            self.tell_slot(at, stop, these, each);
            (at, rest) = (stop, others);
        }
        Ok(())
    }

    fn tell_slot(
        &self,
        start: u64,
        end: u64,
        pages: &[PageEntry],
        each: &mut impl FnMut(ClassRun),
    ) {
        if let Some(class) = self.whole_slot_class(pages) {
            each(ClassRun { start, end, class });
            return;
        }
        let page = self.geometry.base_page().0;
        for (at, entry) in (start..end)
            .step_by(usize::try_from(page).unwrap_or(1))
            .zip(pages)
        {
            if let Some(class) = self.class_of(*entry) {
                each(ClassRun {
                    start: at,
                    end: at + page,
                    class,
                });
            }
        }
    }

    fn class_of(&self, entry: PageEntry) -> Option<PageClass> {
        match entry {
            entry if entry.swapped() => Some(PageClass::Swapped),
            entry if !entry.present() => None,
            entry if self.frames.is_zero_page(entry) => Some(PageClass::Zero),
            _ => Some(PageClass::Base),
        }
    }

    /// The class of a slot whose pages are one aligned folio.
    fn whole_slot_class(&self, pages: &[PageEntry]) -> Option<PageClass> {
        let slot = self.geometry.slot_pages().0;
        if self.method != Method::ReadFrames || u64::try_from(pages.len()).ok()? != slot {
            return None;
        }
        self.frames.class_of_slot(pages)
    }

    /// The entries of one slot at `address`.
    ///
    /// # Errors
    /// `ESRCH` where the address space is gone.
    pub fn slot_entries(&self, pagemap: &File, address: u64) -> Result<Vec<PageEntry>, Errno> {
        let shift = self.geometry.base_shift;
        let mut bytes = Vec::new();
        let first = address >> shift;
        read_entries(
            pagemap,
            first,
            first + self.geometry.slot_pages().0,
            &mut bytes,
        )?;
        Ok(entries(&bytes).collect())
    }
}

/// Does the scan know this category?
fn scan_takes(pagemap: &File, category: u64) -> Result<(), Errno> {
    let nothing = Request {
        start: 0,
        end: 0,
        pages_max: 0,
        any_of: category::PRESENT,
        told: category,
    };
    scan(pagemap.as_fd(), &nothing, &mut [Run::default()]).map(drop)
}

fn classify(run: &Run) -> Option<ClassRun> {
    let is = |category| run.categories & category != 0;
    let class = match () {
        () if is(category::PFNZERO) => PageClass::Zero,
        () if is(category::PRESENT) && is(category::HUGE) => PageClass::Huge,
        () if is(category::PRESENT) => PageClass::Base,
        () if is(category::SWAPPED) && !is(category::GUARD) => PageClass::Swapped,
        () => return None,
    };
    Some(ClassRun {
        start: run.start,
        end: run.end,
        class,
    })
}

/// Reads the entries of pages `first .. end` into `bytes`; fewer where the address space ends.
fn read_entries(pagemap: &File, first: u64, end: u64, bytes: &mut Vec<u8>) -> Result<(), Errno> {
    let Ok(wanted) = usize::try_from((end - first) * 8) else {
        return Err(Errno::INVAL);
    };
    bytes.resize(wanted, 0);
    let mut filled = 0;
    while filled < wanted {
        let at = first * 8 + u64::try_from(filled).unwrap_or(u64::MAX);
        match pagemap.read_at(&mut bytes[filled..], at) {
            Ok(0) if filled == 0 => return Err(Errno::SRCH),
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) => return Err(errno_of(&error)),
        }
    }
    bytes.truncate(filled);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(categories: u64) -> Option<PageClass> {
        classify(&Run {
            start: 0,
            end: 4096,
            categories,
        })
        .map(|run| run.class)
    }

    #[test]
    fn categories_fall_into_four_classes() {
        use category::{GUARD, HUGE, PFNZERO, PRESENT, SWAPPED};
        assert_eq!(run(PRESENT), Some(PageClass::Base));
        assert_eq!(run(PRESENT | HUGE), Some(PageClass::Huge));
        assert_eq!(run(PRESENT | HUGE | PFNZERO), Some(PageClass::Zero));
        assert_eq!(run(PRESENT | PFNZERO), Some(PageClass::Zero));
        assert_eq!(run(SWAPPED), Some(PageClass::Swapped));
        assert_eq!(run(SWAPPED | GUARD), None);
    }

    #[test]
    fn both_interfaces_count_our_own_pages_alike() {
        let mut tables = PageTables::probe(&ProcRoot::default(), Geometry::X86_64);
        let ourselves = File::open("/proc/self/pagemap").expect("own pagemap");
        let touched = vec![1_u8; 64 << 12];
        let start = u64::try_from(touched.as_ptr().addr()).expect("64-bit") & !4095;
        let count = |tables: &mut PageTables| {
            let mut pages = 0;
            let outcome = tables.read(
                &ourselves,
                start,
                start + (64 << 12),
                Expecting::Base,
                |run| {
                    pages += (run.end - run.start) >> 12;
                },
            );
            outcome.expect("own page tables");
            pages
        };
        let by_probed = count(&mut tables);
        tables.method = Method::Read;
        assert_eq!(by_probed, count(&mut tables));
        assert_eq!(by_probed, 64);
    }
}
