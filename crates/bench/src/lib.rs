//! Benchmarks: what a page-size policy costs at the fault and gains at the access.
//!
//! **Problem.** A mean hides what huge pages cost: the rare fault that waits for 2 MiB to be zeroed or for a lock that a
//! collapse holds. A single run hides what they gain: the machine's own noise is as large.
//!
//! **Approach.** A [`worker`] process touches fresh memory a base page at a time and times every touch; then it waits
//! while somebody else manages it, and reads at random. Worker runs under different modes are interleaved in rounds
//! ([`schedule`]), with a second run of both baselines in every round, so that the difference of two equal modes is
//! shown beside the difference of two unequal ones. The [`report`] gives medians over rounds, and ratios as medians
//! of the ratios within each round.
//!
//! **Terms.** A *stall* is a touch that took longer than [`worker::STALL`] itself, without the time that it stood in the
//! queue of an open loop. *Closed loop*: the next touch starts when the last is done. *Open loop*: touch n is due at a
//! fixed time, and its latency counts from then, so that touches that a stall delays are counted as late
//! (no coordinated omission).
//!
//! [`numa`] is apart from that: programs whose accesses are known by construction, for machines with several nodes.
//!
//! **Bounds.** The histogram's memory is fixed and locked before the first touch; everything else that a worker keeps is
//! a few counters. This crate reads clocks and its own process only; starting workers and managing them is left to the
//! binary.

pub mod clock;
pub mod error;
pub mod hold;
pub mod latency;
pub mod numa;
pub mod paper;
pub mod procfs;
pub mod report;
pub mod schedule;
pub mod summary;
pub mod sys;
pub mod table;
pub mod targets;
pub mod worker;

pub use error::BenchError;
