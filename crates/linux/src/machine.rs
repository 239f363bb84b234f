//! The live kernel as a machine.
//!
//! An observation goes through fixed phases: who runs, what each watched process did, the looks that were asked for,
//! then cgroups and nodes. Looks are answered at once, within bounds: whoever asks pays for them, out of the cost that
//! the observation names. What is looked at unasked (processes, their regions, cgroups) has an allowance of its own
//! ([`Budget`]), and what is idle is looked at ever less often; the first observation may take more, since it is the
//! checkpoint that all later ones build on. The fixed cost of an observation (some microseconds) is not charged:
//! otherwise somebody who observes in a tight loop would see nothing at all.
//!
//! Acting looks the slot up among the mappings known, makes sure that it is still the same process and region, and
//! leaves the rest to `actuators`.

mod act;
mod bound;
mod counters;
mod looks;
mod page_tables;
mod processes;
mod samples;

use crate::actuators::SystemSwitches;
use crate::actuators::collisions::Collisions;
use crate::error::Error;
use crate::procfs::{ProcRoot, SysRoot};
use crate::sampler::AccessSampler;
use crate::sensors::budget::Budget;
use crate::sensors::cgroups::Cgroups;
use crate::sensors::fault_time::FaultTime;
use crate::sensors::nodes::Nodes;
use crate::sensors::objects::Objects;
use crate::sensors::page_tables::{Method, PageTables};
use crate::sensors::regions::Devices;
use crate::sensors::scan::Scanner;
use crate::sensors::selection::Selection;
use crate::sensors::suspects::Suspects;
use crate::sensors::walks::WalkCounters;
use crate::sys::time;
use crate::tracker::AccessTracker;
use counters::Counting;
use hugepilot_core::action::Action;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{ProcessId, SlotId};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{BlindSpot, Observation, SlotObserved, Unseen};
use hugepilot_core::outcome::Outcome;
use hugepilot_core::units::{Instant, Ratio, Span};
use processes::Processes;
use samples::Sampling;
use std::collections::{BTreeMap, BTreeSet};

/// Share of one core that looking may cost, by default.
pub const WATCH_CPU_MAX_DEFAULT: f64 = 0.01;

/// Processor time that the first observation may take beyond the allowance: a checkpoint of some 200 GiB.
const FIRST_LOOK_MAX: Span = Span::millis(400);

/// The live kernel.
pub struct LiveMachine {
    geometry: Geometry,
    proc: ProcRoot,
    sys: SysRoot,
    budget: Budget,
    processes: Processes,
    devices: Devices,
    objects: Objects,
    tables: PageTables,
    scanner: Scanner,
    cgroups: Cgroups,
    nodes: Nodes,
    tracker: Option<Box<dyn AccessTracker>>,
    sampling: Sampling,
    counting: Counting,
    switches: Option<Box<dyn SystemSwitches>>,
    collisions: Collisions,
    /// Slots that were acted upon since the last observation.
    acted: Vec<SlotId>,
    /// Slots that may hold a partially mapped huge page.
    suspects: Suspects,
    /// Slots said to hold one.
    partial: BTreeSet<SlotId>,
    /// For reading contents.
    contents: Vec<u8>,
    observed_at: Option<Instant>,
    checkpoint_wanted: bool,
}

/// One observation in the making.
struct Tick {
    now: Instant,
    first: bool,
    started: Span,
    allowance: Span,
    charged: Span,
    slots: BTreeMap<SlotId, SlotObserved>,
    observation: Observation,
}

impl Tick {
    /// Does `look`, and charges its processor time.
    fn charge<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let (before, charged) = (time::thread_cpu(), self.charged);
        let found = look(self);
        // Looks within this one are charged with it, once.
        self.charged = charged + time::thread_cpu().growth_since(before);
        found
    }

    /// Is there allowance left for more?
    fn may_go_on(&self) -> bool {
        self.charged < self.allowance
    }

    /// Something could not be seen; said once in one observation.
    fn blind(&mut self, process: Option<ProcessId>, what: Unseen, why: impl Into<String>) {
        let spot = BlindSpot {
            process,
            what,
            why: why.into(),
        };
        if !self.observation.blind.contains(&spot) {
            self.observation.blind.push(spot);
        }
    }
}

/// How to build a [`LiveMachine`].
pub struct Builder {
    selection: Selection,
    proc: ProcRoot,
    sys: SysRoot,
    watch_cpu_max: Ratio,
    tracker: Option<Box<dyn AccessTracker>>,
    sampler: Option<Box<dyn AccessSampler>>,
    sample_cpu_max: Ratio,
    counting: Counting,
    switches: Option<Box<dyn SystemSwitches>>,
}

impl Builder {
    /// Whom to watch; nobody, unless said.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Another `/proc`.
    #[must_use]
    pub fn proc_root(mut self, root: ProcRoot) -> Self {
        self.proc = root;
        self
    }

    /// Another `/sys`.
    #[must_use]
    pub fn sys_root(mut self, root: SysRoot) -> Self {
        self.sys = root;
        self
    }

    /// Share of one core that looking may cost.
    #[must_use]
    pub fn watch_cpu_max(mut self, share: Ratio) -> Self {
        self.watch_cpu_max = share;
        self
    }

    /// What measures accessed shares; none, unless said.
    #[must_use]
    pub fn tracker(mut self, tracker: Option<Box<dyn AccessTracker>>) -> Self {
        self.tracker = tracker;
        self
    }

    /// What samples accesses, once a look asks for it; nothing, unless said.
    #[must_use]
    pub fn sampler(mut self, sampler: Option<Box<dyn AccessSampler>>) -> Self {
        self.sampler = sampler;
        self
    }

    /// Share of one core that taking in samples may cost, beside looking.
    #[must_use]
    pub fn sample_cpu_max(mut self, share: Ratio) -> Self {
        self.sample_cpu_max = share;
        self
    }

    /// What measures time in page faults; nothing, unless said.
    #[must_use]
    pub fn fault_time(mut self, fault_time: Option<FaultTime>) -> Self {
        self.counting.fault_time = fault_time;
        self
    }

    /// What counts L2 misses; nothing, unless said.
    #[must_use]
    pub fn walks(mut self, walks: Option<WalkCounters>) -> Self {
        self.counting.walks = walks;
        self
    }

    /// What carries out actions that are not about a slot; without it they are unsupported.
    #[must_use]
    pub fn switches(mut self, switches: Box<dyn SystemSwitches>) -> Self {
        self.switches = Some(switches);
        self
    }

    /// Finds out what this kernel offers.
    ///
    /// # Errors
    /// If the kernel has no THP, or our own mounts cannot be read.
    pub fn build(self) -> Result<LiveMachine, Error> {
        let geometry = geometry(&self.sys)?;
        Ok(LiveMachine {
            geometry,
            budget: Budget::new(self.watch_cpu_max),
            processes: Processes::new(self.selection, self.watch_cpu_max)?,
            devices: Devices::detect(&self.proc)?,
            objects: Objects::default(),
            tables: PageTables::probe(&self.proc, geometry),
            scanner: Scanner::new(geometry),
            cgroups: Cgroups::detect(&self.proc)?,
            nodes: Nodes::default(),
            proc: self.proc,
            sys: self.sys,
            tracker: self.tracker,
            sampling: Sampling::new(self.sampler, self.sample_cpu_max),
            counting: self.counting,
            switches: self.switches,
            collisions: Collisions::default(),
            acted: Vec::new(),
            suspects: Suspects::default(),
            partial: BTreeSet::new(),
            contents: Vec::new(),
            observed_at: None,
            checkpoint_wanted: true,
        })
    }
}

/// The machine's page sizes.
///
/// # Errors
/// If the kernel has no THP.
pub fn geometry(sys: &SysRoot) -> Result<Geometry, Error> {
    let path = sys.path("kernel/mm/transparent_hugepage/hpage_pmd_size");
    let Some(text) = crate::procfs::read_if_there(&path)? else {
        return Err(Error::NoHugePages { path });
    };
    let slot = crate::procfs::understood(&path, crate::procfs::cgroup::parse_counter(&text))?;
    let page = crate::sys::limits::base_page().map_err(|source| Error::Call {
        call: "sysconf(_SC_PAGESIZE)",
        source,
    })?;
    let shift = |bytes: u64| u8::try_from(bytes.trailing_zeros()).unwrap_or(u8::MAX);
    let base_shift = shift(page.0);
    let slot_order = Order(shift(slot.0).saturating_sub(base_shift));
    Ok(Geometry {
        base_shift,
        slot_order,
        // A PUD covers as many PMDs as a PMD covers base pages.
        giant_order: Some(Order(slot_order.0 * 2)),
    })
}

impl LiveMachine {
    /// A machine that watches nobody, until told whom.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            selection: Selection::default(),
            proc: ProcRoot::default(),
            sys: SysRoot::default(),
            watch_cpu_max: Ratio::new(WATCH_CPU_MAX_DEFAULT),
            tracker: None,
            sampler: None,
            sample_cpu_max: Ratio::new(WATCH_CPU_MAX_DEFAULT),
            counting: Counting::default(),
            switches: None,
        }
    }

    /// Watches others from the next observation on.
    pub fn select(&mut self, selection: Selection) {
        self.processes.select(selection);
    }

    /// The next observation says everything.
    pub fn want_checkpoint(&mut self) {
        self.checkpoint_wanted = true;
    }

    /// How page tables are read.
    #[must_use]
    pub fn page_table_method(&self) -> Method {
        self.tables.method()
    }

    /// Processes watched now.
    #[must_use]
    pub fn watched(&self) -> Vec<ProcessId> {
        self.processes.ids()
    }

    fn begin(&mut self) -> Tick {
        let now = time::since_boot();
        self.budget.refill(now);
        let first = self.observed_at.is_none();
        let extra = if first { FIRST_LOOK_MAX } else { Span::ZERO };
        let observation = Observation {
            at: now,
            interval: self
                .observed_at
                .map_or(Span::ZERO, |before| now.since(before)),
            checkpoint: std::mem::take(&mut self.checkpoint_wanted),
            ..Observation::default()
        };
        self.observed_at = Some(now);
        Tick {
            now,
            first,
            started: time::thread_cpu(),
            allowance: self.budget.left() + extra,
            charged: Span::ZERO,
            slots: BTreeMap::new(),
            observation,
        }
    }

    /// What this kernel, or what we may not do on it, hides from us for good.
    fn say_blindness(&self, tick: &mut Tick) {
        match self.tables.method() {
            Method::Scan | Method::ReadFrames => {}
            Method::Read => tick.blind(
                None,
                Unseen::HugeMappings,
                "this kernel has no PAGEMAP_SCAN (6.7) and hides page frames; grant CAP_SYS_ADMIN",
            ),
        }
        if !self.tables.frames().visible() {
            tick.blind(
                None,
                Unseen::PartialMappings,
                "page frames are hidden; grant CAP_SYS_ADMIN",
            );
        }
        if self.tracker.is_none() {
            tick.blind(
                None,
                Unseen::AccessedShare,
                "no access tracker; `hugepilot doctor` says which this kernel has",
            );
        }
    }

    fn observe_system(&mut self, tick: &mut Tick) {
        if self.cgroups.due(tick.now) {
            tick.charge(|tick| self.observe_cgroups(tick));
        }
        let activity = self.processes.activity(tick.now);
        let nodes = self
            .nodes
            .refresh(&self.proc, &self.sys, activity, tick.now);
        if let Err(error) = nodes {
            tick.blind(None, Unseen::Nodes, error.to_string());
        }
        tick.observation.nodes.clone_from(&self.nodes.observed);
        tick.observation.pressure = self.nodes.pressure;
    }

    fn observe_cgroups(&mut self, tick: &mut Tick) {
        self.cgroups.keep(self.processes.cgroups());
        let cgroups = self
            .cgroups
            .observe(tick.now, &mut tick.observation.cgroups);
        if let Err(error) = cgroups {
            tick.blind(None, Unseen::Cgroup, error.to_string());
        }
    }

    fn finish(&mut self, mut tick: Tick) -> Observation {
        self.budget.spend(tick.charged);
        let mut observation = tick.observation;
        observation.objects = self.objects.take_changed();
        let gone = observation
            .objects
            .iter()
            .filter(|object| object.mappings.is_empty());
        self.forget_touches(gone.map(|object| object.object));
        observation.slots = std::mem::take(&mut tick.slots).into_values().collect();
        observation.cost.cpu = time::thread_cpu().growth_since(tick.started);
        observation
    }
}

impl Machine for LiveMachine {
    type Error = Error;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn observe(&mut self, looks: &[Look]) -> Result<Observation, Error> {
        let mut tick = self.begin();
        self.discover(&mut tick)?;
        self.poll_processes(&mut tick)?;
        if tick.observation.checkpoint {
            self.say_blindness(&mut tick);
            self.say_everything(&mut tick);
        }
        self.count(&mut tick);
        // Before any page table is read again: what is present now tells nothing of earlier faults.
        self.take_samples(&mut tick);
        self.look_for_bound(&mut tick);
        self.answer(looks, &mut tick);
        self.scan(&mut tick);
        self.suspect_partial(&mut tick);
        self.take_readings(&mut tick);
        self.observe_system(&mut tick);
        Ok(self.finish(tick))
    }

    fn act(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        self.carry_out(action)
    }
}
