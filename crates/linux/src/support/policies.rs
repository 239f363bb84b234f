//! From findings to verdicts: what each policy can do here, why, and the one line that would change it.
//!
//! Pure: findings in, verdicts out. What a policy cannot do without makes it `cannot`; what it does worse without makes it
//! `works_partly`; what an operator should know and cannot hurt is a note.

use super::Findings;
use super::feature::Feature;
use super::finding::State;
use serde::Serialize;

/// How well something can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// All of it.
    Works,
    /// With limits.
    WorksPartly,
    /// Not at all.
    Cannot,
}

impl Ability {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::WorksPartly => "works partly",
            Self::Cannot => "cannot",
        }
    }
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The policy, or `main_job`.
    pub name: &'static str,
    /// How well.
    pub verdict: Ability,
    /// Why, in sentences; the gravest first.
    pub because: Vec<String>,
    /// The one line that would change it, where one would.
    pub would_change: Option<String>,
    /// The least privileges that it needs.
    pub privileges: &'static [&'static str],
}

/// The least privileges of the main job.
pub const MAIN_JOB_PRIVILEGES: &[&str] = &["CAP_SYS_NICE", "CAP_SYS_PTRACE"];
const TRACKER_PRIVILEGES: &[&str] = &["CAP_SYS_NICE", "CAP_SYS_PTRACE", "root, for a tracker"];

/// A verdict in the making.
struct Case<'a> {
    findings: &'a Findings,
    verdict: Ability,
    because: Vec<(Ability, String)>,
    would_change: Vec<(Ability, String)>,
}

impl<'a> Case<'a> {
    const fn open(findings: &'a Findings) -> Self {
        Self {
            findings,
            verdict: Ability::Works,
            because: Vec::new(),
            would_change: Vec::new(),
        }
    }

    fn say(&mut self, ability: Ability, why: String, change: Option<String>) {
        self.verdict = self.verdict.max(ability);
        self.because.push((ability, why));
        self.would_change.extend(change.map(|line| (ability, line)));
    }

    /// Without this feature it is `ability` at best.
    fn without(&mut self, feature: Feature, ability: Ability) {
        let finding = self.findings.of(feature);
        if !finding.state.usable() {
            let why = format!("{}: {}", feature.described().title, finding.detail);
            self.say(ability, why, Some(change_of(self.findings, feature)));
        }
    }

    fn close(mut self, name: &'static str, privileges: &'static [&'static str]) -> Verdict {
        self.because
            .sort_by_key(|(ability, _)| std::cmp::Reverse(*ability));
        let gravest = |list: Vec<(Ability, String)>| {
            list.into_iter()
                .rev()
                .max_by_key(|(ability, _)| *ability)
                .map(|(_, line)| line)
        };
        Verdict {
            name,
            verdict: self.verdict,
            because: self.because.into_iter().map(|(_, why)| why).collect(),
            would_change: gravest(self.would_change),
            privileges,
        }
    }
}

/// The line that would change a finding: its fix, else the kernel that has it.
fn change_of(findings: &Findings, feature: Feature) -> String {
    findings.of(feature).fix.clone().unwrap_or_else(|| {
        let row = feature.described();
        format!("a kernel with it: Linux {}", row.since)
    })
}

/// Collapse and split on any process.
#[must_use]
pub fn main_job(findings: &Findings) -> Verdict {
    let mut case = Case::open(findings);
    needs_main_job(&mut case);
    case.close("main_job", MAIN_JOB_PRIVILEGES)
}

/// One verdict a policy.
#[must_use]
pub fn all(findings: &Findings) -> Vec<Verdict> {
    vec![mega(findings), ingens(findings), linux(findings)]
}

fn needs_main_job(case: &mut Case<'_>) {
    for feature in [
        Feature::PidfdOpen,
        Feature::RemoteCollapse,
        Feature::RemoteSplit,
    ] {
        case.without(feature, Ability::Cannot);
    }
    if !case.findings.usable(Feature::PagemapScan) {
        case.without(Feature::Pagemap, Ability::Cannot);
    }
    if case.findings.of(Feature::CapSysPtrace).state != State::Works {
        case.say(
            Ability::WorksPartly,
            "without CAP_SYS_PTRACE only processes of our own user".to_owned(),
            case.findings.of(Feature::CapSysPtrace).fix.clone(),
        );
    }
}

/// khugepaged may undo splits.
fn minds_khugepaged(case: &mut Case<'_>) {
    let finding = case.findings.of(Feature::KhugepagedQuiet);
    let ability = match finding.state {
        State::Works | State::Unknown => return,
        State::Partly => Ability::Works,
        State::Absent | State::Forbidden => Ability::WorksPartly,
    };
    case.say(ability, finding.detail.clone(), finding.fix.clone());
}

/// Can DAMON tell the accessed share below the slot?
fn damon_tracks(findings: &Findings) -> bool {
    let virtual_addresses =
        findings.usable(Feature::DamonFvaddr) || findings.usable(Feature::DamonVaddr);
    virtual_addresses
        && findings.usable(Feature::DamonFree)
        && findings.usable(Feature::DamonAggregated)
}

/// What would give a tracker: DAMON where only its holder is in the way, else a kernel that has one.
fn tracker_change(findings: &Findings) -> String {
    let held = findings.of(Feature::DamonFree);
    let virtual_addresses = findings.of(Feature::DamonVaddr).state;
    match &held.fix {
        Some(fix) if matches!(virtual_addresses, State::Works | State::Unknown) => fix.clone(),
        _not_only_held => {
            "a kernel with CONFIG_DAMON_VADDR=y (Debian's from 6.12 on) or CONFIG_IDLE_PAGE_TRACKING=y (Fedora's), and root"
                .to_owned()
        }
    }
}

/// Why nothing tells the accessed share of base-page slots.
fn untracked(findings: &Findings) -> String {
    let virtual_addresses =
        findings.usable(Feature::DamonFvaddr) || findings.usable(Feature::DamonVaddr);
    let damon = if virtual_addresses {
        format!("DAMON: {}", findings.of(Feature::DamonFree).detail)
    } else {
        "no DAMON on virtual addresses".to_owned()
    };
    let slots = if findings.usable(Feature::DamonPaddr) && findings.usable(Feature::DamonFree) {
        "; a huge slot's own accessed bit shows by DAMON on physical addresses"
    } else {
        ""
    };
    format!(
        "no tracker for the accessed share of base-page slots ({damon}, no page_idle): they are judged by present \
         share alone{slots}"
    )
}

fn mega(findings: &Findings) -> Verdict {
    let mut case = Case::open(findings);
    needs_main_job(&mut case);
    if !damon_tracks(findings) && !findings.usable(Feature::PageIdle) {
        let change = tracker_change(findings);
        case.say(Ability::WorksPartly, untracked(findings), Some(change));
    }
    case.without(Feature::SplitFreesZero, Ability::WorksPartly);
    case.without(Feature::ProcessVmReadv, Ability::WorksPartly);
    case.without(Feature::CgroupMemory, Ability::WorksPartly);
    minds_khugepaged(&mut case);
    case.close("mega", TRACKER_PRIVILEGES)
}

fn ingens(findings: &Findings) -> Verdict {
    let mut case = Case::open(findings);
    needs_main_job(&mut case);
    case.without(Feature::CgroupMemory, Ability::WorksPartly);
    minds_khugepaged(&mut case);
    if !damon_tracks(findings) && !findings.usable(Feature::PageIdle) {
        let why = "fairness by huge bytes, since no tracker tells who uses them".to_owned();
        case.say(Ability::Works, why, None);
    }
    case.close("ingens", MAIN_JOB_PRIVILEGES)
}

fn linux(findings: &Findings) -> Verdict {
    let mut case = Case::open(findings);
    for feature in [Feature::ThpEnabled, Feature::ThpDefrag] {
        let finding = findings.of(feature);
        if finding.state != State::Works {
            let why = format!("{}: {}", feature.described().title, finding.detail);
            case.say(Ability::Cannot, why, Some(change_of(findings, feature)));
        }
    }
    case.close("linux", &["root, with /sys writable"])
}
