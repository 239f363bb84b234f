//! Collapsing where the cgroup has no room: the outcome is `no_memory`, and nobody is killed for it.

use super::{Tally, collapse};
use hugepilot_core::backing::Backing;
use hugepilot_core::ids::{ObjectId, Pid, SlotId, SlotRange};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_linux::machine::LiveMachine;
use hugepilot_linux::sensors::selection::Selection;
use hugepilot_workers::client::{Kind, Mapped, Worker};
use hugepilot_workers::{cgroup::LimitedCgroup, client};

const SLOT: u64 = 2 << 20;
const SLOTS: u64 = 24;
/// Room for two thirds of the slots as huge pages, and for the worker itself.
const LIMIT: u64 = 16 * SLOT;

/// A worker with one base page in each of its slots, and the machine that watches it.
pub fn sparse_worker(mut worker: Worker) -> (Worker, Mapped, LiveMachine, Vec<SlotId>) {
    let mapped = worker
        .map("sparse", SLOTS * SLOT, &Kind::Anonymous)
        .expect("mapped");
    for slot in 0..SLOTS {
        worker.touch("sparse", slot * SLOT, 4096).expect("touched");
    }
    let selection = Selection::pid(Pid(worker.pid()));
    let mut machine = LiveMachine::builder()
        .select(selection)
        .build()
        .expect("a live machine");
    let first = machine.observe(&[]).expect("an observation");
    let object = ObjectId::Private(first.processes.first().expect("the worker").process);
    let range = SlotRange {
        object,
        first: mapped.address / SLOT,
        count: SLOTS,
    };
    let seen = machine
        .observe(&[Look::PageTables(range)])
        .expect("an observation");
    let there = first
        .slots
        .iter()
        .chain(&seen.slots)
        .filter(|slot| range.contains(slot.slot) && slot.backing != Backing::EMPTY);
    assert_eq!(there.count() as u64, SLOTS);
    (worker, mapped, machine, range.slots().collect())
}

pub fn collapse_in_a_full_cgroup(tally: &mut Tally) {
    let cgroup = LimitedCgroup::make("abuse", LIMIT).unwrap_or_else(|error| panic!("{error}"));
    let worker = client::binary().unwrap_or_else(|error| panic!("{error}"));
    let worker = Worker::start_command(cgroup.command(&worker, &["serve"])).expect("started");
    let (mut worker, _, mut machine, slots) = sparse_worker(worker);
    let mut refused = 0;
    for slot in slots {
        let action = collapse(slot, &machine.geometry());
        let (outcome, _) = machine.act(&action);
        tally.add(&action, &outcome);
        refused += u64::from(outcome.class == OutcomeClass::NoMemory);
    }
    assert!(
        refused > 0,
        "a collapse in a full cgroup was never refused: {tally:?}"
    );
    assert_eq!(
        cgroup.oom_kills().unwrap_or_else(|error| panic!("{error}")),
        0
    );
    worker.ask("resident").expect("it lives");
}
