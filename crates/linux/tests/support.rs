//! What `doctor` says when a feature is missing, on a fake kernel; and on the real one.

mod support_fake;

use hugepilot_core::geometry::Geometry;
use hugepilot_linux::support::env::{Env, Syscalls};
use hugepilot_linux::support::feature::Feature;
use hugepilot_linux::support::finding::{Finding, State};
use hugepilot_linux::support::live::Live;
use hugepilot_linux::support::policies::{Ability, Verdict};
use hugepilot_linux::support::{Report, probe};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use support_fake::{FakeKernel, PROC, SYS};

fn of(report: &Report, feature: Feature) -> &Finding {
    let found = report.findings.iter().find(|f| f.feature == feature);
    found.expect("one finding a feature")
}

fn policy<'a>(report: &'a Report, name: &str) -> &'a Verdict {
    let found = report.policies.iter().find(|verdict| verdict.name == name);
    found.expect("a verdict a policy")
}

fn without(feature: Feature) -> Report {
    probe(&FakeKernel::without(feature).env())
}

#[test]
fn a_complete_kernel_can_do_everything() {
    let report = probe(&FakeKernel::complete().env());
    for finding in &report.findings {
        assert_eq!(finding.state, State::Works, "{finding:?}");
    }
    assert_eq!(report.findings.len(), Feature::ALL.len());
    assert_eq!(report.main_job.verdict, Ability::Works);
    for verdict in &report.policies {
        assert_eq!(verdict.verdict, Ability::Works, "{verdict:?}");
        assert_eq!(verdict.would_change, None, "{verdict:?}");
    }
}

/// The heart of it: whatever is taken away is missed, under a version that promises all.
#[test]
fn every_feature_is_missed_when_it_is_taken_away() {
    for &feature in Feature::ALL {
        let report = without(feature);
        let finding = of(&report, feature);
        assert!(
            matches!(finding.state, State::Absent | State::Forbidden),
            "{finding:?}"
        );
        assert!(!finding.detail.is_empty(), "{finding:?}");
        assert!(
            finding.state == State::Absent || finding.fix.is_some(),
            "what is forbidden has a fix: {finding:?}"
        );
    }
}

#[test]
fn the_version_is_never_asked_for() {
    let kernel = FakeKernel::complete();
    let report = probe(&kernel.env());
    let used = kernel.used.borrow();
    for file in ["version", "sys/kernel/osrelease", "sys/kernel/version"] {
        assert!(!used.contains(&Path::new(PROC).join(file)), "{file}");
    }
    let outside = used
        .iter()
        .find(|path| !path.starts_with(PROC) && !path.starts_with(SYS));
    assert_eq!(outside, None, "all files lie below the given roots");
    // The same kernel under an old name gives the same findings.
    let old = FakeKernel::complete();
    old.put("/fake/proc/version", "Linux version 2.6.18");
    old.put("/fake/proc/sys/kernel/osrelease", "2.6.18");
    assert_eq!(probe(&old.env()).findings, report.findings);
}

#[test]
fn without_its_calls_the_main_job_cannot() {
    for feature in [
        Feature::PidfdOpen,
        Feature::RemoteCollapse,
        Feature::RemoteSplit,
    ] {
        let report = without(feature);
        assert_eq!(report.main_job.verdict, Ability::Cannot, "{feature:?}");
        assert!(report.main_job.would_change.is_some(), "{feature:?}");
        for name in ["mega", "ingens"] {
            assert_eq!(policy(&report, name).verdict, Ability::Cannot, "{name}");
        }
        assert_eq!(policy(&report, "linux").verdict, Ability::Works);
    }
}

#[test]
fn a_missing_capability_is_named() {
    let report = without(Feature::RemoteCollapse);
    let change = report.main_job.would_change.expect("EPERM has a fix");
    assert!(change.contains("cap_sys_nice"), "{change}");
    let report = without(Feature::CapSysPtrace);
    assert_eq!(report.main_job.verdict, Ability::WorksPartly);
    assert!(report.main_job.because[0].contains("our own user"));
}

#[test]
fn page_tables_are_seen_by_either_way() {
    assert_eq!(
        without(Feature::PagemapScan).main_job.verdict,
        Ability::Works
    );
    let mut neither = FakeKernel::without(Feature::Pagemap);
    neither.knobs.scan = Some(Errno::NOTTY);
    assert_eq!(probe(&neither.env()).main_job.verdict, Ability::Cannot);
}

#[test]
fn mega_wants_one_tracker() {
    let check = |gone: &[Feature], expected: Ability| {
        let mut kernel = FakeKernel::complete();
        for feature in gone {
            kernel.also_without(*feature);
        }
        let report = probe(&kernel.env());
        assert_eq!(policy(&report, "mega").verdict, expected, "{gone:?}");
        policy(&report, "mega").clone()
    };
    check(&[Feature::PageIdle], Ability::Works);
    check(&[Feature::DamonFree], Ability::Works);
    let held = check(
        &[Feature::PageIdle, Feature::DamonFree],
        Ability::WorksPartly,
    );
    assert_eq!(
        held.would_change.as_deref(),
        Some(
            "hugepilot manage --take-damon, or: echo N > /sys/module/damon_stat/parameters/enabled"
        )
    );
    let no_virtual = [Feature::PageIdle, Feature::DamonVaddr, Feature::DamonFvaddr];
    let blind = check(&no_virtual, Ability::WorksPartly);
    assert!(blind.because[0].contains("no tracker"), "{blind:?}");
    assert!(
        blind
            .would_change
            .is_some_and(|c| c.contains("CONFIG_DAMON_VADDR"))
    );
}

#[test]
fn damon_is_given_back() {
    let kernel = FakeKernel::complete();
    let _report = probe(&kernel.env());
    let number = Path::new(SYS).join("kernel/mm/damon/admin/kdamonds/nr_kdamonds");
    let written = kernel.written.borrow();
    let to_number: Vec<&str> = written
        .iter()
        .filter(|(file, _)| *file == number)
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(to_number, ["1", "0"]);
    assert!(
        kernel.restores.borrow().is_empty(),
        "the child is called off"
    );
}

#[test]
fn damon_of_somebody_else_is_not_touched() {
    let kernel = FakeKernel::complete();
    let kdamonds = "/fake/sys/kernel/mm/damon/admin/kdamonds";
    kernel.put(&format!("{kdamonds}/nr_kdamonds"), "1\n");
    kernel.put(
        &format!("{kdamonds}/0/contexts/0/avail_operations"),
        "paddr\n",
    );
    let report = probe(&kernel.env());
    assert_eq!(of(&report, Feature::DamonFree).state, State::Forbidden);
    assert_eq!(of(&report, Feature::DamonPaddr).state, State::Works);
    assert_eq!(of(&report, Feature::DamonVaddr).state, State::Absent);
    assert_eq!(of(&report, Feature::DamonCollapse).state, State::Unknown);
    let written = kernel.written.borrow();
    assert!(written.iter().all(|(file, _)| !file.starts_with(kdamonds)));
}

#[test]
fn without_a_child_what_needs_one_is_unknown() {
    let mut kernel = FakeKernel::complete();
    kernel.knobs.spawn = Some(Errno::AGAIN);
    let report = probe(&kernel.env());
    assert_eq!(of(&report, Feature::RemoteCollapse).state, State::Unknown);
    assert_eq!(of(&report, Feature::Psi).state, State::Works);
    assert_eq!(report.main_job.verdict, Ability::Cannot);
}

#[test]
fn what_may_pass_is_not_called_absent() {
    let mut kernel = FakeKernel::complete();
    kernel.knobs.collapse = Some(Errno::NOMEM);
    let report = probe(&kernel.env());
    let finding = of(&report, Feature::RemoteCollapse);
    assert_eq!(finding.state, State::Unknown);
    assert!(
        finding
            .fix
            .as_ref()
            .is_some_and(|f| f.contains("compact_memory"))
    );
}

/// Settings on the running machine that a probe touches or could harm.
fn settings() -> Vec<Option<String>> {
    [
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
        "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
        "/sys/module/damon_stat/parameters/enabled",
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/kernel/task_delayacct",
    ]
    .iter()
    .map(|file| std::fs::read_to_string(file).ok())
    .collect()
}

/// DAMON has one owner at a time, so live probes take turns.
static TURN: Mutex<()> = Mutex::new(());

fn live() -> Report {
    let calls = Live {
        geometry: Geometry::X86_64,
    };
    probe(&Env::new(calls.geometry, &calls))
}

/// This kernel's configuration, where it or its distribution tells.
fn configuration() -> Option<String> {
    let unpacked = Command::new("gzip")
        .args(["-dc", "/proc/config.gz"])
        .output();
    if let Ok(output) = unpacked {
        if output.status.success() {
            return Some(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("readable by all");
    std::fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()
}

/// Options without which a feature cannot be there.
const OPTIONS: [(Feature, &str); 10] = [
    (Feature::DamonVaddr, "CONFIG_DAMON_VADDR"),
    (Feature::DamonPaddr, "CONFIG_DAMON_PADDR"),
    (Feature::Damon, "CONFIG_DAMON_SYSFS"),
    (Feature::PageIdle, "CONFIG_IDLE_PAGE_TRACKING"),
    (Feature::SoftDirty, "CONFIG_MEM_SOFT_DIRTY"),
    (Feature::NumaBalancing, "CONFIG_NUMA_BALANCING"),
    (Feature::Btf, "CONFIG_DEBUG_INFO_BTF"),
    (Feature::Hugetlb, "CONFIG_HUGETLBFS"),
    (Feature::ThpEnabled, "CONFIG_TRANSPARENT_HUGEPAGE"),
    (Feature::Psi, "CONFIG_PSI"),
];

#[test]
fn findings_on_this_machine_agree_with_its_configuration() {
    let turn = TURN.lock().expect("no live probe panics");
    let before = settings();
    let report = live();
    assert_eq!(settings(), before, "every setting is as it was");
    drop(turn);
    assert_eq!(report.findings.len(), Feature::ALL.len());
    let Some(configuration) = configuration() else {
        println!("no configuration to compare with: this kernel and its distribution publish none");
        return;
    };
    for (feature, option) in OPTIONS {
        let built = configuration
            .lines()
            .any(|line| line == format!("{option}=y"));
        let state = of(&report, feature).state;
        if built {
            assert_ne!(state, State::Absent, "{option} is built in");
        } else {
            assert!(!state.usable(), "{option} is not built in");
        }
    }
}

/// Probes with these capabilities alone, in a thread of its own: capabilities belong to threads.
fn probe_with(kept: CapabilitySet) -> Report {
    let _turn = TURN.lock().expect("no live probe panics");
    std::thread::scope(|scope| {
        let prober = scope.spawn(|| {
            let sets = CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets).expect("giving capabilities up");
            live()
        });
        prober.join().expect("the probing thread")
    })
}

#[test]
fn the_main_job_needs_two_capabilities_alone() {
    let two = CapabilitySet::SYS_NICE | CapabilitySet::SYS_PTRACE;
    let held = capabilities(None).expect("capget").effective;
    if !held.contains(two) {
        println!("not run: it gives capabilities up, and these are not held: {two:?}");
        return;
    }
    let report = probe_with(two);
    assert_eq!(
        report.main_job.verdict,
        Ability::Works,
        "{:?}",
        report.main_job
    );
    assert_eq!(of(&report, Feature::PagemapPfn).state, State::Forbidden);
    let report = probe_with(CapabilitySet::SYS_PTRACE);
    let collapse = of(&report, Feature::RemoteCollapse);
    assert_eq!(collapse.state, State::Forbidden, "{collapse:?}");
    assert_eq!(report.main_job.verdict, Ability::Cannot);
}

/// What Debian's kernels have and have not, as found in guests. A state that permission or another user of DAMON decides
/// contradicts neither.
const RECORDED: [(&str, &[Feature], &[Feature]); 3] = [
    (
        "6.1.",
        &[
            Feature::RemoteCollapse,
            Feature::RemoteSplit,
            Feature::SoftDirty,
            Feature::Btf,
        ],
        &[
            Feature::SplitFreesZero,
            Feature::CollapsePastHoles,
            Feature::CollapseForkShared,
            Feature::PagemapScan,
            Feature::ProcmapQuery,
            Feature::ExceptAdvised,
            Feature::Damon,
            Feature::Mthp,
            Feature::ShrinkUnderused,
        ],
    ),
    (
        "6.12.",
        &[
            Feature::RemoteCollapse,
            Feature::RemoteSplit,
            Feature::SplitFreesZero,
            Feature::PagemapScan,
            Feature::ProcmapQuery,
            Feature::DamonVaddr,
            Feature::DamonFvaddr,
            Feature::DamonTriedRegions,
            Feature::DamonHugepage,
            Feature::Mthp,
        ],
        &[
            Feature::CollapsePastHoles,
            Feature::CollapseForkShared,
            Feature::ExceptAdvised,
            Feature::ScanGuard,
            Feature::DamonCollapse,
            Feature::PageIdle,
        ],
    ),
    (
        "7.3.",
        &[
            Feature::RemoteCollapse,
            Feature::RemoteSplit,
            Feature::SplitFreesZero,
            Feature::CollapsePastHoles,
            Feature::CollapseForkShared,
            Feature::ExceptAdvised,
            Feature::ScanGuard,
            Feature::ScanAccessed,
            Feature::DamonVaddr,
            Feature::DamonCollapse,
        ],
        &[Feature::PageIdle],
    ),
];

#[test]
fn debians_kernels_are_as_recorded() {
    let version = std::fs::read_to_string("/proc/version").expect("readable by all");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("readable by all");
    let recorded = RECORDED
        .iter()
        .find(|(start, _, _)| release.starts_with(start));
    let (Some((_, there, absent)), true) = (recorded, version.contains("Debian")) else {
        println!("nothing recorded of this kernel: {}", release.trim());
        return;
    };
    let turn = TURN.lock().expect("no live probe panics");
    let report = live();
    drop(turn);
    for &feature in *there {
        let finding = of(&report, feature);
        assert_ne!(finding.state, State::Absent, "{finding:?}");
    }
    for &feature in *absent {
        let finding = of(&report, feature);
        assert_eq!(finding.state, State::Absent, "{finding:?}");
    }
}

/// The prober dies while it has borrowed DAMON: its child gives it back.
#[test]
fn damon_is_given_back_by_the_child_too() {
    let number = Path::new("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
    let _turn = TURN.lock().expect("no live probe panics");
    let users = std::fs::read_to_string(number);
    if !users.as_ref().is_ok_and(|users| users.trim() == "0") {
        println!("not run: DAMON is not there, not ours to use, or in use: {users:?}");
        return;
    }
    let calls = Live {
        geometry: Geometry::X86_64,
    };
    let child = calls.spawn().expect("a probe child");
    child.restore_later(number, "0").expect("room for one");
    std::fs::write(number, "1").expect("nobody uses DAMON");
    // Dropping closes the socket, which is what the child sees of a prober's death.
    drop(child);
    let users = std::fs::read_to_string(number).expect("still there");
    assert_eq!(users.trim(), "0");
}
