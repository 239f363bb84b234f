//! Who runs when: every mode once a round, both baselines twice, the order rotated.
//!
//! A machine drifts: its memory fragments, its neighbours wake up. Modes in turn within one round meet the same drift,
//! and rotation gives each of them every place in the round. The second `never` and the second `always` are ordinary
//! runs: what they differ by from the first is the noise.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Fewer rounds give no median worth printing.
pub const ROUNDS_DEFAULT: u32 = 7;

/// Who decides about huge pages in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The kernel, `enabled=never`.
    Never,
    /// The kernel, `enabled=always`.
    Always,
    /// hugepilot with the policy `mega`; faults get base pages.
    Mega,
    /// hugepilot with the policy `ingens`; faults get base pages.
    Ingens,
}

impl Mode {
    /// All of them, baselines first.
    pub const ALL: [Self; 4] = [Self::Never, Self::Always, Self::Mega, Self::Ingens];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Mega => "mega",
            Self::Ingens => "ingens",
        }
    }

    /// Is it the kernel alone?
    #[must_use]
    pub const fn is_baseline(self) -> bool {
        match self {
            Self::Never | Self::Always => true,
            Self::Mega | Self::Ingens => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| format!("no mode {name:?}: there are {}", known()))
    }
}

/// The first or the second run of a mode in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// What is compared.
    First,
    /// What shows the noise.
    Again,
}

/// One run of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Who decides.
    pub mode: Mode,
    /// First or again.
    pub turn: Turn,
}

impl Cell {
    /// The first run of `mode`.
    #[must_use]
    pub const fn first(mode: Mode) -> Self {
        let turn = Turn::First;
        Self { mode, turn }
    }

    /// The second run of `mode`.
    #[must_use]
    pub const fn again(mode: Mode) -> Self {
        let turn = Turn::Again;
        Self { mode, turn }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turn {
            Turn::First => write!(f, "{}", self.mode),
            Turn::Again => write!(f, "{}_again", self.mode),
        }
    }
}

/// The runs of each round, in their order.
#[must_use]
pub fn rounds(modes: &[Mode], rounds: u32) -> Vec<Vec<Cell>> {
    let baselines = modes.iter().copied().filter(|mode| mode.is_baseline());
    let mut order: Vec<Cell> = modes.iter().copied().map(Cell::first).collect();
    order.extend(baselines.map(Cell::again));
    (0..rounds)
        .map(|_| {
            let this = order.clone();
            if !order.is_empty() {
                order.rotate_left(1);
            }
            this
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_round_has_each_mode_once_and_each_baseline_twice() {
        for round in rounds(&Mode::ALL, 7) {
            let distinct: BTreeSet<Cell> = round.iter().copied().collect();
            assert_eq!((round.len(), distinct.len()), (6, 6));
            assert!(distinct.contains(&Cell::again(Mode::Never)));
            assert!(distinct.contains(&Cell::again(Mode::Always)));
        }
    }

    #[test]
    fn over_six_rounds_every_run_has_had_every_place() {
        let rounds = rounds(&Mode::ALL, 6);
        for place in 0..6 {
            let there: BTreeSet<Cell> = rounds.iter().map(|round| round[place]).collect();
            assert_eq!(there.len(), 6);
        }
    }

    #[test]
    fn without_baselines_nothing_runs_twice() {
        assert_eq!(
            rounds(&[Mode::Mega], 2),
            vec![vec![Cell::first(Mode::Mega)]; 2]
        );
        assert_eq!(rounds(&[], 1), vec![vec![]]);
    }

    #[test]
    fn names_are_read_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!(
            "thp"
                .parse::<Mode>()
                .expect_err("unknown")
                .contains("ingens")
        );
    }
}
