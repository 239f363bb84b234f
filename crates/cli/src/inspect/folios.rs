//! The order of the folio behind a page frame, from `/proc/kpageflags`.
//!
//! A single page tells by its own eight bytes that it is none of several; for one of several the aligned run of frames
//! around it is read, and kept, since its neighbours come next.

use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_linux::procfs::kpageflags::PageFlags;
use hugepilot_linux::procfs::pagemap::entries;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Tells orders.
pub struct Folios {
    flags: File,
    frames: u64,
    /// The first frame of the run that was read last, and the order of each of its frames.
    run: Option<(u64, Vec<Order>)>,
}

impl Folios {
    /// Reads `/proc/kpageflags`; `None` where we may not.
    pub fn open(geometry: &Geometry) -> Option<Self> {
        let flags = File::open("/proc/kpageflags").ok()?;
        Some(Self {
            flags,
            frames: geometry.slot_pages().0,
            run: None,
        })
    }

    /// The order of the folio that `frame` is part of; `None` of the shared zero page.
    ///
    /// # Errors
    /// If the kernel does not show the frame.
    pub fn order_of(&mut self, frame: u64) -> io::Result<Option<Order>> {
        let first = frame / self.frames * self.frames;
        let within = usize::try_from(frame - first).expect("less than a slot");
        if let Some((known, orders)) = &self.run {
            if *known == first {
                return Ok(Some(orders[within]));
            }
        }
        let own = self.read(frame, 1)?[0];
        if own.zero() {
            return Ok(None);
        }
        if !own.head() && !own.tail() {
            return Ok(Some(Order::BASE));
        }
        let orders = orders(&self.read(first, self.frames)?);
        let order = orders[within];
        self.run = Some((first, orders));
        Ok(Some(order))
    }

    fn read(&self, first: u64, frames: u64) -> io::Result<Vec<PageFlags>> {
        let length = usize::try_from(frames * 8).expect("a slot's flags are small");
        let mut bytes = vec![0; length];
        self.flags.read_exact_at(&mut bytes, first * 8)?;
        Ok(entries(&bytes).map(|word| PageFlags(word.0)).collect())
    }
}

/// The order of each frame's folio in an aligned run of frames. A folio larger than the run fills all of it.
fn orders(flags: &[PageFlags]) -> Vec<Order> {
    let mut orders = vec![Order::BASE; flags.len()];
    let mut first = 0;
    while first < flags.len() {
        let tails = flags[first + 1..]
            .iter()
            .take_while(|frame| frame.tail())
            .count();
        let length = if flags[first].head() || flags[first].tail() {
            1 + tails
        } else {
            1
        };
        let order = Order(u8::try_from(length.ilog2()).expect("below 64"));
        orders[first..first + length].fill(order);
        first += length;
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_told_by_heads_and_tails() {
        let (single, head, tail) = (PageFlags(0), PageFlags(1 << 15), PageFlags(1 << 16));
        let flags = [single, single, head, tail, head, tail, tail, tail];
        let expected: Vec<Order> = [0, 0, 1, 1, 2, 2, 2, 2].map(Order).to_vec();
        assert_eq!(orders(&flags), expected);
        assert_eq!(orders(&[tail, tail]), [Order(1), Order(1)]);
    }
}
