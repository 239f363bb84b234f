//! Breaking free pages of one size into pages of the next smaller one (`demote` in sysfs): the only way to have 1 GiB pages'
//! memory in the pool of 2 MiB without giving it back in between. There is no way back but to shrink and to grow.

use super::read::{counters, directory, write};
use super::{Counters, PageSize};
use crate::error::Error;
use crate::procfs::SysRoot;
use hugepilot_core::ids::NodeId;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divided {
    /// The pool before.
    pub before: Counters,
    /// The pool after, as read back.
    pub after: Counters,
}

impl Divided {
    /// Pages that were broken into parts.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.before.total.saturating_sub(self.after.total)
    }
}

/// Breaks up to `pages` pages; only such that are free and promised to nobody.
///
/// # Errors
/// If the kernel cannot be asked. That it did fewer is no error.
pub fn divide(
    sys: &SysRoot,
    size: PageSize,
    node: Option<NodeId>,
    pages: u64,
) -> Result<Divided, Error> {
    let directory = directory(sys, size, node);
    let before = counters(&directory)?;
    let asked = write(&directory.join("demote"), pages);
    let after = counters(&directory)?;
    // A kernel that stops half-way reports an error and keeps what it did; that is seen in the counters.
    if after.total == before.total {
        asked?;
    }
    Ok(Divided { before, after })
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{fake, size};
    use super::*;
    use hugepilot_core::units::Bytes;

    #[test]
    fn it_is_asked_where_it_can_be_done() {
        let (_root, sys) = fake();
        let one = size(Bytes::gib(1));
        assert_eq!(divide(&sys, one, None, 2).expect("asked").pages(), 0);
        let asked = directory(&sys, one, None).join("demote");
        assert_eq!(std::fs::read(asked).expect("written"), b"2");
        assert!(divide(&sys, size(Bytes::mib(2)), None, 1).is_err());
    }
}
