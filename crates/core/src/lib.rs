//! What hugepilot decides.
//!
//! Observe → plan → act → account: this crate holds the nouns of that loop and everything that decides in it, and it
//! has no world. It opens no file, makes no system call, reads no clock, spawns no thread; time arrives in
//! [`observation::Observation::at`], randomness in a seed that is part of the state. The same observations therefore
//! give the same plans, on the live kernel, on the simulated machine and from a recording.

pub mod action;
pub mod backing;
pub mod budget;
pub mod geometry;
pub mod ids;
pub mod laws;
pub mod look;
pub mod machine;
pub mod metrics;
pub mod observation;
pub mod outcome;
pub mod params;
pub mod plan;
pub mod policy;
pub mod reason;
pub mod sample;
pub mod scan;
pub mod slot_map;
pub mod tick;
pub mod units;
pub mod world;
