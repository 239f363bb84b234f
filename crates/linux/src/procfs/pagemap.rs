//! `/proc/PID/pagemap`: eight bytes a base page.

/// The bytes of one entry.
pub const ENTRY_BYTES: usize = 8;

/// One base page as its page table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageEntry(pub u64);

impl PageEntry {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE: u64 = 1 << 61;
    const GUARD: u64 = 1 << 58;
    const WRITE_PROTECTED: u64 = 1 << 57;
    const EXCLUSIVE: u64 = 1 << 56;
    const FRAME: u64 = (1 << 55) - 1;

    /// Is it present?
    #[must_use]
    pub const fn present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// Is it swapped out (or under migration)? A guard marker and a userfaultfd marker without content are not.
    #[must_use]
    pub const fn swapped(self) -> bool {
        self.0 & Self::SWAPPED != 0 && self.0 & Self::GUARD == 0
    }

    /// Is it page cache or shared anonymous memory?
    #[must_use]
    pub const fn file(self) -> bool {
        self.0 & Self::FILE != 0
    }

    /// Does this address space alone map it? For a page that is in part of a large folio the kernel may not be sure, and
    /// then says no.
    #[must_use]
    pub const fn exclusive(self) -> bool {
        self.0 & Self::EXCLUSIVE != 0
    }

    /// Is it write-protected by userfaultfd?
    #[must_use]
    pub const fn write_protected(self) -> bool {
        self.0 & Self::WRITE_PROTECTED != 0
    }

    /// The page frame; `None` where nothing is present or the kernel hides it (without `CAP_SYS_ADMIN`).
    #[must_use]
    pub const fn frame(self) -> Option<u64> {
        let frame = self.0 & Self::FRAME;
        if self.present() && frame != 0 {
            Some(frame)
        } else {
            None
        }
    }
}

/// The whole entries in `bytes`; a rest of fewer than eight bytes is passed over.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = PageEntry> + '_ {
    bytes.chunks_exact(ENTRY_BYTES).map(|chunk| {
        let entry = chunk.try_into().expect("chunks_exact gives this length");
        PageEntry(u64::from_ne_bytes(entry))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entry: u64, present: bool, swapped: bool, frame: Option<u64>) {
        let entry = PageEntry(entry);
        assert_eq!(
            (entry.present(), entry.swapped(), entry.frame()),
            (present, swapped, frame)
        );
    }

    #[test]
    fn bits_mean_what_the_kernel_says() {
        check(0, false, false, None);
        check(1 << 63, true, false, None);
        check((1 << 63) | 0x1234, true, false, Some(0x1234));
        check((1 << 62) | 0x1234, false, true, None);
        check((1 << 62) | (1 << 58), false, false, None);
        assert!(PageEntry((1 << 63) | (1 << 56)).exclusive());
        assert!(PageEntry((1 << 63) | (1 << 61)).file());
    }

    #[test]
    fn half_an_entry_is_none() {
        assert_eq!(entries(&[0; 15]).count(), 1);
        assert_eq!(entries(&[]).count(), 0);
    }
}
