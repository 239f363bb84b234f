//! `perf_event_open(2)`: one event of one process, and the ring that its samples arrive in.

use super::{Errno, checked};
use hugepilot_core::ids::Pid;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to count or to sample, in the kernel's own numbers (`perf_event_open(2)`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// `type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`.
    pub config1: u64,
    /// `sample_period`; zero counts only.
    pub period: u64,
    /// `sample_type`.
    pub sample_type: u64,
    /// `precise_ip`, 0 to 3.
    pub precise: u8,
}

/// The kernel's `struct perf_event_attr`, version 5.
#[repr(C)]
#[derive(Default)]
struct Attribute {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const ATTRIBUTE_BYTES: u32 = 112;
const _: () = assert!(size_of::<Attribute>() == 112);
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const PRECISE_SHIFT: u8 = 15;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Opens `event` on all threads that `pid` has now as its main thread's, on any processor; user mode only.
///
/// # Errors
/// The kernel's errno: `EACCES` or `EPERM` where we may not, `ENOENT` or `ENODEV` where nothing counts it.
pub fn open(event: &Event, pid: Pid) -> Result<OwnedFd, Errno> {
    open_with(event, pid, EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)
}

/// Opens the kernel's tracepoint number `id` on one thread, every hit with its raw record.
///
/// # Errors
/// As [`open`].
pub fn open_tracepoint(id: u64, thread: Pid) -> Result<OwnedFd, Errno> {
    const PERF_TYPE_TRACEPOINT: u32 = 2;
    const PERF_SAMPLE_RAW: u64 = 1 << 10;
    let event = Event {
        kind: PERF_TYPE_TRACEPOINT,
        config: id,
        period: 1,
        sample_type: PERF_SAMPLE_RAW,
        ..Event::default()
    };
    open_with(&event, thread, 0)
}

fn open_with(event: &Event, pid: Pid, excluded: u64) -> Result<OwnedFd, Errno> {
    let attribute = Attribute {
        kind: event.kind,
        size: ATTRIBUTE_BYTES,
        config: event.config,
        config1: event.config1,
        sample_period: event.period,
        sample_type: event.sample_type,
        flags: excluded | (u64::from(event.precise & 3) << PRECISE_SHIFT),
        ..Attribute::default()
    };
    let Ok(pid) = i32::try_from(pid.0) else {
        return Err(Errno::SRCH);
    };
    let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
    // SAFETY: the kernel reads `size` bytes of the attribute, which lives until the call returns.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attribute,
            pid,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let Ok(fd) = i32::try_from(checked(returned)?) else {
        return Err(Errno::BADF);
    };
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The ring of one event's records: a page that says where, and a power of two of pages with the records.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    data: usize,
}

/// Where `struct perf_event_mmap_page` keeps its head and its tail.
const DATA_HEAD: usize = 0x400;
const DATA_TAIL: usize = 0x408;

impl Ring {
    /// Maps the ring of `event` with `2^data_order` pages for records.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn map(event: &OwnedFd, page: usize, data_order: u8) -> Result<Self, Errno> {
        let data = page << data_order;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing of ours is replaced.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page + data,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event.as_fd(),
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::FAULT)?;
        Ok(Self { base, page, data })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: head and tail lie aligned within the first page, which is mapped as long as `self` lives; the kernel
        // and we access them as whole words.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// Takes all records that lie in the ring, as bytes; their places are free again.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        let length = usize::try_from(head - tail).expect("less than the ring's length");
        let mut bytes = Vec::with_capacity(length);
        // Every record begins at a multiple of eight bytes and is as long as one.
        for at in (tail..head).step_by(size_of::<u64>()) {
            bytes.extend_from_slice(&self.record_word(at).to_ne_bytes());
        }
        self.word(DATA_TAIL).store(head, Ordering::Release);
        bytes
    }

    fn record_word(&self, at: u64) -> u64 {
        let last = u64::try_from(self.data - 1).expect("a ring has fewer than 2^64 bytes");
        let within = usize::try_from(at & last).expect("less than the ring's length");
        // SAFETY: the ring's length is a power of two, so `within` is less than it, and a multiple of eight as `at` is:
        // an aligned word of the records, which are mapped behind the first page. The kernel does not write between
        // tail and head.
        unsafe {
            self.base
                .add(self.page + within)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.page + self.data) };
        debug_assert!(unmapped.is_ok(), "an own mapping can be unmapped");
    }
}
