//! One watched process: its open files, its last numbers, its regions.
//!
//! The files stay open, so that a poll is one `pread` and means this process, never a later one with its id: an open
//! file below `/proc/PID` answers `ESRCH` once the process is reaped. A file of its memory (`maps`, `pagemap`) goes on to
//! mean the address space it was opened on; after an exec that one is dead and the files are opened anew.

use super::bound::Bound;
use super::consents::Consents;
use super::regions::{Devices, Placed, place};
use crate::error::Error;
use crate::procfs::stat::{self, Layout, Stat};
use crate::procfs::{ProcRoot, maps, read, rest_of, status, understood};
use crate::sys::maps::region_at;
use crate::sys::process::{pidfd_alive, pidfd_open};
use crate::sys::{Errno, errno_of};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{CgroupId, NodeId, Pid, ProcessId};
use hugepilot_core::observation::{ProcessObserved, ThpConsent};
use hugepilot_core::units::{Bytes, Instant, Span};
use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// An active process is polled so often; a poll costs some ten microseconds.
const POLL_PERIOD_MIN: Span = Span::millis(100);
/// An idle one so seldom, while there are few of them.
const IDLE_PERIOD_MIN: Span = Span::secs(8);
/// All idle ones together are polled no more often than one in this time: however many they are, they cost a fifth of a
/// thousandth of a core.
const IDLE_POLL_EVERY: Span = Span::millis(80);
/// An idle one is polled at least so often.
const IDLE_PERIOD_MAX: Span = Span::secs(60);
/// Regions are read again after this long, whatever the address space's size says.
const REGIONS_PERIOD_MAX: Span = Span::secs(60);
/// Regions of a process that faults are read again after this long: mappings may change at equal size.
const REGIONS_PERIOD_ACTIVE: Span = Span::secs(2);
/// Regions are never read more often than this.
const REGIONS_PERIOD_MIN: Span = Span::millis(250);
/// A `stat` file is at most so long: 52 numbers of 20 digits and a name.
const STAT_BYTES_MAX: usize = 2048;

/// Did anybody whom we watch do anything lately?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Somebody faulted, or changed in size.
    Some,
    /// Nobody.
    None,
}

/// How far a region reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The address past its last byte.
    pub end: u64,
    /// The size of its pages, where the kernel says.
    pub page: Option<Bytes>,
}

/// How long the wait between two polls of an idle process may grow where `watched` are watched.
#[must_use]
pub fn idle_period(watched: usize) -> Span {
    let each = u64::try_from(watched).unwrap_or(u64::MAX);
    Span(IDLE_POLL_EVERY.0.saturating_mul(each)).clamp(IDLE_PERIOD_MIN, IDLE_PERIOD_MAX)
}

/// What a poll brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Polled {
    /// Nothing happened since the last poll.
    Idle,
    /// It faulted, or its size changed.
    Active,
    /// It runs another program now: everything known of its memory is void.
    Replaced,
    /// It ended.
    Gone,
}

/// One watched process.
#[derive(Debug)]
pub struct Watched {
    /// Which.
    pub id: ProcessId,
    /// Its short name.
    pub comm: String,
    /// Its memory cgroup, where known.
    pub cgroup: Option<CgroupId>,
    /// Did it opt out of THP?
    pub thp: ThpConsent,
    /// Living processes that share its memory copy-on-write.
    pub forked_children: u32,
    /// The process whose address space it has too, if it is not the first of them.
    pub memory_of: Option<Pid>,
    /// Resident memory.
    pub resident: Bytes,
    /// When it should be polled next.
    pub poll_due: Instant,
    /// Its page tables.
    pub pagemap: File,
    /// Its regions, as part of objects.
    pub regions: Vec<Placed>,
    layout: Layout,
    pidfd: OwnedFd,
    stat: File,
    maps: File,
    poll_period: Span,
    faults: u64,
    counted_at: Instant,
    address_space: u64,
    regions_of_size: Option<u64>,
    regions_at: Instant,
    active_since_regions: bool,
    status_at: Instant,
    consents: Consents,
    bound: Bound,
    nodes_allowed: Option<Vec<NodeId>>,
}

impl Watched {
    /// Opens the files of process `pid`.
    ///
    /// # Errors
    /// If it is gone (see [`Error::is_gone`]) or we may not.
    pub fn open(root: &ProcRoot, pid: Pid, now: Instant) -> Result<Self, Error> {
        let pidfd = pidfd_open(pid).map_err(|source| Error::Call {
            call: "pidfd_open",
            source,
        })?;
        let path = root.process(pid, "stat");
        let stat_file = open(path.clone())?;
        let stat = understood(&path, stat::parse(&read_stat(&stat_file, &path)?))?;
        let maps = open(root.process(pid, "maps"))?;
        let pagemap = open(root.process(pid, "pagemap"))?;
        let watched = Self {
            id: ProcessId {
                pid,
                start_ticks: stat.start_ticks,
            },
            comm: stat.comm.clone(),
            cgroup: None,
            thp: ThpConsent::Allowed,
            forked_children: 0,
            memory_of: None,
            resident: Bytes::ZERO,
            poll_due: now,
            pagemap,
            regions: Vec::new(),
            layout: stat.layout,
            pidfd,
            stat: stat_file,
            maps,
            poll_period: POLL_PERIOD_MIN,
            faults: stat.faults(),
            counted_at: now,
            address_space: stat.address_space,
            regions_of_size: None,
            regions_at: now,
            active_since_regions: true,
            status_at: now,
            consents: Consents::default(),
            bound: Bound::default(),
            nodes_allowed: None,
        };
        // Alive after its files were opened: they are all of this process.
        if watched.alive() {
            Ok(watched)
        } else {
            Err(Error::Call {
                call: "pidfd_open",
                source: rustix::io::Errno::SRCH,
            })
        }
    }

    /// Does it still run? Where the kernel does not say, it does; the next call on it will tell.
    #[must_use]
    pub fn alive(&self) -> bool {
        pidfd_alive(self.pidfd.as_fd()).unwrap_or(true)
    }

    /// The descriptor that means this process and no other.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The region that holds `address` now, if one does.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn region_at(&self, address: u64) -> Result<Option<Extent>, Errno> {
        match region_at(self.maps.as_fd(), address) {
            Ok(region) => Ok(region.map(|region| Extent {
                end: region.end,
                page: Some(region.page),
            })),
            // A kernel before 6.11 prints all regions, or none.
            Err(Errno::NOTTY) => self.printed_region_at(address),
            Err(errno) => Err(errno),
        }
    }

    fn printed_region_at(&self, address: u64) -> Result<Option<Extent>, Errno> {
        let text = read_all(&self.maps).map_err(|error| errno_of(&error))?;
        let Ok(regions) = maps::parse(&text) else {
            return Err(Errno::ILSEQ);
        };
        let region = regions
            .iter()
            .find(|region| region.start <= address && address < region.end);
        Ok(region.map(|region| Extent {
            end: region.end,
            page: None,
        }))
    }

    /// Reads its counters. The numbers of the interval come too, unless it is gone. While it is idle, the wait for the
    /// next poll doubles up to `idle_period`.
    ///
    /// # Errors
    /// If its `stat` is not as we know it.
    pub fn poll(
        &mut self,
        root: &ProcRoot,
        geometry: &Geometry,
        now: Instant,
        idle_period: Span,
    ) -> Result<(Polled, Option<ProcessObserved>), Error> {
        let path = root.process(self.id.pid, "stat");
        let text = match read_stat(&self.stat, &path) {
            Ok(text) => text,
            Err(error) if error.is_gone() => return Ok((Polled::Gone, None)),
            Err(error) => return Err(error),
        };
        let stat = understood(&path, stat::parse(&text))?;
        if !stat.runs() {
            return Ok((Polled::Gone, None));
        }
        let (polled, observed) = self.take(&stat, geometry, now);
        self.schedule(&polled, now, idle_period);
        Ok((polled, Some(observed)))
    }

    fn take(
        &mut self,
        stat: &Stat,
        geometry: &Geometry,
        now: Instant,
    ) -> (Polled, ProcessObserved) {
        let replaced = stat.layout != self.layout;
        let faults = stat.faults().saturating_sub(self.faults);
        let resident = Bytes(stat.resident_pages << geometry.base_shift);
        let quiet =
            faults == 0 && resident == self.resident && stat.address_space == self.address_space;
        let over = now.since(self.counted_at);
        self.comm.clone_from(&stat.comm);
        self.layout = stat.layout;
        self.faults = stat.faults();
        self.counted_at = now;
        self.resident = resident;
        self.address_space = stat.address_space;
        let polled = match (replaced, quiet) {
            (true, _) => Polled::Replaced,
            (false, true) => Polled::Idle,
            (false, false) => Polled::Active,
        };
        (polled, self.observed(faults, over))
    }

    /// As an observation says it.
    #[must_use]
    pub fn observed(&self, faults: u64, over: Span) -> ProcessObserved {
        ProcessObserved {
            process: self.id,
            comm: self.comm.clone(),
            cgroup: self.cgroup,
            thp: self.thp,
            forked_children: self.forked_children,
            resident: self.resident,
            faults,
            over,
            l2_misses: None,
            l2_misses_by_walks: None,
            fault_time_share_max: None,
            nodes_allowed: self.nodes_allowed.clone(),
        }
    }

    fn schedule(&mut self, polled: &Polled, now: Instant, idle_period: Span) {
        self.poll_period = match polled {
            Polled::Idle => Span((self.poll_period.0 * 2).min(idle_period.0)),
            Polled::Active | Polled::Replaced | Polled::Gone => {
                self.active_since_regions = true;
                POLL_PERIOD_MIN
            }
        };
        self.poll_due = now.after(self.poll_period);
    }

    /// Should its regions be read?
    #[must_use]
    pub fn regions_due(&self, now: Instant) -> bool {
        let age = now.since(self.regions_at);
        match self.regions_of_size {
            None => true,
            Some(size) if size != self.address_space => age >= REGIONS_PERIOD_MIN,
            Some(_) if self.active_since_regions => age >= REGIONS_PERIOD_ACTIVE,
            Some(_) => age >= REGIONS_PERIOD_MAX,
        }
    }

    /// Reads its regions. Did they change?
    ///
    /// # Errors
    /// If they cannot be read or understood; see [`Error::is_gone`].
    pub fn read_regions(
        &mut self,
        root: &ProcRoot,
        devices: &mut Devices,
        now: Instant,
    ) -> Result<bool, Error> {
        let path = root.process(self.id.pid, "maps");
        let text = read_all(&self.maps).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        let entries = understood(&path, maps::parse(&text))?;
        for entry in &entries {
            if devices.is_foreign(entry) {
                devices.learn(root, self.id.pid)?;
                devices.give_up(entry.device);
            }
        }
        self.consents.forget_old(now);
        let regions = entries
            .iter()
            .map(|entry| self.consents.marked(place(self.id, entry, devices)))
            .map(|placed| self.marked_if_bound(placed))
            .collect();
        self.regions_of_size = Some(self.address_space);
        self.regions_at = now;
        self.active_since_regions = false;
        let before = std::mem::replace(&mut self.regions, regions);
        Ok(before != self.regions)
    }

    /// The region at `address` is advised against THP: leave it alone for a while.
    pub fn note_opted_out(&mut self, address: u64, now: Instant) {
        let region = self.regions.iter_mut().find(|placed| placed.holds(address));
        if let Some(placed) = region {
            placed.mapping.excluded = true;
            self.consents.refused(placed, now);
        }
    }

    /// The region that held `address` when regions were last read. (They are in the order of their addresses.)
    #[must_use]
    pub fn placed_at(&self, address: u64) -> Option<&Placed> {
        let after = self
            .regions
            .partition_point(|placed| placed.mapping.address <= address);
        let placed = self.regions.get(after.checked_sub(1)?)?;
        placed.holds(address).then_some(placed)
    }

    fn marked_if_bound(&self, mut placed: Placed) -> Placed {
        let mapping = &mut placed.mapping;
        mapping.placement_fixed = self
            .bound
            .touches(mapping.address, mapping.address + mapping.length.0);
        placed
    }

    /// The regions that begin at these addresses are bound to nodes. Did that change anything?
    pub fn set_bound(&mut self, starts: &[u64], now: Instant, took: Span) -> bool {
        let mappings = self.regions.iter().map(|placed| &placed.mapping);
        let bound = mappings.filter(|mapping| starts.contains(&mapping.address));
        let ranges = bound.map(|mapping| (mapping.address, mapping.address + mapping.length.0));
        let ranges = ranges.collect();
        let changed = self.bound.set(ranges, now, took);
        if changed {
            let regions = std::mem::take(&mut self.regions);
            self.regions = regions
                .into_iter()
                .map(|placed| self.marked_if_bound(placed))
                .collect();
        }
        changed
    }

    /// What of it is bound to nodes.
    #[must_use]
    pub const fn bound(&self) -> &Bound {
        &self.bound
    }

    /// The nodes that it may have memory on, as its cpuset says.
    #[must_use]
    pub fn nodes_allowed(&self) -> Option<&[NodeId]> {
        self.nodes_allowed.as_deref()
    }

    /// When its counters were last read.
    #[must_use]
    pub const fn counted_at(&self) -> Instant {
        self.counted_at
    }

    /// When its regions were last read.
    #[must_use]
    pub const fn regions_read_at(&self) -> Instant {
        self.regions_at
    }

    /// Was the region at `address` asked lately whether it consents to THP, and did it?
    #[must_use]
    pub fn consents(&self, address: u64, now: Instant) -> bool {
        self.consents.given(address, now)
    }

    /// The region at `address` consents to THP.
    pub fn note_consent(&mut self, address: u64, now: Instant) {
        if let Some(placed) = self.regions.iter().find(|placed| placed.holds(address)) {
            self.consents.gave(placed, now);
        }
    }

    /// Should its status be read? It tells the opt-out, which is seldom changed.
    #[must_use]
    pub fn status_due(&self, now: Instant) -> bool {
        now.since(self.status_at) >= REGIONS_PERIOD_MAX
    }

    /// Reads whether it opted out of THP.
    ///
    /// # Errors
    /// If its status cannot be read or understood; see [`Error::is_gone`].
    pub fn read_status(&mut self, root: &ProcRoot, now: Instant) -> Result<(), Error> {
        let path = root.process(self.id.pid, "status");
        let status = understood(&path, status::parse(&read(&path)?))?;
        let thp = match status.thp_enabled {
            Some(false) => ThpConsent::Refused,
            Some(true) | None => ThpConsent::Allowed,
        };
        if thp != std::mem::replace(&mut self.thp, thp) {
            self.poll_due = now; // So that the next observation says it.
        }
        if self.nodes_allowed != status.nodes_allowed {
            self.nodes_allowed = status.nodes_allowed;
            self.poll_due = now;
        }
        self.status_at = now;
        Ok(())
    }

    /// Opens the files of its memory anew, after an exec.
    ///
    /// # Errors
    /// If it is gone or we may not any more.
    pub fn reopen(&mut self, root: &ProcRoot) -> Result<(), Error> {
        self.maps = open(root.process(self.id.pid, "maps"))?;
        self.pagemap = open(root.process(self.id.pid, "pagemap"))?;
        self.regions_of_size = None;
        self.consents = Consents::default();
        self.bound = Bound::default();
        Ok(())
    }
}

fn open(path: PathBuf) -> Result<File, Error> {
    File::open(&path).map_err(|source| Error::Read { path, source })
}

/// The whole of a file that stays open.
fn read_all(mut file: &File) -> std::io::Result<Vec<u8>> {
    file.rewind()?;
    rest_of(file)
}

fn read_stat(file: &File, path: &std::path::Path) -> Result<Vec<u8>, Error> {
    let mut text = vec![0; STAT_BYTES_MAX];
    let read = file.read_at(&mut text, 0).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    text.truncate(read);
    Ok(text)
}
