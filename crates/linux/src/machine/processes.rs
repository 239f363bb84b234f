//! Phases of an observation that are about processes: who runs, and what each did.

use super::counters::POLL_PERIOD;
use super::{LiveMachine, Tick};
use crate::error::Error;
use crate::sensors::discovery::ProcessTable;
use crate::sensors::selection::Selection;
use crate::sensors::watched::{Activity, Polled, Watched, idle_period};
use crate::sys::limits;
use hugepilot_core::ids::{CgroupId, Pid, ProcessId};
use hugepilot_core::observation::{ThpConsent, Unseen};
use hugepilot_core::units::{Bytes, Instant, Ratio, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Processes are looked for so often, or less where that costs too much.
const DISCOVERY_PERIOD_MIN: Span = Span::secs(1);
/// The same where ids alone say whom to watch, and those do nothing: only their forked children could be news.
const DISCOVERY_PERIOD_QUIET: Span = Span::secs(4);
/// Somebody who did something is expected to go on for this long.
const ACTIVE_FOR: Span = Span::secs(4);
/// Looking for processes may take this part of the allowance.
const DISCOVERY_PART: f64 = 0.2;
/// Polling processes may take this part of what is left in a tick, so that page tables are looked at too.
const POLL_PART: u64 = 2;
/// Processes watched at the most. Each costs four open files and some kilobytes.
const WATCHED_MAX: usize = 4096;
/// Open files that each watched process costs.
const FILES_EACH: u64 = 4;
/// Open files that are left to everybody else in this program.
const FILES_SPARED: u64 = 128;
/// New processes taken in at one discovery, at the most; the first is not bounded so.
const NEW_MAX: usize = 256;
/// A process that could not be watched is tried again after this long.
const RETRY_AFTER: Span = Span::secs(16);

/// All watched processes, and whom to watch.
#[derive(Debug)]
pub(super) struct Processes {
    selection: Selection,
    table: ProcessTable,
    watched: BTreeMap<Pid, Watched>,
    /// Those that cannot or must not be watched, until when.
    left_out: BTreeMap<Pid, Instant>,
    watched_max: usize,
    share: Ratio,
    discovery_due: Option<Instant>,
    active_at: Option<Instant>,
    /// Where polling went on last time it ran out of allowance.
    poll_after: Option<Pid>,
}

impl Processes {
    pub(super) fn new(selection: Selection, share: Ratio) -> Result<Self, Error> {
        let files = limits::raise_open_files().map_err(|source| Error::Call {
            call: "setrlimit",
            source,
        })?;
        let room = files.map_or(u64::MAX, |files| {
            files.saturating_sub(FILES_SPARED) / FILES_EACH
        });
        Ok(Self {
            selection,
            table: ProcessTable::default(),
            watched: BTreeMap::new(),
            left_out: BTreeMap::new(),
            watched_max: usize::try_from(room)
                .unwrap_or(WATCHED_MAX)
                .min(WATCHED_MAX),
            share,
            discovery_due: None,
            active_at: None,
            poll_after: None,
        })
    }

    pub(super) fn select(&mut self, selection: Selection) {
        self.selection = selection;
        self.discovery_due = None;
        self.left_out.clear();
    }

    pub(super) fn ids(&self) -> Vec<ProcessId> {
        self.watched.values().map(|watched| watched.id).collect()
    }

    pub(super) fn get(&self, id: ProcessId) -> Option<&Watched> {
        self.watched.get(&id.pid).filter(|watched| watched.id == id)
    }

    /// Who has this id now, and whose regions his memory is.
    pub(super) fn with_memory(&self, pid: Pid) -> Option<(&Watched, &Watched)> {
        let watched = self.watched.get(&pid)?;
        let memory = watched
            .memory_of
            .map_or(Some(watched), |first| self.watched.get(&first))?;
        Some((watched, memory))
    }

    /// Resident memory of all of them. What several share counts for each.
    pub(super) fn resident(&self) -> Bytes {
        self.watched.values().map(|watched| watched.resident).sum()
    }

    /// Somebody whose memory policies should be read now.
    pub(super) fn due_for_policies(&self, now: Instant) -> Option<ProcessId> {
        let mut own = self
            .watched
            .values()
            .filter(|watched| watched.memory_of.is_none());
        own.find(|watched| watched.bound().is_due(now))
            .map(|watched| watched.id)
    }

    pub(super) fn is_watched(&self, pid: Pid) -> bool {
        self.watched.contains_key(&pid)
    }

    pub(super) fn get_mut(&mut self, id: ProcessId) -> Option<&mut Watched> {
        self.watched
            .get_mut(&id.pid)
            .filter(|watched| watched.id == id)
    }

    pub(super) fn cgroups(&self) -> impl Iterator<Item = CgroupId> + '_ {
        self.watched.values().filter_map(|watched| watched.cgroup)
    }

    /// The next discovery is put off where this one was dear.
    fn schedule(&mut self, now: Instant, cost: Span) {
        let share = self.share.get() * DISCOVERY_PART;
        let affordable = if share > 0.0 {
            Span::from_secs_f64(cost.as_secs_f64() / share)
        } else {
            RETRY_AFTER
        };
        let quiet = self.activity(now) == Activity::None && self.selection.names_ids_only();
        let period = if quiet {
            DISCOVERY_PERIOD_QUIET
        } else {
            DISCOVERY_PERIOD_MIN
        };
        self.discovery_due = Some(now.after(affordable.max(period)));
    }

    /// One of them did something. After a quiet time others may have come along.
    fn note_activity(&mut self, now: Instant) {
        if self.activity(now) == Activity::None {
            self.discovery_due = None;
        }
        self.active_at = Some(now);
    }

    /// Did any of them do anything lately?
    pub(super) fn activity(&self, now: Instant) -> Activity {
        match self.active_at {
            Some(at) if now.since(at) < ACTIVE_FOR => Activity::Some,
            Some(_) | None => Activity::None,
        }
    }

    /// Nobody waits longer for his poll than counters may.
    fn hasten(&mut self, now: Instant) {
        for watched in self.watched.values_mut() {
            if now.since(watched.counted_at()) >= POLL_PERIOD {
                watched.poll_due = now;
            }
        }
    }

    /// Processes to poll, beginning where the last round stopped.
    fn due(&self, now: Instant) -> Vec<Pid> {
        let due = |(pid, watched): (&Pid, &Watched)| (watched.poll_due <= now).then_some(*pid);
        let mut pids: Vec<Pid> = self.watched.iter().filter_map(due).collect();
        let split = pids.partition_point(|pid| self.poll_after.is_some_and(|after| *pid <= after));
        pids.rotate_left(split);
        pids
    }
}

impl LiveMachine {
    /// Looks for processes that came, went, or changed their relations.
    pub(super) fn discover(&mut self, tick: &mut Tick) -> Result<(), Error> {
        if self
            .processes
            .discovery_due
            .is_some_and(|due| tick.now < due)
        {
            return Ok(());
        }
        let charged = tick.charged;
        let found = tick.charge(|tick| self.find_processes(tick));
        self.processes
            .schedule(tick.now, tick.charged.growth_since(charged));
        found
    }

    fn find_processes(&mut self, tick: &mut Tick) -> Result<(), Error> {
        let processes = &mut self.processes;
        processes
            .table
            .refresh(&self.proc, &processes.selection, tick.now)?;
        let selected = processes.table.selected(&processes.selection);
        self.drop_unselected(&selected, tick);
        self.take_in(&selected, tick);
        self.relate(tick.now);
        Ok(())
    }

    fn drop_unselected(&mut self, selected: &[Pid], tick: &mut Tick) {
        let selected: BTreeSet<Pid> = selected.iter().copied().collect();
        let watched = self.processes.watched.keys();
        let gone: Vec<Pid> = watched
            .copied()
            .filter(|pid| !selected.contains(pid))
            .collect();
        gone.into_iter().for_each(|pid| self.forget(pid, tick));
        self.processes
            .left_out
            .retain(|pid, until| selected.contains(pid) && *until > tick.now);
    }

    fn take_in(&mut self, selected: &[Pid], tick: &mut Tick) {
        let fresh: Vec<Pid> = selected
            .iter()
            .copied()
            .filter(|pid| !self.processes.watched.contains_key(pid))
            .filter(|pid| !self.processes.left_out.contains_key(pid))
            .take(if tick.first { usize::MAX } else { NEW_MAX })
            .collect();
        for pid in fresh {
            if self.processes.watched.len() >= self.processes.watched_max {
                tick.observation.cost.bounded += 1;
                tick.blind(
                    None,
                    Unseen::PageTables,
                    "more processes are selected than can be watched; select fewer, or raise RLIMIT_NOFILE",
                );
                return;
            }
            self.watch(pid, tick);
        }
    }

    fn watch(&mut self, pid: Pid, tick: &mut Tick) {
        match self.open(pid, tick.now) {
            Ok(Some(watched)) => {
                self.processes.watched.insert(pid, watched);
                return;
            }
            Ok(None) => {}
            Err(error) if error.is_gone() => return,
            Err(error) => tick.blind(
                None,
                Unseen::PageTables,
                format!("process {pid}: {error}; grant CAP_SYS_PTRACE"),
            ),
        }
        self.processes
            .left_out
            .insert(pid, tick.now.after(RETRY_AFTER));
    }

    /// `None`: it opted out of THP, and only `all` selects it.
    fn open(&mut self, pid: Pid, now: Instant) -> Result<Option<Watched>, Error> {
        let mut watched = Watched::open(&self.proc, pid, now)?;
        watched.read_status(&self.proc, now)?;
        let processes = &self.processes;
        if watched.thp == ThpConsent::Refused
            && processes.table.by_all_alone(pid, &processes.selection)
        {
            return Ok(None);
        }
        watched.cgroup = self.cgroups.of(&self.proc, pid)?;
        Ok(Some(watched))
    }

    /// Fork sharing and shared address spaces.
    fn relate(&mut self, now: Instant) {
        let kinship = self.processes.table.kinship();
        let pids: Vec<Pid> = self.processes.watched.keys().copied().collect();
        for pid in pids {
            let kin = kinship.get(&pid).copied().unwrap_or_default();
            let memory_of = kin
                .memory_of
                .filter(|first| self.processes.watched.contains_key(first));
            let Some(watched) = self.processes.watched.get_mut(&pid) else {
                continue;
            };
            if watched.forked_children != kin.forked_children {
                watched.forked_children = kin.forked_children;
                watched.poll_due = now;
            }
            if watched.memory_of != memory_of {
                watched.memory_of = memory_of;
                self.place_regions(pid);
            }
        }
    }

    /// Reads the counters of processes that are due.
    pub(super) fn poll_processes(&mut self, tick: &mut Tick) -> Result<(), Error> {
        let left = tick.allowance.growth_since(tick.charged);
        let until = tick.charged + Span(left.0 / POLL_PART);
        if self.counting.is_on() {
            self.processes.hasten(tick.now);
        }
        for pid in self.processes.due(tick.now) {
            if !tick.first && tick.charged >= until {
                tick.observation.cost.bounded += 1;
                break;
            }
            self.processes.poll_after = Some(pid);
            match tick.charge(|tick| self.poll(pid, tick)) {
                Ok(()) => {}
                Err(error) if error.is_gone() => self.forget(pid, tick),
                Err(error @ Error::Parse { .. }) => return Err(error),
                Err(error) => {
                    let why = format!("process {pid}: {error}");
                    self.forget(pid, tick);
                    tick.blind(None, Unseen::PageTables, why);
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, pid: Pid, tick: &mut Tick) -> Result<(), Error> {
        let idle_period = idle_period(self.processes.watched.len());
        let Some(watched) = self.processes.watched.get_mut(&pid) else {
            return Ok(());
        };
        let (polled, observed) = watched.poll(&self.proc, &self.geometry, tick.now, idle_period)?;
        match polled {
            Polled::Gone => {
                self.forget(pid, tick);
                return Ok(());
            }
            Polled::Replaced => {
                watched.reopen(&self.proc)?;
                watched.read_status(&self.proc, tick.now)?;
            }
            Polled::Active => self.objects.note_resident(watched.id, watched.resident),
            Polled::Idle => {}
        }
        if watched.status_due(tick.now) {
            watched.read_status(&self.proc, tick.now)?;
            watched.cgroup = self.cgroups.of(&self.proc, pid)?;
        }
        let observed = observed.map(|observed| self.with_restriction(observed));
        tick.observation.processes.extend(observed);
        if polled != Polled::Idle {
            self.processes.note_activity(tick.now);
        }
        self.reread_regions(pid, tick.now)
    }

    fn reread_regions(&mut self, pid: Pid, now: Instant) -> Result<(), Error> {
        let Some(watched) = self.processes.watched.get_mut(&pid) else {
            return Ok(());
        };
        if watched.regions_due(now) && watched.read_regions(&self.proc, &mut self.devices, now)? {
            self.place_regions(pid);
        }
        Ok(())
    }

    /// Reads a process's regions now, unless that was just done. One that vanished is found out by its next poll.
    pub(super) fn refresh_regions(&mut self, process: ProcessId, tick: &mut Tick) {
        let Some(watched) = self.processes.get_mut(process) else {
            return;
        };
        if watched.regions_read_at() >= tick.now {
            return;
        }
        match watched.read_regions(&self.proc, &mut self.devices, tick.now) {
            Ok(true) => self.place_regions(process.pid),
            Ok(false) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => tick.blind(Some(process), Unseen::PageTables, error.to_string()),
        }
    }

    /// Puts a process's regions in their objects. Whoever has another's address space has no regions of his own.
    pub(super) fn place_regions(&mut self, pid: Pid) {
        let Some(watched) = self.processes.watched.get(&pid) else {
            return;
        };
        let regions = match watched.memory_of {
            None => watched.regions.as_slice(),
            Some(_) => &[],
        };
        self.objects.replace(watched.id, regions, watched.resident);
    }

    fn forget(&mut self, pid: Pid, tick: &mut Tick) {
        if let Some(watched) = self.processes.watched.remove(&pid) {
            self.objects.remove(watched.id);
            tick.observation.exited.push(watched.id);
        }
    }
}
