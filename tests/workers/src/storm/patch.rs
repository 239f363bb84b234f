//! A mapping of which every page is known: unmapped, zeros, or what a seed stands for.

use super::counters::{Counter, Counters};
use crate::pattern::Random;
use crate::region::{PAGE, check_page, check_zero_page, fill_page};
use crate::sys::{self, Advice};
use std::io;
use std::ops::Range;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    Unmapped,
    Zeros,
    /// What this seed stands for.
    Seeded(u64),
}

/// A known mapping.
#[derive(Debug)]
pub struct Patch {
    pub address: usize,
    pub pages: Vec<Held>,
    pub locked: bool,
}

impl Patch {
    /// Maps `pages` fresh pages.
    pub fn map(address: usize, pages: usize) -> io::Result<Self> {
        sys::map_at(address, pages * PAGE, sys::Source::Anonymous)?;
        Ok(Self {
            address,
            pages: vec![Held::Zeros; pages],
            locked: false,
        })
    }

    pub const fn at(&self, page: usize) -> usize {
        self.address + page * PAGE
    }

    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE
    }

    pub fn is_whole(&self) -> bool {
        !self.pages.contains(&Held::Unmapped)
    }

    /// A random run of its pages.
    pub fn any_run(&self, random: &mut Random) -> Range<usize> {
        let start = random.below(self.pages.len());
        start..start + 1 + random.below(self.pages.len() - start)
    }

    /// Writes new contents to a run.
    pub fn write(&mut self, run: Range<usize>, random: &mut Random) {
        for page in run {
            if self.pages[page] != Held::Unmapped {
                let seed = random.next();
                fill_page(self.at(page), seed, 0);
                self.pages[page] = Held::Seeded(seed);
            }
        }
    }

    /// Gives a run back; it reads as zeros from then on.
    pub fn free(&mut self, run: Range<usize>) -> io::Result<()> {
        self.unlock()?;
        for page in run {
            if self.pages[page] != Held::Unmapped {
                sys::advise(self.at(page), PAGE, Advice::DontNeed)?;
                self.pages[page] = Held::Zeros;
            }
        }
        Ok(())
    }

    pub fn unmap(&mut self, run: Range<usize>) -> io::Result<()> {
        sys::unmap(self.at(run.start), run.len() * PAGE)?;
        self.pages[run].fill(Held::Unmapped);
        Counters::add(Counter::Unmaps, 1);
        Ok(())
    }

    pub fn unlock(&mut self) -> io::Result<()> {
        if self.locked && self.is_whole() {
            sys::unlock(self.address, self.bytes())?;
            self.locked = false;
        }
        Ok(())
    }

    /// Compares every page with what it should hold.
    pub fn verify(&self) {
        (0..self.pages.len()).for_each(|page| self.verify_page(page));
    }

    /// Compares one page with what it should hold, and counts.
    pub fn verify_page(&self, page: usize) {
        verify_held(self.at(page), self.pages[page]);
    }
}

/// Compares the page at `address` with what it should hold, and counts.
pub fn verify_held(address: usize, held: Held) {
    let wrong = match held {
        Held::Unmapped => return,
        Held::Zeros => check_zero_page(address),
        Held::Seeded(seed) => check_page(address, seed, 0),
    };
    Counters::add(
        Counter::VerifiedBytes,
        u64::try_from(PAGE).expect("a page is small"),
    );
    if wrong > 0 {
        Counters::add(Counter::WrongBytes, wrong);
    }
}
