//! One tick: observation in, plan out, outcomes back.
//!
//! The pilot joins what is known ([`World`]), what is wanted ([`Policy`]), what is allowed ([`Laws`]) and what is read
//! next ([`ScanPlanner`]). It has no world of its own: whoever drives it observes, acts and waits.

use crate::geometry::Geometry;
use crate::laws::Laws;
use crate::observation::Observation;
use crate::plan::{Accounted, Law, Plan, Refused};
use crate::policy::{Policy, Settings, Tick};
use crate::scan::ScanPlanner;
use crate::units::Span;
use crate::world::World;

/// Refusals that a plan lists, at the most; all are counted.
pub const REFUSED_MAX: usize = 32;

/// Observe → plan → act → account, without the observing and the acting.
pub struct Pilot {
    world: World,
    policy: Box<dyn Policy>,
    laws: Laws,
    scan: ScanPlanner,
    tick: Span,
    tick_busy: Span,
    tick_quiet: Span,
    /// The wait of the last tick, which grows while nothing changes.
    quiet: Span,
}

impl Pilot {
    /// A pilot that knows nothing yet.
    #[must_use]
    pub fn new(geometry: Geometry, policy: Box<dyn Policy>, settings: &Settings) -> Self {
        Self {
            world: World::new(geometry),
            policy,
            laws: Laws::new(settings.laws.clone()),
            scan: ScanPlanner::new(settings.watch.clone()),
            tick: settings.watch.tick_ms,
            tick_busy: settings.watch.tick_busy_ms,
            tick_quiet: settings.watch.tick_quiet_ms,
            quiet: settings.watch.tick_ms,
        }
    }

    /// What is known.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// What the user must know of the policy on this machine.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.policy.notes(&self.world)
    }

    /// Takes an observation in and says what to do now and what to look at next.
    pub fn plan(&mut self, seen: &Observation) -> Plan {
        let changes = self.world.fold(seen);
        self.laws.learn(&self.world, seen);
        self.scan.learn(&self.world, seen, &changes);
        let tick = Tick {
            world: &self.world,
            seen,
            changes: &changes,
        };
        let wish = self.policy.plan(&tick);
        let (actions, mut refused) = self.laws.admit(&self.world, wish.actions);
        let mut looks = wish.looks;
        if self.policy.watches() {
            looks.extend(self.scan.plan(&self.world));
        }
        let still = changes.is_empty() && is_still(seen);
        self.quiet = if still {
            Span(self.quiet.0 * 2).min(self.tick_quiet).max(self.tick)
        } else {
            self.tick
        };
        let next_tick = self.next_tick(!actions.is_empty(), &refused);
        let refused_total = u64::try_from(refused.len()).expect("bounded by the wishes");
        refused.truncate(REFUSED_MAX);
        Plan {
            actions,
            looks,
            refused,
            refused_total,
            next_tick,
        }
    }

    /// When to look again: soon while actions go on, when the budget allows it where they wait for their target.
    fn next_tick(&self, acting: bool, refused: &[Refused]) -> Span {
        if acting || refused.iter().any(|refused| refused.law == Law::TickBound) {
            self.tick_busy
        } else if refused.iter().any(|refused| refused.law == Law::LockBudget) {
            self.laws
                .wait()
                .clamp(self.tick_busy.min(self.tick), self.tick)
        } else {
            self.quiet
        }
    }

    /// Takes in what came of an action.
    pub fn account(&mut self, done: &Accounted) {
        let change = done
            .outcome
            .after
            .as_ref()
            .map(|after| self.world.account(after));
        self.laws.account(&self.world, done);
        self.policy.account(&self.world, done, change.as_ref());
    }

    /// Bytes held for slots: what is known and what the policy remembers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.world.slots.bytes() + self.policy.bytes()
    }
}

/// Nothing came, went, changed its mappings or faulted.
fn is_still(seen: &Observation) -> bool {
    seen.exited.is_empty()
        && seen.objects.is_empty()
        && seen.answers.is_empty()
        && seen.processes.iter().all(|process| process.faults == 0)
}
