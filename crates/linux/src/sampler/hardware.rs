//! What samplers of hardware have in common: the fields of a sample, and what becomes of it.
//!
//! Every sample stands for as many accesses as its period says. Samples without an address, and those in kernel mode, tell
//! nothing of a program's memory and are passed over.

use super::records::{SampleRecord, field};
use super::rings::{Rings, Wanted};
use super::{Access, AccessSampler, Intake, SamplerUnavailable, served_by};
use crate::procfs::SysRoot;
use hugepilot_core::ids::{CpuId, Pid, Tid};
use hugepilot_core::sample::{Sampler, ServedBy};
use hugepilot_core::units::{Bytes, Ratio};

/// What a machine without such a device is told.
pub const NO_PMU: &str = "it takes a machine with Intel PEBS or AMD IBS, not a guest without a PMU";

/// The fields of every sample.
pub const FIELDS: u64 = field::IP
    | field::TID
    | field::TIME
    | field::ADDR
    | field::CPU
    | field::PERIOD
    | field::WEIGHT
    | field::DATA_SRC
    | field::PHYS_ADDR
    | field::DATA_PAGE_SIZE;

/// A sampler of hardware.
#[derive(Debug)]
pub struct Hardware {
    kind: Sampler,
    name: &'static str,
    wanted: Wanted,
    sys: SysRoot,
    rings: Option<Rings>,
}

impl Hardware {
    /// Tries whether the event opens on every processor.
    pub(super) fn open(
        kind: Sampler,
        name: &'static str,
        wanted: Wanted,
        sys: &SysRoot,
    ) -> Result<Self, SamplerUnavailable> {
        Rings::open(&wanted, name, sys)?;
        Ok(Self {
            kind,
            name,
            wanted,
            sys: sys.clone(),
            rings: None,
        })
    }
}

impl AccessSampler for Hardware {
    fn kind(&self) -> Sampler {
        self.kind
    }

    fn switch(&mut self, on: bool) -> Result<(), SamplerUnavailable> {
        match (on, &self.rings) {
            (true, None) => self.rings = Some(Rings::open(&self.wanted, self.name, &self.sys)?),
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

    fn coverage(&mut self, _present: Bytes) -> Option<Ratio> {
        // Any access may be sampled.
        self.rings.as_ref().map(|_| Ratio::ONE)
    }
}

/// The access that a sample tells of, if it tells of one in user mode.
#[must_use]
pub fn access(sample: &SampleRecord) -> Option<Access> {
    let (pid, tid) = sample.who?;
    let address = sample.address.filter(|address| *address != 0)?;
    sample.user.then_some(Access {
        pid: Pid(pid),
        tid: Tid(tid),
        cpu: CpuId(sample.cpu?),
        address,
        page_node: None,
        served_by: sample.data_source.map_or(ServedBy::Unknown, served_by),
        rate: rate(sample.period?),
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate, of far fewer than 2^53 accesses"
)]
fn rate(period: u64) -> Option<f64> {
    (period > 0).then_some(period as f64)
}
