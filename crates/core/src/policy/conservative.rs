//! `conservative`: begin with base pages, and turn huge pages on where they are expected to help.
//!
//! **Problem.** Huge pages that are never made do no harm, and no good either. **Signal.** The share of L2 misses that
//! page walks make, over all watched processes; the worst core's share of time in page faults. **Decision.** Algorithm
//! 1, lines 4 to 9: walks above `walks_max` → huge allocation and promotion on; else time in faults above `fault_time_max` →
//! huge allocation on. Beside it Carrefour places base pages. **Parameters.** Below, and those of `carrefour`.
//! **Properties.** The branches are the paper's; without counters nothing is switched, and `notes` says so. **Known bad
//! cases.** A program that allocates everything in its first second has done so before the first round ends; the paper
//! finds that too. **Source.** The paper on Carrefour-LP, section 3.2.2 and figure 4.

use super::numa::{Family, Numbers, PagesOf, Parts, Placement};
use super::{Policy, Settings};
use crate::action::Switch;
use crate::reason::Reason;
use crate::units::Ratio;

/// The policy's name.
pub const NAME: &str = "conservative";

crate::parameters! {
    /// The conservative component's numbers.
    pub struct ConservativeParams in "conservative" {
        walks_max: Ratio = Ratio::new(0.05), 0..=1, "share of L2 misses",
            "Page walks above this turn huge allocation and promotion on", "paper: 5 %";
        fault_time_max: Ratio = Ratio::new(0.05), 0..=1, "share of a core's time",
            "Time in page faults above this turns huge allocation on", "paper: 5 %";
        at_least: bool = false, 0..=0, "true or false",
            "Exactly the threshold counts as above it", "released code: true; paper: false";
    }
}

impl ConservativeParams {
    /// As the released code has it.
    #[must_use]
    pub fn released() -> Self {
        Self {
            at_least: true,
            ..Self::default()
        }
    }
}

/// The component.
#[derive(Debug, Clone)]
pub(super) struct Conservative {
    params: ConservativeParams,
}

impl Conservative {
    pub(super) const fn new(params: ConservativeParams) -> Self {
        Self { params }
    }

    fn above(&self, share: Option<Ratio>, share_max: Ratio) -> Option<Ratio> {
        share.filter(|share| *share > share_max || (self.params.at_least && *share == share_max))
    }

    /// Line 4: page walks are too many.
    pub(super) fn walks(&self, numbers: &Numbers) -> Option<Reason> {
        let share_max = self.params.walks_max;
        let share = self.above(numbers.page_walks, share_max)?;
        Some(Reason::PageWalks { share, share_max })
    }

    /// Line 7: page faults take too long.
    pub(super) fn faults(&self, numbers: &Numbers) -> Option<Reason> {
        let share_max = self.params.fault_time_max;
        let share = self.above(numbers.fault_time, share_max)?;
        Some(Reason::FaultTime { share, share_max })
    }
}

/// The policy: the component, and Carrefour on base pages.
pub(super) fn policy(settings: &Settings) -> Box<dyn Policy> {
    Box::new(Family::new(Parts {
        name: NAME,
        start: Switch::Off,
        params: settings.carrefour.clone(),
        placement: Placement::new(settings, PagesOf::Base),
        conservative: Some(Conservative::new(settings.conservative.clone())),
        reactive: None,
        retraction: None,
    }))
}
