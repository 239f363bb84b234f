//! The live Linux kernel as a [`hugepilot_core::machine::Machine`].
//!
//! `sys` holds all unsafe code, one function a call. `procfs` parses what the kernel prints, apart from file access.
//! `sensors` look, `actuators` act, `tracker` measures accessed shares, `sampler` tells who accesses what, `journal`
//! remembers what must be restored, `pool` reads and resizes hugetlb pools, `support` probes what this kernel can do.

pub mod actuators;
pub mod error;
pub mod journal;
pub mod machine;
pub mod pool;
pub mod procfs;
pub mod sampler;
pub mod sensors;
pub mod support;
pub mod sys;
pub mod tracker;
