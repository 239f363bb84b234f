//! The page sizes of a machine.
//!
//! Nothing in the core says 2 MiB or 512: a machine describes itself once by a [`Geometry`], and everything derives
//! from it. An [`Order`] is the kernel's own: a folio of order `n` has `2^n` base pages.

use crate::units::{BasePages, Bytes};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A folio of order `n` has `2^n` base pages. Order 0 is a base page.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Order(pub u8);

impl Order {
    /// One base page.
    pub const BASE: Self = Self(0);

    /// Base pages in a folio of this order.
    #[must_use]
    pub const fn base_pages(self) -> BasePages {
        BasePages(1 << self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

/// Page sizes of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// log2 of the base page's bytes.
    pub base_shift: u8,
    /// The order of a PMD-mapped page: the size of a slot.
    pub slot_order: Order,
    /// The order of a PUD-mapped page (1 GiB on x86), where the machine has one.
    pub giant_order: Option<Order>,
}

impl Geometry {
    /// x86-64: 4 KiB, 2 MiB, 1 GiB.
    pub const X86_64: Self = Self {
        base_shift: 12,
        slot_order: Order(9),
        giant_order: Some(Order(18)),
    };

    /// Bytes of a base page.
    #[must_use]
    pub const fn base_page(&self) -> Bytes {
        Bytes(1 << self.base_shift)
    }

    /// Base pages in a slot.
    #[must_use]
    pub const fn slot_pages(&self) -> BasePages {
        self.slot_order.base_pages()
    }

    /// log2 of a slot's bytes.
    #[must_use]
    pub const fn slot_shift(&self) -> u8 {
        self.base_shift + self.slot_order.0
    }

    /// Bytes of a slot.
    #[must_use]
    pub const fn slot(&self) -> Bytes {
        Bytes(1 << self.slot_shift())
    }

    /// Bytes of `pages` base pages.
    #[must_use]
    pub const fn bytes(&self, pages: BasePages) -> Bytes {
        Bytes(pages.0 << self.base_shift)
    }

    /// Bytes of one folio of `order`.
    #[must_use]
    pub const fn order_bytes(&self, order: Order) -> Bytes {
        self.bytes(order.base_pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_slots_are_two_mebibytes() {
        let g = Geometry::X86_64;
        assert_eq!(g.slot(), Bytes::mib(2));
        assert_eq!(g.slot_pages(), BasePages(512));
        assert_eq!(g.order_bytes(Order(18)), Bytes::gib(1));
    }
}
