//! Programs whose memory use is known by construction, to see what page sizes and placement do on several nodes.
//!
//! **Problem.** The programs of the papers (NPB, Metis, SSCA, SPECjbb) are large, long, and tell nobody which access went
//! where. What makes huge pages harmful or harmless in them is a handful of shapes: who touches a page first, who uses
//! it then, and how many threads' data a huge page holds.
//!
//! **Approach.** Each shape is a small program ([`Name`]; `pattern/` has one file for each) over one [`Arena`]. Threads
//! are pinned one a CPU, spread over the nodes ([`cpus`]); they touch memory first in rounds, so that who touches which
//! page is no race; then they work in *intervals* of a stated number of accesses: work, not time, so that an interval means
//! the same in a slow guest. Between two intervals all threads wait for one another.
//!
//! **Right by construction.** Every word has a value known from the seed and its place; each read is compared with it,
//! updates are counted and counted again at the end, and the checksum over all reads is the same in every run of the
//! same orders, whatever moved, split or collapsed the pages meanwhile. One wrong word fails the run.
//!
//! **Judged from outside.** Where the machine is a guest with the virtual PMU, threads and the arena's addresses are
//! published to it and each interval ends a window of it ([`referee`]). Elsewhere the program tells what it did and where
//! its memory was in the end ([`placement`]).
//!
//! **Bounds.** [`THREADS_MAX`](spec::THREADS_MAX) threads; memory is the arena alone.

pub mod arena;
pub mod cpus;
pub mod event;
pub mod name;
mod pattern;
pub mod placement;
pub mod random;
pub mod referee;
pub mod run;
pub mod spec;

pub use arena::Arena;
pub use event::Event;
pub use name::Name;
pub use run::run;
pub use spec::Spec;
