// SPDX-License-Identifier: GPL-2.0-or-later

//! The model of a CPU's TLBs and page walks. Its simplifications are stated in the crate's page.

use crate::cache::{Cache, LINE_SHIFT, Shape};

pub const BASE_SHIFT: u32 = 12;
pub const HUGE_SHIFT: u32 = 21;

/// Bytes of an entry of a page table, as a shift.
const ENTRY_SHIFT: u32 = 3;
/// Apart from physical lines, of which none is so high.
const WALK_MARK: u64 = 1 << 62;
/// Tables of huge pages, apart from those of base pages.
const HUGE_MARK: u64 = 1 << 61;
/// A process' number stands above the number of its table's line: 47 bits of address, less 12 of the
/// page and 3 of the entries in a line.
const PROCESS_SHIFT: u32 = 32;

/// Which kind of page an access seems to go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    Base,
    Huge,
}

impl Grain {
    /// A guess: see the crate's page.
    pub fn of(vaddr: u64, paddr: u64) -> Self {
        let offset = (1 << HUGE_SHIFT) - 1;
        if (vaddr ^ paddr) & offset == 0 {
            Self::Huge
        } else {
            Self::Base
        }
    }
}

/// The two TLBs of a CPU.
#[derive(Debug)]
pub struct Tlb {
    base: Cache,
    huge: Cache,
}

impl Tlb {
    pub fn new(base: Shape, huge: Shape) -> Self {
        Self {
            base: Cache::new(base),
            huge: Cache::new(huge),
        }
    }

    /// The line of a page table that must be read for this access, if the TLB does not know the page.
    pub fn miss(&mut self, pid: u32, vaddr: u64, grain: Grain) -> Option<u64> {
        let process = u64::from(pid) << PROCESS_SHIFT;
        let in_line = LINE_SHIFT - ENTRY_SHIFT;
        let (tlb, page, mark) = match grain {
            Grain::Base => (&mut self.base, vaddr >> BASE_SHIFT, WALK_MARK),
            Grain::Huge => (&mut self.huge, vaddr >> HUGE_SHIFT, WALK_MARK | HUGE_MARK),
        };
        let known = tlb.touch(page ^ (process << in_line));
        (!known).then_some(mark | process | (page >> in_line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlb() -> Tlb {
        Tlb::new(Shape::new(64, 4).unwrap(), Shape::new(32, 4).unwrap())
    }

    fn misses(tlb: &mut Tlb, grain: Grain, step: u64) -> usize {
        (0..128)
            .filter(|page| tlb.miss(1, page * step, grain).is_some())
            .count()
    }

    #[test]
    fn huge_pages_need_fewer_entries() {
        let mut tlb = tlb();
        assert_eq!(misses(&mut tlb, Grain::Base, 4096), 128);
        assert_eq!(misses(&mut tlb, Grain::Huge, 4096), 1);
    }

    #[test]
    fn eight_base_pages_share_a_line_of_their_table() {
        let mut tlb = tlb();
        let line = |tlb: &mut Tlb, page: u64| tlb.miss(1, page << 12, Grain::Base).unwrap();
        let lines: Vec<u64> = (0..16).map(|page| line(&mut tlb, page)).collect();
        assert_eq!(lines[0], lines[7]);
        assert_ne!(lines[7], lines[8]);
    }

    #[test]
    fn processes_share_nothing() {
        let mut tlb = tlb();
        let first = tlb.miss(1, 0x1000, Grain::Base);
        let second = tlb.miss(2, 0x1000, Grain::Base);
        assert!(first.is_some() && second.is_some() && first != second);
        assert_eq!(tlb.miss(1, 0x1fff, Grain::Base), None);
    }

    #[test]
    fn equal_offsets_tell_a_huge_page() {
        assert_eq!(Grain::of(0x7f00_0020_1008, 0x4000_1008), Grain::Huge);
        assert_eq!(Grain::of(0x7f00_0020_1008, 0x4000_2008), Grain::Base);
    }
}
