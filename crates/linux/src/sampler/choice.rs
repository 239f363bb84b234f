//! Which sampler is used: the best that works, found by trying, and why none better.
//!
//! The order is by what they tell: hardware of this machine, then a hypervisor's, then the kernel's hinting faults, which tell
//! who and not how often. One asked for by name is used or refused, never replaced.

use super::hinting::HintingFaults;
use super::virtual_ibs::VirtualIbs;
use super::{AccessSampler, SamplerUnavailable, ibs, pebs};
use crate::procfs::{ProcRoot, SysRoot};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::sample::Sampler;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// The best there is.
    #[default]
    Auto,
    /// This one.
    Only(Kind),
    /// None.
    None,
}

/// The samplers there are, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`pebs`].
    Pebs,
    /// [`ibs`].
    Ibs,
    /// [`super::virtual_ibs`].
    Virtual,
    /// [`super::hinting`].
    Hinting,
}

impl Kind {
    /// All of them, the best first.
    pub const ALL: [Self; 4] = [Self::Pebs, Self::Ibs, Self::Virtual, Self::Hinting];

    /// Its name, as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pebs => "pebs",
            Self::Ibs => "ibs",
            Self::Virtual => "virtual",
            Self::Hinting => "hinting",
        }
    }
}

/// Where samplers look.
#[derive(Debug, Clone)]
pub struct Places {
    /// `/proc`.
    pub proc: ProcRoot,
    /// `/sys`.
    pub sys: SysRoot,
    /// Page sizes.
    pub geometry: Geometry,
}

/// What was chosen, and why nothing better.
#[derive(Default)]
pub struct Choice {
    /// The sampler, if there is one.
    pub sampler: Option<Box<dyn AccessSampler>>,
    /// Every better one, with why it cannot be had.
    pub refused: Vec<(Kind, SamplerUnavailable)>,
}

/// The names that [`Wish`] may be written with.
pub const NAMES: &str = "auto, pebs, ibs, virtual, hinting or none";

impl std::str::FromStr for Wish {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => Kind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .map(Self::Only)
                .ok_or_else(|| format!("the samplers are {NAMES}")),
        }
    }
}

/// Tries samplers as `wish` says.
#[must_use]
pub fn choose(wish: Wish, places: &Places) -> Choice {
    let kinds: &[Kind] = match &wish {
        Wish::Auto => &Kind::ALL,
        Wish::Only(kind) => std::slice::from_ref(kind),
        Wish::None => &[],
    };
    let mut choice = Choice::default();
    for &kind in kinds {
        match probe(kind, places) {
            Ok(sampler) => {
                choice.sampler = Some(sampler);
                break;
            }
            Err(why) => choice.refused.push((kind, why)),
        }
    }
    choice
}

fn probe(kind: Kind, places: &Places) -> Result<Box<dyn AccessSampler>, SamplerUnavailable> {
    let Places {
        proc,
        sys,
        geometry,
    } = places;
    Ok(match kind {
        Kind::Pebs => Box::new(pebs::probe(sys)?),
        Kind::Ibs => Box::new(ibs::probe(sys)?),
        Kind::Virtual => Box::new(VirtualIbs::probe(sys)?),
        Kind::Hinting => Box::new(HintingFaults::probe(proc.clone(), sys.clone(), *geometry)?),
    })
}

impl Choice {
    /// Why there is no better one, or none, in one sentence each.
    pub fn reasons(&self) -> impl Iterator<Item = String> + '_ {
        self.refused
            .iter()
            .map(|(kind, why)| format!("no {} samples: {why}", kind.name()))
    }

    /// What was chosen, for people.
    #[must_use]
    pub fn said(&self) -> String {
        match self.sampler.as_ref().map(|sampler| sampler.kind()) {
            None => "nothing samples accesses".to_owned(),
            Some(kind) => words(kind).to_owned(),
        }
    }
}

/// A sampler in words, with what it does not tell.
#[must_use]
pub const fn words(kind: Sampler) -> &'static str {
    match kind {
        Sampler::Pebs => "accesses are sampled by Intel PEBS",
        Sampler::Ibs => "accesses are sampled by AMD IBS",
        Sampler::Virtual => "accesses are sampled by the hypervisor (virtual IBS)",
        Sampler::HintingFault => {
            "accesses are sampled by the kernel's NUMA hinting faults, which tell who, not how often"
        }
        Sampler::FirstTouch => "first touches of memory are sampled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places {
            proc: ProcRoot::new(dir.path()),
            sys: SysRoot::new(dir.path()),
            geometry: Geometry::X86_64,
        };
        (dir, places)
    }

    #[test]
    fn where_there_is_none_each_says_why() {
        let (_dir, places) = nowhere();
        let choice = choose(Wish::Auto, &places);
        assert!(choice.sampler.is_none());
        let kinds: Vec<Kind> = choice.refused.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, Kind::ALL);
        assert!(choice.reasons().all(|why| why.len() > 20));
    }

    #[test]
    fn one_asked_for_by_name_is_not_replaced() {
        let (_dir, places) = nowhere();
        let choice = choose(Wish::Only(Kind::Ibs), &places);
        assert_eq!(choice.refused.len(), 1);
        assert!(choose(Wish::None, &places).refused.is_empty());
    }

    #[test]
    fn names_are_read() {
        assert_eq!("hinting".parse(), Ok(Wish::Only(Kind::Hinting)));
        assert_eq!("auto".parse(), Ok(Wish::Auto));
        assert!(
            "magic"
                .parse::<Wish>()
                .expect_err("none")
                .contains("virtual")
        );
    }
}
