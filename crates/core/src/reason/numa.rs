//! The words for reasons that have to do with nodes.

use super::Reason;
use crate::metrics::Estimate;
use std::fmt;

fn known(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(|| "unknown".to_owned(), |known| known.to_string())
}

/// Writes such a reason; any other one writes nothing.
pub(super) fn fmt(reason: &Reason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        Reason::Placement {
            one_node,
            shared,
            samples,
            to,
            lar,
            imbalance,
        } => write!(
            f,
            "{one_node} pages used by one node, {shared} by several ({samples} samples), first to node {}; LAR {}, imbalance {}",
            to.0,
            known(*lar),
            known(*imbalance)
        ),
        Reason::HotPage {
            share,
            share_max,
            nodes,
        } => write!(
            f,
            "hot: {share} of all accesses (more than {share_max}), from {nodes} nodes"
        ),
        Reason::SharedHuge {
            threads,
            nodes,
            gain: Some(gain),
        } => write!(
            f,
            "shared by {threads} threads of {nodes} nodes, splitting gains {gain} of LAR"
        ),
        Reason::SharedHuge {
            threads,
            nodes,
            gain: None,
        } => write!(
            f,
            "shared by {threads} threads of {nodes} nodes, shared huge pages are being split"
        ),
        Reason::SplittingPays { placing, splitting } => write!(
            f,
            "splitting gains {splitting} of LAR, placing alone {placing}"
        ),
        Reason::PageWalks { share, share_max } => write!(
            f,
            "{share} of L2 misses by page walks (more than {share_max})"
        ),
        Reason::FaultTime { share, share_max } => write!(
            f,
            "{share} of a core's time in page faults (more than {share_max})"
        ),
        Reason::StartSetting => f.write_str("the setting that the policy begins with"),
        Reason::AllocationOff => f.write_str("huge allocation is off: shared huge pages are split"),
        Reason::SplitInVain { lar_before, lar } => write!(
            f,
            "splitting does not help: LAR {}, before it {}",
            known(*lar),
            known(*lar_before)
        ),
        Reason::PresentAndUsed { .. }
        | Reason::Present { .. }
        | Reason::Sparse { .. }
        | Reason::Idle { .. }
        | Reason::Freed { .. }
        | Reason::PartiallyMapped { .. }
        | Reason::Probe { .. }
        | Reason::Baseline { .. }
        | Reason::OnCommand => Ok(()),
    }
}
