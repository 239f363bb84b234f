//! Memory that is made once, shared by all, and never freed.

use super::{Errno, Reservation, Source, map, pointer, unmap};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// Types of which all zeros is a value, that may be shared between threads, and that a cache line aligns.
///
/// # Safety
/// All must hold.
pub unsafe trait Zeroed: Sync + 'static {}

// SAFETY: an atomic number: zero is a value, and a word aligns it.
unsafe impl Zeroed for AtomicU8 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicUsize {}
// SAFETY: arrays of what is so are so.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// Bytes before the values, for their number; a cache line, which aligns whatever follows.
const HEADER: usize = 64;

/// Memory for a number of values, made when it is first needed and never freed. Two threads that make it at once end up
/// with the same; no lock is held meanwhile, so a forked child finds it made or not.
pub struct Published<T: Zeroed> {
    /// The header: how many values follow.
    header: AtomicPtr<usize>,
    values: PhantomData<T>,
}

impl<T: Zeroed> Published<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            header: AtomicPtr::new(ptr::null_mut()),
            values: PhantomData,
        }
    }

    /// The values, if they were made.
    pub fn get(&self) -> Option<&'static [T]> {
        let header = self.header.load(Ordering::Acquire);
        if header.is_null() {
            return None;
        }
        // SAFETY: what was published is a mapping that stays for good: a header with the number of values, then these.
        Some(unsafe { core::slice::from_raw_parts(header.byte_add(HEADER).cast(), *header) })
    }

    /// The values; if there are none, `count` of them are made and `fill` is asked to fill them in.
    pub fn get_or_make(
        &self,
        count: usize,
        fill: impl FnOnce(&[T]),
    ) -> Result<&'static [T], Errno> {
        if let Some(values) = self.get() {
            return Ok(values);
        }
        let values = count.checked_mul(size_of::<T>()).ok_or(Errno::ENOMEM)?;
        let length = values.checked_add(HEADER).ok_or(Errno::ENOMEM)?;
        let mapping = map(length, Source::Anonymous, Reservation::Now)?;
        let made = pointer(mapping.start).cast::<usize>();
        // SAFETY: a new mapping is zeroed, page-aligned, long enough, and nobody else's.
        fill(unsafe {
            *made = count;
            core::slice::from_raw_parts(made.byte_add(HEADER).cast(), count)
        });
        let (ok, no) = (Ordering::AcqRel, Ordering::Acquire);
        let put = self.header.compare_exchange(ptr::null_mut(), made, ok, no);
        if put.is_err() {
            unmap(mapping)?;
        }
        self.get().ok_or(Errno::ENOMEM)
    }
}
