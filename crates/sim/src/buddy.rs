//! A node's free memory, as the kernel keeps it: free blocks of 2^n base pages, each aligned to its size.
//!
//! Allocation takes the lowest block of the smallest order that fits and gives the rest back by halves; freeing merges a
//! block with its buddy as long as that one is free too. The lowest block first makes every history reproducible.

use crate::frame::Frame;
use hugepilot_core::geometry::Order;
use hugepilot_core::units::BasePages;
use std::collections::BTreeSet;

/// The largest block kept, as on x86 (4 MiB).
pub const MAX_ORDER: Order = Order(10);

/// Free blocks of one node.
#[derive(Debug)]
pub struct Buddy {
    first: u32,
    frames: u32,
    /// By order: the first frames of free blocks.
    free: Vec<BTreeSet<u32>>,
}

impl Buddy {
    /// A node of `frames` base pages from frame number `first`, all free.
    ///
    /// # Panics
    /// If either is not a multiple of the largest block.
    #[must_use]
    pub fn new(first: u32, frames: u32) -> Self {
        let block = 1 << MAX_ORDER.0;
        assert!(
            first % block == 0 && frames % block == 0,
            "nodes consist of whole largest blocks"
        );
        let mut free = vec![BTreeSet::new(); usize::from(MAX_ORDER.0) + 1];
        free[usize::from(MAX_ORDER.0)] = (0..frames / block).map(|n| first + n * block).collect();
        Self {
            first,
            frames,
            free,
        }
    }

    /// Number of the first frame.
    #[must_use]
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// Base pages of the node.
    #[must_use]
    pub const fn frames(&self) -> u32 {
        self.frames
    }

    /// Takes a block of `order`, if there is one.
    pub fn allocate(&mut self, order: Order) -> Option<Frame> {
        let found = (order.0..=MAX_ORDER.0).find(|from| !self.list(*from).is_empty())?;
        let start = self.list_mut(found).pop_first().expect("not empty");
        for rest in (order.0..found).rev() {
            self.list_mut(rest).insert(start + (1 << rest));
        }
        Some(Frame(start))
    }

    /// Gives a block back and merges it with its buddies.
    ///
    /// # Panics
    /// If any of it is free already.
    pub fn free(&mut self, frame: Frame, order: Order) {
        let (mut start, mut order) = (frame.0, order.0);
        while order < MAX_ORDER.0 && self.list_mut(order).remove(&buddy_of(start, order)) {
            start = start.min(buddy_of(start, order));
            order += 1;
        }
        assert!(
            self.list_mut(order).insert(start),
            "{frame:?} was freed twice"
        );
    }

    /// Free blocks by order.
    #[must_use]
    pub fn free_blocks(&self) -> Vec<u64> {
        let count = |list: &BTreeSet<u32>| u64::try_from(list.len()).expect("a count");
        self.free.iter().map(count).collect()
    }

    /// Free base pages in all blocks.
    #[must_use]
    pub fn free_pages(&self) -> BasePages {
        let pages = |(order, blocks): (usize, u64)| blocks << order;
        BasePages(self.free_blocks().into_iter().enumerate().map(pages).sum())
    }

    /// The free blocks: first frame and order.
    pub fn blocks(&self) -> impl Iterator<Item = (Frame, Order)> {
        (0..=MAX_ORDER.0).flat_map(|order| {
            self.list(order)
                .iter()
                .map(move |start| (Frame(*start), Order(order)))
        })
    }

    /// Says what is wrong with the free lists, if anything is.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let mut blocks: Vec<(Frame, Order)> = self.blocks().collect();
        blocks.sort_unstable();
        let mut past = self.first;
        for (frame, order) in blocks {
            let size = 1 << order.0;
            if frame.0 < past || frame.0 + size > self.first + self.frames {
                return Some(format!(
                    "free block {frame:?} of {order} overlaps or is outside"
                ));
            }
            if frame.0 % size != 0 {
                return Some(format!("free block {frame:?} of {order} is not aligned"));
            }
            if order < MAX_ORDER && self.list(order.0).contains(&buddy_of(frame.0, order.0)) {
                return Some(format!("free block {frame:?} of {order} was not merged"));
            }
            past = frame.0 + size;
        }
        None
    }

    fn list(&self, order: u8) -> &BTreeSet<u32> {
        &self.free[usize::from(order)]
    }

    fn list_mut(&mut self, order: u8) -> &mut BTreeSet<u32> {
        &mut self.free[usize::from(order)]
    }
}

const fn buddy_of(start: u32, order: u8) -> u32 {
    start ^ (1 << order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_return_to_the_whole() {
        let mut node = Buddy::new(1024, 2048);
        let base = node.allocate(Order(0)).expect("all is free");
        assert_eq!(base, Frame(1024));
        assert_eq!(node.free_blocks(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        node.free(base, Order(0));
        assert_eq!(node.free_blocks(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn every_second_page_leaves_no_huge_block() {
        let mut node = Buddy::new(0, 1024);
        let all: Vec<Frame> = std::iter::from_fn(|| node.allocate(Order(0))).collect();
        assert_eq!(all.len(), 1024);
        all.iter()
            .filter(|frame| frame.0 % 2 == 0)
            .for_each(|frame| node.free(*frame, Order(0)));
        assert_eq!(node.free_pages(), BasePages(512));
        assert_eq!(node.allocate(Order(1)), None);
        assert_eq!(node.fault(), None);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_noticed() {
        let mut node = Buddy::new(0, 1024);
        let frame = node.allocate(Order(0)).expect("all is free");
        let _neighbour = node.allocate(Order(0)).expect("all is free");
        node.free(frame, Order(0));
        node.free(frame, Order(0));
    }
}
