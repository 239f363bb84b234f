//! How each feature is missing on real machines. The match has no catch-all: a new feature wants its own line.

use super::FakeKernel;
use hugepilot_linux::support::feature::Feature;
use rustix::io::Errno;
use std::path::PathBuf;

const THP: &str = "/fake/sys/kernel/mm/transparent_hugepage";

impl FakeKernel {
    /// A kernel that has everything but this.
    pub fn without(feature: Feature) -> Self {
        let mut kernel = Self::complete();
        kernel.also_without(feature);
        kernel
    }

    fn lacks_capability(&mut self, number: u8) {
        self.knobs.capabilities &= !(1 << number);
    }

    fn refuses(&mut self, file: &'static str, text: &'static str, errno: Errno) {
        self.refused.push((file, text, errno));
    }

    fn lacks_category(&mut self, bit: u8) {
        self.knobs.categories &= !(1 << bit);
    }

    /// Takes one away.
    pub fn also_without(&mut self, feature: Feature) {
        match feature {
            Feature::CapSysNice => self.lacks_capability(23),
            Feature::CapSysPtrace => self.lacks_capability(19),
            Feature::CapSysAdmin => self.lacks_capability(21),
            Feature::CapPerfmon => self.lacks_capability(38),
            Feature::CapBpf => self.lacks_capability(39),
            Feature::CapDacReadSearch => self.lacks_capability(2),
            Feature::CapSysResource => self.lacks_capability(24),
            Feature::PtraceScope => self.put("/fake/proc/sys/kernel/yama/ptrace_scope", "3"),
            Feature::PidfdOpen => self.knobs.pidfd = Some(Errno::NOSYS),
            Feature::RemoteCollapse => self.knobs.collapse = Some(Errno::PERM),
            Feature::CollapsePastHoles => self.knobs.passes_holes = false,
            Feature::CollapseForkShared => self.knobs.collapse_shared = Some(Errno::INVAL),
            Feature::RemoteSplit => self.knobs.cold_splits = false,
            Feature::SplitFreesZero => self.knobs.split_frees = false,
            Feature::Debugfs | Feature::DebugfsSplit => self.remove("/fake/sys/kernel/debug"),
            Feature::Unlocked => self.put(
                "/fake/sys/kernel/security/lockdown",
                "none [integrity] confidentiality",
            ),
            Feature::ExceptAdvised => self.knobs.except_advised = Some(Errno::INVAL),
            Feature::Smaps => self.remove("/fake/proc/77/smaps"),
            Feature::Pagemap => self.remove("/fake/proc/77/pagemap"),
            Feature::PagemapPfn => self.knobs.frames = false,
            Feature::PagemapExclusive => self.knobs.exclusive = false,
            Feature::Kpageflags => self.remove("/fake/proc/kpageflags"),
            Feature::PagemapScan => self.knobs.scan = Some(Errno::NOTTY),
            Feature::ScanWritten => self.lacks_category(1),
            Feature::ScanFile => self.lacks_category(2),
            Feature::ScanPresent => self.lacks_category(3),
            Feature::ScanSwapped => self.lacks_category(4),
            Feature::ScanZero => self.lacks_category(5),
            Feature::ScanHuge => self.lacks_category(6),
            Feature::ScanSoftDirty => self.lacks_category(7),
            Feature::ScanGuard => self.lacks_category(8),
            Feature::ScanAccessed => self.lacks_category(9),
            Feature::SoftDirty => self.knobs.soft_dirty = false,
            Feature::ProcmapQuery => self.knobs.procmap = Some(Errno::NOTTY),
            Feature::ProcessVmReadv => self.knobs.readv = Some(Errno::PERM),
            Feature::Damon => self.remove("/fake/sys/kernel/mm/damon"),
            Feature::DamonFree => {
                self.refuses("state", "on", Errno::BUSY);
                self.put("/fake/sys/module/damon_stat/parameters/enabled", "Y\n");
            }
            Feature::DamonVaddr => self.refuses("operations", "vaddr", Errno::INVAL),
            Feature::DamonFvaddr => self.refuses("operations", "fvaddr", Errno::INVAL),
            Feature::DamonPaddr => self.refuses("operations", "paddr", Errno::INVAL),
            Feature::DamonAggregated => self.knobs.tracefs = Some(Errno::NODEV),
            Feature::DamonTriedRegions => self.remove(
                "/fake/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions",
            ),
            Feature::DamonHugepage => self.refuses("action", "nohugepage", Errno::INVAL),
            Feature::DamonMigrate => self.refuses("action", "migrate_hot", Errno::INVAL),
            Feature::DamonCollapse => self.refuses("action", "collapse", Errno::INVAL),
            Feature::PageIdle => self.remove("/fake/sys/kernel/mm/page_idle"),
            Feature::Nodes => self.put("/fake/sys/devices/system/node/has_memory", "0\n"),
            Feature::MovePagesQuery => self.knobs.query = Some(Errno::NOSYS),
            Feature::MovePages => self.knobs.moving = Some(Errno::PERM),
            Feature::NumaBalancing => self.remove("/fake/proc/sys/kernel/numa_balancing"),
            Feature::WeightedInterleave => self.remove("/fake/sys/kernel/mm/mempolicy"),
            Feature::PerfPageFaults => self.knobs.faults = Some(Errno::ACCESS),
            Feature::PerfHardware => self.knobs.hardware = Some(Errno::NOENT),
            Feature::PerfMemory => self.knobs.memory_sampling = Some(Errno::OPNOTSUPP),
            Feature::Btf => self.remove("/fake/sys/kernel/btf"),
            Feature::BpfFentry => self.knobs.fentry = Some(Errno::PERM),
            Feature::DelayAccounting => self.remove("/fake/proc/sys/kernel/task_delayacct"),
            Feature::ThpEnabled => self.remove(&format!("{THP}/enabled")),
            Feature::ThpDefrag => self.remove(&format!("{THP}/defrag")),
            Feature::ThpShmem => self.remove(&format!("{THP}/shmem_enabled")),
            Feature::KhugepagedQuiet => self.put(&format!("{THP}/enabled"), "[always] never"),
            Feature::UseZeroPage => self.remove(&format!("{THP}/use_zero_page")),
            Feature::ShrinkUnderused => self.remove(&format!("{THP}/shrink_underused")),
            Feature::Mthp => self.remove(&format!("{THP}/hugepages-64kB")),
            Feature::Hugetlb => self.remove("/fake/sys/kernel/mm/hugepages"),
            Feature::CgroupMemory => self.remove("/fake/sys/fs/cgroup/x"),
            Feature::Psi => self.remove("/fake/proc/pressure"),
            Feature::Swap => self.put("/fake/proc/swaps", "Filename Type\n"),
            Feature::VmstatThp => self.put("/fake/proc/vmstat", "nr_free 1\n"),
            Feature::Buddyinfo => self.remove("/fake/proc/buddyinfo"),
            Feature::Compaction => {
                let file = PathBuf::from("/fake/proc/sys/vm/compact_memory");
                self.read_only.insert(file, Errno::ACCESS);
            }
            Feature::MemoryBlocks => self.remove("/fake/sys/devices/system/memory"),
        }
    }
}
