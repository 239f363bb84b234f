//! Page frames: which frame a page has, and what the kernel uses it for. Shown to `CAP_SYS_ADMIN` alone.
//!
//! Two things can be told by frames and by nothing else: whether a slot is mapped huge, on kernels without
//! `PAGEMAP_SCAN`; and whether a huge page is held by a process that maps only a part of it, so that the rest is memory
//! that nobody can reach.

use super::page_tables::PageClass;
use crate::procfs::ProcRoot;
use crate::procfs::kpageflags::{PageFlags, is_one_folio};
use crate::procfs::pagemap::{ENTRY_BYTES, PageEntry, entries};
use hugepilot_core::geometry::Geometry;
use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Memory that is only ever read: two of the largest base pages, so that the one around the middle is ours alone. The
/// allocator's memory would not do: the second time it hands out the first one's, which was cleared by writing.
static NEVER_WRITTEN: [AtomicU8; 128 << 10] = [const { AtomicU8::new(0) }; 128 << 10];

/// What the kernel shows of page frames.
#[derive(Debug)]
pub struct Frames {
    geometry: Geometry,
    /// `/proc/kpageflags`, where we may read it.
    flags: Option<File>,
    /// `/proc/kpagecount`, where we may read it.
    counts: Option<File>,
    visible: bool,
    /// The frame of the shared zero page, where known. Only `pread` needs it to tell zero pages.
    zero_frame: Option<u64>,
}

/// A huge folio that is mapped only in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialFolio {
    /// Its first frame.
    pub first: u64,
    /// Its pages that nobody maps.
    pub unmapped: u64,
}

impl Frames {
    /// Opens what may be opened; nothing is visible before [`Frames::probe_on`].
    #[must_use]
    pub fn open(root: &ProcRoot, geometry: Geometry) -> Self {
        Self {
            geometry,
            flags: File::open(root.system("kpageflags")).ok(),
            counts: File::open(root.system("kpagecount")).ok(),
            visible: false,
            zero_frame: None,
        }
    }

    /// Tries on our own page table whether frames are shown.
    pub fn probe_on(&mut self, ourselves: &File) {
        self.visible = self.finds_frame(ourselves);
        self.zero_frame = self.find_zero_frame(ourselves);
    }

    /// Are frames, and what they are used for, shown to us?
    #[must_use]
    pub const fn visible(&self) -> bool {
        self.visible
    }

    /// Does the entry map the shared zero page?
    #[must_use]
    pub fn is_zero_page(&self, entry: PageEntry) -> bool {
        entry.frame().is_some() && entry.frame() == self.zero_frame
    }

    /// The class of a whole slot whose pages are one aligned folio, if they are.
    #[must_use]
    pub fn class_of_slot(&self, pages: &[PageEntry]) -> Option<PageClass> {
        let slot = self.geometry.slot_pages().0;
        let first = pages.first()?.frame().filter(|first| first % slot == 0)?;
        let in_a_row = (first..)
            .zip(pages)
            .all(|(frame, page)| page.frame() == Some(frame));
        let flags = self.flags_at(first).filter(|_| in_a_row)?;
        if flags.zero() {
            return Some(PageClass::Zero);
        }
        let last = self.flags_at(first + slot - 1)?;
        ((flags.thp() || flags.hugetlb()) && flags.head() && last.tail()).then_some(PageClass::Huge)
    }

    /// Is the frame of a page of ours shown, and what it is used for?
    fn finds_frame(&self, ourselves: &File) -> bool {
        let touched = Box::new(1_u64);
        u64::try_from((&raw const *touched).addr())
            .ok()
            .and_then(|address| self.entry_at(ourselves, address))
            .and_then(PageEntry::frame)
            .and_then(|frame| self.flags_at(frame))
            .is_some()
    }

    /// Reads memory of ours that nobody ever writes, which maps the zero page, and looks at its frame. `None` where page
    /// frames are hidden.
    fn find_zero_frame(&self, ourselves: &File) -> Option<u64> {
        let middle = &NEVER_WRITTEN[NEVER_WRITTEN.len() / 2];
        black_box(middle.load(Ordering::Relaxed));
        let entry = self.entry_at(ourselves, u64::try_from((&raw const *middle).addr()).ok()?)?;
        let frame = entry.frame()?;
        let flags = self.flags_at(frame)?;
        (flags.zero() && !flags.thp()).then_some(frame)
    }

    fn entry_at(&self, pagemap: &File, address: u64) -> Option<PageEntry> {
        let mut word = [0_u8; ENTRY_BYTES];
        let at = (address >> self.geometry.base_shift) * 8;
        pagemap.read_exact_at(&mut word, at).ok()?;
        Some(PageEntry(u64::from_ne_bytes(word)))
    }

    fn flags_at(&self, frame: u64) -> Option<PageFlags> {
        let mut word = [0_u8; 8];
        self.flags
            .as_ref()?
            .read_exact_at(&mut word, frame * 8)
            .ok()?;
        Some(PageFlags(u64::from_ne_bytes(word)))
    }

    /// The huge folios that `pages` map by entries of their own and that have pages which nobody maps; `None` where
    /// frames are hidden. (A folio whose other pages are mapped elsewhere, moved by `mremap`, is none of them.)
    #[must_use]
    pub fn partially_mapped(&self, pages: &[PageEntry]) -> Option<Vec<PartialFolio>> {
        if !self.visible {
            return None;
        }
        let slot = self.geometry.slot_pages().0;
        let mut mapped = BTreeMap::<u64, u64>::new();
        for frame in pages.iter().filter_map(|page| page.frame()) {
            *mapped.entry(frame / slot * slot).or_default() += 1;
        }
        let mut partial = Vec::new();
        for (first, mapped) in mapped {
            if mapped < slot && self.is_huge_folio(first)? {
                let unmapped = self.unmapped_frames(first)?;
                partial.extend((unmapped > 0).then_some(PartialFolio { first, unmapped }));
            }
        }
        Some(partial)
    }

    /// How many of a slot's frames from `first` on nobody maps.
    fn unmapped_frames(&self, first: u64) -> Option<u64> {
        let counts = self.words(self.counts.as_ref()?, first)?;
        let unmapped = counts.iter().filter(|count| **count == 0).count();
        u64::try_from(unmapped).ok()
    }

    /// One word for each frame of a slot's size, from `first` on.
    fn words(&self, file: &File, first: u64) -> Option<Vec<u64>> {
        let slot = usize::try_from(self.geometry.slot_pages().0).ok()?;
        let mut bytes = vec![0_u8; slot * ENTRY_BYTES];
        file.read_exact_at(&mut bytes, first * 8).ok()?;
        Some(entries(&bytes).map(|entry| entry.0).collect())
    }

    /// Is the aligned run of frames from `first` one THP of a slot's size?
    #[must_use]
    pub fn is_huge_folio(&self, first: u64) -> Option<bool> {
        if !self.flags_at(first)?.thp() {
            return Some(false);
        }
        let flags = self.words(self.flags.as_ref()?, first)?;
        let flags: Vec<PageFlags> = flags.into_iter().map(PageFlags).collect();
        Some(is_one_folio(&flags))
    }
}
