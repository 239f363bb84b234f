//! What is expected: reports recorded on real kernels.
//!
//! `expected.json` maps each case to its recordings. A case that depends on features has one recording for each
//! combination of answers; all others have one. Each says on which kernel it was made.

use crate::cases::Case;
use crate::report::CaseReport;
use crate::stage::Features;
use crate::suite::Recorded;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One recorded report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The features that the case depends on, as the kernel had them.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub when: Features,
    /// The kernels that gave this report.
    pub recorded_on: BTreeSet<String>,
    /// What the case found there.
    pub report: CaseReport,
}

/// All expectations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Expected {
    cases: BTreeMap<String, Vec<Recording>>,
}

/// A case that did not come out as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub case: &'static str,
    /// What was found, as lines that differ.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.what)
    }
}

impl Expected {
    /// The file in the repository.
    ///
    /// # Panics
    /// If it is malformed.
    #[must_use]
    pub fn recorded() -> Self {
        serde_json::from_str(include_str!("../expected.json"))
            .expect("expected.json is well formed")
    }

    fn find(&self, case: &Case, features: &Features) -> Option<&Recording> {
        let when = case.relevant(features);
        self.cases
            .get(case.name)?
            .iter()
            .find(|recording| recording.when == when)
    }

    /// What a report has otherwise than expected, if anything.
    #[must_use]
    pub fn compare(
        &self,
        case: &'static Case,
        features: &Features,
        found: &CaseReport,
    ) -> Option<Difference> {
        let difference = |what| {
            Some(Difference {
                case: case.name,
                what,
            })
        };
        match self.find(case, features) {
            None => difference("nothing is recorded for a machine like this".to_owned()),
            Some(recording) if recording.report == *found => None,
            Some(recording) => difference(format!(
                "on {}: {}",
                kernels(&recording.recorded_on),
                unlike(&recording.report, found)
            )),
        }
    }

    /// Takes a new recording: it confirms the one for the same features, or takes its place.
    pub fn take(
        &mut self,
        case: &Case,
        features: &Features,
        recorded_on: &str,
        report: CaseReport,
    ) {
        let when = case.relevant(features);
        let machine = recorded_on.to_owned();
        let recordings = self.cases.entry(case.name.to_owned()).or_default();
        recordings.retain(|old| old.when.len() == when.len());
        match recordings.iter_mut().find(|old| old.when == when) {
            Some(old) if old.report == report => {
                old.recorded_on.insert(machine);
            }
            Some(old) => {
                *old = Recording {
                    when,
                    recorded_on: [machine].into(),
                    report,
                }
            }
            None => recordings.push(Recording {
                when,
                recorded_on: [machine].into(),
                report,
            }),
        }
        recordings.sort_by(|a, b| a.when.cmp(&b.when));
    }

    /// Takes all that was recorded on one machine; cases that exist no more go.
    ///
    /// # Errors
    /// With the first case that could not be played.
    pub fn take_all(&mut self, recorded: Recorded) -> Result<(), String> {
        self.cases
            .retain(|name, _| crate::CASES.iter().any(|case| case.name == name));
        for case in &crate::CASES {
            let report = recorded
                .reports
                .get(case.name)
                .ok_or_else(|| format!("{} was not played", case.name))?;
            let report = report
                .clone()
                .map_err(|fault| format!("{}: {fault}", case.name))?;
            self.take(case, &recorded.features, &recorded.machine, report);
        }
        Ok(())
    }

    /// As the file has it.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

fn kernels(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<&str>>()
        .join(", ")
}

/// The lines in which two reports differ.
fn unlike(expected: &CaseReport, found: &CaseReport) -> String {
    let lines = |report: &CaseReport| -> Vec<String> {
        let actions = report.actions.iter().map(|acted| format!("{acted:?}"));
        actions
            .chain(
                report
                    .facts
                    .iter()
                    .map(|(name, fact)| format!("{name}: {fact:?}")),
            )
            .collect()
    };
    let (expected, found) = (lines(expected), lines(found));
    let missing = expected
        .iter()
        .filter(|line| !found.contains(line))
        .map(|line| format!("\n    expected {line}"));
    let surplus = found
        .iter()
        .filter(|line| !expected.contains(line))
        .map(|line| format!("\n    found    {line}"));
    missing.chain(surplus).collect()
}
