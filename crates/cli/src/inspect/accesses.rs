//! Sampling a process's accesses for a while, on a machine with several nodes. Nothing is changed for it: where only hinting
//! faults could be had and the kernel's balancing is off, it is said so.

use crate::kernel;
use crate::numa::{Gathered, View};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::Observation;
use hugepilot_core::policy::Settings;
use hugepilot_core::units::Span;
use hugepilot_core::world::World;
use hugepilot_linux::procfs::SysRoot;
use hugepilot_linux::sampler::choice::{self, Choice, Wish};
use hugepilot_linux::sensors::nodes::node_ids;
use std::time::{Duration, Instant};

/// Samples of one interval, at the most.
const SAMPLES_MAX: u32 = 65_536;
/// Time between two observations.
const INTERVAL: Duration = Duration::from_millis(200);

/// The sampler, none where one node leaves nothing to ask; and why there is none.
///
/// # Errors
/// If one asked for by name cannot be had.
pub fn choose(wish: Wish) -> anyhow::Result<(Choice, Option<String>)> {
    if node_ids(&SysRoot::default())?.len() < 2 {
        return Ok((Choice::default(), None));
    }
    let choice = choice::choose(wish, &kernel::places()?);
    let why = || choice.reasons().collect::<Vec<_>>().join("; ");
    let unsampled = match (wish, &choice.sampler) {
        (_, Some(_)) | (Wish::None, None) => None,
        (Wish::Only(_), None) => anyhow::bail!("{}", why()),
        (Wish::Auto, None) => Some(format!("who accesses what is not known: {}", why())),
    };
    Ok((choice, unsampled))
}

/// Samples for `span`: the observations.
///
/// # Errors
/// If the machine cannot be seen any more.
pub fn sample<M: Machine>(machine: &mut M, span: Span) -> Result<Vec<Observation>, M::Error> {
    let end = Instant::now() + Duration::from_nanos(span.0);
    let order = |samples_max| Look::Sample { samples_max };
    let mut seen = vec![machine.observe(&[order(SAMPLES_MAX)])?];
    while Instant::now() < end {
        std::thread::sleep(INTERVAL);
        seen.push(machine.observe(&[])?);
    }
    seen.push(machine.observe(&[order(0)])?);
    Ok(seen)
}

/// What the observations show; `None` on a machine with one node.
pub fn view(geometry: Geometry, seen: &[Observation], settings: &Settings) -> Option<View> {
    let mut world = World::new(geometry);
    let mut gathered = Gathered::default();
    for observation in seen {
        world.fold(observation);
        gathered.take(&world, observation);
    }
    View::of(&gathered, &world, settings.reactive.hot_share_min)
}
