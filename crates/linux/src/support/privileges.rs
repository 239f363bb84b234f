//! Capabilities held, and whether Yama lets us read other processes.

use super::Findings;
use super::env::{Answer, Env};
use super::feature::Feature;
use super::finding::{Finding, State};
use rustix::io::Errno;

/// Each capability with its number and the name that setcap takes.
const CAPABILITIES: [(Feature, u8, &str); 7] = [
    (Feature::CapSysNice, 23, "cap_sys_nice"),
    (Feature::CapSysPtrace, 19, "cap_sys_ptrace"),
    (Feature::CapSysAdmin, 21, "cap_sys_admin"),
    (Feature::CapPerfmon, 38, "cap_perfmon"),
    (Feature::CapBpf, 39, "cap_bpf"),
    (Feature::CapDacReadSearch, 2, "cap_dac_read_search"),
    (Feature::CapSysResource, 24, "cap_sys_resource"),
];
const CAP_SYS_PTRACE: u8 = 19;

/// The line that gives capabilities to the program.
pub fn setcap(names: &str) -> String {
    format!("run as root, or: setcap {names}+ep \"$(command -v hugepilot)\"")
}

/// Probes the group.
pub fn probe(env: &Env<'_>, findings: &mut Findings) {
    let held = env.calls.capabilities();
    for (feature, number, name) in CAPABILITIES {
        findings.add(capability(feature, held, number, name));
    }
    findings.add(ptrace_scope(env, held));
}

fn capability(feature: Feature, held: Answer<u64>, number: u8, name: &str) -> Finding {
    match held {
        Err(errno) => Finding::refused(feature, "capget", errno).fix(setcap(name)),
        Ok(held) if held & (1 << number) != 0 => Finding::works(feature, "held"),
        Ok(held) => Finding::new(feature, State::Forbidden, "not held")
            .value("effective", format_args!("{held:#x}"))
            .fix(setcap(name)),
    }
}

fn ptrace_scope(env: &Env<'_>, held: Answer<u64>) -> Finding {
    let feature = Feature::PtraceScope;
    let file = env.proc.join("sys/kernel/yama/ptrace_scope");
    let scope = match env.text(&file) {
        Ok(scope) => scope,
        Err(Errno::NOENT) => return Finding::works(feature, "this kernel has no Yama"),
        Err(errno) => return Finding::refused(feature, "reading ptrace_scope", errno),
    };
    let ptrace = held.is_ok_and(|held| held & (1 << CAP_SYS_PTRACE) != 0);
    let finding = match (scope.as_str(), ptrace) {
        ("0", _) => Finding::works(feature, "Yama lets processes of one user read each other"),
        ("1" | "2", true) => Finding::works(feature, "CAP_SYS_PTRACE passes Yama"),
        ("1" | "2", false) => Finding::new(
            feature,
            State::Forbidden,
            "Yama lets only CAP_SYS_PTRACE read processes that are not our children",
        )
        .fix(setcap("cap_sys_ptrace")),
        _ => Finding::new(feature, State::Forbidden, "Yama forbids it to everybody")
            .fix("kernel.yama.ptrace_scope=1 in /etc/sysctl.d, then reboot"),
    };
    finding.value("ptrace_scope", scope)
}
