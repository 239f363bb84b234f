//! The lines of a recording.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::observation::Observation;
use hugepilot_core::plan::{Accounted, Plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version that is written. A change that older readers would misunderstand raises it.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version, which also says that this is a recording of ours.
    pub hugepilot_trace: u32,
    /// Page sizes of the machine.
    pub geometry: Geometry,
    /// The policy that planned.
    pub policy: String,
    /// All parameters, by section and field.
    pub settings: Value,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Were actions only predicted?
    #[serde(default)]
    pub dry_run: bool,
}

/// Just enough of a first line to tell a newer recording from none.
#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    pub(crate) hugepilot_trace: u32,
}

/// One tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// What was seen.
    pub observation: Observation,
    /// What was planned.
    pub plan: Plan,
    /// What came of the plan's actions, in order; none in a dry run.
    pub outcomes: Vec<Accounted>,
}

/// One tick, borrowed for writing.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TickRef<'a> {
    /// What was seen.
    pub observation: &'a Observation,
    /// What was planned.
    pub plan: &'a Plan,
    /// What came of the plan's actions, in order; none in a dry run.
    pub outcomes: &'a [Accounted],
}

impl Tick {
    /// The same, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> TickRef<'_> {
        TickRef {
            observation: &self.observation,
            plan: &self.plan,
            outcomes: &self.outcomes,
        }
    }
}
