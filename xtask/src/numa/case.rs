//! What the table has a row for: a workload, nodes, a kernel, a mode, and what a policy sees accesses by.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A workload of `hugepilot bench numa`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    FirstTouch,
    HotVector,
    FalseSharing,
    FalseSharingPhases,
    HashTable,
    MapReduce,
    HotGigantic,
}

/// Who decides.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Base pages, nobody decides.
    Base,
    /// THP always, nobody decides.
    Thp,
    /// THP always, and the kernel's own balancing.
    ThpBalancing,
    Carrefour,
    #[value(name = "carrefour-2m")]
    #[serde(rename = "carrefour-2m")]
    Carrefour2m,
    Conservative,
    Reactive,
    CarrefourLp,
    /// One page of 1 GiB, nobody decides.
    Gigantic,
}

/// What a policy sees accesses by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// The virtual PMU's samples.
    Virtual,
    /// Hinting faults alone.
    Hinting,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    pub workload: Workload,
    pub nodes: u32,
    pub kernel: String,
    pub mode: Mode,
    /// None where nobody decides.
    pub sampler: Option<Sampler>,
}

/// The value of the switch of THP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thp {
    Never,
    Always,
}

impl Workload {
    pub const ALL: [Self; 7] = [
        Self::FirstTouch,
        Self::HotVector,
        Self::FalseSharing,
        Self::FalseSharingPhases,
        Self::HashTable,
        Self::MapReduce,
        Self::HotGigantic,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstTouch => "first-touch",
            Self::HotVector => "hot-vector",
            Self::FalseSharing => "false-sharing",
            Self::FalseSharingPhases => "false-sharing-phases",
            Self::HashTable => "hash-table",
            Self::MapReduce => "map-reduce",
            Self::HotGigantic => "hot-gigantic",
        }
    }

    /// No policy can split a page of the pool, so that one is compared with the kernel's pages alone.
    fn modes(self) -> &'static [Mode] {
        match self {
            Self::HotGigantic => &[Mode::Base, Mode::Thp, Mode::Gigantic],
            Self::FirstTouch
            | Self::HotVector
            | Self::FalseSharing
            | Self::FalseSharingPhases
            | Self::HashTable
            | Self::MapReduce => &[
                Mode::Base,
                Mode::Thp,
                Mode::ThpBalancing,
                Mode::Carrefour,
                Mode::Carrefour2m,
                Mode::Conservative,
                Mode::Reactive,
                Mode::CarrefourLp,
            ],
        }
    }
}

impl Mode {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Thp => "thp",
            Self::ThpBalancing => "thp-balancing",
            Self::Carrefour => "carrefour",
            Self::Carrefour2m => "carrefour-2m",
            Self::Conservative => "conservative",
            Self::Reactive => "reactive",
            Self::CarrefourLp => "carrefour-lp",
            Self::Gigantic => "gigantic",
        }
    }

    /// The policy to manage by, if any.
    pub const fn policy(self) -> Option<&'static str> {
        match self {
            Self::Base | Self::Thp | Self::ThpBalancing | Self::Gigantic => None,
            Self::Carrefour
            | Self::Carrefour2m
            | Self::Conservative
            | Self::Reactive
            | Self::CarrefourLp => Some(self.name()),
        }
    }

    /// How the switch stands when the workload starts: figure 4's baselines.
    pub const fn thp(self) -> Thp {
        match self {
            Self::Base | Self::Carrefour | Self::Conservative | Self::Gigantic => Thp::Never,
            Self::Thp
            | Self::ThpBalancing
            | Self::Carrefour2m
            | Self::Reactive
            | Self::CarrefourLp => Thp::Always,
        }
    }

    /// Does the kernel balance by itself?
    pub const fn balancing(self) -> bool {
        matches!(self, Self::ThpBalancing)
    }
}

impl Sampler {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Hinting => "hinting",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, mode) = (self.workload.name(), self.mode.name());
        write!(
            f,
            "{workload}, {} nodes, {}, {mode}",
            self.nodes, self.kernel
        )?;
        match self.sampler {
            Some(sampler) => write!(f, " by {}", sampler.name()),
            None => Ok(()),
        }
    }
}

/// What to make rows of; an empty list is everything.
#[derive(Debug, Default)]
pub struct Wanted {
    pub workloads: Vec<Workload>,
    pub nodes: Vec<u32>,
    pub kernels: Vec<String>,
    pub modes: Vec<Mode>,
    pub samplers: Vec<Sampler>,
}

impl Wanted {
    /// All rows of them, the cheapest to compare first.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for kernel in &self.kernels {
            for &nodes in &self.nodes {
                for workload in Workload::ALL {
                    if !wanted(&self.workloads, workload) {
                        continue;
                    }
                    for &mode in workload.modes() {
                        if wanted(&self.modes, mode) {
                            cases.extend(self.rows(workload, nodes, kernel, mode));
                        }
                    }
                }
            }
        }
        cases
    }

    fn rows(&self, workload: Workload, nodes: u32, kernel: &str, mode: Mode) -> Vec<Case> {
        let samplers: Vec<Option<Sampler>> = match mode.policy() {
            None => vec![None],
            Some(_) => [Sampler::Virtual, Sampler::Hinting]
                .into_iter()
                .filter(|sampler| wanted(&self.samplers, *sampler))
                .map(Some)
                .collect(),
        };
        let row = |sampler| Case {
            workload,
            nodes,
            kernel: kernel.to_owned(),
            mode,
            sampler,
        };
        samplers.into_iter().map(row).collect()
    }
}

fn wanted<T: PartialEq>(list: &[T], one: T) -> bool {
    list.is_empty() || list.contains(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Wanted {
        Wanted {
            nodes: vec![4, 8],
            kernels: vec!["6.12".to_owned(), "newest".to_owned()],
            ..Wanted::default()
        }
    }

    #[test]
    fn every_combination_is_there_once() {
        let mut cases = all().cases();
        // Six workloads with three modes without and five with a policy, each by two samplers; one with three.
        assert_eq!(cases.len(), (6 * (3 + 5 * 2) + 3) * 2 * 2);
        cases.sort();
        cases.dedup();
        assert_eq!(cases.len(), (6 * 13 + 3) * 4);
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let wanted = Wanted {
            workloads: vec![Workload::FalseSharing],
            nodes: vec![4],
            modes: vec![Mode::Thp, Mode::CarrefourLp],
            samplers: vec![Sampler::Hinting],
            ..all()
        };
        let shown: Vec<String> = wanted.cases().iter().map(Case::to_string).collect();
        assert_eq!(
            shown[..2],
            [
                "false-sharing, 4 nodes, 6.12, thp",
                "false-sharing, 4 nodes, 6.12, carrefour-lp by hinting"
            ]
        );
        assert_eq!(shown.len(), 4);
    }

    #[test]
    fn a_case_is_the_same_after_a_trip_through_json() {
        for case in all().cases() {
            let text = serde_json::to_string(&case).unwrap();
            assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
        }
    }
}
