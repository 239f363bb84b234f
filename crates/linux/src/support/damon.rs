//! DAMON, borrowed for a moment and given back.
//!
//! DAMON's sysfs has one owner at a time. Where `nr_kdamonds` is not 0 somebody uses it, and nothing is written: only what
//! the owner's first context tells is read. Else one kdamond is made, its files are tried, it is switched on for the probe child and off, and `nr_kdamonds` is set to 0
//! again. The child does the latter if we die before.

use super::Findings;
use super::env::{Answer, Child, Env, PseudoFs};
use super::feature::Feature;
use super::finding::{Finding, State};
use super::privileges::setcap;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Features that need a kdamond to be tried.
const WITH_KDAMOND: [Feature; 8] = [
    Feature::DamonFree,
    Feature::DamonVaddr,
    Feature::DamonFvaddr,
    Feature::DamonPaddr,
    Feature::DamonTriedRegions,
    Feature::DamonHugepage,
    Feature::DamonMigrate,
    Feature::DamonCollapse,
];
/// The operations and their features.
const OPERATIONS: [(Feature, &str); 3] = [
    (Feature::DamonVaddr, "vaddr"),
    (Feature::DamonFvaddr, "fvaddr"),
    (Feature::DamonPaddr, "paddr"),
];
/// What frees it.
const STOP: &str =
    "stop whoever uses DAMON; if that was a hugepilot that was killed: hugepilot restore";
/// Modules that hold DAMON while they are on.
const HOLDERS: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

/// Probes the group.
pub fn probe(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    findings.add(aggregated(env, child));
    let kdamonds = env.sys.join("kernel/mm/damon/admin/kdamonds");
    let number = kdamonds.join("nr_kdamonds");
    match env.text(&number) {
        Err(errno) => without(findings, |feature| {
            Finding::refused(feature, "reading nr_kdamonds", errno).fix_if_forbidden("run as root")
        }),
        Ok(users) if users != "0" => {
            findings.add(Finding::works(Feature::Damon, "present").value("nr_kdamonds", &users));
            in_use(env, &kdamonds, &users, findings);
        }
        Ok(_) => match Borrowed::take(env, child, &kdamonds) {
            Ok(borrowed) => {
                findings.add(Finding::works(Feature::Damon, "present, and nobody's"));
                tried(&borrowed, findings);
            }
            Err(errno) => without(findings, |feature| {
                Finding::refused(feature, "writing nr_kdamonds", errno)
                    .fix_if_forbidden("run as root")
            }),
        },
    }
}

/// The tracepoint that tells what was counted.
fn aggregated(env: &Env<'_>, child: &dyn Child) -> Finding {
    const ID: &str = "events/damon/damon_aggregated/id";
    let feature = Feature::DamonAggregated;
    let text = match env.calls.read_unmounted(PseudoFs::Tracefs, ID) {
        Ok(text) => text,
        Err(errno) => {
            return Finding::refused(feature, "looking it up in tracefs", errno)
                .fix_if_forbidden("run as root");
        }
    };
    let Ok(id) = String::from_utf8_lossy(&text).trim().parse() else {
        return Finding::new(feature, State::Absent, "tracefs tells no number of it");
    };
    match env.calls.perf_tracepoint(id, child.pid()) {
        Ok(()) => Finding::works(feature, "opens"),
        Err(errno) => Finding::refused(feature, "perf_event_open", errno)
            .fix_if_forbidden(setcap("cap_perfmon")),
    }
}

/// The same finding of all features of the group that need a kdamond.
fn without(findings: &mut Findings, finding: impl Fn(Feature) -> Finding) {
    findings.add(finding(Feature::Damon));
    for feature in WITH_KDAMOND {
        findings.add(finding(feature));
    }
}

/// Somebody else's: what its first context tells of operations is read, nothing is tried.
fn in_use(env: &Env<'_>, kdamonds: &Path, users: &str, findings: &mut Findings) {
    let available = env.text(&kdamonds.join("0/contexts/0/avail_operations"));
    for feature in WITH_KDAMOND {
        let operation = OPERATIONS.iter().find(|(of, _)| *of == feature);
        findings.add(match (&available, operation) {
            (Ok(names), Some((_, operation))) => listed(feature, operation, names),
            (_, _) if feature == Feature::DamonFree => Finding::new(
                feature,
                State::Forbidden,
                format!("in use: somebody has made {users} kdamonds; not touched"),
            )
            .fix(STOP),
            (_, _) => Finding::new(
                feature,
                State::Unknown,
                "not tried while somebody else uses DAMON: see damon_free",
            ),
        });
    }
}

/// What the owner's context lists.
fn listed(feature: Feature, operation: &str, names: &str) -> Finding {
    if names.lines().any(|name| name == operation) {
        Finding::works(
            feature,
            format!("{operation}: listed, not tried: see damon_free"),
        )
    } else {
        Finding::new(
            feature,
            State::Absent,
            format!("{operation}: not in this kernel"),
        )
    }
    .value("avail_operations", names.replace('\n', " "))
}

/// One kdamond with one context and one scheme. Given back when dropped.
struct Borrowed<'a> {
    env: &'a Env<'a>,
    child: &'a dyn Child,
    number: PathBuf,
    kdamond: PathBuf,
    context: PathBuf,
}

impl<'a> Borrowed<'a> {
    fn take(env: &'a Env<'a>, child: &'a dyn Child, kdamonds: &Path) -> Answer<Self> {
        let kdamond = kdamonds.join("0");
        let borrowed = Self {
            env,
            child,
            number: kdamonds.join("nr_kdamonds"),
            context: kdamond.join("contexts/0"),
            kdamond,
        };
        child.restore_later(&borrowed.kdamond.join("state"), "off")?;
        child.restore_later(&borrowed.number, "0")?;
        env.set(&borrowed.number, "1")?;
        env.set(&borrowed.kdamond.join("contexts/nr_contexts"), "1")?;
        Ok(borrowed)
    }

    /// Writes a file of the context.
    fn set(&self, file: &str, text: &str) -> Answer<()> {
        self.env.set(&self.context.join(file), text)
    }

    /// Chooses an operation: the kernel refuses one that it does not have.
    fn choose(&self, operation: &str) -> Answer<()> {
        self.set("operations", operation)
    }

    /// Switches it on for the child by the first operation that there is, and off again.
    fn switch_on(&self, operation: &str) -> Answer<()> {
        self.choose(operation)?;
        self.set("targets/nr_targets", "1")?;
        match operation {
            "paddr" => {
                self.set("targets/0/regions/nr_regions", "1")?;
                self.set("targets/0/regions/0/start", "0")?;
                let page = self.env.geometry.base_page().0.to_string();
                self.set("targets/0/regions/0/end", &page)?;
            }
            _virtual => self.set("targets/0/pid_target", &self.child.pid().to_string())?,
        }
        let state = self.kdamond.join("state");
        self.env.set(&state, "on")?;
        self.env.set(&state, "off")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let given_back = self.env.set(&self.number, "0");
        if given_back.is_ok() {
            let forgotten = self.child.forget_restores();
            debug_assert!(forgotten.is_ok(), "the child answers: {forgotten:?}");
        }
        // Else the child, which still remembers, tries again when it ends.
    }
}

fn tried(borrowed: &Borrowed<'_>, findings: &mut Findings) {
    let mut first = None;
    for (feature, operation) in OPERATIONS {
        let chosen = borrowed.choose(operation);
        if chosen.is_ok() {
            first = first.or(Some(operation));
        }
        findings.add(accepted(feature, operation, chosen));
    }
    findings.add(free(borrowed, first));
    let schemes = borrowed.set("schemes/nr_schemes", "1");
    let action = |name: &str| schemes.and_then(|()| borrowed.set("schemes/0/action", name));
    let both = |one: &str, other: &str| action(one).and_then(|()| action(other));
    findings.add(accepted(
        Feature::DamonHugepage,
        "hugepage, nohugepage",
        both("hugepage", "nohugepage"),
    ));
    findings.add(accepted(
        Feature::DamonMigrate,
        "migrate_hot, migrate_cold",
        both("migrate_hot", "migrate_cold"),
    ));
    findings.add(accepted(
        Feature::DamonCollapse,
        "collapse",
        action("collapse"),
    ));
    let regions = action("stat").and_then(|()| {
        let directory = borrowed.context.join("schemes/0/tried_regions");
        borrowed.env.calls.list(&directory).map(drop)
    });
    findings.add(accepted(
        Feature::DamonTriedRegions,
        "tried_regions",
        regions,
    ));
}

fn accepted(feature: Feature, what: &str, answer: Answer<()>) -> Finding {
    match answer {
        Ok(()) => Finding::works(feature, format!("{what}: accepted")),
        Err(errno) => Finding::refused(feature, what, errno),
    }
}

/// Can it be switched on? If not, who holds it?
fn free(borrowed: &Borrowed<'_>, operation: Option<&str>) -> Finding {
    let feature = Feature::DamonFree;
    let Some(operation) = operation else {
        return Finding::new(feature, State::Absent, "no operations to switch on");
    };
    match borrowed.switch_on(operation) {
        Ok(()) => Finding::works(feature, format!("switched on ({operation}) and off")),
        Err(Errno::BUSY) => held(borrowed.env, feature),
        Err(errno) => Finding::refused(feature, "switching it on", errno),
    }
}

fn held(env: &Env<'_>, feature: Feature) -> Finding {
    let on = |module: &&str| {
        let file = env.sys.join(format!("module/{module}/parameters/enabled"));
        env.text(&file).is_ok_and(|text| text == "Y")
    };
    let holders: Vec<&str> = HOLDERS.into_iter().filter(on).collect();
    let finding = Finding::new(
        feature,
        State::Forbidden,
        match holders.as_slice() {
            [] => "held by somebody: EBUSY".to_owned(),
            some => format!("held by {}", some.join(", ")),
        },
    )
    .value("errno", "EBUSY");
    match holders.as_slice() {
        ["damon_stat"] => finding.fix(
            "hugepilot manage --take-damon, or: echo N > /sys/module/damon_stat/parameters/enabled",
        ),
        [module, ..] => finding.fix(format!("echo N > /sys/module/{module}/parameters/enabled")),
        [] => finding.fix(STOP),
    }
}
