//! The paper's measures of how memory is used on a machine with several nodes, and its what-ifs.
//!
//! **Problem.** Whether pages should move or be split is told by who accesses them from where, of which only samples
//! are had. **Approach.** Samples go into an [`AccessTable`]; one fold groups them into pages ([`PageUse`]), base pages
//! or huge pages; every measure and every what-if is a pure function of that list. What would be if huge pages were
//! split is the same function over another grouping.
//!
//! **Spread.** Each number is an [`Estimate`]: the paper's number with a low and a high bound at [`Z`] standard errors
//! (95 %). Standard errors are closed forms over the effective number of samples, `(Σw)²/Σw²`. For what-ifs there is a
//! bias that no standard error shows, and which the paper names as its chief weakness (SSCA: predicted 59 %, got 25 %):
//! a page with one sample always looks as if one node used it. So the bounds of a what-if come from a *leave-one-out*
//! score: each sample in turn is taken out, its page is placed by the others, and the sample taken out says whether
//! that served it. Pages with one sample cannot be scored so; they count as the scored ones do on average, or, where too
//! few were scored ([`SCORED_MIN`]), as if they lay on a node drawn at random.
//!
//! **What is counted.** As in the paper, pages of which at least one sample was served by memory (or by nobody knows
//! what), with all of their samples. First touches are no use of a page and are left out. Where samples say who but not how
//! often (hinting faults without a rate), measures of volume are `None`; LAR and PSP then count memory, not
//! accesses: a hinting fault weighs as much as the page that it is of.
//!
//! **Bounds.** [`table::TALLIES_MAX`] tallies.

pub mod estimate;
pub mod measures;
pub mod page_use;
pub mod table;
pub mod traffic;
pub mod what_if;

pub use estimate::{Estimate, Over, Z};
pub use measures::{
    Imbalance, Lar, Nhp, Pamup, Psp, SharedBy, hot_pages, imbalance, imbalance_of_requests, lar,
    nhp, pamup, psp,
};
pub use page_use::{Grain, NodeUse, PageUse};
pub use table::{AccessTable, Volume};
pub use traffic::Traffic;
pub use what_if::{SCORED_MIN, SharedTo, WhatIf, if_placed};
