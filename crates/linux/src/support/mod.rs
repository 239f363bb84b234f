//! What this kernel can do, found by trying.
//!
//! *Problem.* Distributions patch, configure and lock down kernels; containers take capabilities and files away. A version
//! number knows nothing of it.
//!
//! *Approach.* Each [`Feature`](feature::Feature) has one probe that does the thing, on a process forked for that purpose
//! or on a setting that is written with its own value, and looks at the effect. What is found is a
//! [`Finding`](finding::Finding): a state, the ground for it, and the line that would change it. A probe never asks for
//! the kernel's version: [`env::Syscalls`] has no call for it.
//!
//! *Bounds.* One probe child with at most [`SLOTS_MAX`] slots, some 40 MiB for some tens of milliseconds; one BTF blob of
//! at most 64 MiB; nothing is written to a process of anybody else.
//!
//! *Do no harm.* DAMON is touched only where nobody uses it, and given back; the child gives it back where we die first.
//! Other settings are at the most opened for writing or written with the value they have.
//!
//! One module a group: `privileges`, `acting`, `looking`, `damon` and `page_idle`, `placing`, `sampling`, `settings`,
//! `accounting`. `policies` derives from the findings what each policy can do.

mod accounting;
mod acting;
pub mod btf;
mod damon;
pub mod env;
pub mod feature;
pub mod finding;
pub mod live;
mod looking;
mod page_idle;
pub mod perf_records;
mod placing;
pub mod policies;
mod privileges;
mod sampling;
mod settings;
mod smaps;

use env::{Child, Env};
use feature::Feature;
use finding::{Finding, State, errno_name};
use policies::Verdict;
use serde::Serialize;
use std::collections::BTreeMap;

/// Slots that all probes together map: a bound on memory, two mebibytes each on x86.
pub const SLOTS_MAX: u64 = 24;

/// All findings, at most one a feature.
#[derive(Debug, Clone, Default)]
pub struct Findings(BTreeMap<Feature, Finding>);

impl Findings {
    /// Records one.
    ///
    /// # Panics
    /// If the feature has been probed before: a programmer's error.
    pub fn add(&mut self, finding: Finding) {
        let before = self.0.insert(finding.feature, finding);
        assert!(before.is_none(), "probed twice: {before:?}");
    }

    /// The finding about a feature.
    ///
    /// # Panics
    /// If it has not been probed: `probe` leaves none out.
    #[must_use]
    pub fn of(&self, feature: Feature) -> &Finding {
        self.0
            .get(&feature)
            .unwrap_or_else(|| panic!("{} was not probed", feature.name()))
    }

    /// Is the feature usable, at least in part?
    #[must_use]
    pub fn usable(&self, feature: Feature) -> bool {
        self.of(feature).state.usable()
    }

    /// Is there no finding about the feature yet?
    fn lacks(&self, feature: Feature) -> bool {
        !self.0.contains_key(&feature)
    }
}

/// What `doctor` says.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub schema: u32,
    /// Collapse and split on any process.
    pub main_job: Verdict,
    /// One verdict a policy.
    pub policies: Vec<Verdict>,
    /// One finding a feature, in the table's order.
    pub findings: Vec<Finding>,
}

/// The version of the report's form: raised when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// Probes everything.
#[must_use]
pub fn probe(env: &Env<'_>) -> Report {
    let mut findings = Findings::default();
    privileges::probe(env, &mut findings);
    settings::probe(env, &mut findings);
    accounting::probe(env, &mut findings);
    let without_child = match env.calls.spawn() {
        Ok(child) => {
            probe_with(env, child.as_ref(), &mut findings);
            "no probe covers it".to_owned()
        }
        Err(errno) => format!("no probe child: {}", errno_name(errno)),
    };
    for &feature in Feature::ALL {
        if findings.lacks(feature) {
            findings.add(Finding::new(feature, State::Unknown, &without_child));
        }
    }
    Report {
        schema: SCHEMA,
        main_job: policies::main_job(&findings),
        policies: policies::all(&findings),
        findings: Feature::ALL
            .iter()
            .map(|&feature| findings.of(feature).clone())
            .collect(),
    }
}

/// The probes that need a child.
fn probe_with(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    acting::probe(env, child, findings);
    looking::probe(env, child, findings);
    page_idle::probe(env, child, findings);
    placing::probe(env, child, findings);
    sampling::probe(env, child, findings);
    damon::probe(env, child, findings);
}
