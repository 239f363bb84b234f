//! Looking: what is running, what it maps, what its page tables show, and what the machine has left.

pub mod bound;
pub mod budget;
pub mod cgroups;
pub mod consents;
pub mod contents;
pub mod discovery;
pub mod fault_time;
pub mod fingerprints;
pub mod frames;
pub mod nodes;
pub mod objects;
pub mod page_tables;
pub mod placement;
pub mod ranges;
pub mod regions;
pub mod scan;
pub mod selection;
pub mod suspects;
pub mod walks;
pub mod watched;
