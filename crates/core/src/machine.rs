//! What a machine is: something that can be observed and acted upon. The live kernel is one, the simulator another,
//! and one conformance suite holds both to the same behaviour.

use crate::action::Action;
use crate::geometry::Geometry;
use crate::ids::ProcessId;
use crate::look::Look;
use crate::observation::Observation;
use crate::outcome::Outcome;

/// A machine whose memory can be watched and managed.
pub trait Machine {
    /// Not being able to see anything at all; that a process vanished is never one.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Its page sizes.
    fn geometry(&self) -> Geometry;

    /// Answers the looks and says what changed. The first observation is a checkpoint.
    ///
    /// # Errors
    /// Only where no partial answer is possible.
    fn observe(&mut self, looks: &[Look]) -> Result<Observation, Self::Error>;

    /// Carries out one action and verifies it by the machine's state. Also says through which process it was done.
    fn act(&mut self, action: &Action) -> (Outcome, Option<ProcessId>);
}
