//! The kernel's NUMA hinting faults, as perf's software event of page faults.
//!
//! **Problem.** Without a PMU nothing counts accesses. But where `kernel.numa_balancing` is on, the kernel takes access rights
//! away from a piece of each process's memory after the other, and whoever accesses it next faults. perf delivers each
//! fault with its thread, processor and exact address.
//!
//! **What it tells.** Who, not how often: at most one fault a page (a huge page, where one is mapped) and scan. So samples
//! have no rate, and what is weighted by volume (imbalance, PAMUP, NHP) is not known from them.
//!
//! **First touches** fault too; [`super::FirstTouches`] tells them apart, where page tables are known.
//!
//! **Coverage.** What the kernel armed in the interval (`numa_pte_updates` of `/proc/vmstat`, in base pages, of the whole
//! system) over the present memory that is watched: an upper bound where others run too.
//!
//! **Known bad cases.** The kernel's balancing moves pages meanwhile. Regions with an explicit `MPOL_BIND`, and memory of
//! tasks that never run, are not armed. Faults in the kernel on behalf of a program are left out.

use super::records::{SampleRecord, field};
use super::rings::{Rings, Wanted};
use super::{Access, AccessSampler, Intake, SamplerUnavailable};
use crate::procfs::{ProcRoot, SysRoot};
use crate::sys::perf::{Event, Excluded};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{CpuId, Pid, Tid};
use hugepilot_core::sample::{Sampler, ServedBy};
use hugepilot_core::units::{Bytes, Ratio};
use std::io;

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_PAGE_FAULTS`.
const PAGE_FAULTS: u64 = 2;

const WANTED: Wanted = Wanted {
    event: Event {
        kind: SOFTWARE,
        config: PAGE_FAULTS,
        config1: 0,
        period: 1,
        sample_type: field::TID | field::TIME | field::ADDR | field::CPU,
        precise: 0,
    },
    excluded: Excluded::KernelAndHypervisor,
    leader: None,
};

/// Samples hinting faults.
#[derive(Debug)]
pub struct HintingFaults {
    proc: ProcRoot,
    sys: SysRoot,
    geometry: Geometry,
    rings: Option<Rings>,
    /// Pages that the kernel had armed when last asked.
    armed: Option<u64>,
}

impl HintingFaults {
    /// Tries it: is the kernel's balancing on, and does perf open the event on every processor?
    ///
    /// # Errors
    /// Why not.
    pub fn probe(
        proc: ProcRoot,
        sys: SysRoot,
        geometry: Geometry,
    ) -> Result<Self, SamplerUnavailable> {
        check_balancing(&proc)?;
        Rings::open(&WANTED, "page faults", &sys)?;
        Ok(Self {
            proc,
            sys,
            geometry,
            rings: None,
            armed: None,
        })
    }
}

fn check_balancing(proc: &ProcRoot) -> Result<(), SamplerUnavailable> {
    let path = proc.system("sys/kernel/numa_balancing");
    match std::fs::read_to_string(&path) {
        Ok(value) if value.trim() == "0" => Err(SamplerUnavailable::BalancingOff {
            value: value.trim().to_owned(),
        }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SamplerUnavailable::Absent(
            "this kernel does not balance between nodes (CONFIG_NUMA_BALANCING), so there are no hinting faults".to_owned(),
        )),
        Err(source) => Err(SamplerUnavailable::Read {
            what: path.display().to_string(),
            source,
            fix: "it is readable by everybody, unless /proc is not the kernel's",
        }),
    }
}

impl AccessSampler for HintingFaults {
    fn kind(&self) -> Sampler {
        Sampler::HintingFault
    }

    fn switch(&mut self, on: bool) -> Result<(), SamplerUnavailable> {
        match (on, &self.rings) {
            (true, None) => self.rings = Some(Rings::open(&WANTED, "page faults", &self.sys)?),
            (false, Some(_)) => self.rings = None,
            (true, Some(_)) | (false, None) => {}
        }
        Ok(())
    }

    fn drain(&mut self, intake: &mut Intake<'_>) {
        if let Some(rings) = &mut self.rings {
            rings.drain(intake, |sample, intake| {
                if let Some(access) = access(sample) {
                    intake.offer(access);
                }
            });
        }
    }

    fn coverage(&mut self, present: Bytes) -> Option<Ratio> {
        let armed = std::fs::read_to_string(self.proc.system("vmstat"))
            .ok()
            .and_then(|text| pages_armed(&text))?;
        let before = self.armed.replace(armed)?;
        let bytes = armed.checked_sub(before)? << self.geometry.base_shift;
        (present > Bytes::ZERO).then(|| Ratio::of(bytes.min(present.0), present.0))
    }
}

fn access(sample: &SampleRecord) -> Option<Access> {
    let (pid, tid) = sample.who?;
    Some(Access {
        pid: Pid(pid),
        tid: Tid(tid),
        cpu: CpuId(sample.cpu?),
        address: sample.address?,
        page_node: None,
        served_by: ServedBy::Unknown,
        rate: None,
    })
}

/// Base pages whose access rights the kernel took away since it started.
fn pages_armed(vmstat: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix("numa_pte_updates ")?.trim().parse().ok();
    vmstat.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_armed_is_found() {
        let vmstat = "nr_free_pages 1\nnuma_pte_updates 512\nnuma_huge_pte_updates 1\n";
        assert_eq!(pages_armed(vmstat), Some(512));
        assert_eq!(pages_armed("nr_free_pages 1\n"), None);
    }

    #[test]
    fn a_fault_without_an_address_is_none() {
        let mut sample = SampleRecord {
            who: Some((1, 2)),
            cpu: Some(3),
            ..SampleRecord::default()
        };
        assert_eq!(access(&sample), None);
        sample.address = Some(4096);
        let access = access(&sample).expect("complete");
        assert_eq!(
            (access.pid, access.tid, access.cpu),
            (Pid(1), Tid(2), CpuId(3))
        );
    }
}
