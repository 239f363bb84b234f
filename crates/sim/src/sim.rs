//! The machine as a whole: what it consists of and what can go wrong for the programs on it.

use crate::cgroup::CgroupIndex;
use crate::config::{Config, ThpMode};
use crate::frame::{Frame, Frames};
use crate::observe::Seen;
use crate::sample::Sampling;
use crate::shared::Cache;
use crate::space::Space;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{NodeId, ObjectId, Pid, ProcessId};
use hugepilot_core::observation::ThpConsent;
use hugepilot_core::units::{Bytes, Instant, Span};
use std::collections::BTreeMap;

/// What a program, or whoever drives it, did wrong or could not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// No such process is alive.
    #[error("process {0} is not alive")]
    NoProcess(ProcessId),
    /// Nothing is mapped there.
    #[error("nothing is mapped at {0:#x}")]
    Unmapped(u64),
    /// The memory is not one of this machine's shared objects.
    #[error("{0} is not a shared object of this machine")]
    NotShared(ObjectId),
    /// No memory for a page fault: the kernel would kill somebody.
    #[error("no memory for a page fault at {0:#x}")]
    OutOfMemory(u64),
    /// Not a multiple of the base page.
    #[error("{0:#x} is not a multiple of the base page")]
    Unaligned(u64),
    /// Only present memory can be held.
    #[error("nothing is present at {0:#x}")]
    NotPresent(u64),
    /// The pin was taken away before.
    #[error("nothing is held by that pin")]
    NoPin,
}

/// Something that holds a base page: DMA, a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) comm: String,
    pub(crate) cgroup: CgroupIndex,
    pub(crate) consent: ThpConsent,
    pub(crate) space: Space,
    /// From whom it was forked, if its memory came that way.
    pub(crate) forked_from: Option<ProcessId>,
    /// Where its threads run.
    pub(crate) node: NodeId,
    /// Page faults since its start.
    pub(crate) faults: u64,
}

/// A simulated machine.
#[derive(Debug)]
pub struct Sim {
    pub(crate) config: Config,
    pub(crate) frames: Frames,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) pins: BTreeMap<PinId, Frame>,
    pub(crate) kernel: Vec<Frame>,
    pub(crate) thp: ThpMode,
    pub(crate) now: Instant,
    pub(crate) seen: Seen,
    pub(crate) sampling: Sampling,
    next_pid: u32,
    next_pin: u64,
}

impl Sim {
    /// A machine with nothing on it.
    ///
    /// # Panics
    /// If a node's memory is not a multiple of the largest free block (4 MiB).
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            frames: Frames::new(&config.geometry, &config.nodes),
            processes: BTreeMap::new(),
            caches: Vec::new(),
            pins: BTreeMap::new(),
            kernel: Vec::new(),
            thp: config.thp,
            now: Instant::default(),
            seen: Seen::default(),
            sampling: Sampling::default(),
            next_pid: FIRST_PID,
            next_pin: 0,
            config,
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Span) {
        self.now = self.now.after(span);
    }

    /// A new cgroup, without a limit.
    pub fn create_cgroup(&mut self, path: &str) -> CgroupIndex {
        self.frames.cgroups.create(path)
    }

    /// Sets or takes away a cgroup's limit; what is charged above it stays.
    pub fn limit_cgroup(&mut self, cgroup: CgroupIndex, max: Option<Bytes>) {
        let shift = self.config.geometry.base_shift;
        let pages = max.map(|bytes| hugepilot_core::units::BasePages(bytes.0 >> shift));
        self.frames.cgroups.set_max(cgroup, pages);
    }

    /// Bytes charged to a cgroup.
    #[must_use]
    pub fn charged(&self, cgroup: CgroupIndex) -> Bytes {
        self.config
            .geometry
            .bytes(self.frames.cgroups.current(cgroup))
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    pub(crate) fn process(&self, id: ProcessId) -> Result<&Process, SimError> {
        self.processes.get(&id).ok_or(SimError::NoProcess(id))
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> Result<&mut Process, SimError> {
        self.processes.get_mut(&id).ok_or(SimError::NoProcess(id))
    }

    pub(crate) fn next_process(&mut self) -> ProcessId {
        self.next_pid += 1;
        let start_ticks = self.now.0 / TICK.0;
        ProcessId {
            pid: Pid(self.next_pid),
            start_ticks,
        }
    }

    pub(crate) fn next_pin(&mut self) -> PinId {
        self.next_pin += 1;
        PinId(self.next_pin)
    }
}

const FIRST_PID: u32 = 100;
/// The kernel's clock tick, in which start times are counted (`USER_HZ`, 100 a second).
const TICK: Span = Span::millis(10);
