//! A simulated machine: memory objects, page tables, folios and a buddy allocator per node.
//!
//! It is the second [`hugepilot_core::machine::Machine`] and behaves as the live kernel does wherever the conformance
//! suite looks: what a collapse needs, what a split frees, when either stops and why. It simulates *state*, not time:
//! actions take no time, and the clock moves only by [`Sim::advance`]. From one configuration (its seed included) and
//! one sequence of operations the same history follows, byte for byte.
//!
//! One file a noun: [`buddy`] a node's free memory, `frame` every base frame, `space` an address space, `shared` an
//! object's page cache, `cgroup` limits; `world` and `life` are what programs do, `action` what a manager does, `observe` what it
//! sees, `sample` which accesses are sampled, `check` what must hold at all times.
//!
//! Bounds: about 24 bytes a base frame and 8 KiB a populated slot.

mod action;
pub mod buddy;
mod cgroup;
mod check;
mod config;
mod fault;
mod frame;
mod life;
mod observe;
mod sample;
mod shared;
mod sim;
mod slot;
mod space;
mod world;

pub use cgroup::CgroupIndex;
pub use config::{Config, SplitZeroPages, ThpMode};
pub use sim::{PinId, Sim, SimError};
pub use space::Advice;
pub use world::{Area, Contents};
