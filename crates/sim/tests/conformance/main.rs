//! The simulated machine does what real kernels were recorded to do.

mod stage;

use hugepilot_conformance::{Difference, Expected, Fault, differences, first_difference, record};
use hugepilot_sim::SplitZeroPages;
use stage::{SimStage, features};

fn shown(differences: &[Difference]) -> String {
    differences
        .iter()
        .map(|difference| format!("{difference}\n"))
        .collect()
}

fn conforms(split_zero_pages: SplitZeroPages) {
    let make = || Ok(SimStage::new(split_zero_pages, None));
    let recorded = record("the simulator", &features(split_zero_pages), make);
    let differences = differences(&Expected::recorded(), &recorded);
    assert!(differences.is_empty(), "{}", shown(&differences));
}

#[test]
fn it_conforms_to_kernels_that_free_zero_pages_at_a_split() {
    conforms(SplitZeroPages::Freed);
}

#[test]
fn it_conforms_to_kernels_that_keep_zero_pages_at_a_split() {
    conforms(SplitZeroPages::Kept);
}

#[test]
fn every_seeded_fault_is_noticed() {
    let (expected, zero_pages) = (Expected::recorded(), SplitZeroPages::Freed);
    for fault in Fault::ALL {
        let make = || Ok(SimStage::new(zero_pages, Some(fault)));
        let noticed = first_difference(&expected, &features(zero_pages), make).expect("a stage");
        assert!(noticed.is_some(), "{fault:?} was not noticed");
    }
}
