//! Every unsafe block of this crate: one function a call.

pub mod words;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MlockAllFlags, ProtFlags};
use std::ptr::NonNull;

/// Memory mapped for a benchmark, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that belongs to the value; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `len` bytes of fresh zero memory, nothing of it present.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn anonymous(len: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without a fixed address the kernel picks a free range, so no memory in use is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, len })
    }

    /// Lays the first `len` bytes of a file, shared, over `self` from `offset` on.
    ///
    /// # Errors
    /// The kernel's refusal.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn overlay(
        &mut self,
        file: impl std::os::fd::AsFd,
        offset: usize,
        len: usize,
    ) -> Result<(), Errno> {
        assert!(
            offset + len <= self.len,
            "{len} bytes at {offset} of {}",
            self.len
        );
        // SAFETY: the range lies inside the mapping, which is reached through this value alone and plain memory after.
        unsafe {
            rustix::mm::mmap(
                self.start.as_ptr().add(offset).cast(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
                file,
                0,
            )
        }?;
        Ok(())
    }

    /// Asks the kernel for huge pages in it (`MADV_HUGEPAGE`).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn advise_huge(&self) -> Result<(), Errno> {
        let advice = rustix::mm::Advice::LinuxHugepage;
        // SAFETY: the range is the mapping's own, and the advice changes no contents.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, advice) }
    }

    /// Address of its first byte.
    #[must_use]
    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Writes `value` to the eight bytes at `offset`, exactly once, whatever the optimiser thinks of it.
    ///
    /// # Panics
    /// If the word is not inside the mapping or not aligned.
    pub fn write(&mut self, offset: usize, value: u64) {
        self.check(offset);
        // SAFETY: `check` saw that the aligned word lies inside the mapping, which lives and is writable as long as self.
        unsafe {
            self.start
                .as_ptr()
                .add(offset)
                .cast::<u64>()
                .write_volatile(value);
        }
    }

    /// Reads the eight bytes at `offset`.
    ///
    /// # Panics
    /// If the word is not inside the mapping or not aligned.
    #[must_use]
    pub fn read(&self, offset: usize) -> u64 {
        self.check(offset);
        // SAFETY: `check` saw that the aligned word lies inside the mapping, which lives and is readable as long as self.
        unsafe {
            self.start
                .as_ptr()
                .add(offset)
                .cast::<u64>()
                .read_volatile()
        }
    }

    fn check(&self, offset: usize) {
        let word = size_of::<u64>();
        assert!(
            offset % word == 0 && offset < self.len && self.len - offset >= word,
            "the word at {offset} is not in a mapping of {}",
            self.len
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and len are what mmap gave, and nothing borrows from the mapping any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

/// Locks all that is mapped now into memory; not what is mapped later.
///
/// # Errors
/// Without CAP_IPC_LOCK, beyond the limit on locked memory.
pub fn lock_present_mappings() -> Result<(), Errno> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT)
}

/// The time-stamp counter.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; a kernel that forbids it to user space would have raised
    // SIGSEGV at the calibration, before anything is measured.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Does the time-stamp counter run at one constant rate, whatever the processor does?
#[cfg(target_arch = "x86_64")]
#[must_use]
#[allow(
    unused_unsafe,
    reason = "the intrinsic is unsafe in Rust 1.85 and safe in later ones"
)]
pub fn has_invariant_time_stamp() -> bool {
    const LARGEST_EXTENDED: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    // SAFETY: every x86-64 processor has CPUID, and the leaf is asked for only where the processor names it.
    unsafe {
        core::arch::x86_64::__cpuid(LARGEST_EXTENDED).eax >= POWER
            && core::arch::x86_64::__cpuid(POWER).edx & INVARIANT != 0
    }
}

/// How a child ended, and what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code, if it exited; none if a signal ended it.
    pub code: Option<i32>,
    /// Processor time that it and its waited-for children used, in microseconds.
    pub cpu_us: u64,
}

/// Waits for one child and tells what processor time it used. `None` if it still runs and `wait` is false.
///
/// # Errors
/// If it is not a child of ours, or was waited for before.
pub fn wait_with_usage(pid: libc::pid_t, wait: Wait) -> Result<Option<Ended>, std::io::Error> {
    let flags = match wait {
        Wait::Block => 0,
        Wait::Poll => libc::WNOHANG,
    };
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let got = loop {
        // SAFETY: both pointers are to live, writable locals of the type that the call expects.
        let got = unsafe { libc::wait4(pid, &raw mut status, flags, &raw mut usage) };
        if got >= 0 {
            break got;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    Ok((got == pid).then(|| Ended {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
    }))
}

/// Whether a wait blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until the child ends.
    Block,
    /// Only look.
    Poll,
}

fn micros(time: libc::timeval) -> u64 {
    let part =
        |n: i64| u64::try_from(n).expect("the kernel counts processor time upwards from zero");
    part(time.tv_sec) * 1_000_000 + part(time.tv_usec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_is_zero_and_keeps_what_is_written() {
        let mut mapping = Mapping::anonymous(8192).expect("two pages");
        assert_eq!(mapping.read(8184), 0);
        mapping.write(8184, 7);
        assert_eq!(mapping.read(8184), 7);
    }

    #[test]
    #[should_panic(expected = "not in a mapping")]
    fn a_word_past_the_end_is_refused() {
        let _ = Mapping::anonymous(4096).expect("a page").read(4096);
    }

    #[test]
    fn a_child_is_reaped_with_its_exit_code() {
        #[expect(
            clippy::zombie_processes,
            reason = "wait_with_usage, which is tested here, reaps it"
        )]
        let child = std::process::Command::new("sh")
            .args(["-c", "exit 3"])
            .spawn()
            .expect("sh");
        let pid = libc::pid_t::try_from(child.id()).expect("a pid");
        let ended = wait_with_usage(pid, Wait::Block).expect("our child");
        assert_eq!(ended.expect("it ended").code, Some(3));
        wait_with_usage(pid, Wait::Block).expect_err("it is reaped already");
    }
}
