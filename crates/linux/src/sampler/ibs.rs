//! AMD's instruction-based sampling of operations (IBS op), with address, latency and what served them.
//!
//! **Event.** The PMU `ibs_op`, counting dispatched operations rather than cycles (`cnt_ctl`), so that a stalled processor is
//! not sampled more. It samples every kind of operation; those without an address are passed over. The device cannot leave the
//! kernel out, so samples in kernel mode are passed over here.
//!
//! **Not run on hardware**: see [`super::pebs`].

use super::hardware::{Hardware, NO_PMU};
use super::pmu::Pmu;
use super::rings::Wanted;
use super::{SamplerUnavailable, hardware};
use crate::procfs::SysRoot;
use crate::sys::perf::{Event, Excluded};
use hugepilot_core::sample::Sampler;

/// One sample a so many operations on each processor: some 10,000 a second at 3 · 10⁹. IBS counts in steps of 16.
const PERIOD: u64 = 262_144;

/// Looks for it and tries it.
///
/// # Errors
/// Why it cannot be had.
pub fn probe(sys: &SysRoot) -> Result<Hardware, SamplerUnavailable> {
    let wanted = wanted(sys)?;
    Hardware::open(Sampler::Ibs, "ibs_op", wanted, sys)
}

fn wanted(sys: &SysRoot) -> Result<Wanted, SamplerUnavailable> {
    let Some(pmu) = Pmu::find(sys, "ibs_op")? else {
        return Err(SamplerUnavailable::Absent(format!(
            "there is no ibs_op; {NO_PMU}"
        )));
    };
    let mut event = Event {
        kind: pmu.kind,
        period: PERIOD,
        sample_type: hardware::FIELDS,
        ..Event::default()
    };
    // The first processors with IBS (family 10h) count cycles alone, and have no such field.
    let _counts_operations = pmu.set(&mut event, "cnt_ctl=1")?;
    Ok(Wanted {
        event,
        excluded: Excluded::Nothing,
        leader: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::pmu::tests::fake;
    use super::*;

    #[test]
    fn operations_are_counted_where_that_can_be_asked_for() {
        let (_dir, sys) = fake(&[
            ("ibs_op/type", "9\n"),
            ("ibs_op/format/cnt_ctl", "config:19\n"),
        ]);
        assert_eq!(wanted(&sys).expect("an event").event.config, 1 << 19);
        let (_dir, sys) = fake(&[("ibs_op/type", "9\n")]);
        assert_eq!(wanted(&sys).expect("an event").event.config, 0);
        let (_dir, sys) = fake(&[]);
        assert!(wanted(&sys).is_err());
    }
}
