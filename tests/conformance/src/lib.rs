//! One suite for every machine: what an action must do to memory, and what an observation must say of it.
//!
//! A *case* is a generic function over a [`Stage`]: it lets programs build a state, observes, acts, observes again, and
//! reports facts ([`report::CaseReport`]). Nothing in a case says what is right: reports are compared with
//! `expected.json`, which was recorded on real kernels and names them. The simulator must give the same facts; where
//! kernels differ, a case has one expectation for each answer to a probed [`Feature`], never for a version.
//!
//! [`faulty::Faulty`] seeds known faults into a machine; the suite has to notice each of them.

pub mod cases;
pub mod expected;
pub mod faulty;
pub mod report;
pub mod stage;
pub mod suite;

pub use cases::{CASES, Case};
pub use expected::{Difference, Expected};
pub use faulty::{Fault, Faulty};
pub use report::CaseReport;
pub use stage::{Area, Feature, Features, Memory, Stage, StageError};
pub use suite::{Recorded, differences, first_difference, record};
