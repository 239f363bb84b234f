//! Every kernel feature that hugepilot may use, in one described table.
//!
//! The table is the only list: probes record findings by [`Feature`], `doctor` prints in its order, and the big table of
//! `docs/kernel.md` is generated from it (a test holds both together). `since` is told to people; no probe reads it.

use serde::{Serialize, Serializer};

/// What a feature is for: the groups of the terminal table, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Capabilities held.
    Privileges,
    /// Collapse and split on another process.
    Acting,
    /// Seeing page tables and contents.
    Looking,
    /// Which memory is used.
    Tracking,
    /// NUMA.
    Placing,
    /// Sampled accesses and faults.
    Sampling,
    /// What the kernel does by itself.
    Settings,
    /// Counters and pressure.
    Accounting,
}

impl Group {
    /// The heading of the group.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Privileges => "Privileges",
            Self::Acting => "Acting on another process",
            Self::Looking => "Looking at memory",
            Self::Tracking => "Tracking use",
            Self::Placing => "Placing on nodes",
            Self::Sampling => "Sampling accesses and faults",
            Self::Settings => "What the kernel does by itself",
            Self::Accounting => "Counters",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// The feature.
    pub feature: Feature,
    /// Its group.
    pub group: Group,
    /// Its name on the wire.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What of hugepilot uses it.
    pub used_by: &'static str,
    /// The first kernel that has it, told to people only.
    pub since: &'static str,
    /// The call or the file.
    pub source: &'static str,
    /// What replaces it where it is absent.
    pub instead: &'static str,
}

macro_rules! features {
    ($($variant:ident, $group:ident, $name:literal, $title:literal {
        used_by: $used_by:literal, since: $since:literal, source: $source:literal, instead: $instead:literal
    })*) => {
        /// A kernel feature that hugepilot may use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature {
            $(#[doc = $title] $variant,)*
        }

        impl Feature {
            /// All of them, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its row of the table.
            #[must_use]
            pub const fn described(self) -> Described {
                match self {
                    $(Self::$variant => Described {
                        feature: Self::$variant,
                        group: Group::$group,
                        name: $name,
                        title: $title,
                        used_by: $used_by,
                        since: $since,
                        source: $source,
                        instead: $instead,
                    },)*
                }
            }
        }
    };
}

features! {
    CapSysNice, Privileges, "cap_sys_nice", "CAP_SYS_NICE" {
        used_by: "collapse and split of other processes",
        since: "2.2", source: "capget(2)",
        instead: "nothing: the main job needs it"
    }
    CapSysPtrace, Privileges, "cap_sys_ptrace", "CAP_SYS_PTRACE" {
        used_by: "processes of other users",
        since: "2.2", source: "capget(2)",
        instead: "run as the target's user: then only its processes are managed"
    }
    CapSysAdmin, Privileges, "cap_sys_admin", "CAP_SYS_ADMIN" {
        used_by: "PFNs in pagemap, DAMON, writing settings as root",
        since: "2.2", source: "capget(2)",
        instead: "no tracker of accessed shares; the main job goes on"
    }
    CapPerfmon, Privileges, "cap_perfmon", "CAP_PERFMON" {
        used_by: "sampling other processes' accesses and faults",
        since: "5.8", source: "capget(2)",
        instead: "CAP_SYS_ADMIN"
    }
    CapBpf, Privileges, "cap_bpf", "CAP_BPF" {
        used_by: "fault latency by fentry",
        since: "5.8", source: "capget(2)",
        instead: "CAP_SYS_ADMIN"
    }
    CapDacReadSearch, Privileges, "cap_dac_read_search", "CAP_DAC_READ_SEARCH" {
        used_by: "reading files of /proc that belong to other users",
        since: "2.2", source: "capget(2)",
        instead: "CAP_SYS_PTRACE suffices for pagemap and maps"
    }
    CapSysResource, Privileges, "cap_sys_resource", "CAP_SYS_RESOURCE" {
        used_by: "benchmarks that lift limits; nothing of the main job",
        since: "2.2", source: "capget(2)",
        instead: "the limits in force"
    }
    PtraceScope, Privileges, "ptrace_scope", "reading memory of processes not our children" {
        used_by: "zero looks, process_madvise",
        since: "3.4 (Yama)", source: "/proc/sys/kernel/yama/ptrace_scope",
        instead: "CAP_SYS_PTRACE, which Yama lets pass below 3"
    }

    PidfdOpen, Acting, "pidfd_open", "a handle that no reused pid can fool" {
        used_by: "every action", since: "5.3", source: "pidfd_open(2)",
        instead: "nothing: the main job needs it"
    }
    RemoteCollapse, Acting, "remote_collapse", "collapse a slot" {
        used_by: "mega, ingens", since: "6.1", source: "process_madvise(2), MADV_COLLAPSE",
        instead: "nothing: the main job needs it"
    }
    CollapsePastHoles, Acting, "collapse_past_holes", "a range collapse passes an untouched slot" {
        used_by: "nothing: hugepilot collapses one slot a call", since: "7.0",
        source: "process_madvise(2), MADV_COLLAPSE",
        instead: "one slot a call"
    }
    CollapseForkShared, Acting, "collapse_fork_shared", "collapse pages shared after a fork" {
        used_by: "nothing: hugepilot never collapses fork-shared slots", since: "between 6.12 and 6.18",
        source: "process_madvise(2), MADV_COLLAPSE",
        instead: "not wanted: the copy doubles the memory"
    }
    RemoteSplit, Acting, "remote_split", "split a huge page" {
        used_by: "mega, ingens", since: "5.10", source: "process_madvise(2), MADV_COLD on one base page",
        instead: "split_huge_pages in debugfs"
    }
    SplitFreesZero, Acting, "split_frees_zero", "a split gives zero-filled base pages back" {
        used_by: "mega: bloat", since: "6.12", source: "process_madvise(2), MADV_COLD on one base page",
        instead: "nothing gives them back from outside; the split itself works"
    }
    Debugfs, Acting, "debugfs", "debugfs reachable" {
        used_by: "debugfs_split", since: "2.6.11", source: "/sys/kernel/debug",
        instead: "MADV_COLD splits without it"
    }
    DebugfsSplit, Acting, "debugfs_split", "split by debugfs, also fork-shared and locked pages" {
        used_by: "nothing yet: the only split to an order above 0 (6.9)", since: "5.13",
        source: "/sys/kernel/debug/split_huge_pages",
        instead: "MADV_COLD, which leaves fork-shared and locked huge pages whole"
    }
    Unlocked, Acting, "unlocked", "kernel not locked down" {
        used_by: "debugfs_split", since: "5.4", source: "/sys/kernel/security/lockdown",
        instead: "MADV_COLD works under lockdown"
    }
    ExceptAdvised, Acting, "except_advised", "THP only by advice or by us, for what we start" {
        used_by: "hugepilot run", since: "6.18",
        source: "prctl(2), PR_SET_THP_DISABLE with PR_THP_DISABLE_EXCEPT_ADVISED",
        instead: "enabled=madvise for the whole system"
    }

    Smaps, Looking, "smaps", "resident and huge bytes of a region" {
        used_by: "doctor, inspect; never in the loop", since: "2.6.14", source: "/proc/PID/smaps",
        instead: "page tables by PAGEMAP_SCAN"
    }
    Pagemap, Looking, "pagemap", "present base pages, one by one" {
        used_by: "sensors where PAGEMAP_SCAN is absent", since: "2.6.25", source: "/proc/PID/pagemap",
        instead: "PAGEMAP_SCAN"
    }
    PagemapPfn, Looking, "pagemap_pfn", "physical page numbers" {
        used_by: "page_idle, DAMON paddr, huge mappings before 6.7", since: "2.6.25",
        source: "/proc/PID/pagemap, bits 0-54",
        instead: "virtual trackers; huge mappings by PAGEMAP_SCAN"
    }
    PagemapExclusive, Looking, "pagemap_exclusive", "pages of one address space alone" {
        used_by: "fork-shared slots are left alone", since: "4.2", source: "/proc/PID/pagemap, bit 56",
        instead: "living forked children, from /proc"
    }
    Kpageflags, Looking, "kpageflags", "flags of a physical page" {
        used_by: "partially mapped huge pages", since: "2.6.25", source: "/proc/kpageflags",
        instead: "the cgroup's counters beside resident size"
    }
    PagemapScan, Looking, "pagemap_scan", "runs of pages in one call" {
        used_by: "sensors: present and huge", since: "6.7", source: "ioctl PAGEMAP_SCAN on /proc/PID/pagemap",
        instead: "pread of pagemap: about twice as dear in base pages, sixty times in huge pages"
    }
    ScanWritten, Looking, "scan_written", "PAGEMAP_SCAN: written" {
        used_by: "nothing: meaningful under userfaultfd only", since: "6.7", source: "PAGE_IS_WRITTEN",
        instead: "soft-dirty"
    }
    ScanFile, Looking, "scan_file", "PAGEMAP_SCAN: file or shared" {
        used_by: "inspect", since: "6.7", source: "PAGE_IS_FILE", instead: "pagemap, bit 61"
    }
    ScanPresent, Looking, "scan_present", "PAGEMAP_SCAN: present" {
        used_by: "sensors", since: "6.7", source: "PAGE_IS_PRESENT", instead: "pagemap, bit 63"
    }
    ScanSwapped, Looking, "scan_swapped", "PAGEMAP_SCAN: swapped" {
        used_by: "the law that swapped slots are left alone", since: "6.7", source: "PAGE_IS_SWAPPED",
        instead: "pagemap, bit 62"
    }
    ScanZero, Looking, "scan_zero", "PAGEMAP_SCAN: shared zero page" {
        used_by: "sensors: such pages do not count as present", since: "6.7", source: "PAGE_IS_PFNZERO",
        instead: "pagemap with PFNs"
    }
    ScanHuge, Looking, "scan_huge", "PAGEMAP_SCAN: huge mapping" {
        used_by: "sensors; verifying every action", since: "6.7", source: "PAGE_IS_HUGE",
        instead: "kpageflags, else smaps"
    }
    ScanSoftDirty, Looking, "scan_soft_dirty", "PAGEMAP_SCAN: soft-dirty" {
        used_by: "nothing yet", since: "6.7", source: "PAGE_IS_SOFT_DIRTY", instead: "pagemap, bit 55"
    }
    ScanGuard, Looking, "scan_guard", "PAGEMAP_SCAN: guard page" {
        used_by: "inspect", since: "6.15", source: "PAGE_IS_GUARD",
        instead: "guard pages look untouched; a collapse over them fails"
    }
    ScanAccessed, Looking, "scan_accessed", "PAGEMAP_SCAN: accessed" {
        used_by: "nothing yet: needs userfaultfd in the target", since: "7.3", source: "PAGE_IS_ACCESSED",
        instead: "DAMON, page_idle"
    }
    SoftDirty, Looking, "soft_dirty", "pages written since a mark" {
        used_by: "nothing yet", since: "3.11 (CONFIG_MEM_SOFT_DIRTY)",
        source: "/proc/PID/clear_refs, /proc/PID/pagemap bit 55",
        instead: "nothing"
    }
    ProcmapQuery, Looking, "procmap_query", "one region without text" {
        used_by: "sensors", since: "6.11", source: "ioctl PROCMAP_QUERY on /proc/PID/maps",
        instead: "reading /proc/PID/maps"
    }
    ProcessVmReadv, Looking, "process_vm_readv", "reading another process's memory" {
        used_by: "mega: zero looks", since: "3.2", source: "process_vm_readv(2)",
        instead: "a probe split, from 6.12"
    }

    Damon, Tracking, "damon", "DAMON's sysfs" {
        used_by: "mega: accessed share", since: "5.18", source: "/sys/kernel/mm/damon/admin",
        instead: "page_idle"
    }
    DamonFree, Tracking, "damon_free", "DAMON can be switched on" {
        used_by: "mega: accessed share", since: "5.18",
        source: "/sys/kernel/mm/damon/admin/kdamonds/0/state",
        instead: "page_idle"
    }
    DamonVaddr, Tracking, "damon_vaddr", "DAMON on virtual addresses" {
        used_by: "mega: accessed share below the slot", since: "5.15 (CONFIG_DAMON_VADDR)",
        source: "kdamonds/0/contexts/0/operations",
        instead: "page_idle"
    }
    DamonFvaddr, Tracking, "damon_fvaddr", "DAMON on fixed virtual ranges" {
        used_by: "mega: one region a slot; explicit huge-page advice", since: "5.19 (CONFIG_DAMON_VADDR)",
        source: "kdamonds/0/contexts/0/operations",
        instead: "page_idle"
    }
    DamonPaddr, Tracking, "damon_paddr", "DAMON on physical addresses" {
        used_by: "mega: a huge slot's own accessed bit", since: "5.16 (CONFIG_DAMON_PADDR)",
        source: "kdamonds/0/contexts/0/operations",
        instead: "DAMON on virtual addresses"
    }
    DamonAggregated, Tracking, "damon_aggregated", "DAMON's counts, by its tracepoint" {
        used_by: "mega: accessed share", since: "5.15",
        source: "tracefs events/damon/damon_aggregated, perf_event_open(2)",
        instead: "page_idle"
    }
    DamonTriedRegions, Tracking, "damon_tried_regions", "DAMON's numbers by region" {
        used_by: "nothing: the tracepoint costs less", since: "6.2",
        source: "schemes/0/tried_regions with action stat",
        instead: "the tracepoint damon_aggregated"
    }
    DamonHugepage, Tracking, "damon_hugepage", "huge-page advice on somebody else's region" {
        used_by: "an explicit flag only: there is no way back to neutral", since: "5.15",
        source: "schemes/0/action: hugepage, nohugepage",
        instead: "nothing from outside"
    }
    DamonMigrate, Tracking, "damon_migrate", "DAMON moves hot or cold memory" {
        used_by: "nothing yet", since: "6.11; by virtual address 6.17",
        source: "schemes/0/action: migrate_hot, migrate_cold",
        instead: "move_pages"
    }
    DamonCollapse, Tracking, "damon_collapse", "DAMON collapses" {
        used_by: "nothing: MADV_COLLAPSE tells its outcome", since: "7.2",
        source: "schemes/0/action: collapse",
        instead: "MADV_COLLAPSE"
    }
    PageIdle, Tracking, "page_idle", "idle page tracking" {
        used_by: "mega: accessed share", since: "4.3 (CONFIG_IDLE_PAGE_TRACKING)",
        source: "/sys/kernel/mm/page_idle/bitmap",
        instead: "DAMON on virtual addresses"
    }

    Nodes, Placing, "nodes", "several NUMA nodes with memory" {
        used_by: "NUMA policies", since: "2.6", source: "/sys/devices/system/node",
        instead: "nothing to place"
    }
    MovePagesQuery, Placing, "move_pages_query", "asking where a page lies" {
        used_by: "sensors: node of pages", since: "2.6.18", source: "move_pages(2) without nodes",
        instead: "/proc/PID/numa_maps, by region"
    }
    MovePages, Placing, "move_pages", "moving a page" {
        used_by: "NUMA policies", since: "2.6.18", source: "move_pages(2)",
        instead: "migrate_pages(2): the whole process"
    }
    NumaBalancing, Placing, "numa_balancing", "the kernel's hinting faults can be switched" {
        used_by: "NUMA policies: who accesses what", since: "3.8 (CONFIG_NUMA_BALANCING)",
        source: "/proc/sys/kernel/numa_balancing",
        instead: "hardware memory sampling"
    }
    WeightedInterleave, Placing, "weighted_interleave", "weights of nodes" {
        used_by: "nothing yet: new allocations only", since: "6.9",
        source: "/sys/kernel/mm/mempolicy/weighted_interleave",
        instead: "move_pages, round-robin"
    }

    PerfPageFaults, Sampling, "perf_page_faults", "each page fault of another process, with its address" {
        used_by: "who touches what: first touches, hinting faults", since: "2.6.32",
        source: "perf_event_open(2), PERF_COUNT_SW_PAGE_FAULTS",
        instead: "fault counters of /proc/PID/stat, without addresses"
    }
    PerfHardware, Sampling, "perf_hardware", "hardware counters" {
        used_by: "conservative: L2 misses by page walks", since: "2.6.31",
        source: "perf_event_open(2), PERF_TYPE_HARDWARE",
        instead: "nothing: those policies are blind on it"
    }
    PerfMemory, Sampling, "perf_memory", "sampled memory accesses: PEBS loads or IBS op" {
        used_by: "carrefour, reactive", since: "3.10 (PEBS), 3.5 (IBS)",
        source: "perf_event_open(2), events of /sys/bus/event_source/devices",
        instead: "hinting faults, which tell who and not how often"
    }
    Btf, Sampling, "btf", "the kernel's types" {
        used_by: "bpf_fentry", since: "5.4 (CONFIG_DEBUG_INFO_BTF)", source: "/sys/kernel/btf/vmlinux",
        instead: "nothing"
    }
    BpfFentry, Sampling, "bpf_fentry", "a program at the entry of handle_mm_fault" {
        used_by: "time in page faults", since: "5.5", source: "bpf(2), BPF_PROG_TYPE_TRACING",
        instead: "delay accounting, fault counters"
    }
    DelayAccounting, Sampling, "delay_accounting", "time that tasks wait for memory" {
        used_by: "time in page faults, without BPF", since: "5.14 (sysctl)",
        source: "/proc/sys/kernel/task_delayacct",
        instead: "pressure stall information"
    }

    ThpEnabled, Settings, "thp_enabled", "the system's THP switch" {
        used_by: "linux: baselines", since: "2.6.38",
        source: "/sys/kernel/mm/transparent_hugepage/enabled",
        instead: "nothing: no THP in this kernel"
    }
    ThpDefrag, Settings, "thp_defrag", "whether faults wait for compaction" {
        used_by: "linux: baselines", since: "2.6.38",
        source: "/sys/kernel/mm/transparent_hugepage/defrag",
        instead: "nothing"
    }
    ThpShmem, Settings, "thp_shmem", "huge pages for shared memory" {
        used_by: "inspect; deny forbids collapses of shared memory", since: "4.8",
        source: "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        instead: "nothing"
    }
    KhugepagedQuiet, Settings, "khugepaged_quiet", "khugepaged leaves splits alone" {
        used_by: "mega, ingens: what was split stays split", since: "2.6.38",
        source: "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
        instead: "enabled=madvise or never; reported where it may undo"
    }
    UseZeroPage, Settings, "use_zero_page", "reads of untouched memory map a huge zero page" {
        used_by: "inspect", since: "3.8", source: "/sys/kernel/mm/transparent_hugepage/use_zero_page",
        instead: "nothing"
    }
    ShrinkUnderused, Settings, "shrink_underused", "the kernel splits zero-filled huge pages under pressure" {
        used_by: "inspect", since: "6.12", source: "/sys/kernel/mm/transparent_hugepage/shrink_underused",
        instead: "mega's own splits"
    }
    Mthp, Settings, "mthp", "THP sizes below the slot" {
        used_by: "inspect", since: "6.8",
        source: "/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled",
        instead: "base pages and slots only"
    }
    Hugetlb, Settings, "hugetlb", "hugetlb pools" {
        used_by: "inspect, pool", since: "2.6.27", source: "/sys/kernel/mm/hugepages",
        instead: "THP"
    }

    CgroupMemory, Accounting, "cgroup_memory", "counters of our memory cgroup" {
        used_by: "headroom before a collapse; memory given back", since: "4.5 (v2)",
        source: "/proc/self/cgroup, memory.current or memory.usage_in_bytes",
        instead: "the machine's free memory"
    }
    Psi, Accounting, "psi", "memory pressure" {
        used_by: "collapses stop under pressure", since: "4.20 (CONFIG_PSI)", source: "/proc/pressure/memory",
        instead: "free memory and cgroup counters"
    }
    Swap, Accounting, "swap", "swap space" {
        used_by: "nothing: slots with swapped pages are left alone", since: "1.0", source: "/proc/swaps",
        instead: "none needed"
    }
    VmstatThp, Accounting, "vmstat_thp", "the kernel's counters of huge pages" {
        used_by: "linux: baselines; bench", since: "2.6.38", source: "/proc/vmstat, thp_*",
        instead: "per-process page tables"
    }
    Buddyinfo, Accounting, "buddyinfo", "free blocks by order" {
        used_by: "compaction, back-off", since: "2.6", source: "/proc/buddyinfo",
        instead: "outcomes of collapses"
    }
    Compaction, Accounting, "compaction", "compacting memory on demand" {
        used_by: "mega, ingens, once compaction is built", since: "2.6.35",
        source: "/proc/sys/vm/compact_memory, /sys/devices/system/node/nodeN/compact",
        instead: "compaction inside each collapse"
    }
    MemoryBlocks, Accounting, "memory_blocks", "physical blocks that can be evacuated" {
        used_by: "mega, once compaction is built", since: "2.6.24 (CONFIG_MEMORY_HOTREMOVE)",
        source: "/sys/devices/system/memory/memoryN/state",
        instead: "compaction by node"
    }
}

impl Feature {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.described().name
    }
}

impl Serialize for Feature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The table as Markdown, for `docs/kernel.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::new();
    let mut group = None;
    for feature in Feature::ALL {
        let row = feature.described();
        if group != Some(row.group) {
            group = Some(row.group);
            text.push_str(&format!(
                "\n### {}\n\n| name | what | used by | since | call or file | where absent |\n| --- | --- | --- | --- | --- | --- |\n",
                row.group.title()
            ));
        }
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            row.name, row.title, row.used_by, row.since, row.source, row.instead
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn names_are_unique_and_groups_are_in_order() {
        let names: BTreeSet<_> = Feature::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Feature::ALL.len());
        let groups: Vec<_> = Feature::ALL.iter().map(|f| f.described().group).collect();
        assert!(groups.is_sorted());
    }

    /// `docs/kernel.md` holds the table of `support::feature`. `HUGEPILOT_BLESS=1` writes it.
    #[test]
    fn the_document_has_the_table() {
        const START: &str =
            "<!-- features: generated, see crates/linux/src/support/feature.rs -->\n";
        const END: &str = "<!-- end of features -->";
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kernel.md");
        let text = std::fs::read_to_string(&file).expect("docs/kernel.md");
        let (head, rest) = text.split_once(START).expect("the start marker");
        let (_, tail) = rest.split_once(END).expect("the end marker");
        let wanted = format!("{head}{START}{}\n{END}{tail}", markdown());
        if std::env::var_os("HUGEPILOT_BLESS").is_some() {
            std::fs::write(&file, &wanted).expect("docs/kernel.md is writable");
        } else {
            assert!(text == wanted, "stale: run with HUGEPILOT_BLESS=1");
        }
    }
}
