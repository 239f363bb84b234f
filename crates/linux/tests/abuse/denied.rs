//! Acting without the capabilities: the outcome is `denied`.

use super::limited::sparse_worker;
use super::{Tally, collapse};
use hugepilot_core::machine::Machine;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_workers::client::{self, Worker};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Watches a worker, then gives up every capability (of one thread, for good) and acts.
pub fn act_without_capabilities(tally: &mut Tally) {
    let outcome = std::thread::spawn(|| {
        let worker = client::binary().unwrap_or_else(|error| panic!("{error}"));
        let worker = Worker::start(&worker).expect("started");
        let (_worker, _, mut machine, slots) = sparse_worker(worker);
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, sets).expect("giving up is always allowed");
        let action = collapse(slots[0], &machine.geometry());
        let outcome = machine.act(&action).0;
        (action, outcome)
    });
    let (action, outcome) = outcome.join().expect("no panic");
    assert_eq!(outcome.class, OutcomeClass::Denied, "{outcome:?}");
    tally.add(&action, &outcome);
}
