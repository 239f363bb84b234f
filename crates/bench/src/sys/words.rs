//! Memory that several threads, or several machines, use at once: words, each read and written whole.

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ops::{Deref, Range};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Memory mapped as words, unmapped when dropped.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory belongs to the value and is not tied to a thread.
unsafe impl Send for Words {}
// SAFETY: all that a shared value gives out is atomic.
unsafe impl Sync for Words {}

/// What backs private memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Base pages, or huge ones where the system's switches say so.
    Ordinary,
    /// Pages of 1 GiB from the system's pool.
    Gigantic,
}

impl Words {
    /// `bytes` of fresh private zero memory, nothing of it present.
    ///
    /// # Errors
    /// The kernel's refusal: `NOMEM` where the pool of 1 GiB pages has none left.
    pub fn private(bytes: usize, backing: Backing) -> Result<Self, Errno> {
        let flags = match backing {
            Backing::Ordinary => MapFlags::PRIVATE | MapFlags::NORESERVE,
            Backing::Gigantic => MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB,
        };
        // SAFETY: without a fixed address the kernel picks a free range, so no memory in use is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        Self::of(start, bytes)
    }

    /// The first `bytes` of a file or device, shared with whoever maps it too.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn shared(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        // SAFETY: without a fixed address the kernel picks a free range, so no memory in use is replaced; what others
        // write there is only ever read through atomics.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Self::of(start, bytes)
    }

    fn of(start: *mut std::ffi::c_void, bytes: usize) -> Result<Self, Errno> {
        let start = NonNull::new(start.cast::<AtomicU64>()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            start,
            count: bytes / size_of::<AtomicU64>(),
        })
    }

    /// Gives the pages under these words back to the kernel (`MADV_DONTNEED`): they read as zero from then on.
    ///
    /// # Errors
    /// The kernel's refusal, as of words that do not begin with a page.
    ///
    /// # Panics
    /// If they are not all inside.
    pub fn give_back(&self, words: Range<usize>) -> Result<(), Errno> {
        let given = &self[words];
        let start = given.as_ptr().cast_mut().cast();
        // SAFETY: the range is inside the mapping, and its users know its words only as atomics, whose value may change
        // at any time.
        unsafe { rustix::mm::madvise(start, size_of_val(given), Advice::LinuxDontNeed) }
    }

    /// Address of the first word.
    #[must_use]
    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, lives as long as self, is readable and writable, and all-zero or any other
        // bytes are valid atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<AtomicU64>();
        // SAFETY: start and length are what mmap gave, and nothing borrows from the mapping any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_is_given_back_reads_as_zero_and_its_neighbours_stay() {
        let words = Words::private(3 * 4096, Backing::Ordinary).expect("three pages");
        for word in words.iter() {
            word.store(7, Relaxed);
        }
        words.give_back(512..1024).expect("one whole page");
        let values = |range: Range<usize>| {
            words[range]
                .iter()
                .map(|word| word.load(Relaxed))
                .sum::<u64>()
        };
        assert_eq!(
            (values(0..512), values(512..1024), values(1024..1536)),
            (7 * 512, 0, 7 * 512)
        );
    }

    #[test]
    fn two_mappings_of_one_file_are_one_memory() {
        let file = rustix::fs::memfd_create("words", rustix::fs::MemfdFlags::empty())
            .expect("a memory file");
        rustix::fs::ftruncate(&file, 4096).expect("a page");
        let [one, other] = [0, 1].map(|_| Words::shared(&file, 4096).expect("mapped"));
        one[3].store(9, Relaxed);
        assert_eq!(other[3].load(Relaxed), 9);
    }
}
