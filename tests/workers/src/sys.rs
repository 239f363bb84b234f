//! All unsafe code of the workers: one function a call.

use std::ffi::c_int;
use std::io;
use std::ptr;

/// Advice to `madvise` as the kernel numbers it.
#[derive(Debug, Clone, Copy)]
pub enum Advice {
    Collapse,
    Cold,
    DontNeed,
    Huge,
    NoHuge,
}

impl Advice {
    const fn number(self) -> c_int {
        match self {
            Self::Collapse => 25,
            Self::Cold => libc::MADV_COLD,
            Self::DontNeed => libc::MADV_DONTNEED,
            Self::Huge => libc::MADV_HUGEPAGE,
            Self::NoHuge => libc::MADV_NOHUGEPAGE,
        }
    }
}

fn checked(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Where a new mapping takes its pages from.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    Anonymous,
    Hugetlb,
    Shared(c_int),
}

/// Maps `bytes` of readable, writable memory at exactly `address`, where nothing may be mapped.
pub fn map_at(address: usize, bytes: usize, source: Source) -> io::Result<()> {
    let (flags, fd) = match source {
        Source::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        Source::Hugetlb => (
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB,
            -1,
        ),
        Source::Shared(fd) => (libc::MAP_SHARED, fd),
    };
    let flags = flags | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    let wanted = ptr::without_provenance_mut::<libc::c_void>(address);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping, so no memory that Rust knows is touched.
    let got = unsafe { libc::mmap(wanted, bytes, protection, flags, fd, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if got != wanted {
        unmap(got.addr(), bytes)?;
        return Err(io::Error::from(io::ErrorKind::AddrInUse));
    }
    got.expose_provenance();
    Ok(())
}

/// Maps one anonymous page anywhere and returns its address.
pub fn map_anywhere(bytes: usize) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let got = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(got.addr())
    }
}

/// Unmaps a range that [`map_at`] or [`map_anywhere`] mapped.
pub fn unmap(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: callers pass ranges of their own mappings, which are reached through volatile accesses alone.
    checked(unsafe { libc::munmap(ptr::without_provenance_mut(address), bytes) })
}

/// Moves a mapping to exactly `to`, where nothing may be mapped that Rust knows.
pub fn remap(from: usize, bytes: usize, to: usize) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ranges lie in the workers' own address range, which no Rust object uses.
    let got = unsafe {
        libc::mremap(
            ptr::without_provenance_mut(from),
            bytes,
            bytes,
            flags,
            ptr::without_provenance_mut::<libc::c_void>(to),
        )
    };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    got.expose_provenance();
    Ok(())
}

/// `madvise` on a range of the caller's own mapping.
pub fn advise(address: usize, bytes: usize, advice: Advice) -> io::Result<()> {
    // SAFETY: the advice changes contents only for DONTNEED, and the range holds no Rust object.
    checked(unsafe { libc::madvise(ptr::without_provenance_mut(address), bytes, advice.number()) })
}

/// Locks a range in memory; pages that are not present are faulted in only when `on_fault` is not asked for.
pub fn lock_on_fault(address: usize, bytes: usize) -> io::Result<()> {
    const MLOCK_ONFAULT: libc::c_uint = 1;
    // SAFETY: changes no contents.
    checked(unsafe { libc::mlock2(ptr::without_provenance(address), bytes, MLOCK_ONFAULT) })
}

/// Undoes [`lock_on_fault`].
pub fn unlock(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: changes no contents.
    checked(unsafe { libc::munlock(ptr::without_provenance(address), bytes) })
}

/// Puts a reference to `bytes` of memory into a pipe: the page is pinned until the pipe lets it go.
pub fn splice_into(pipe: c_int, address: usize, bytes: usize) -> io::Result<()> {
    let vector = libc::iovec {
        iov_base: ptr::without_provenance_mut(address),
        iov_len: bytes,
    };
    // SAFETY: the vector lives through the call; the kernel only references the pages.
    let put = unsafe { libc::vmsplice(pipe, &raw const vector, 1, 0) };
    match usize::try_from(put) {
        Ok(put) if put == bytes => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero)),
        Err(_negative) => Err(io::Error::last_os_error()),
    }
}

/// `prctl(PR_SET_THP_DISABLE, on)` with its flags (0, or 2 for "except where advised").
pub fn set_thp_disable(on: bool, flags: libc::c_ulong) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: takes numbers only.
    checked(unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            libc::c_ulong::from(on),
            flags,
            none,
            none,
        )
    })
}

/// Does the process refuse THP, in whole or in part?
pub fn refuses_thp() -> io::Result<bool> {
    let none: libc::c_ulong = 0;
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) } {
        0 => Ok(false),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(true),
    }
}

/// Forks. `None` in the child, which may only do what a signal handler may if the parent has threads.
pub fn fork() -> io::Result<Option<i32>> {
    // SAFETY: callers with threads let the child do nothing but plain system calls and volatile accesses.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends the process without running anything of it.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

/// Waits for signals for ever.
pub fn pause_for_ever() -> ! {
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

/// Reads one byte.
///
/// `address` must lie in memory that the caller has mapped; else the process dies, which is what a test of it wants.
pub fn peek(address: usize) -> u8 {
    // SAFETY: a mapped, readable byte by the caller's promise.
    unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() }
}

/// Writes one byte; as [`peek`].
pub fn poke(address: usize, value: u8) {
    // SAFETY: a mapped, writable byte by the caller's promise.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(value) }
}

/// Reads one aligned word; as [`peek`].
pub fn peek_word(address: usize) -> u64 {
    debug_assert_eq!(address % size_of::<u64>(), 0);
    // SAFETY: a mapped, readable, aligned word by the caller's promise.
    unsafe { ptr::with_exposed_provenance::<u64>(address).read_volatile() }
}

/// Writes one aligned word; as [`peek`].
pub fn poke_word(address: usize, value: u64) {
    debug_assert_eq!(address % size_of::<u64>(), 0);
    // SAFETY: a mapped, writable, aligned word by the caller's promise.
    unsafe { ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(value) }
}

/// Adds to a counter in shared memory; as [`peek_word`].
pub fn add_word(address: usize, value: u64) {
    debug_assert_eq!(address % size_of::<u64>(), 0);
    // SAFETY: a mapped, aligned word that all processes reach through atomic operations alone.
    let counter =
        unsafe { &*ptr::with_exposed_provenance::<std::sync::atomic::AtomicU64>(address) };
    counter.fetch_add(value, std::sync::atomic::Ordering::Relaxed);
}
