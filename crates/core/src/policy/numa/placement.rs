//! Line 20 of Algorithm 1: pages go where they are used, and shared ones to a node drawn at random.
//!
//! The design is [`crate::policy::carrefour`]'s. Bounds: [`DRAWN_MAX`] pages remembered.

use super::{Draw, Numbers};
use crate::action::Action;
use crate::ids::{NodeId, ObjectId, SlotId};
use crate::metrics::PageUse;
use crate::plan::Planned;
use crate::policy::Settings;
use crate::policy::carrefour::CarrefourParams;
use crate::reason::Reason;
use crate::units::{BasePages, Bytes, Ratio};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Pages remembered as drawn for, at the most; past it no further one is drawn for while imbalance is not high.
const DRAWN_MAX: usize = 262_144;
/// The distance of a node to itself, in the kernel's scale.
const DISTANCE_LOCAL: u8 = 10;

/// Which pages are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::policy) enum PagesOf {
    /// Base pages; huge pages are passed over.
    Base,
    /// Pages as they are mapped.
    AsMapped,
}

/// May pages be moved in this round, and which?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gate {
    migrate: bool,
    spread: bool,
    /// Shared pages may be drawn for again.
    again: bool,
}

impl Gate {
    const SHUT: Self = Self {
        migrate: false,
        spread: false,
        again: false,
    };
}

/// Where one page goes.
struct Move {
    to: NodeId,
    shared: bool,
    samples: u32,
}

/// The placing of pages.
#[derive(Debug, Clone)]
pub(in crate::policy) struct Placement {
    params: CarrefourParams,
    pages: PagesOf,
    free_share: Ratio,
    open: bool,
    /// Shared pages that were drawn for.
    drawn: BTreeSet<(SlotId, Option<BasePages>)>,
    moves: BTreeMap<SlotId, u64>,
    draw: Draw,
}

impl Placement {
    pub(in crate::policy) fn new(settings: &Settings, pages: PagesOf) -> Self {
        let params = settings.carrefour.clone();
        Self {
            pages,
            free_share: settings.laws.node_free_share,
            open: false,
            drawn: BTreeSet::new(),
            moves: BTreeMap::new(),
            draw: Draw::new(params.seed),
            params,
        }
    }

    /// Line 20: moves for these pages, those with most accesses first. Slots in `busy` are left to what is planned for
    /// them already.
    pub(super) fn plan(
        &mut self,
        world: &World,
        pages: &[PageUse],
        numbers: &Numbers,
        busy: &BTreeSet<SlotId>,
    ) -> Vec<Planned> {
        let gate = self.gate(numbers);
        if gate == Gate::SHUT {
            return Vec::new();
        }
        let mut found: Vec<(f64, Planned)> = Vec::new();
        let mut targets: BTreeMap<ObjectId, Vec<NodeId>> = BTreeMap::new();
        for of_slot in pages.chunk_by(|a, b| a.slot == b.slot) {
            let slot = of_slot[0].slot;
            let stays = busy.contains(&slot)
                || !world.is_reachable(slot)
                || world.is_placement_fixed(slot)
                || self.passes_over(&of_slot[0]);
            if stays {
                continue;
            }
            let targets = targets
                .entry(slot.object)
                .or_insert_with(|| self.targets(world, slot.object));
            let weight = of_slot.iter().map(PageUse::weight).sum();
            let moved = self.move_slot(world, of_slot, targets, gate, numbers);
            found.extend(moved.map(|planned| (weight, planned)));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.into_iter().map(|(_, planned)| planned).collect()
    }

    fn gate(&mut self, numbers: &Numbers) -> Gate {
        let params = &self.params;
        let idle = |rate: f64| rate < params.accesses_min;
        if numbers.accesses_per_us.is_some_and(idle) {
            self.open = false;
            return Gate::SHUT;
        }
        let enough = if self.open {
            params.lar_enough
        } else {
            params.lar_low
        };
        let low = numbers.lar.is_some_and(|lar| lar.0.value < enough.get());
        self.open = low;
        // Chance alone makes a few samples look uneven.
        let uneven = numbers.imbalance.map(|of| {
            let imbalance = if params.uncertain_waits {
                of.0.low
            } else {
                of.0.value
            };
            imbalance > params.imbalance_high
        });
        let high = uneven == Some(true);
        if params.gates_apart {
            Gate {
                migrate: low,
                spread: uneven.unwrap_or(low),
                again: high,
            }
        } else {
            Gate {
                migrate: low || high,
                spread: low || high,
                again: high,
            }
        }
    }

    fn passes_over(&self, page: &PageUse) -> bool {
        if page.page.is_some() {
            return false;
        }
        let most = self.params.huge_moves_max;
        let moved = self.moves.get(&page.slot).copied().unwrap_or(0);
        self.pages == PagesOf::Base || (most > 0 && moved >= most)
    }

    /// Nodes that an object's pages may move to: with memory, allowed to all who map it, with room for a slot.
    pub(super) fn targets(&self, world: &World, object: ObjectId) -> Vec<NodeId> {
        let fits = |node: &NodeId| {
            let found = world.nodes.iter().find(|of| of.node == *node);
            found.is_some_and(|of| {
                of.free >= world.geometry.slot() + of.total.share(self.free_share)
            }) && world.is_node_allowed(object, *node)
        };
        world.memory_nodes().into_iter().filter(fits).collect()
    }

    /// One action for all pages of a slot that should move.
    fn move_slot(
        &mut self,
        world: &World,
        pages: &[PageUse],
        targets: &[NodeId],
        gate: Gate,
        numbers: &Numbers,
    ) -> Option<Planned> {
        let slot = pages[0].slot;
        let moves: Vec<(Option<BasePages>, Move)> = pages
            .iter()
            .filter_map(|page| {
                let to = self.move_page(world, page, targets, gate, numbers)?;
                Some((page.page, to))
            })
            .collect();
        let (_, first) = moves.first()?;
        let count = |shared: bool| {
            let of = moves.iter().filter(|(_, to)| to.shared == shared).count();
            u32::try_from(of).expect("pages of a slot")
        };
        let reason = Reason::Placement {
            one_node: count(false),
            shared: count(true),
            samples: moves.iter().map(|(_, to)| to.samples).sum(),
            to: first.to,
            lar: numbers.lar.map(|lar| lar.0),
            imbalance: numbers.imbalance.map(|of| of.0),
        };
        let pages: Option<Vec<(BasePages, NodeId)>> = moves
            .iter()
            .map(|(page, to)| page.map(|page| (page, to.to)))
            .collect();
        let action = match pages {
            Some(pages) => Action::MovePages { slot, pages },
            None => Action::MoveSlot { slot, to: first.to },
        };
        Some(Planned { action, reason })
    }

    fn move_page(
        &mut self,
        world: &World,
        page: &PageUse,
        targets: &[NodeId],
        gate: Gate,
        numbers: &Numbers,
    ) -> Option<Move> {
        let samples = page.samples();
        if let Some(node) = page.single_node() {
            let few = u64::from(samples) < self.params.samples_min;
            if few || !gate.migrate {
                return None;
            }
            let to = nearest(world, node, targets)?;
            let shared = false;
            return (page.home != Some(to)).then_some(Move {
                to,
                shared,
                samples,
            });
        }
        let key = (page.slot, page.page);
        let again = gate.again || !self.drawn.contains(&key);
        if !gate.spread || !again || (!gate.again && self.drawn.len() >= DRAWN_MAX) {
            return None;
        }
        let to = self.draw_node(world, page, targets, numbers)?;
        if self.drawn.len() < DRAWN_MAX {
            self.drawn.insert(key);
        }
        let shared = true;
        (page.home != Some(to)).then_some(Move {
            to,
            shared,
            samples,
        })
    }

    /// A random node for a shared page; its own where it stays.
    fn draw_node(
        &mut self,
        world: &World,
        page: &PageUse,
        targets: &[NodeId],
        numbers: &Numbers,
    ) -> Option<NodeId> {
        let loaded = self.params.to_less_loaded && !numbers.is_unrated();
        if let (true, Some(home)) = (loaded, page.home) {
            if self.draw.share() >= numbers.traffic.share(home) {
                return None;
            }
        }
        let weight = |node: NodeId| {
            let load = if loaded {
                1.0 - numbers.traffic.share(node)
            } else {
                1.0
            };
            let near = if self.params.by_distance {
                nearness(world, node, page)
            } else {
                1.0
            };
            load * near
        };
        let weighted: Vec<(NodeId, f64)> = targets
            .iter()
            .filter(|node| !loaded || page.home != Some(**node))
            .map(|node| (*node, weight(*node)))
            .collect();
        self.draw.one_of(&weighted)
    }

    /// A huge page was moved.
    pub(super) fn moved(&mut self, slot: SlotId) {
        if self.moves.len() < DRAWN_MAX {
            *self.moves.entry(slot).or_default() += 1;
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.drawn.retain(|(slot, _)| slot.object != object);
        self.moves.retain(|slot, _| slot.object != object);
    }

    pub(super) fn state(&self) -> Value {
        json!({
            "open": self.open,
            "drawn": self.drawn.iter().collect::<Vec<_>>(),
            "moves": self.moves.iter().collect::<Vec<_>>(),
            "seed": self.draw,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.drawn.len() * size_of::<(SlotId, Option<BasePages>)>()
            + self.moves.len() * size_of::<(SlotId, u64)>()
    }
}

/// `node` itself if it is a target; if it has no memory, the nearest target; else none: where it may not go it does not.
fn nearest(world: &World, node: NodeId, targets: &[NodeId]) -> Option<NodeId> {
    if targets.contains(&node) {
        return Some(node);
    }
    let of = world.nodes.iter().find(|of| of.node == node)?;
    if of.total > Bytes::ZERO {
        return None;
    }
    let reachable = of.distances.iter().filter(|(to, _)| targets.contains(to));
    reachable
        .min_by_key(|(to, distance)| (*distance, *to))
        .map(|(to, _)| *to)
}

/// How near `node` is to those who use the page: 1 where it is theirs alone, less with the distance.
fn nearness(world: &World, node: NodeId, page: &PageUse) -> f64 {
    let distances = world.nodes.iter().find(|of| of.node == node);
    let distance = |from: NodeId| {
        let found = distances.and_then(|of| of.distances.iter().find(|(to, _)| *to == from));
        found.map_or(DISTANCE_LOCAL, |(_, distance)| *distance)
    };
    let near = page
        .by_node
        .iter()
        .map(|of| of.weight * f64::from(DISTANCE_LOCAL) / f64::from(distance(of.node).max(1)));
    near.sum::<f64>() / page.weight()
}
