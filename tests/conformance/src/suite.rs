//! Playing all cases on one machine.

use crate::cases::{CASES, Case};
use crate::expected::{Difference, Expected};
use crate::report::CaseReport;
use crate::stage::{Features, Stage, StageError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What all cases found on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The machine, in its own words.
    pub machine: String,
    /// Its features.
    pub features: Features,
    /// By case: what it found, or why it could not be played.
    pub reports: BTreeMap<String, Result<CaseReport, String>>,
}

/// Plays all cases, each on a stage of its own.
pub fn record<S: Stage>(
    machine: &str,
    features: &Features,
    mut make: impl FnMut() -> Result<S, StageError>,
) -> Recorded {
    let mut play = |case: &Case| {
        let mut stage = make()?;
        case.play(&mut stage)
    };
    let played = CASES.iter().map(|case| (case, play(case)));
    let reports = played
        .map(|(case, report)| {
            (
                case.name.to_owned(),
                report.map_err(|fault| fault.to_string()),
            )
        })
        .collect();
    Recorded {
        machine: machine.to_owned(),
        features: features.clone(),
        reports,
    }
}

/// What all cases found otherwise than recorded. A case that cannot be played differs.
#[must_use]
pub fn differences(expected: &Expected, recorded: &Recorded) -> Vec<Difference> {
    let compare = |case: &'static Case| match recorded.reports.get(case.name) {
        Some(Ok(report)) => expected.compare(case, &recorded.features, report),
        Some(Err(fault)) => Some(Difference {
            case: case.name,
            what: fault.clone(),
        }),
        None => Some(Difference {
            case: case.name,
            what: "was not played".to_owned(),
        }),
    };
    CASES.iter().filter_map(compare).collect()
}

/// The first case that differs on a machine: enough to know that a seeded fault is noticed.
///
/// # Errors
/// If a stage cannot be had.
pub fn first_difference<S: Stage>(
    expected: &Expected,
    features: &Features,
    mut make: impl FnMut() -> Result<S, StageError>,
) -> Result<Option<Difference>, StageError> {
    for case in &CASES {
        let found = match case.play(&mut make()?) {
            Ok(report) => expected.compare(case, features, &report),
            Err(fault) => Some(Difference {
                case: case.name,
                what: fault.to_string(),
            }),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
