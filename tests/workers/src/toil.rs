//! Threads that use memory without end.

use crate::region::{PAGE, check_page, fill_page, page_of};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a thread did until it was stopped.
#[derive(Debug, Default, Clone, Copy)]
pub struct Toil {
    pub touches: u64,
    pub wrong: u64,
}

/// Verifies and rewrites the pages of one thread until told to stop.
pub fn toil(
    stop: &AtomicBool,
    address: usize,
    seed: u64,
    pages: impl Iterator<Item = usize> + Clone,
) -> Toil {
    let mut sum = Toil::default();
    while !stop.load(Ordering::Relaxed) {
        for offset in pages.clone().map(|page| page * PAGE) {
            sum.wrong += check_page(address + offset, seed, page_of(offset));
            fill_page(address + offset, seed, page_of(offset));
            sum.touches += 1;
        }
    }
    sum
}
