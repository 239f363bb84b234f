//! The live kernel does what it, or another of its kind, was recorded to do.
//!
//! `HUGEPILOT_BLESS=1 cargo test -p hugepilot-linux --test conformance` records anew on the kernel at hand.

mod cgroup;
mod stage;

use hugepilot_conformance::{
    Difference, Expected, Fault, Recorded, differences, first_difference, record,
};
use hugepilot_workers::client;
use stage::{LiveStage, Program, check_geometry, features, kernel};
use std::path::Path;

fn program() -> Program {
    let file = client::binary().unwrap_or_else(|error| panic!("{error}"));
    check_geometry().expect("pages of 4 KiB and 2 MiB");
    Program {
        file,
        prefix: Vec::new(),
    }
}

fn shown(differences: &[Difference]) -> String {
    differences
        .iter()
        .map(|difference| format!("{difference}\n"))
        .collect()
}

fn bless(recorded: Recorded) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/expected.json");
    let mut expected = Expected::recorded();
    expected.take_all(recorded).expect("every case was played");
    std::fs::write(&file, expected.to_json()).expect("expected.json can be written");
}

#[test]
fn it_conforms() {
    let program = program();
    let features = features(&program).expect("the features can be probed");
    let make = || Ok(LiveStage::new(program.clone(), None));
    let recorded = record(&kernel().expect("a release"), &features, make);
    if std::env::var_os("HUGEPILOT_BLESS").is_some() {
        bless(recorded);
        return;
    }
    let differences = differences(&Expected::recorded(), &recorded);
    assert!(differences.is_empty(), "{}", shown(&differences));
}

#[test]
fn every_seeded_fault_is_noticed() {
    let (expected, program) = (Expected::recorded(), program());
    let features = features(&program).expect("the features can be probed");
    for fault in Fault::ALL {
        let make = || Ok(LiveStage::new(program.clone(), Some(fault)));
        let noticed = first_difference(&expected, &features, make).expect("a stage");
        assert!(noticed.is_some(), "{fault:?} was not noticed");
    }
}
