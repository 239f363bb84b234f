//! Faults and accesses of another process: perf, BPF, delay accounting.

use super::Findings;
use super::btf;
use super::env::{Child, Env, PerfEvent};
use super::feature::Feature;
use super::finding::{Finding, State};
use super::privileges::setcap;
use rustix::io::Errno;
use std::path::Path;

/// The kernel function whose entry is traced.
const TRACED: &str = "handle_mm_fault";
/// The largest BTF blob read: distribution kernels have some 5 MiB.
const BTF_BYTES_MAX: usize = 64 << 20;
/// Faults that the child makes for a probe.
const FAULTS: u64 = 4;

/// `PERF_SAMPLE_IP | TID | ADDR | CPU | WEIGHT | DATA_SRC`.
const MEMORY_SAMPLE: u64 = 0x1 | 0x2 | 0x8 | 0x80 | 0x4000 | 0x8000;
const MEMORY_PERIOD: u64 = 100_003;
/// `cnt_ctl` of IBS op: count dispatched operations.
const IBS_COUNT_OPS: u64 = 1 << 19;

/// Probes the group.
pub fn probe(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    findings.add(page_faults(env, child));
    findings.add(hardware(env, child));
    findings.add(memory(env, child));
    let blob = env
        .calls
        .read(&env.sys.join("kernel/btf/vmlinux"), 0, BTF_BYTES_MAX);
    let id = blob.as_ref().ok().and_then(|b| btf::function_id(b, TRACED));
    findings.add(match (&blob, id) {
        (Ok(_), Some(id)) => Finding::works(Feature::Btf, format!("has {TRACED}")).value("id", id),
        (Ok(_), None) => Finding::new(Feature::Btf, State::Absent, format!("has no {TRACED}")),
        (Err(errno), _) => Finding::refused(Feature::Btf, "reading vmlinux", *errno),
    });
    findings.add(fentry(env, child, id));
    findings.add(delay_accounting(env));
}

fn perf_fix() -> String {
    format!(
        "{}; or: sysctl kernel.perf_event_paranoid=-1",
        setcap("cap_perfmon")
    )
}

/// Touches fresh pages; fresh, so that each touch faults.
fn fault(child: &dyn Child) -> Result<u64, Errno> {
    let slot = child.map(1)?;
    child.touch(slot.start, FAULTS)?;
    Ok(slot.start)
}

fn page_faults(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::PerfPageFaults;
    let mut touched = Err(Errno::SRCH);
    let seen = env
        .calls
        .page_faults(child.pid(), &mut || touched = fault(child));
    match (seen, touched) {
        (Err(errno), _) => {
            Finding::refused(feature, "perf_event_open", errno).fix_if_forbidden(perf_fix())
        }
        (Ok(_), Err(errno)) => Finding::refused(feature, "touching pages", errno),
        (Ok(seen), Ok(start)) if seen.contains(&start) => {
            Finding::works(feature, "each fault with its address").value("samples", seen.len())
        }
        (Ok(seen), Ok(_)) => Finding::new(feature, State::Absent, "a fault was not reported")
            .value("samples", seen.len()),
    }
}

fn hardware(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::PerfHardware;
    // PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES.
    let cycles = PerfEvent {
        kind: 0,
        config: 0,
        config1: 0,
        period: 0,
        sample_type: 0,
        precise: 0,
    };
    match env.calls.perf_open(&cycles, child.pid()) {
        Ok(()) => Finding::works(feature, "cycles can be counted"),
        Err(errno) => Finding::refused(feature, "counting cycles", errno)
            .fix(fix_for(errno, "a machine, or a guest, with a PMU")),
    }
}

/// What helps against a refusal: a permission, or the machine that has it.
fn fix_for(errno: Errno, machine: &str) -> String {
    match State::of_errno(errno) {
        State::Forbidden => perf_fix(),
        State::Works | State::Partly | State::Absent | State::Unknown => machine.to_owned(),
    }
}

/// Tries the machine's own memory-sampling event: IBS op where AMD has it, PEBS loads where Intel has it.
fn memory(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::PerfMemory;
    let machine = "a machine with Intel PEBS or AMD IBS, not a guest without a PMU";
    let (name, event) = match memory_event(env) {
        Ok(found) => found,
        Err(errno) => {
            return Finding::refused(feature, "looking for ibs_op or mem-loads", errno)
                .fix(machine);
        }
    };
    match env.calls.perf_open(&event, child.pid()) {
        Ok(()) => Finding::works(feature, format!("{name} opens")),
        // Newer Intel cores want another event opened beside it.
        Err(Errno::NODATA) => Finding::new(
            feature,
            State::Partly,
            format!("{name} needs its auxiliary event beside it"),
        )
        .value("errno", "ENODATA"),
        Err(errno) => Finding::refused(feature, name, errno).fix(fix_for(errno, machine)),
    }
}

fn memory_event(env: &Env<'_>) -> Result<(&'static str, PerfEvent), Errno> {
    let devices = env.sys.join("bus/event_source/devices");
    match pmu_kind(env, &devices.join("ibs_op")) {
        Ok(kind) => return Ok(("ibs_op", sampling(kind, IBS_COUNT_OPS, 0, 0))),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let mut last = Errno::NOENT;
    for cpu in ["cpu", "cpu_core"] {
        let device = devices.join(cpu);
        match env.text(&device.join("events/mem-loads")) {
            Ok(text) => {
                let (config, ldlat) = parse_event(&text).ok_or(Errno::INVAL)?;
                let kind = pmu_kind(env, &device)?;
                return Ok(("mem-loads", sampling(kind, config, ldlat, 2)));
            }
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

fn sampling(kind: u32, config: u64, config1: u64, precise: u8) -> PerfEvent {
    PerfEvent {
        kind,
        config,
        config1,
        period: MEMORY_PERIOD,
        sample_type: MEMORY_SAMPLE,
        precise,
    }
}

fn pmu_kind(env: &Env<'_>, device: &Path) -> Result<u32, Errno> {
    let text = env.text(&device.join("type"))?;
    text.parse().map_err(|_not_a_number| Errno::INVAL)
}

/// `event=0xcd,umask=0x1,ldlat=3` as the event's code and its latency threshold.
fn parse_event(text: &str) -> Option<(u64, u64)> {
    let (mut config, mut ldlat) = (0, 0);
    for term in text.trim().split(',') {
        let (name, value) = term.split_once('=')?;
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
        match name {
            "event" => config |= value,
            "umask" => config |= value << 8,
            "ldlat" => ldlat = value,
            _other_term => {}
        }
    }
    Some((config, ldlat))
}

fn fentry(env: &Env<'_>, child: &dyn Child, id: Option<u32>) -> Finding {
    let feature = Feature::BpfFentry;
    let Some(id) = id else {
        return Finding::new(
            feature,
            State::Absent,
            format!("no BTF id of {TRACED}: see btf"),
        )
        .fix("a kernel with CONFIG_DEBUG_INFO_BTF=y");
    };
    let mut touched = Err(Errno::SRCH);
    let counted = env.calls.fentry(id, &mut || touched = fault(child));
    match counted {
        Ok(count) if count >= FAULTS => {
            Finding::works(feature, "counted faults").value("count", count)
        }
        Ok(count) => Finding::new(feature, State::Absent, "attached, and counts nothing")
            .value("count", count),
        Err(refused) => Finding::refused(feature, &format!("bpf: {}", refused.step), refused.errno)
            .value("step", refused.step)
            .fix_if_forbidden(format!(
                "{}; a kernel that is not locked down",
                setcap("cap_bpf,cap_perfmon")
            )),
    }
}

/// Reads the switch and writes its own value back.
fn delay_accounting(env: &Env<'_>) -> Finding {
    let feature = Feature::DelayAccounting;
    let file = env.proc.join("sys/kernel/task_delayacct");
    let value = match env.text(&file) {
        Ok(value) => value,
        Err(errno) => return Finding::refused(feature, "reading task_delayacct", errno),
    };
    match value.as_str() {
        "0" => Finding::new(feature, State::Partly, "there, and off")
            .fix("sysctl kernel.task_delayacct=1"),
        _ => Finding::works(feature, "on"),
    }
    .value("task_delayacct", value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_events_are_codes() {
        assert_eq!(
            parse_event("event=0xcd,umask=0x1,ldlat=3\n"),
            Some((0x1cd, 3))
        );
        assert_eq!(parse_event("event"), None);
    }
}
