//! Sampled accesses: a perfect sampler, capped.
//!
//! Every access that a program makes is one sample, until the order's bound of the interval is reached; the rest is
//! counted as lost. A process runs where [`Sim::run_on`] put it last, and has one thread for each node it ran on.

use crate::sim::Sim;
use hugepilot_core::ids::{CpuId, NodeId, ProcessId, SlotId, Tid};
use hugepilot_core::sample::{Sample, Sampler, Samples, ServedBy};
use hugepilot_core::units::BasePages;

/// Threads, and processors, that a process's or a node's numbers are apart: more than there are nodes.
const NUMBERS_APART: u32 = 64;

/// The standing order and what was sampled by it since it was last read.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    samples_max: usize,
    taken: Vec<Sample>,
    lost: u64,
}

impl Sampling {
    pub(crate) fn order(&mut self, samples_max: u32) {
        self.samples_max = usize::try_from(samples_max).expect("a count fits in memory");
    }

    pub(crate) const fn is_ordered(&self) -> bool {
        self.samples_max > 0
    }

    fn push(&mut self, sample: Sample) {
        if self.taken.len() < self.samples_max {
            self.taken.push(sample);
        } else {
            self.lost += 1;
        }
    }

    /// What was sampled since it was last read.
    pub(crate) fn read(&mut self) -> Samples {
        Samples {
            taken: std::mem::take(&mut self.taken),
            lost: std::mem::take(&mut self.lost),
            sampler: self.is_ordered().then_some(Sampler::Virtual),
            coverage: None,
        }
    }
}

impl Sim {
    /// Samples an access to the base page number `page` of `slot`, which lies on `home`.
    pub(crate) fn sample_access(
        &mut self,
        id: ProcessId,
        (slot, page): (SlotId, u64),
        home: Option<NodeId>,
    ) {
        let Some(process) = self.processes.get(&id) else {
            return;
        };
        let node = process.node;
        self.sampling.push(Sample {
            process: id,
            thread: Tid(id.pid.0 * NUMBERS_APART + u32::from(node.0)),
            cpu: CpuId(u32::from(node.0) * NUMBERS_APART),
            cpu_node: node,
            slot,
            base_page: BasePages(page),
            page_node: home,
            served_by: ServedBy::Dram,
            rate: Some(1.0),
            sampler: Sampler::Virtual,
        });
    }
}
