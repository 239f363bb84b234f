//! Looking at a process once, thoroughly: `smaps`, `numa_maps`, all its page tables, the folios behind them.
//!
//! This is too dear for a loop: the kernel walks all page tables several times. A piece at a time is read, so that the
//! target's lock is free in between, and progress can be shown.

use super::census::{Census, Makeup, Partial, Region};
use super::folios::Folios;
use super::numa_maps;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, Pid, ProcessId};
use hugepilot_core::observation::{CgroupObserved, MemoryKind};
use hugepilot_core::units::{BasePages, Bytes};
use hugepilot_linux::procfs::pagemap::PageEntry;
use hugepilot_linux::procfs::{ProcRoot, read, smaps, understood};
use hugepilot_linux::sensors::cgroups::Cgroups;
use hugepilot_linux::sensors::page_tables::{ClassRun, Expecting, Method, PageClass, PageTables};
use hugepilot_linux::sensors::regions::{Devices, place};
use hugepilot_linux::sensors::watched::Watched;
use hugepilot_linux::sys::{Errno, time};
use std::fs::File;

/// Slots that are read between two looks at the progress: 128 MiB.
const PIECE_SLOTS: u64 = 64;

/// Reads everything; `progress` is told how much of the address space that may hold something was read, and of how much.
///
/// # Errors
/// If the process is gone, or we may not look at it.
pub fn census(
    pid: Pid,
    geometry: Geometry,
    progress: &mut dyn FnMut(Bytes, Bytes),
) -> anyhow::Result<Census> {
    let root = ProcRoot::default();
    let mut watched =
        Watched::open(&root, pid, time::since_boot()).map_err(|error| explain(pid, error))?;
    watched
        .read_status(&root, time::since_boot())
        .map_err(|error| explain(pid, error))?;
    let mut blind = Vec::new();
    let regions = regions(&root, watched.id, &mut blind)?;
    let mut reader = Reader::new(&root, geometry);
    blind.extend(reader.blind());
    let whole: Bytes = regions
        .iter()
        .filter(|region| is_read(region))
        .map(length)
        .sum();
    let mut done = Bytes::ZERO;
    let mut read_regions = Vec::with_capacity(regions.len());
    for mut region in regions {
        if is_read(&region) {
            let begun = done;
            let outcome = reader.region(&watched.pagemap, &mut region, &mut |read| {
                progress(begun + read, whole)
            });
            match outcome {
                Ok(()) => {}
                Err(Errno::SRCH) => anyhow::bail!("process {pid} ended while it was looked at"),
                Err(errno) => blind.push(format!(
                    "the page tables of {:#x} cannot be read: {errno}",
                    region.start
                )),
            }
            done += length(&region);
        }
        read_regions.push(region);
    }
    Ok(Census {
        geometry,
        process: watched.id,
        comm: watched.comm.clone(),
        thp: watched.thp,
        regions: read_regions,
        cgroup: cgroup(&root, pid, &mut blind),
        blind,
    })
}

/// What went wrong, with what would help.
fn explain(pid: Pid, error: hugepilot_linux::error::Error) -> anyhow::Error {
    if error.is_gone() {
        return anyhow::anyhow!("there is no process {pid}; `ps -e` lists those there are");
    }
    anyhow::Error::new(error).context(format!(
        "cannot look at process {pid}; run it as its owner or with CAP_SYS_PTRACE (sudo)"
    ))
}

fn length(region: &Region) -> Bytes {
    Bytes(region.end - region.start)
}

/// May the region's page tables hold anything that they tell more of than `smaps` did?
fn is_read(region: &Region) -> bool {
    let makeup = &region.makeup;
    let of_pages = match region.kind {
        MemoryKind::Anonymous | MemoryKind::Shmem | MemoryKind::File => true,
        MemoryKind::Hugetlb | MemoryKind::Special => false,
    };
    of_pages && makeup.resident + makeup.swapped > Bytes::ZERO
}

/// All regions, as `smaps` and `numa_maps` tell of them.
fn regions(
    root: &ProcRoot,
    process: ProcessId,
    blind: &mut Vec<String>,
) -> anyhow::Result<Vec<Region>> {
    let pid = process.pid;
    let mut devices = Devices::detect(root)?;
    if let Err(error) = devices.learn(root, pid) {
        blind.push(format!(
            "some files may be told wrongly from shared memory: {error}"
        ));
    }
    let path = root.process(pid, "smaps");
    let text = read(&path).map_err(|error| explain(pid, error))?;
    let parsed = understood(&path, smaps::parse(&text))?;
    let numa = match std::fs::read_to_string(root.process(pid, "numa_maps")) {
        Ok(text) => numa_maps::parse(&text),
        Err(error) => {
            blind.push(format!(
                "the nodes of pages are not known: numa_maps cannot be read ({error})"
            ));
            Default::default()
        }
    };
    let regions = parsed.iter().map(|seen| {
        let mut region = region(process, seen, &devices);
        region.makeup.nodes = numa
            .get(&region.start)
            .cloned()
            .into_iter()
            .flatten()
            .collect();
        region
    });
    Ok(regions.collect())
}

fn region(process: ProcessId, seen: &smaps::Region<'_>, devices: &Devices) -> Region {
    let placed = place(process, &seen.entry, devices);
    let kind = if seen.flags.hugetlb {
        MemoryKind::Hugetlb
    } else {
        placed.mapping.kind
    };
    let length = Bytes(seen.entry.end - seen.entry.start);
    let when = |flag: bool| if flag { length } else { Bytes::ZERO };
    let shared = matches!(placed.object, ObjectId::Shared { .. });
    let private_anonymous = !shared && kind == MemoryKind::Anonymous;
    let usage = seen.usage;
    Region {
        start: seen.entry.start,
        end: seen.entry.end,
        name: String::from_utf8_lossy(seen.entry.name).into_owned(),
        kind,
        shared,
        makeup: Makeup {
            mapped: length,
            resident: usage.resident,
            swapped: usage.swapped,
            locked: usage.locked,
            fork_shared: if private_anonymous {
                usage.shared
            } else {
                Bytes::ZERO
            },
            hugetlb: usage.shared_hugetlb + usage.private_hugetlb,
            advised_against: when(seen.flags.no_huge_page),
            advised_for: when(seen.flags.huge_page),
            ..Makeup::default()
        },
    }
}

/// The counters of the process's memory cgroup.
fn cgroup(root: &ProcRoot, pid: Pid, blind: &mut Vec<String>) -> Option<CgroupObserved> {
    let mut told = Vec::new();
    let found = Cgroups::detect(root).and_then(|mut cgroups| {
        let found = cgroups.of(root, pid)?;
        cgroups.observe(time::since_boot(), &mut told)?;
        Ok(found)
    });
    match found {
        Ok(Some(_)) => told.pop(),
        Ok(None) => {
            blind.push("the process is in no memory cgroup that can be seen from here".to_owned());
            None
        }
        Err(error) => {
            blind.push(format!("its cgroup's counters are not known: {error}"));
            None
        }
    }
}

/// Reads page tables and folios.
struct Reader {
    tables: PageTables,
    folios: Option<Folios>,
    geometry: Geometry,
}

/// One slot while its piece is read.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    base: u64,
    huge: u64,
}

impl Reader {
    fn new(root: &ProcRoot, geometry: Geometry) -> Self {
        let tables = PageTables::probe(root, geometry);
        let folios = Folios::open(&geometry).filter(|_| tables.frames().visible());
        Self {
            tables,
            folios,
            geometry,
        }
    }

    fn blind(&self) -> Vec<String> {
        let mut blind = Vec::new();
        if self.folios.is_none() {
            blind.push("orders below the slot's and partially mapped huge pages are not known: page frames are hidden; run it with CAP_SYS_ADMIN (sudo)".to_owned());
        }
        if self.tables.method() == Method::Read {
            blind.push("which slots are mapped huge is not known: this kernel has no PAGEMAP_SCAN (Linux 6.7) and page frames are hidden; run it with sudo".to_owned());
        }
        blind
    }

    fn region(
        &mut self,
        pagemap: &File,
        region: &mut Region,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<(), Errno> {
        let slot = self.geometry.slot().0;
        if self.folios.is_some() {
            region.makeup.partial = Some(Partial::default());
        }
        let mut at = region.start;
        while at < region.end {
            let stop = ((at / slot + PIECE_SLOTS) * slot).min(region.end);
            self.piece(pagemap, (at, stop), region)?;
            progress(Bytes(stop - region.start));
            at = stop;
        }
        Ok(())
    }

    /// Reads the addresses `piece.0 .. piece.1` of a region.
    fn piece(
        &mut self,
        pagemap: &File,
        piece: (u64, u64),
        region: &mut Region,
    ) -> Result<(), Errno> {
        let (start, stop) = piece;
        let (geometry, slot) = (self.geometry, self.geometry.slot().0);
        let first = start / slot;
        let mut slots =
            vec![Slot::default(); usize::try_from(stop.div_ceil(slot) - first).expect("few")];
        let makeup = &mut region.makeup;
        self.tables
            .read(pagemap, start, stop, Expecting::Base, |run| {
                let pages = BasePages((run.end - run.start) >> geometry.base_shift);
                match run.class {
                    PageClass::Base | PageClass::Huge => add(&mut slots, first, &run, &geometry),
                    PageClass::Zero => makeup.zero_mapped += pages,
                    PageClass::Swapped => {} // `smaps` told it.
                }
            })?;
        for (index, held) in (first..).zip(&slots) {
            let address = index * slot;
            let whole = address >= region.start && address + slot <= region.end;
            if whole && held.huge > 0 {
                makeup.slots.huge += 1;
            } else if whole {
                makeup
                    .slots
                    .add(BasePages(held.base), geometry.slot_pages());
            }
            if held.huge > 0 {
                *makeup.orders.entry(geometry.slot_order).or_default() += BasePages(held.huge);
            }
            if held.base > 0 {
                self.base_pages(
                    pagemap,
                    address,
                    (region.start, region.end),
                    makeup,
                    held.base,
                )?;
            }
        }
        Ok(())
    }

    /// Tells the orders of the folios behind a slot's base mappings, and which huge pages it maps in part.
    fn base_pages(
        &mut self,
        pagemap: &File,
        address: u64,
        region: (u64, u64),
        makeup: &mut Makeup,
        base: u64,
    ) -> Result<(), Errno> {
        let Some(folios) = &mut self.folios else {
            makeup.order_unknown += BasePages(base);
            return Ok(());
        };
        let page = self.geometry.base_page().0;
        let all = self.tables.slot_entries(pagemap, address)?;
        let entries: Vec<PageEntry> = (address..)
            .step_by(usize::try_from(page).expect("a page fits the address space"))
            .zip(all)
            .filter(|(at, _)| (region.0..region.1).contains(at))
            .map(|(_, entry)| entry)
            .collect();
        for frame in entries
            .iter()
            .filter(|entry| entry.present())
            .filter_map(|entry| entry.frame())
        {
            match folios.order_of(frame) {
                Ok(None) => {} // The zero page, which was counted above.
                Ok(Some(order)) if order >= self.geometry.slot_order => {
                    makeup.huge_by_base += BasePages(1)
                }
                Ok(Some(order)) => *makeup.orders.entry(order).or_default() += BasePages(1),
                Err(_not_shown) => makeup.order_unknown += BasePages(1),
            }
        }
        if let (Some(partial), Some(found)) = (
            &mut makeup.partial,
            self.tables.frames().partially_mapped(&entries),
        ) {
            partial.folios += u64::try_from(found.len()).expect("at most the slot's pages");
            partial.unmapped += found.iter().map(|folio| BasePages(folio.unmapped)).sum();
        }
        Ok(())
    }
}

/// Adds a run of present pages to its slots, from slot `first` on.
fn add(slots: &mut [Slot], first: u64, run: &ClassRun, geometry: &Geometry) {
    let slot = geometry.slot().0;
    let mut at = run.start;
    while at < run.end {
        let stop = ((at / slot + 1) * slot).min(run.end);
        let held = usize::try_from(at / slot - first)
            .ok()
            .and_then(|index| slots.get_mut(index));
        if let Some(held) = held {
            let pages = (stop - at) >> geometry.base_shift;
            match run.class {
                PageClass::Huge => held.huge += pages,
                PageClass::Base => held.base += pages,
                PageClass::Zero | PageClass::Swapped => {}
            }
        }
        at = stop;
    }
}
