//! What a probe may touch: the roots of `/proc` and `/sys`, and the calls, behind one object-safe trait.
//!
//! Every call and every file of every probe goes through [`Syscalls`], so that a test can take any of them away. There
//! is no call for the kernel's version: a probe cannot ask for it.

use hugepilot_core::geometry::Geometry;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The kernel's answer, or its errno.
pub type Answer<T> = Result<T, Errno>;

/// The longest text that a probe reads from one file of `/proc` or `/sys`.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// A range of a process's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

impl Extent {
    /// The address just past it.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start + self.length
    }
}

/// Advice that reaches other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// `MADV_COLLAPSE`.
    Collapse,
    /// `MADV_COLD`.
    Cold,
}

/// Pseudo file systems that may be there without being mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PseudoFs {
    /// debugfs.
    Debugfs,
    /// securityfs.
    Securityfs,
    /// tracefs.
    Tracefs,
}

impl PseudoFs {
    /// The kernel's name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debugfs => "debugfs",
            Self::Securityfs => "securityfs",
            Self::Tracefs => "tracefs",
        }
    }
}

/// A run of pages with the same categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRun {
    /// Where.
    pub extent: Extent,
    /// Its categories, of those asked for.
    pub categories: u64,
}

/// What to ask of perf, in the kernel's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfEvent {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// Sample every so many events; zero counts only.
    pub period: u64,
    /// `perf_event_attr.sample_type`.
    pub sample_type: u64,
    /// `perf_event_attr.precise_ip`.
    pub precise: u8,
}

/// Where the way to a running fentry program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FentryRefused {
    /// The step: `map`, `load`, `attach` or `count`.
    pub step: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
}

/// A process made for probing. It ends with the value, and by itself when its maker dies.
pub trait Child {
    /// Its process id.
    fn pid(&self) -> u32;
    /// Maps `slots` fresh, aligned slots in a region of their own, whose faults bring base pages whatever the system's
    /// THP switch says.
    fn map(&self, slots: u64) -> Answer<Extent>;
    /// Writes to the first `pages` base pages of a slot of a region.
    fn touch(&self, slot_start: u64, pages: u64) -> Answer<()>;
    /// Forks; the fork shares all memory and sleeps until [`Child::release`].
    fn fork_hold(&self) -> Answer<()>;
    /// Ends the fork.
    fn release(&self) -> Answer<()>;
    /// `PR_SET_THP_DISABLE` with `PR_THP_DISABLE_EXCEPT_ADVISED` on itself, read back, and off again.
    fn except_advised(&self) -> Answer<()>;
    /// From now on, when its maker is gone, it writes this text to this file before it ends, several in the order given.
    fn restore_later(&self, file: &Path, text: &str) -> Answer<()>;
    /// Forgets what it was to write.
    fn forget_restores(&self) -> Answer<()>;
}

/// All that a probe may call.
pub trait Syscalls {
    /// Reads from `at` to the end of the file, at most `length_max` bytes.
    fn read(&self, file: &Path, at: u64, length_max: usize) -> Answer<Vec<u8>>;
    /// Writes all bytes in one call.
    fn write(&self, file: &Path, at: u64, bytes: &[u8]) -> Answer<()>;
    /// Opens for writing and writes nothing.
    fn open_for_writing(&self, file: &Path) -> Answer<()>;
    /// The names in a directory, sorted.
    fn list(&self, directory: &Path) -> Answer<Vec<String>>;
    /// Reads a file of a file system that is mounted nowhere.
    fn read_unmounted(&self, fs: PseudoFs, file: &str) -> Answer<Vec<u8>>;
    /// Writes to a file of a file system that is mounted nowhere.
    fn write_unmounted(&self, fs: PseudoFs, file: &str, bytes: &[u8]) -> Answer<()>;
    /// Can the file system be mounted for us alone?
    fn mountable(&self, fs: PseudoFs) -> Answer<()>;
    /// Our effective capabilities, one bit each.
    fn capabilities(&self) -> Answer<u64>;
    /// Makes a probe child.
    fn spawn(&self) -> Answer<Box<dyn Child + '_>>;
    /// `pidfd_open(2)`, closed at once.
    fn pidfd_open(&self, pid: u32) -> Answer<()>;
    /// `process_madvise(2)` on one range: bytes advised.
    fn process_madvise(&self, pid: u32, extent: Extent, advice: Remote) -> Answer<u64>;
    /// `process_vm_readv(2)`: at most `length` bytes.
    fn process_vm_readv(&self, pid: u32, address: u64, length: usize) -> Answer<Vec<u8>>;
    /// `PAGEMAP_SCAN` on a pagemap file: runs in any of `any` categories, told by `tell`.
    fn pagemap_scan(
        &self,
        pagemap: &Path,
        extent: Extent,
        any: u64,
        tell: u64,
    ) -> Answer<Vec<ScanRun>>;
    /// `PROCMAP_QUERY` on a maps file: the region that covers an address.
    fn procmap_query(&self, maps: &Path, address: u64) -> Answer<Extent>;
    /// `move_pages(2)` for one page: the node where it lies, after moving it if `to` is given.
    fn move_page(&self, pid: u32, address: u64, to: Option<u16>) -> Answer<u16>;
    /// `perf_event_open(2)` on a tracepoint hit by one thread, closed at once.
    fn perf_tracepoint(&self, id: u64, thread: u32) -> Answer<()>;
    /// `perf_event_open(2)` on a process, closed at once.
    fn perf_open(&self, event: &PerfEvent, pid: u32) -> Answer<()>;
    /// The addresses of a process's page faults while `during` runs.
    fn page_faults(&self, pid: u32, during: &mut dyn FnMut()) -> Answer<Vec<u64>>;
    /// Runs a counting fentry program on the kernel function of this BTF id while `during` runs: its count.
    fn fentry(&self, btf_id: u32, during: &mut dyn FnMut()) -> Result<u64, FentryRefused>;
}

/// Where and by which calls to probe.
#[derive(Clone)]
pub struct Env<'a> {
    /// The root of `/proc`.
    pub proc: PathBuf,
    /// The root of `/sys`.
    pub sys: PathBuf,
    /// Page sizes.
    pub geometry: Geometry,
    /// The calls.
    pub calls: &'a dyn Syscalls,
}

impl<'a> Env<'a> {
    /// The machine that we run on, by `calls`.
    #[must_use]
    pub fn new(geometry: Geometry, calls: &'a dyn Syscalls) -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            geometry,
            calls,
        }
    }

    /// A file of a process.
    #[must_use]
    pub fn of_process(&self, pid: u32, file: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(file)
    }

    /// A text file's contents without the white space around it.
    pub fn text(&self, file: &Path) -> Answer<String> {
        let bytes = self.calls.read(file, 0, TEXT_BYTES_MAX)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Writes a setting.
    pub fn set(&self, file: &Path, text: &str) -> Answer<()> {
        self.calls.write(file, 0, text.as_bytes())
    }
}
