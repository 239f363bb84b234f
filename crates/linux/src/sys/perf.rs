//! `perf_event_open(2)`: one event of one process or of one processor, and the ring that its samples arrive in.

use super::{Errno, checked};
use hugepilot_core::ids::Pid;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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
    open_with(event, Of::Task(pid), EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)
}

/// What is left out of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excluded {
    /// Whatever happens in the kernel or in a hypervisor.
    KernelAndHypervisor,
    /// Nothing: for devices that cannot tell and refuse to be asked.
    Nothing,
}

/// Opens `event` for whatever runs on processor `cpu`; where `leader` is given, in one group with it.
///
/// # Errors
/// As [`open`]; `EACCES` also where `kernel.perf_event_paranoid` keeps the whole processor from us.
pub fn open_on_cpu(
    event: &Event,
    cpu: u32,
    excluded: Excluded,
    leader: Option<&OwnedFd>,
) -> Result<OwnedFd, Errno> {
    let excluded = match excluded {
        Excluded::KernelAndHypervisor => EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        Excluded::Nothing => 0,
    };
    let Ok(cpu) = i32::try_from(cpu) else {
        return Err(Errno::INVAL);
    };
    open_with(event, Of::Cpu(cpu, leader.map(AsFd::as_fd)), excluded)
}

/// Reads a counting event's value.
///
/// # Errors
/// The kernel's errno.
pub fn count(event: &OwnedFd) -> Result<u64, Errno> {
    let mut value = [0_u8; 8];
    match rustix::io::read(event, &mut value)? {
        8 => Ok(u64::from_ne_bytes(value)),
        _shorter => Err(Errno::NODATA),
    }
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
    open_with(&event, Of::Task(thread), 0)
}

/// Whose event it is.
#[derive(Clone, Copy)]
enum Of<'a> {
    /// One task's, on any processor.
    Task(Pid),
    /// One processor's, whoever runs there; in the group of a leader, if one is given.
    Cpu(libc::c_int, Option<BorrowedFd<'a>>),
}

fn open_with(event: &Event, of: Of<'_>, excluded: u64) -> Result<OwnedFd, Errno> {
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
    let none: libc::c_int = -1;
    let (pid, cpu, group) = match of {
        Of::Task(pid) => {
            let Ok(pid) = i32::try_from(pid.0) else {
                return Err(Errno::SRCH);
            };
            (pid, none, none)
        }
        Of::Cpu(cpu, leader) => (none, cpu, leader.map_or(none, |leader| leader.as_raw_fd())),
    };
    // SAFETY: the kernel reads `size` bytes of the attribute, which lives until the call returns.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attribute,
            pid,
            cpu,
            group,
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

    /// Bytes of records that wait in the ring.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        head - self.word(DATA_TAIL).load(Ordering::Relaxed)
    }

    /// Takes whole records of at most `bytes_max` bytes together, the oldest first, into `bytes`, which is emptied
    /// before; their places are free again.
    pub fn take_some(&self, bytes_max: usize, bytes: &mut Vec<u8>) {
        bytes.clear();
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        while tail < head {
            // The last two bytes of a record's first word are its size, a multiple of eight.
            let size = u64::from(u16::from_ne_bytes(last_two(self.record_word(tail))));
            let whole = (size >= 8 && size % 8 == 0 && tail + size <= head)
                .then(|| usize::try_from(size).ok())
                .flatten();
            let Some(whole) = whole else {
                // Nothing that the kernel writes: what follows cannot be told apart any more.
                tail = head;
                break;
            };
            if bytes.len() + whole > bytes_max {
                break;
            }
            for at in (tail..tail + size).step_by(size_of::<u64>()) {
                bytes.extend_from_slice(&self.record_word(at).to_ne_bytes());
            }
            tail += size;
        }
        self.word(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Throws away what lies in the ring, and says how many bytes that were.
    pub fn discard(&self) -> u64 {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        self.word(DATA_TAIL).store(head, Ordering::Release);
        head - tail
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

fn last_two(word: u64) -> [u8; 2] {
    let [.., first, second] = word.to_ne_bytes();
    [first, second]
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.page + self.data) };
        debug_assert!(unmapped.is_ok(), "an own mapping can be unmapped");
    }
}
