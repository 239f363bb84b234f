//! What the tests on the live kernel share: a worker, a machine that watches it, and waiting with a deadline.

use hugepilot_core::action::Action;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{ObjectId, Pid, ProcessId, SlotId, SlotRange};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{Observation, SlotObserved};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::Ratio;
use hugepilot_linux::machine::LiveMachine;
use hugepilot_linux::sensors::selection::Selection;
use hugepilot_workers::client::{Kind, Mapped, Worker, binary};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Whatever should become true does so within this, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// Bytes of a slot.
pub const SLOT: u64 = 2 << 20;

/// A worker with one region, and the machine that watches it.
pub struct Stage {
    pub worker: Worker,
    pub machine: LiveMachine,
    pub process: ProcessId,
    pub region: Mapped,
    /// All slots said so far, as the deltas add up.
    pub slots: BTreeMap<SlotId, SlotObserved>,
    /// The first observation.
    pub first: Observation,
    /// The last observation.
    pub last: Observation,
}

impl Stage {
    /// A worker that has mapped `slots` slots of `kind` and touched the first `touched` bytes of them.
    pub fn new(slots: u64, kind: &Kind, touched: u64) -> Self {
        let mut worker = Worker::start(&binary().expect("built")).expect("a worker");
        let region = worker.map("a", slots * SLOT, kind).expect("mapped");
        touch_base_pages(&mut worker, "a", 0, touched);
        let mut machine = LiveMachine::builder()
            .select(Selection::pid(Pid(worker.pid())))
            // Tests observe in a tight loop; what they wait for must not wait for an allowance.
            .watch_cpu_max(Ratio::ONE)
            .build()
            .expect("this kernel has THP");
        let first = machine.observe(&[]).expect("an observation");
        let process = machine.watched()[0];
        let mut stage = Self {
            worker,
            machine,
            process,
            region,
            slots: BTreeMap::new(),
            first: first.clone(),
            last: Observation::default(),
        };
        stage.take(first);
        stage.observe();
        stage.observe();
        stage
    }

    fn take(&mut self, observation: Observation) {
        let gone = |slot: &SlotId| {
            let mut objects = observation.objects.iter();
            objects.any(|object| object.object == slot.object && object.mappings.is_empty())
        };
        self.slots.retain(|slot, _| !gone(slot));
        for slot in &observation.slots {
            self.slots.insert(slot.slot, slot.clone());
        }
        self.last = observation;
    }

    /// Slot number `nth` of the region.
    pub fn slot(&self, nth: u64) -> SlotId {
        match &self.region.file {
            None => SlotId {
                object: ObjectId::Private(self.process),
                index: self.region.address / SLOT + nth,
            },
            Some(file) => SlotId {
                object: ObjectId::Shared {
                    device: file.device,
                    inode: file.inode,
                },
                index: nth,
            },
        }
    }

    /// Observes with a look at all slots of the region.
    pub fn observe(&mut self) -> &Observation {
        let range = SlotRange {
            object: self.slot(0).object,
            first: self.slot(0).index,
            count: self.region.bytes / SLOT,
        };
        self.look(&[Look::PageTables(range)])
    }

    /// Observes with these looks.
    pub fn look(&mut self, looks: &[Look]) -> &Observation {
        let observation = self.machine.observe(looks).expect("an observation");
        self.take(observation);
        &self.last
    }

    /// Observes with looks at the region until `done`.
    pub fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !done(self) {
            assert!(
                Instant::now() < end,
                "not within {DEADLINE:?}: {what}; last seen: {:?}",
                self.last
            );
            std::thread::yield_now();
            self.observe();
        }
    }

    /// (present, huge) base pages of slot `nth`, as said.
    pub fn pages(&self, nth: u64) -> (u64, u64) {
        self.slots.get(&self.slot(nth)).map_or((0, 0), |slot| {
            let huge = slot.backing.at_least(Geometry::X86_64.slot_order);
            (slot.backing.present().0, huge.0)
        })
    }

    pub fn act(&mut self, action: &Action) -> Outcome {
        let (outcome, via) = self.machine.act(action);
        if outcome.class == OutcomeClass::Done {
            assert_eq!(via, Some(self.process));
        }
        outcome
    }

    pub fn collapse(&mut self, nth: u64) -> Outcome {
        let slot = self.slot(nth);
        self.act(&Action::Collapse {
            slot,
            order: Geometry::X86_64.slot_order,
        })
    }

    pub fn split(&mut self, nth: u64) -> Outcome {
        let slot = self.slot(nth);
        self.act(&Action::Split {
            slot,
            order: Order::BASE,
        })
    }

    /// Touches base pages of region `a`.
    pub fn touch(&mut self, offset: u64, length: u64) {
        touch_base_pages(&mut self.worker, "a", offset, length);
    }

    pub fn ask(&mut self, command: &str) {
        self.worker.ask(command).expect(command);
    }
}

/// The outcome's class and cause.
pub fn verdict(outcome: &Outcome) -> (OutcomeClass, Option<Cause>) {
    (outcome.class, outcome.cause)
}

/// Touches memory so that base pages serve it, whatever the system's switch says: the worker opts out for that long.
pub fn touch_base_pages(worker: &mut Worker, name: &str, offset: u64, length: u64) {
    worker.ask("thp-disable on").expect("opted out");
    worker.touch(name, offset, length).expect("touched");
    worker.ask("thp-disable off").expect("opted in again");
}
