//! Samplers: which thread accesses which page, from which processor.
//!
//! **Problem.** What a page's placement costs depends on who accesses it, and page tables do not tell. Four kinds of
//! source do, each in its own way; the machine takes the best that works ([`choice`]) and says which.
//!
//! | sampler | who | how often | what served it | where |
//! | --- | --- | --- | --- | --- |
//! | [`pebs`] | yes | yes | yes | Intel, with a PMU |
//! | [`ibs`] | yes | yes | yes | AMD, with a PMU |
//! | [`virtual_ibs`] | yes | yes | by a cache model | guests whose hypervisor counts accesses |
//! | [`hinting`] | yes | no | no | any kernel that balances between nodes (`kernel.numa_balancing=1`) |
//!
//! **Bounds.** Sampling may use a share of one core (`watch.sample_cpu_max`); what is not taken in within that is thrown
//! away and counted. Of what is taken in, at most `samples_max` an interval are kept: a uniform choice, so that a
//! thread that accesses more is not pushed out by one that came first ([`Intake`]).
//!
//! **No lock shared between processors.** Each processor's kernel writes a ring of its own; one thread of ours, which
//! holds all of them, empties one after the other. Nothing else is shared: neither in the kernel nor here.

pub mod choice;
mod data_source;
pub mod hardware;
pub mod hinting;
pub mod ibs;
mod intake;
pub mod pebs;
mod pmu;
pub mod records;
mod rings;
mod touched;
pub mod virtual_ibs;

pub use data_source::served_by;
pub use intake::{Intake, Taken};
pub use touched::FirstTouches;

use crate::sys::Errno;
use hugepilot_core::ids::{CpuId, NodeId, Pid, Tid};
use hugepilot_core::sample::{Sampler, ServedBy};
use hugepilot_core::units::{Bytes, Ratio};
use std::io;

/// One access as a sampler saw it, before anybody looked up whose memory it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Access {
    /// Whose address space: the process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// From which processor.
    pub cpu: CpuId,
    /// The virtual address.
    pub address: u64,
    /// Where the page lies, where the sampler knows.
    pub page_node: Option<NodeId>,
    /// What served it.
    pub served_by: ServedBy,
    /// Accesses that it stands for, where the sampler knows.
    pub rate: Option<f64>,
}

/// Samples accesses of all processes.
pub trait AccessSampler {
    /// Which it is.
    fn kind(&self) -> Sampler;

    /// Samples from now on, or not any more.
    ///
    /// # Errors
    /// Why it cannot.
    fn switch(&mut self, on: bool) -> Result<(), SamplerUnavailable>;

    /// Hands what was sampled since the last call to `intake`, until that is over its budget.
    fn drain(&mut self, intake: &mut Intake<'_>);

    /// Share of `present` memory that could have been sampled since the last call, where known.
    fn coverage(&mut self, present: Bytes) -> Option<Ratio>;
}

/// Why a sampler cannot be had, each with what would change it.
#[derive(Debug, thiserror::Error)]
pub enum SamplerUnavailable {
    /// The kernel's balancing is off, so that there are no hinting faults.
    #[error(
        "kernel.numa_balancing is {value}, so there are no hinting faults; --numa-balancing turns it on, for the whole system"
    )]
    BalancingOff {
        /// What it is.
        value: String,
    },
    /// A file that it needs cannot be read.
    #[error("cannot read {what}: {source}; {fix}")]
    Read {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
        /// What would change it.
        fix: &'static str,
    },
    /// perf refuses.
    #[error("perf does not open {event}: {source}; {fix}")]
    Perf {
        /// Which event.
        event: String,
        /// Why.
        source: Errno,
        /// What would change it.
        fix: &'static str,
    },
    /// The machine has no such device.
    #[error("{0}")]
    Absent(String),
}
