//! The running kernel as [`Syscalls`].

use crate::support::env::{
    Answer, Child, Extent, FentryRefused, PerfEvent, PseudoFs, Remote, ScanRun, Syscalls,
};
use crate::support::perf_records;
use crate::sys::probe_child::{Command, ProbeChild};
use crate::sys::{
    advise, bpf, caps, detached_mount, maps, move_pages, pagemap, perf, probe_child, process,
};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::Bytes;
use rustix::fs::{Dir, Mode, OFlags, open};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes asked of the kernel in one read.
const READ_BYTES: usize = 64 << 10;
/// Runs that one scan of a probe can report: three per base page of a slot would be absurd.
const RUNS_MAX: usize = 2048;
/// Pages of a perf ring's records: 8, some 800 faults.
const RING_ORDER: u8 = 3;

/// Calls on the running kernel.
#[derive(Debug, Clone, Copy)]
pub struct Live {
    /// Page sizes, for the memory of probe children.
    pub geometry: Geometry,
}

/// A forked probe child.
struct LiveChild {
    process: ProbeChild,
    geometry: Geometry,
}

fn open_file(file: &Path, flags: OFlags) -> Answer<OwnedFd> {
    open(file, flags | OFlags::CLOEXEC, Mode::empty())
}

fn read_all(file: &OwnedFd, at: u64, length_max: usize) -> Answer<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0_u8; READ_BYTES.min(length_max)];
    while bytes.len() < length_max {
        let want = buffer.len().min(length_max - bytes.len());
        let offset = at + length(bytes.len());
        match pread(file, &mut buffer[..want], offset)? {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(bytes)
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("lengths have at most 64 bits")
}

fn write_once(file: &OwnedFd, at: u64, bytes: &[u8]) -> Answer<()> {
    let written = pwrite(file, bytes, at)?;
    if written == bytes.len() {
        Ok(())
    } else {
        Err(Errno::IO)
    }
}

fn fs_name(fs: PseudoFs) -> &'static std::ffi::CStr {
    match fs {
        PseudoFs::Debugfs => c"debugfs",
        PseudoFs::Securityfs => c"securityfs",
        PseudoFs::Tracefs => c"tracefs",
    }
}

impl Syscalls for Live {
    fn read(&self, file: &Path, at: u64, length_max: usize) -> Answer<Vec<u8>> {
        read_all(&open_file(file, OFlags::RDONLY)?, at, length_max)
    }

    fn write(&self, file: &Path, at: u64, bytes: &[u8]) -> Answer<()> {
        write_once(&open_file(file, OFlags::WRONLY)?, at, bytes)
    }

    fn open_for_writing(&self, file: &Path) -> Answer<()> {
        open_file(file, OFlags::WRONLY).map(drop)
    }

    fn list(&self, directory: &Path) -> Answer<Vec<String>> {
        let directory = open_file(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn read_unmounted(&self, fs: PseudoFs, file: &str) -> Answer<Vec<u8>> {
        let file = detached_mount::open(fs_name(fs), file, OFlags::RDONLY)?;
        read_all(&file, 0, READ_BYTES)
    }

    fn write_unmounted(&self, fs: PseudoFs, file: &str, bytes: &[u8]) -> Answer<()> {
        let file = detached_mount::open(fs_name(fs), file, OFlags::WRONLY)?;
        write_once(&file, 0, bytes)
    }

    fn mountable(&self, fs: PseudoFs) -> Answer<()> {
        detached_mount::open(fs_name(fs), ".", OFlags::RDONLY).map(drop)
    }

    fn capabilities(&self) -> Answer<u64> {
        caps::effective()
    }

    fn spawn(&self) -> Answer<Box<dyn Child + '_>> {
        Ok(Box::new(LiveChild {
            process: probe_child::ProbeChild::spawn()?,
            geometry: self.geometry,
        }))
    }

    fn pidfd_open(&self, pid: u32) -> Answer<()> {
        process::pidfd_open(Pid(pid)).map(drop)
    }

    fn process_madvise(&self, pid: u32, extent: Extent, advice: Remote) -> Answer<u64> {
        let pidfd = process::pidfd_open(Pid(pid))?;
        let advice = match advice {
            Remote::Collapse => advise::Advice::Collapse,
            Remote::Cold => advise::Advice::Cold,
        };
        advise::process_madvise(pidfd.as_fd(), extent.start, Bytes(extent.length), advice)
            .map(length)
    }

    fn process_vm_readv(&self, pid: u32, address: u64, length: usize) -> Answer<Vec<u8>> {
        let mut bytes = vec![0_u8; length];
        let read = process::read_memory(Pid(pid), address, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn pagemap_scan(
        &self,
        pagemap: &Path,
        extent: Extent,
        any: u64,
        tell: u64,
    ) -> Answer<Vec<ScanRun>> {
        let file = open_file(pagemap, OFlags::RDONLY)?;
        let mut runs = vec![pagemap::Run::default(); RUNS_MAX];
        let request = pagemap::Request {
            start: extent.start,
            end: extent.end(),
            pages_max: 0,
            any_of: any,
            told: tell,
        };
        let (found, _walked_to) = pagemap::scan(file.as_fd(), &request, &mut runs)?;
        Ok(runs[..found].iter().map(run_of).collect())
    }

    fn procmap_query(&self, maps: &Path, address: u64) -> Answer<Extent> {
        let file = open_file(maps, OFlags::RDONLY)?;
        let region = maps::region_at(file.as_fd(), address)?.ok_or(Errno::FAULT)?;
        Ok(Extent {
            start: region.start,
            length: region.end - region.start,
        })
    }

    fn move_page(&self, pid: u32, address: u64, to: Option<u16>) -> Answer<u16> {
        let mut status = Vec::new();
        match to {
            Some(node) => {
                move_pages::move_to(Pid(pid), &[address], &[i32::from(node)], &mut status)?;
            }
            None => move_pages::query(Pid(pid), &[address], &mut status)?,
        }
        let status = status.first().copied().ok_or(Errno::IO)?;
        u16::try_from(status).map_err(|_negative| Errno::from_raw_os_error(-status))
    }

    fn perf_tracepoint(&self, id: u64, thread: u32) -> Answer<()> {
        perf::open_tracepoint(id, Pid(thread)).map(drop)
    }

    fn perf_open(&self, event: &PerfEvent, pid: u32) -> Answer<()> {
        perf::open(&raw_event(event), Pid(pid)).map(drop)
    }

    fn page_faults(&self, pid: u32, during: &mut dyn FnMut()) -> Answer<Vec<u64>> {
        let event = perf::open(&raw_event(&perf_records::PAGE_FAULTS), Pid(pid))?;
        let page = usize::try_from(self.geometry.base_page().0).expect("a page fits memory");
        let ring = perf::Ring::map(&event, page, RING_ORDER)?;
        during();
        Ok(perf_records::addresses(&ring.take()))
    }

    fn fentry(&self, btf_id: u32, during: &mut dyn FnMut()) -> Result<u64, FentryRefused> {
        let at = |step| move |errno| FentryRefused { step, errno };
        let counter = bpf::counter().map_err(at("map"))?;
        let program = bpf::load_fentry(btf_id, &counter).map_err(at("load"))?;
        let _attached = bpf::attach(&program).map_err(at("attach"))?;
        during();
        bpf::count(&counter).map_err(at("count"))
    }
}

fn run_of(run: &pagemap::Run) -> ScanRun {
    ScanRun {
        extent: Extent {
            start: run.start,
            length: run.end - run.start,
        },
        categories: run.categories,
    }
}

fn raw_event(event: &PerfEvent) -> perf::Event {
    perf::Event {
        kind: event.kind,
        config: event.config,
        config1: event.config1,
        period: event.period,
        sample_type: event.sample_type,
        precise: event.precise,
    }
}

impl Child for LiveChild {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn map(&self, slots: u64) -> Answer<Extent> {
        let slot_bytes = self.geometry.slot().0;
        let start = self.process.ask(Command::Map { slots, slot_bytes })?;
        Ok(Extent {
            start,
            length: slots * slot_bytes,
        })
    }

    fn touch(&self, slot_start: u64, pages: u64) -> Answer<()> {
        let touch = Command::Touch {
            address: slot_start,
            pages,
            page_bytes: self.geometry.base_page().0,
        };
        self.process.ask(touch).map(drop)
    }

    fn fork_hold(&self) -> Answer<()> {
        self.process.ask(Command::ForkHold).map(drop)
    }

    fn release(&self) -> Answer<()> {
        self.process.ask(Command::Release).map(drop)
    }

    fn except_advised(&self) -> Answer<()> {
        self.process.ask(Command::ExceptAdvised).map(drop)
    }

    fn restore_later(&self, file: &Path, text: &str) -> Answer<()> {
        self.process
            .restore_later(file.as_os_str().as_bytes(), text.as_bytes())
    }

    fn forget_restores(&self) -> Answer<()> {
        self.process.ask(Command::ForgetRestores).map(drop)
    }
}
