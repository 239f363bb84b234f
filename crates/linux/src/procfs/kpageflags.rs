//! `/proc/kpageflags`: eight bytes a page frame.

/// What the kernel says of one page frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageFlags(pub u64);

impl PageFlags {
    const COMPOUND_HEAD: u64 = 1 << 15;
    const COMPOUND_TAIL: u64 = 1 << 16;
    const HUGETLB: u64 = 1 << 17;
    const THP: u64 = 1 << 22;
    const ZERO: u64 = 1 << 24;

    /// The first frame of a folio of several.
    #[must_use]
    pub const fn head(self) -> bool {
        self.0 & Self::COMPOUND_HEAD != 0
    }

    /// A further frame of a folio of several.
    #[must_use]
    pub const fn tail(self) -> bool {
        self.0 & Self::COMPOUND_TAIL != 0
    }

    /// Part of a hugetlb page.
    #[must_use]
    pub const fn hugetlb(self) -> bool {
        self.0 & Self::HUGETLB != 0
    }

    /// Part of a THP.
    #[must_use]
    pub const fn thp(self) -> bool {
        self.0 & Self::THP != 0
    }

    /// The shared zero page, base or huge.
    #[must_use]
    pub const fn zero(self) -> bool {
        self.0 & Self::ZERO != 0
    }
}

/// Do these frames, from an aligned one on, make up exactly one folio?
#[must_use]
pub fn is_one_folio(flags: &[PageFlags]) -> bool {
    match flags.split_first() {
        Some((first, rest)) => first.head() && rest.iter().all(|frame| frame.tail()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_head_then_tails() {
        let (head, tail) = (PageFlags(1 << 15), PageFlags(1 << 16));
        assert!(is_one_folio(&[head, tail, tail]));
        assert!(!is_one_folio(&[head, tail, head]));
        assert!(!is_one_folio(&[tail, tail]));
        assert!(!is_one_folio(&[]));
    }
}
