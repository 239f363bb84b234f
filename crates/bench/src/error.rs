//! What can go wrong in a benchmark, with what to do about it.

use hugepilot_core::units::Bytes;

/// An error of the benchmark itself; a slow touch is never one.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The memory to be measured could not be mapped.
    #[error("cannot map {bytes} to measure: use a smaller --size")]
    Map {
        /// How much was asked for.
        bytes: Bytes,
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// A file of the process's own could not be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the kernel's does not look as expected.
    #[error("{path} has no line that starts with {field:?}")]
    Field {
        /// Which file.
        path: String,
        /// The field that is missing or is not a number.
        field: &'static str,
    },
    /// The measurement was asked for something that means nothing.
    #[error("{0}")]
    Spec(&'static str),
    /// The virtual PMU does not take another thread.
    #[error("the virtual PMU takes no more threads: use fewer --threads")]
    Unpublished {
        /// Why.
        source: hugepilot_vpmu::TableFull,
    },
    /// A thread could not be started, or the worker's own pipe broke.
    #[error("worker: {what}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// There is no 1 GiB page to be had.
    #[error(
        "no free 1 GiB page: boot with hugepagesz=1G hugepages=1, or write 1 to \
         /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages, or use --backing ordinary"
    )]
    NoGiganticPage {
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// A virtual PMU that this program cannot use.
    #[error("the virtual PMU: {0}")]
    VirtualPmu(hugepilot_vpmu::NotThere),
    /// The histogram refused its bounds.
    #[error("histogram: {0:?}")]
    Histogram(hdrhistogram::CreationError),
}
