//! Intel's memory sampling: PEBS loads, with address, latency and what served them.
//!
//! **Event.** `mem-loads` as the kernel's PMU names it, with the kernel's latency threshold; where there is a `mem-loads-aux`
//! (Sapphire Rapids and later) that event leads the group, as the kernel demands. On hybrid machines `cpu_core` is taken.
//!
//! **Not run on hardware**: no machine of the authors' has a PMU. Decoding is tested on records that a C program writes
//! from the kernel's own headers, event codes on recorded files.

use super::hardware::{Hardware, NO_PMU};
use super::pmu::Pmu;
use super::rings::Wanted;
use super::{SamplerUnavailable, hardware};
use crate::procfs::SysRoot;
use crate::sys::perf::{Event, Excluded};
use hugepilot_core::sample::Sampler;

/// One sample a so many loads above the latency threshold, on each processor: at 10⁸ such loads a second 1,000 samples. A prime, so
/// that it does not beat with a program's loops.
const PERIOD: u64 = 100_003;
/// Skid is at most what hardware with PEBS has.
const PRECISE: u8 = 2;

/// Looks for it and tries it.
///
/// # Errors
/// Why it cannot be had.
pub fn probe(sys: &SysRoot) -> Result<Hardware, SamplerUnavailable> {
    let wanted = wanted(sys)?;
    Hardware::open(Sampler::Pebs, "mem-loads", wanted, sys)
}

fn wanted(sys: &SysRoot) -> Result<Wanted, SamplerUnavailable> {
    for name in ["cpu_core", "cpu"] {
        let Some(pmu) = Pmu::find(sys, name)? else {
            continue;
        };
        if let Some(loads) = pmu.event("mem-loads")? {
            return Ok(Wanted {
                event: Event {
                    period: PERIOD,
                    sample_type: hardware::FIELDS,
                    precise: PRECISE,
                    ..loads
                },
                excluded: Excluded::KernelAndHypervisor,
                leader: pmu.event("mem-loads-aux")?,
            });
        }
    }
    Err(SamplerUnavailable::Absent(format!(
        "no PMU has mem-loads; {NO_PMU}"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::pmu::tests::fake;
    use super::*;

    const CPU: [(&str, &str); 5] = [
        ("cpu/type", "4\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
    ];

    #[test]
    fn skylake_samples_loads_alone() {
        let (_dir, sys) = fake(&CPU);
        let wanted = wanted(&sys).expect("an event");
        assert_eq!((wanted.event.config, wanted.event.config1), (0x1cd, 3));
        assert!(wanted.leader.is_none());
    }

    #[test]
    fn sapphire_rapids_needs_a_leader() {
        let mut files = CPU.to_vec();
        files.push(("cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n"));
        let (_dir, sys) = fake(&files);
        let leader = wanted(&sys).expect("an event").leader.expect("a leader");
        assert_eq!((leader.config, leader.period), (0x8203, 0));
    }

    #[test]
    fn without_a_pmu_it_is_said_what_would_help() {
        let (_dir, sys) = fake(&[]);
        let why = wanted(&sys).expect_err("no PMU").to_string();
        assert!(why.contains("not a guest"), "{why}");
    }
}
