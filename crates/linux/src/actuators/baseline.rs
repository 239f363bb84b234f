//! The kernel's own ways as baselines, and huge allocation and promotion for the whole system.
//!
//! | mode | enabled | defrag | khugepaged |
//! | --- | --- | --- | --- |
//! | never | `never` | as found | ends by itself |
//! | madvise | `madvise` | `madvise` | as found |
//! | always | `always` | `madvise`, the kernel's default: faults take a huge page that is free, and wait for none | as found |
//! | khugepaged | `always` | `defer` | `defrag` 1, `scan_sleep_millisecs` 0: no pause |
//!
//! What a mode does not name is put back as it was found, so that a mode is the same whatever came before it. Switches of
//! shared memory and of single mTHP sizes are left alone; a size set to `always` by itself stays so under `never`.
//!
//! Huge allocation (may a fault be served with a huge page?) and promotion (may the kernel collapse by itself?) have one
//! switch between them on stock Linux: `enabled`. So:
//!
//! * allocation off is `enabled=never`, which also ends promotion;
//! * allocation on is `enabled=always`;
//! * promotion off lets khugepaged sleep for a day ([`PAUSE_MS`]) a round, after the one that the write starts;
//! * promotion on lets it sleep for [`PROMOTION_MS`] a round, and is unsupported while `enabled` is `never`: no switch does
//!   one without the other.
//!
//! Scopes smaller than the system have no switch either and are unsupported.
//!
//! A split slot that khugepaged may collapse again is a split undone. [`khugepaged_would_undo`] says whether it may, for
//! the report; [`KhugepagedGuard`] prevents it, where the user asks for that by name.

use super::switches::{SwitchRoots, Switches, SysSwitch, verdict};
use super::{SystemSwitches, Verdict};
use crate::journal::{Journal, JournalError};
use crate::sys::time;
use hugepilot_core::action::{Action, LinuxMode, Switch};
use hugepilot_core::ids::Scope;
use hugepilot_core::outcome::{Outcome, OutcomeClass};
use std::fmt;

/// How long khugepaged sleeps while promotion is off: a day.
pub const PAUSE_MS: &str = "86400000";

/// How long khugepaged sleeps while promotion is on: the paper on Carrefour-LP checks every 10 ms.
pub const PROMOTION_MS: &str = "10";

/// All switches that some mode sets.
const MODE_SWITCHES: [SysSwitch; 4] = [
    SysSwitch::ThpEnabled,
    SysSwitch::ThpDefrag,
    SysSwitch::KhugepagedDefrag,
    SysSwitch::KhugepagedScanSleep,
];

/// What a mode sets. The switch that lets huge pages be made comes last.
#[must_use]
pub const fn settings(mode: LinuxMode) -> &'static [(SysSwitch, &'static str)] {
    match mode {
        LinuxMode::Never => &[(SysSwitch::ThpEnabled, "never")],
        LinuxMode::Madvise => &[
            (SysSwitch::ThpDefrag, "madvise"),
            (SysSwitch::ThpEnabled, "madvise"),
        ],
        LinuxMode::Always => &[
            (SysSwitch::ThpDefrag, "madvise"),
            (SysSwitch::ThpEnabled, "always"),
        ],
        LinuxMode::Khugepaged => &[
            (SysSwitch::ThpDefrag, "defer"),
            (SysSwitch::KhugepagedDefrag, "1"),
            (SysSwitch::KhugepagedScanSleep, "0"),
            (SysSwitch::ThpEnabled, "always"),
        ],
    }
}

/// How khugepaged is kept from undoing splits: only where the user says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KhugepagedGuard {
    /// `max_ptes_none=0`: it collapses only what is wholly present.
    OnlyFull,
    /// `enabled=madvise`: it collapses only where the program advised so.
    OnlyAdvised,
}

/// How far khugepaged may undo a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WouldUndo {
    /// It does not run, or collapses nothing that was split as too sparse.
    No,
    /// In regions whose program advised `MADV_HUGEPAGE`.
    Advised {
        /// Base pages that may be absent.
        absent_max: String,
    },
    /// Everywhere.
    Everywhere {
        /// Base pages that may be absent.
        absent_max: String,
    },
}

impl fmt::Display for WouldUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No => f.write_str("khugepaged does not undo splits here"),
            Self::Advised { absent_max } => write!(
                f,
                "khugepaged may collapse again what was split where the program advised huge pages \
                 (up to {absent_max} base pages may be absent); a guard prevents it"
            ),
            Self::Everywhere { absent_max } => write!(
                f,
                "khugepaged may collapse again what was split \
                 (enabled=always, up to {absent_max} base pages may be absent); a guard prevents it"
            ),
        }
    }
}

/// May khugepaged undo splits as the system is set now?
///
/// # Errors
/// If a switch is there and cannot be read.
pub fn khugepaged_would_undo(switches: &Switches) -> Result<WouldUndo, JournalError> {
    let absent_max = switches.read(SysSwitch::KhugepagedMaxPtesNone)?;
    let enabled = switches.read(SysSwitch::ThpEnabled)?;
    Ok(match (enabled.as_deref(), absent_max) {
        (_, Some(absent_max)) if absent_max == "0" => WouldUndo::No,
        (Some("always"), Some(absent_max)) => WouldUndo::Everywhere { absent_max },
        (Some("madvise"), Some(absent_max)) => WouldUndo::Advised { absent_max },
        (_, _) => WouldUndo::No,
    })
}

/// Acts on the whole system's switches, and restores them when it is dropped.
#[derive(Debug, Clone)]
pub struct SystemActuator {
    switches: Switches,
}

impl SystemActuator {
    /// On the switches below `roots`, remembered in `journal`.
    #[must_use]
    pub const fn new(journal: Journal, roots: SwitchRoots) -> Self {
        Self {
            switches: Switches::new(journal, roots),
        }
    }

    /// Carries out an action on the whole system; any other is unsupported here.
    pub fn act(&mut self, action: &Action) -> Outcome {
        let began = time::monotonic();
        let done = match action {
            Action::Baseline { mode } => self.baseline(*mode),
            Action::HugeAllocation { scope, switch } => {
                self.of_system(*scope, |all| all.allocation(*switch))
            }
            Action::Promotion { scope, switch } => {
                self.of_system(*scope, |all| all.promotion(*switch))
            }
            Action::Collapse { .. }
            | Action::Split { .. }
            | Action::MoveSlot { .. }
            | Action::MovePages { .. }
            | Action::Interleave { .. }
            | Action::CompactNode { .. }
            | Action::EvacuateBlock { .. }
            | Action::ResizePool { .. } => Ok(OutcomeClass::Unsupported),
        };
        let verdict = done.map_or_else(|error| verdict(&error), Verdict::new);
        Outcome {
            took: time::monotonic().since(began),
            ..Outcome::from(verdict)
        }
    }

    /// Keeps khugepaged from undoing splits, until the switches are restored.
    ///
    /// # Errors
    /// If the switch cannot be set.
    pub fn guard(&self, guard: KhugepagedGuard) -> Result<(), JournalError> {
        match guard {
            KhugepagedGuard::OnlyFull => self.switches.set(SysSwitch::KhugepagedMaxPtesNone, "0"),
            KhugepagedGuard::OnlyAdvised => self.switches.set(SysSwitch::ThpEnabled, "madvise"),
        }
    }

    /// The switches.
    #[must_use]
    pub const fn switches(&self) -> &Switches {
        &self.switches
    }

    fn baseline(&self, mode: LinuxMode) -> Result<OutcomeClass, JournalError> {
        let settings = settings(mode);
        for switch in MODE_SWITCHES {
            if settings.iter().all(|(named, _)| *named != switch) {
                self.switches.release(switch)?;
            }
        }
        for (switch, value) in settings {
            self.switches.set(*switch, value)?;
        }
        Ok(OutcomeClass::Done)
    }

    fn of_system(
        &self,
        scope: Scope,
        act: impl FnOnce(&Self) -> Result<OutcomeClass, JournalError>,
    ) -> Result<OutcomeClass, JournalError> {
        match scope {
            Scope::System => act(self),
            Scope::Process(_) | Scope::Cgroup(_) => Ok(OutcomeClass::Unsupported),
        }
    }

    fn allocation(&self, switch: Switch) -> Result<OutcomeClass, JournalError> {
        let value = match switch {
            Switch::On => "always",
            Switch::Off => "never",
        };
        self.switches.set(SysSwitch::ThpEnabled, value)?;
        Ok(OutcomeClass::Done)
    }

    fn promotion(&self, switch: Switch) -> Result<OutcomeClass, JournalError> {
        match switch {
            Switch::Off => self
                .switches
                .set(SysSwitch::KhugepagedScanSleep, PAUSE_MS)?,
            Switch::On => {
                let enabled = self.switches.read(SysSwitch::ThpEnabled)?;
                if enabled.is_none_or(|enabled| enabled == "never") {
                    return Ok(OutcomeClass::Unsupported);
                }
                self.switches
                    .set(SysSwitch::KhugepagedScanSleep, PROMOTION_MS)?;
            }
        }
        Ok(OutcomeClass::Done)
    }
}

impl SystemSwitches for SystemActuator {
    fn switch(&mut self, action: &Action) -> Outcome {
        self.act(action)
    }
}

#[cfg(test)]
mod tests;
