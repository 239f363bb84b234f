//! Recordings: what a run saw, planned and did, as JSON lines.
//!
//! **Why.** A policy is a pure function of what it was shown, so a recording of a run can be planned again: under the
//! same policy it gives the same plans (that is a test), under another it says what that one would have done.
//!
//! **Shape.** The first line is a [`Header`]: version, page sizes, policy, parameters, kernel. Every further line is one
//! [`Tick`]: the observation, the plan, the outcomes of its actions. The first observation is a checkpoint. The unit of
//! a number is the end of its name, or the type of the core's field: nanoseconds, bytes, base pages.
//!
//! **Bounds.** A [`Writer`] may be given a most number of bytes and writes no line that would go past it; a [`Reader`]
//! takes no line over [`LINE_BYTES_MAX`]. One tick is in memory at a time.
//!
//! **Crashes.** A line is flushed when its tick is over. A run that was killed in the middle of a line leaves a
//! truncated last one, which the reader tolerates and tells of.

mod error;
mod format;
mod reader;
pub mod replay;
mod writer;

pub use error::TraceError;
pub use format::{Header, Tick, TickRef, VERSION};
pub use reader::{LINE_BYTES_MAX, Reader};
pub use writer::{Writer, Written};
