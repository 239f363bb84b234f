//! A kernel that has every feature, and of which each can be taken away.
//!
//! It has one probe child with a small model of memory (slots, touched base pages, huge or not) and a tree of files. Its
//! roots are not `/proc` and `/sys`. It remembers every file that was read or written.

mod take_away;

use hugepilot_core::geometry::Geometry;
use hugepilot_linux::support::btf;
use hugepilot_linux::support::env::{
    Answer, Child, Env, Extent, FentryRefused, PerfEvent, PseudoFs, Remote, ScanRun, Syscalls,
};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub const PROC: &str = "/fake/proc";
pub const SYS: &str = "/fake/sys";
const CHILD: u32 = 77;
const PAGE: u64 = 4096;
const SLOT: u64 = 2 << 20;
const PRESENT: u64 = 1 << 3;
const IDLE: &str = "kernel/mm/page_idle/bitmap";

/// A slot of the child.
#[derive(Default, Clone)]
struct Slot {
    touched: BTreeSet<u64>,
    resident: u64,
    huge: bool,
}

/// What the kernel refuses, each `None` or `true` where it has the feature.
pub struct Knobs {
    pub capabilities: u64,
    pub pidfd: Option<Errno>,
    pub collapse: Option<Errno>,
    pub collapse_shared: Option<Errno>,
    pub passes_holes: bool,
    pub cold_splits: bool,
    pub split_frees: bool,
    pub except_advised: Option<Errno>,
    pub exclusive: bool,
    pub frames: bool,
    pub scan: Option<Errno>,
    pub categories: u64,
    pub soft_dirty: bool,
    pub procmap: Option<Errno>,
    pub readv: Option<Errno>,
    pub query: Option<Errno>,
    pub moving: Option<Errno>,
    pub faults: Option<Errno>,
    pub hardware: Option<Errno>,
    pub memory_sampling: Option<Errno>,
    pub fentry: Option<Errno>,
    pub spawn: Option<Errno>,
    pub tracefs: Option<Errno>,
}

pub struct FakeKernel {
    pub knobs: Knobs,
    pub files: RefCell<BTreeMap<PathBuf, String>>,
    /// Files that may be read and not written, with the answer.
    pub read_only: BTreeMap<PathBuf, Errno>,
    /// Texts that a file refuses, by the end of its path.
    pub refused: Vec<(&'static str, &'static str, Errno)>,
    pub used: RefCell<BTreeSet<PathBuf>>,
    pub written: RefCell<Vec<(PathBuf, String)>>,
    slots: RefCell<BTreeMap<u64, Slot>>,
    next: Cell<u64>,
    node: Cell<u16>,
    shared: Cell<bool>,
    clean: RefCell<BTreeSet<u64>>,
    idle: RefCell<BTreeSet<u64>>,
    faulted: RefCell<Vec<u64>>,
    pub restores: RefCell<Vec<PathBuf>>,
}

const TEXTS: [(&str, &str); 44] = [
    ("/fake/proc/version", "Linux version 9.9.9"),
    ("/fake/proc/sys/kernel/osrelease", "9.9.9"),
    ("/fake/proc/sys/kernel/yama/ptrace_scope", "0"),
    ("/fake/proc/sys/kernel/numa_balancing", "0"),
    ("/fake/proc/sys/kernel/task_delayacct", "1"),
    ("/fake/proc/sys/vm/compact_memory", ""),
    ("/fake/proc/kpageflags", ""),
    ("/fake/proc/77/smaps", ""),
    ("/fake/proc/77/pagemap", ""),
    ("/fake/proc/77/maps", ""),
    ("/fake/proc/77/clear_refs", ""),
    ("/fake/proc/self/cgroup", "0::/x\n"),
    (
        "/fake/proc/self/mountinfo",
        "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    ),
    ("/fake/proc/pressure/memory", "some avg10=0.00\n"),
    ("/fake/proc/swaps", "Filename Type\n/dev/sda2 partition\n"),
    ("/fake/proc/vmstat", "nr_free 1\nthp_split_page 0\n"),
    ("/fake/proc/buddyinfo", "Node 0, zone DMA 1 2 3\n"),
    ("/fake/sys/fs/cgroup/x/memory.current", "4096\n"),
    ("/fake/sys/kernel/debug/split_huge_pages", ""),
    (
        "/fake/sys/kernel/security/lockdown",
        "[none] integrity confidentiality\n",
    ),
    ("/fake/sys/kernel/btf/vmlinux", ""),
    ("/fake/sys/kernel/mm/page_idle/bitmap", ""),
    (
        "/fake/sys/kernel/mm/mempolicy/weighted_interleave/node0",
        "1",
    ),
    (
        "/fake/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
        "0\n",
    ),
    ("/fake/sys/module/damon_stat/parameters/enabled", "N\n"),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/enabled",
        "always madvise [never]\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/defrag",
        "always [madvise] never\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "[never] deny\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/use_zero_page",
        "1\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/shrink_underused",
        "1\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
        "511\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/hugepages-8kB/shmem_enabled",
        "[never]\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
        "[never]\n",
    ),
    (
        "/fake/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
        "[inherit]\n",
    ),
    (
        "/fake/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "0\n",
    ),
    (
        "/fake/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "0\n",
    ),
    (
        "/fake/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
        "0\n",
    ),
    (
        "/fake/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages",
        "0\n",
    ),
    ("/fake/sys/devices/system/node/has_memory", "0-1\n"),
    (
        "/fake/sys/devices/system/memory/block_size_bytes",
        "8000000\n",
    ),
    ("/fake/sys/devices/system/memory/memory0/state", "online\n"),
    ("/fake/sys/bus/event_source/devices/cpu/type", "4\n"),
    (
        "/fake/sys/bus/event_source/devices/cpu/events/mem-loads",
        "event=0xcd,umask=0x1,ldlat=3\n",
    ),
    (
        "/fake/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions/x",
        "",
    ),
];

impl FakeKernel {
    pub fn complete() -> Self {
        let knobs = Knobs {
            capabilities: u64::MAX,
            pidfd: None,
            collapse: None,
            collapse_shared: None,
            passes_holes: true,
            cold_splits: true,
            split_frees: true,
            except_advised: None,
            exclusive: true,
            frames: true,
            scan: None,
            categories: 0x3ff,
            soft_dirty: true,
            procmap: None,
            readv: None,
            query: None,
            moving: None,
            faults: None,
            hardware: None,
            memory_sampling: None,
            fentry: None,
            spawn: None,
            tracefs: None,
        };
        let files = TEXTS
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        Self {
            knobs,
            files: RefCell::new(files),
            read_only: BTreeMap::new(),
            refused: Vec::new(),
            used: RefCell::default(),
            written: RefCell::default(),
            slots: RefCell::default(),
            next: Cell::new(0x7000_0000_0000),
            node: Cell::new(0),
            shared: Cell::new(false),
            clean: RefCell::default(),
            idle: RefCell::default(),
            faulted: RefCell::default(),
            restores: RefCell::default(),
        }
    }

    pub fn env(&self) -> Env<'_> {
        Env {
            proc: PathBuf::from(PROC),
            sys: PathBuf::from(SYS),
            geometry: Geometry::X86_64,
            calls: self,
        }
    }

    pub fn put(&self, path: &str, text: &str) {
        self.files
            .borrow_mut()
            .insert(PathBuf::from(path), text.to_owned());
    }

    /// Removes a file, or a directory with all below it.
    pub fn remove(&self, path: &str) {
        let before = self.files.borrow().len();
        self.files
            .borrow_mut()
            .retain(|file, _| !file.starts_with(path));
        assert!(self.files.borrow().len() < before, "{path} was not there");
    }

    fn there(&self, path: &Path) -> Answer<String> {
        self.used.borrow_mut().insert(path.to_owned());
        self.files.borrow().get(path).cloned().ok_or(Errno::NOENT)
    }

    fn split(&self, start: u64) {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(&start).expect("a slot of the child");
        slot.huge = false;
        if self.knobs.split_frees {
            slot.resident = slot.touched.len().try_into().expect("few");
        }
    }

    fn smaps(&self) -> String {
        let kib = |slot: &Slot| (slot.resident * 4, if slot.huge { 2048 } else { 0 });
        self.slots
            .borrow()
            .iter()
            .map(|(start, slot)| {
                let (resident, huge) = kib(slot);
                format!(
                    "{start:x}-{:x} rw-p 00000000 00:00 0 \nRss: {resident} kB\nAnonHugePages: {huge} kB\n",
                    start + SLOT
                )
            })
            .collect()
    }

    fn is_touched(&self, page: u64) -> bool {
        let address = page * PAGE;
        let slots = self.slots.borrow();
        let slot = slots.get(&(address / SLOT * SLOT));
        slot.is_some_and(|slot| slot.touched.contains(&(address % SLOT / PAGE)))
    }

    fn entry(&self, page: u64) -> u64 {
        if !self.is_touched(page) {
            return 0;
        }
        let frame = if self.knobs.frames {
            page % (1 << 20)
        } else {
            0
        };
        let dirty = self.knobs.soft_dirty && !self.clean.borrow().contains(&page);
        (1 << 63) | (u64::from(self.knobs.exclusive) << 56) | (u64::from(dirty) << 55) | frame
    }

    fn idle_bits(&self, place: u64) -> u64 {
        let idle = self.idle.borrow();
        (0..64)
            .filter(|bit| idle.contains(&(place * 8 + bit)))
            .fold(0, |bits, bit| bits | (1 << bit))
    }
}

fn words(count: usize, word: impl Fn(u64) -> u64) -> Vec<u8> {
    (0..u64::try_from(count / 8).expect("few"))
        .flat_map(|at| word(at).to_ne_bytes())
        .collect()
}

fn refuse(knob: Option<Errno>) -> Answer<()> {
    knob.map_or(Ok(()), Err)
}

impl Syscalls for FakeKernel {
    fn read(&self, file: &Path, at: u64, length_max: usize) -> Answer<Vec<u8>> {
        let text = self.there(file)?;
        Ok(match file.strip_prefix(SYS).ok().and_then(Path::to_str) {
            Some("kernel/btf/vmlinux") if text.is_empty() => {
                btf::testing::blob_with_function("handle_mm_fault")
            }
            Some(IDLE) => words(length_max, |word| self.idle_bits(at + word * 8)),
            _other => match file.strip_prefix(PROC).ok().and_then(Path::to_str) {
                Some("77/smaps") => self.smaps().into_bytes(),
                Some("77/pagemap") => words(length_max, |page| self.entry(at / 8 + page)),
                Some("kpageflags") => words(length_max, |_| 1 << 12),
                _plain => text.into_bytes(),
            },
        })
    }

    fn write(&self, file: &Path, at: u64, bytes: &[u8]) -> Answer<()> {
        let in_kdamond = file.to_str().is_some_and(|f| f.contains("kdamonds/0/"));
        if !in_kdamond {
            self.there(file)?;
        }
        refuse(self.read_only.get(file).copied())?;
        let text = String::from_utf8_lossy(bytes).into_owned();
        let refused = self
            .refused
            .iter()
            .find(|(end, refused, _)| file.ends_with(end) && *refused == text);
        refuse(refused.map(|(_, _, errno)| *errno))?;
        self.written
            .borrow_mut()
            .push((file.to_owned(), text.clone()));
        if file.ends_with("clear_refs") {
            let pages = self.slots.borrow();
            let all = pages
                .iter()
                .flat_map(|(start, slot)| slot.touched.iter().map(move |p| start / PAGE + p));
            self.clean.borrow_mut().extend(all);
        } else if file.ends_with(IDLE) {
            let bits = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            let frames = (0..64).filter(|bit| bits & (1 << bit) != 0);
            self.idle
                .borrow_mut()
                .extend(frames.map(|bit| at * 8 + bit));
        } else if file.ends_with("split_huge_pages") {
            let start = text.split(',').nth(1).expect("pid,start,end");
            let start = u64::from_str_radix(start.trim_start_matches("0x"), 16).expect("hex");
            self.split(start);
        } else {
            self.files.borrow_mut().insert(file.to_owned(), text);
        }
        Ok(())
    }

    fn open_for_writing(&self, file: &Path) -> Answer<()> {
        self.there(file)?;
        refuse(self.read_only.get(file).copied())
    }

    fn list(&self, directory: &Path) -> Answer<Vec<String>> {
        self.used.borrow_mut().insert(directory.to_owned());
        let files = self.files.borrow();
        let names: BTreeSet<String> = files
            .keys()
            .filter_map(|file| file.strip_prefix(directory).ok()?.iter().next())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if names.is_empty() {
            return Err(Errno::NOENT);
        }
        Ok(names.into_iter().collect())
    }

    fn read_unmounted(&self, fs: PseudoFs, _: &str) -> Answer<Vec<u8>> {
        match fs {
            PseudoFs::Tracefs => refuse(self.knobs.tracefs).map(|()| b"123\n".to_vec()),
            PseudoFs::Debugfs | PseudoFs::Securityfs => Err(Errno::NODEV),
        }
    }

    fn write_unmounted(&self, _: PseudoFs, _: &str, _: &[u8]) -> Answer<()> {
        Err(Errno::NODEV)
    }

    fn mountable(&self, _: PseudoFs) -> Answer<()> {
        Err(Errno::NODEV)
    }

    fn capabilities(&self) -> Answer<u64> {
        Ok(self.knobs.capabilities)
    }

    fn spawn(&self) -> Answer<Box<dyn Child + '_>> {
        refuse(self.knobs.spawn)?;
        Ok(Box::new(FakeChild(self)))
    }

    fn pidfd_open(&self, pid: u32) -> Answer<()> {
        assert_eq!(pid, CHILD, "no other process is touched");
        refuse(self.knobs.pidfd)
    }

    fn process_madvise(&self, pid: u32, extent: Extent, advice: Remote) -> Answer<u64> {
        assert_eq!(pid, CHILD, "no other process is touched");
        match advice {
            Remote::Collapse => self.collapse(extent)?,
            Remote::Cold if self.knobs.cold_splits => self.split(extent.start),
            Remote::Cold => {}
        }
        Ok(extent.length)
    }

    fn process_vm_readv(&self, _: u32, _: u64, length: usize) -> Answer<Vec<u8>> {
        refuse(self.knobs.readv)?;
        Ok(vec![0xA5; length])
    }

    fn pagemap_scan(
        &self,
        pagemap: &Path,
        extent: Extent,
        any: u64,
        tell: u64,
    ) -> Answer<Vec<ScanRun>> {
        self.there(pagemap)?;
        refuse(self.knobs.scan)?;
        if (any | tell) & !self.knobs.categories != 0 {
            return Err(Errno::INVAL);
        }
        let pages = extent.start / PAGE..extent.end() / PAGE;
        Ok(pages
            .filter(|page| self.is_touched(*page))
            .map(|page| ScanRun {
                extent: Extent {
                    start: page * PAGE,
                    length: PAGE,
                },
                categories: PRESENT & tell,
            })
            .collect())
    }

    fn procmap_query(&self, maps: &Path, address: u64) -> Answer<Extent> {
        self.there(maps)?;
        refuse(self.knobs.procmap)?;
        Ok(Extent {
            start: address / SLOT * SLOT,
            length: SLOT,
        })
    }

    fn move_page(&self, pid: u32, _: u64, to: Option<u16>) -> Answer<u16> {
        assert_eq!(pid, CHILD, "no other process is touched");
        match to {
            Some(node) => {
                refuse(self.knobs.moving)?;
                self.node.set(node);
            }
            None => refuse(self.knobs.query)?,
        }
        Ok(self.node.get())
    }

    fn perf_tracepoint(&self, id: u64, thread: u32) -> Answer<()> {
        assert_eq!((id, thread), (123, CHILD));
        Ok(())
    }

    fn perf_open(&self, event: &PerfEvent, _: u32) -> Answer<()> {
        refuse(match event.kind {
            0 => self.knobs.hardware,
            _memory => self.knobs.memory_sampling,
        })
    }

    fn page_faults(&self, _: u32, during: &mut dyn FnMut()) -> Answer<Vec<u64>> {
        refuse(self.knobs.faults)?;
        self.faulted.borrow_mut().clear();
        during();
        Ok(self.faulted.borrow().clone())
    }

    fn fentry(&self, _: u32, during: &mut dyn FnMut()) -> Result<u64, FentryRefused> {
        refuse(self.knobs.fentry).map_err(|errno| FentryRefused {
            step: "load",
            errno,
        })?;
        self.faulted.borrow_mut().clear();
        during();
        Ok(self.faulted.borrow().len().try_into().expect("few"))
    }
}

impl FakeKernel {
    fn collapse(&self, extent: Extent) -> Answer<()> {
        refuse(self.knobs.collapse)?;
        if self.shared.get() {
            refuse(self.knobs.collapse_shared)?;
        }
        let mut slots = self.slots.borrow_mut();
        for (_, slot) in slots.range_mut(extent.start..extent.end()) {
            if slot.touched.is_empty() {
                if self.knobs.passes_holes {
                    continue;
                }
                return Err(Errno::INVAL);
            }
            slot.huge = true;
            slot.resident = SLOT / PAGE;
        }
        Ok(())
    }
}

struct FakeChild<'a>(&'a FakeKernel);

impl Child for FakeChild<'_> {
    fn pid(&self) -> u32 {
        CHILD
    }

    fn map(&self, slots: u64) -> Answer<Extent> {
        let start = self.0.next.get();
        self.0.next.set(start + (slots + 1) * SLOT);
        for slot in 0..slots {
            let at = start + slot * SLOT;
            self.0.slots.borrow_mut().insert(at, Slot::default());
        }
        Ok(Extent {
            start,
            length: slots * SLOT,
        })
    }

    fn touch(&self, slot_start: u64, pages: u64) -> Answer<()> {
        let mut slots = self.0.slots.borrow_mut();
        let slot = slots.get_mut(&slot_start).ok_or(Errno::FAULT)?;
        for page in 0..pages {
            let number = slot_start / PAGE + page;
            if slot.touched.insert(page) {
                slot.resident += 1;
                self.0.faulted.borrow_mut().push(number * PAGE);
            }
            self.0.clean.borrow_mut().remove(&number);
            self.0.idle.borrow_mut().remove(&(number % (1 << 20)));
        }
        Ok(())
    }

    fn fork_hold(&self) -> Answer<()> {
        self.0.shared.set(true);
        Ok(())
    }

    fn release(&self) -> Answer<()> {
        self.0.shared.set(false);
        Ok(())
    }

    fn except_advised(&self) -> Answer<()> {
        refuse(self.0.knobs.except_advised)
    }

    fn restore_later(&self, file: &Path, _: &str) -> Answer<()> {
        self.0.restores.borrow_mut().push(file.to_owned());
        Ok(())
    }

    fn forget_restores(&self) -> Answer<()> {
        self.0.restores.borrow_mut().clear();
        Ok(())
    }
}
