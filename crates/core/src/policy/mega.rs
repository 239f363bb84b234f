//! `mega`: collapse what is present *and* used, split what is sparse *or* unused.
//!
//! **Problem.** Huge pages at fault time stall faults and bloat memory; presence alone rejoins memory that nobody uses.
//! **Signal.** Present share of each slot (page tables); accessed share over one scan period, the last 10 of them (a
//! tracker: DAMON or idle page tracking). A huge slot shows all of its base pages present and has one accessed bit: its
//! accessed share is the share of the last 10 scans in which it was accessed at all, and what of it holds anything is
//! found by *zero looks*: a bounded look counts zero-filled base pages of quiet huge slots. Zero looks are ours; where
//! memory cannot be read, *probe splits* take their place if allowed.
//! **Decision.** Present above `present_min` and accessed above `accessed_min` → collapse. A huge slot with less than
//! `present_keep` in use, or (`split_idle`) accessed less than `accessed_keep` over a full history → split. A partially mapped huge page
//! that is not full enough to be collapsed → split: its mapping is base pages already, so nothing is lost, and what the
//! program gave back comes free (the paper's kernel did that by itself). Without a tracker presence decides alone, and
//! `notes` says so.
//! `split_idle` is off unless asked for: a tracker clears accessed bits without flushing TLBs, so a huge page whose
//! translation never leaves the TLB, the hottest there is, can read as idle.
//! **Only** slots at least `track_present_min` present are tracked, dropped under `track_present_drop`, at most
//! `track_max` at once, rotating.
//! **Properties.** Never collapses at or below `present_min`; a slot split as unused is not collapsed until a tracker sees
//! it used; a slot split as sparse not until it changes; where splitting frees nothing (kernels before 6.12), zero looks
//! stop after `USELESS_SPLITS_MAX` such splits.
//! **Known bad cases.** A sweep that touches one base page in 32 KiB is fully present and never used above the threshold:
//! base pages stay (the paper: 324 s against Ingens' 159 s).
//! **Source.** The MEGA slides (Michailidis, Delis, Roussopoulos); without its compaction.

use super::turn::Turn;
use super::{Policy, Tick};
use crate::action::Action;
use crate::geometry::Order;
use crate::ids::{ObjectId, SlotId};
use crate::look::{Answer, Look};
use crate::observation::{Accessed, Tracker, Unseen};
use crate::outcome::OutcomeClass;
use crate::plan::{Accounted, Planned, Wish};
use crate::reason::{AccessedShare, PresentBy, Reason};
use crate::slot_map::SlotMap;
use crate::units::{BasePages, Bytes, Instant, Ratio, Span};
use crate::world::{SlotChange, SlotState, World};
use serde_json::{Value, json};

/// The policy's name.
pub const NAME: &str = "mega";

crate::parameters! {
    /// MEGA's numbers.
    pub struct MegaParams in "mega" {
        present_min: Ratio = Ratio::new(0.9), 0..=1, "share of base pages",
            "A slot with more than this share present may be collapsed", "paper";
        accessed_min: Ratio = Ratio::new(0.5), 0..=1, "share of base pages",
            "A slot accessed more than this may be collapsed", "paper";
        present_keep: Ratio = Ratio::new(0.5), 0..=1, "share of base pages",
            "A huge slot with less than this in use is split", "paper";
        accessed_keep: Ratio = Ratio::new(0.25), 0..=1, "share of scans",
            "A huge slot accessed less than this is split", "paper";
        track_present_min: Ratio = Ratio::new(0.5), 0..=1, "share of base pages",
            "Only slots with at least this share present are tracked", "paper";
        track_present_drop: Ratio = Ratio::new(0.25), 0..=1, "share of base pages",
            "A tracked slot with less than this share present is dropped", "paper";
        track_max: u64 = 10_000, 0..=1_000_000, "slots",
            "Slots tracked at once; past it they take turns", "measured: docs/results.md on DAMON";
        access_period_ms: Span = Span::secs(5), 100..=3_600_000, "ms",
            "One scan of accesses", "ours: the slides give none";
        split_idle: bool = false, 0..=0, "true or false",
            "Split huge slots that are accessed less than accessed_keep", "paper: true; ours: off, since DAMON can take a hot huge page for an idle one";
        collapse_scans_min: u64 = 2, 1..=10, "scans",
            "Scans that a history must hold before it speaks for a collapse", "ours";
        zero_look_bytes_per_s: Bytes = Bytes::mib(64), 0..=1_099_511_627_776.0, "bytes a second",
            "Memory read to find zero-filled base pages; 0 never looks", "ours";
        zero_look_quiet_scans: u64 = 1, 0..=255, "scans",
            "Scans without a change before a huge slot is looked into", "ours";
        zero_look_again_ms: Span = Span::secs(300), 1000..=86_400_000, "ms",
            "Time before a slot found in use is looked into again", "ours";
        probe_splits_per_min: u64 = 0, 0..=6000, "splits a minute",
            "Quiet huge slots split to look inside, where memory cannot be read", "ours";
    }
}

/// Scans that a history holds (paper: 10).
pub const HISTORY: usize = 10;
/// Steps that a remembered share has: half a percent each, so that the thresholds' halves and quarters are exact.
const SHARE_STEPS: u8 = 200;
/// Splits of sparse slots that free nothing before zero looks stop.
pub const USELESS_SPLITS_MAX: u32 = 8;
/// Base pages read in the first, sampling zero look.
const SAMPLE_PAGES: BasePages = BasePages(8);
/// Zero looks in one tick, at the most.
const ZERO_LOOKS_MAX: usize = 256;
/// Scan periods for which the choice of tracked slots stands.
const TRACK_SCANS: u64 = 2;
/// Memory read by the zero looks of one tick, at the most (a whole slot may go beyond): what a machine answers at once.
const LOOK_BYTES_MAX: Bytes = Bytes::mib(14);
/// Looks in a row that were not answered, after which memory counts as unreadable: more than one process that died.
const UNREADABLE_AFTER: u32 = 64;
/// Slots gone through in one tick for one worth a look, at the most.
const LOOK_STEPS_MAX: usize = 1024;

/// What is remembered of a slot: 24 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slot {
    /// Accessed shares of the last scans, in [`SHARE_STEPS`]ths, the oldest overwritten first.
    history: [u8; HISTORY],
    scans: u8,
    next: u8,
    /// Base pages in use by the last full zero look, plus one; 0: none made.
    in_use: u16,
    /// When it was last looked into, in seconds; 0: never.
    looked_s: u32,
    tracker: Option<Tracker>,
    flags: Flags,
}

/// What a slot is a candidate for, and what is remembered against it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Flags {
    /// A full look was asked for after the sampling one.
    suspect: bool,
    /// Split as unused or sparse by us: not collapsed on presence alone.
    split_by_us: bool,
}

impl Slot {
    fn push(&mut self, accessed: Accessed) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 200"
        )]
        let share = (accessed.share.get() * f64::from(SHARE_STEPS)).round() as u8;
        self.history[usize::from(self.next)] = share;
        self.next = (self.next + 1) % u8::try_from(HISTORY).expect("10");
        self.scans = (self.scans + 1).min(u8::try_from(HISTORY).expect("10"));
        self.tracker = Some(accessed.tracker);
    }

    fn accessed(&self) -> Option<AccessedShare> {
        let tracker = self.tracker.filter(|_| self.scans > 0)?;
        let sum: u64 = self.history[..usize::from(self.scans)]
            .iter()
            .map(|share| u64::from(*share))
            .sum();
        Some(AccessedShare {
            share: Ratio::of(sum, u64::from(SHARE_STEPS) * u64::from(self.scans)),
            scans: self.scans,
            tracker,
        })
    }

    fn clear_history(&mut self) {
        self.scans = 0;
        self.next = 0;
    }

    fn in_use(&self) -> Option<BasePages> {
        self.in_use
            .checked_sub(1)
            .map(|pages| BasePages(u64::from(pages)))
    }

    fn found(&mut self, in_use: BasePages) {
        self.in_use = u16::try_from(in_use.0).map_or(u16::MAX, |pages| pages.saturating_add(1));
    }
}

/// The policy.
#[derive(Debug, Clone)]
pub struct Mega {
    params: MegaParams,
    slots: SlotMap<Slot>,
    /// Slots that qualify for an action.
    candidates: SlotMap<()>,
    turn: Turn,
    tracked: Vec<SlotId>,
    tracked_at: Option<Instant>,
    /// Where the next round of tracked slots begins.
    track_from: Option<SlotId>,
    /// Where the next zero looks begin.
    look_from: Option<SlotId>,
    read_credit: f64,
    probe_credit: f64,
    credited_at: Option<Instant>,
    useless_splits: u32,
    /// Looks in a row that were not answered.
    unanswered: u32,
}

impl Mega {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(params: MegaParams) -> Self {
        Self {
            params,
            slots: SlotMap::default(),
            candidates: SlotMap::default(),
            turn: Turn::default(),
            tracked: Vec::new(),
            tracked_at: None,
            track_from: None,
            look_from: None,
            read_credit: 0.0,
            probe_credit: 0.0,
            credited_at: None,
            useless_splits: 0,
            unanswered: 0,
        }
    }

    fn consider(&mut self, world: &World, change: &SlotChange) {
        let slot = change.slot;
        let Some(after) = &change.after else {
            self.slots.remove(slot);
            self.candidates.remove(slot);
            return;
        };
        if !world.is_reachable(slot) {
            return;
        }
        let memory = self.slots.entry(slot);
        let changed = change
            .before
            .as_ref()
            .is_none_or(|before| before.backing != after.backing);
        if changed {
            // The program changed it: what was found inside, and what was held against it, is past.
            memory.in_use = 0;
            memory.looked_s = 0;
            memory.flags = Flags::default();
        }
        if change
            .before
            .as_ref()
            .is_some_and(|before| before.is_huge(&world.geometry) != after.is_huge(&world.geometry))
        {
            memory.clear_history();
        }
        if let Some(accessed) = change.accessed {
            memory.push(accessed);
        }
        self.judge(world, slot);
    }

    fn judge(&mut self, world: &World, slot: SlotId) {
        if self.decide(world, slot).is_some() {
            self.candidates.insert(slot, ());
        } else {
            self.candidates.remove(slot);
        }
    }

    /// The action that a slot deserves now, if any.
    fn decide(&self, world: &World, slot: SlotId) -> Option<Planned> {
        let state = world.slots.get(slot).filter(|_| world.is_reachable(slot))?;
        let memory = self.slots.get(slot).copied().unwrap_or_default();
        if state.is_huge(&world.geometry) {
            self.decide_huge(world, slot, &memory)
        } else {
            self.decide_base(world, slot, state, &memory)
        }
    }

    fn decide_huge(&self, world: &World, slot: SlotId, memory: &Slot) -> Option<Planned> {
        let action = Action::Split {
            slot,
            order: Order::BASE,
        };
        if let Some(in_use) = memory.in_use() {
            let present = Ratio::of(in_use.0, world.geometry.slot_pages().0);
            if present < self.params.present_keep && !self.splitting_is_useless() {
                let by = PresentBy::ZeroLook;
                let reason = Reason::Sparse {
                    present,
                    present_keep: self.params.present_keep,
                    by,
                };
                return Some(Planned { action, reason });
            }
        }
        let accessed = memory
            .accessed()
            .filter(|accessed| self.params.split_idle && usize::from(accessed.scans) == HISTORY)?;
        (accessed.share < self.params.accessed_keep).then_some(Planned {
            action,
            reason: Reason::Idle {
                accessed,
                accessed_keep: self.params.accessed_keep,
            },
        })
    }

    fn decide_base(
        &self,
        world: &World,
        slot: SlotId,
        state: &SlotState,
        memory: &Slot,
    ) -> Option<Planned> {
        let present = state.present_share(&world.geometry);
        if state.partially_mapped && present <= self.params.present_min {
            let action = Action::Split {
                slot,
                order: Order::BASE,
            };
            return Some(Planned {
                action,
                reason: Reason::PartiallyMapped { present },
            });
        }
        let accessed = memory.accessed();
        let used = match accessed {
            Some(accessed) => {
                u64::from(accessed.scans) >= self.params.collapse_scans_min
                    && accessed.share > self.params.accessed_min
            }
            None => !memory.flags.split_by_us && is_untracked(world),
        };
        (present > self.params.present_min && used).then_some(Planned {
            action: Action::Collapse {
                slot,
                order: world.geometry.slot_order,
            },
            reason: Reason::PresentAndUsed {
                present,
                present_min: self.params.present_min,
                accessed,
                accessed_min: self.params.accessed_min,
            },
        })
    }

    /// Splits of sparse slots have freed nothing so often that they cannot on this machine.
    fn splitting_is_useless(&self) -> bool {
        self.useless_splits >= USELESS_SPLITS_MAX
    }

    /// Memory seems not to be readable here at all.
    fn is_unreadable(&self) -> bool {
        self.unanswered >= UNREADABLE_AFTER
    }

    fn learn_zeros(&mut self, world: &World, answers: &[Answer]) {
        let seconds = seconds(world.at);
        for answer in answers {
            match answer {
                Answer::ZeroPages { slot, read, zero } => {
                    self.learn_zero(world, *slot, *read, *zero, seconds)
                }
                Answer::Unanswered { slot } => {
                    self.unanswered = self.unanswered.saturating_add(1);
                    if let Some(memory) = self.slots.get_mut(*slot) {
                        memory.looked_s = seconds;
                    }
                }
            }
        }
    }

    fn learn_zero(
        &mut self,
        world: &World,
        slot: SlotId,
        read: BasePages,
        zero: BasePages,
        seconds: u32,
    ) {
        let Some(memory) = self.slots.get_mut(slot) else {
            return;
        };
        let full = read >= world.geometry.slot_pages();
        let sparse = Ratio::of((read - zero).0, read.0) < self.params.present_keep;
        self.unanswered = 0;
        memory.looked_s = seconds;
        memory.flags.suspect = sparse && !full;
        if full {
            memory.found(read - zero);
        }
        self.judge(world, slot);
    }

    /// Slots that qualify, each judged once more; quiet ones first.
    fn wishes(&mut self, world: &World) -> Vec<Planned> {
        let mut turn = self.turn;
        let this = &*self;
        let of = |busy: bool| {
            this.candidates.iter().filter_map(move |(slot, ())| {
                let state = world.slots.get(slot)?;
                if (state.quiet_scans == 0) == busy {
                    this.decide(world, slot)
                } else {
                    None
                }
            })
        };
        let wishes = turn.take(of(false).chain(of(true)));
        self.turn = turn;
        wishes
    }

    fn credit(&mut self, at: Instant) {
        let passed = self
            .credited_at
            .map_or(Span::ZERO, |before| at.since(before))
            .as_secs_f64();
        self.credited_at = Some(at);
        #[expect(clippy::cast_precision_loss, reason = "rates")]
        let (read, probe) = (
            self.params.zero_look_bytes_per_s.0 as f64,
            self.params.probe_splits_per_min as f64 / 60.0,
        );
        self.read_credit = (self.read_credit + passed * read).min(read);
        self.probe_credit = (self.probe_credit + passed * probe).min(1.0);
    }

    /// Quiet huge slots to look into, going round, as far as the bytes a second allow.
    fn zero_looks(&mut self, world: &World) -> Vec<Look> {
        if self.splitting_is_useless() {
            return Vec::new();
        }
        // Where nothing was answered for long, one look at a time finds out whether that has changed.
        let most = if self.is_unreadable() {
            1
        } else {
            ZERO_LOOKS_MAX
        };
        let mut bytes = Bytes::ZERO;
        let mut looks = Vec::new();
        let mut last = None;
        for (slot, _) in self.slots.after(self.look_from).take(LOOK_STEPS_MAX) {
            if self.read_credit <= 0.0 || looks.len() >= most || bytes >= LOOK_BYTES_MAX {
                break;
            }
            last = Some(slot);
            let Some(pages_max) = self.wants_look(world, slot) else {
                continue;
            };
            #[expect(clippy::cast_precision_loss, reason = "a credit in bytes")]
            let cost = world.geometry.bytes(pages_max).0 as f64;
            bytes += world.geometry.bytes(pages_max);
            self.read_credit -= cost;
            looks.push(Look::ZeroPages { slot, pages_max });
        }
        // Past the last slot the round begins anew.
        self.look_from =
            last.filter(|_| self.read_credit <= 0.0 || self.slots.after(last).next().is_some());
        looks
    }

    /// How many base pages of a slot are worth a look now.
    fn wants_look(&self, world: &World, slot: SlotId) -> Option<BasePages> {
        let memory = self.slots.get(slot)?;
        let state = world.slots.get(slot)?;
        let quiet = u64::from(state.quiet_scans) >= self.params.zero_look_quiet_scans;
        if !quiet || !state.is_huge(&world.geometry) {
            return None;
        }
        if memory.flags.suspect {
            return Some(world.geometry.slot_pages());
        }
        let again = u64::from(memory.looked_s) + self.params.zero_look_again_ms.0 / 1_000_000_000;
        let due = memory.looked_s == 0 || u64::from(seconds(world.at)) >= again;
        due.then_some(SAMPLE_PAGES)
    }

    /// A quiet huge slot to split in order to see inside, where reading is refused.
    fn probe(&mut self, world: &World) -> Option<Planned> {
        if !self.is_unreadable() || self.probe_credit < 1.0 {
            return None;
        }
        let found = {
            let mut round = self.slots.after(self.look_from).take(LOOK_STEPS_MAX);
            round
                .find(|(slot, _)| self.wants_look(world, *slot).is_some())
                .map(|(slot, _)| slot)
        };
        self.look_from = found;
        let slot = found?;
        self.probe_credit -= 1.0;
        let quiet_scans = u32::from(world.slots.get(slot)?.quiet_scans);
        self.slots.get_mut(slot)?.looked_s = seconds(world.at);
        Some(Planned {
            action: Action::Split {
                slot,
                order: Order::BASE,
            },
            reason: Reason::Probe { quiet_scans },
        })
    }

    /// Which slots to track from now on, if that changed; asked once in [`TRACK_SCANS`] scan periods.
    fn track(&mut self, world: &World) -> Option<Look> {
        let period = self.params.access_period_ms;
        let wait = Span(TRACK_SCANS * period.0);
        if self
            .tracked_at
            .is_some_and(|before| world.at.since(before) < wait)
        {
            return None;
        }
        self.tracked_at = Some(world.at);
        let mut slots = self.trackable(world);
        slots.sort_unstable();
        if slots == self.tracked {
            return None;
        }
        self.tracked.clone_from(&slots);
        Some(Look::Track { slots, period })
    }

    fn trackable(&mut self, world: &World) -> Vec<SlotId> {
        let most = usize::try_from(self.params.track_max).unwrap_or(usize::MAX);
        let fits = |slot: &SlotId| {
            let Some(state) = world.slots.get(*slot) else {
                return false;
            };
            let present = state.present_share(&world.geometry);
            let tracked = self.tracked.binary_search(slot).is_ok();
            present
                >= if tracked {
                    self.params.track_present_drop
                } else {
                    self.params.track_present_min
                }
        };
        let all: Vec<SlotId> = self
            .slots
            .iter()
            .map(|(slot, _)| slot)
            .filter(fits)
            .collect();
        if all.len() <= most {
            return all;
        }
        let from = self
            .track_from
            .map_or(0, |from| all.partition_point(|slot| *slot <= from));
        let chosen: Vec<SlotId> = all[from..]
            .iter()
            .chain(&all[..from])
            .take(most)
            .copied()
            .collect();
        self.track_from = chosen.last().copied();
        chosen
    }

    fn forget(&mut self, object: ObjectId) {
        self.slots.remove_object(object);
        self.candidates.remove_object(object);
        self.tracked.retain(|slot| slot.object != object);
        self.tracked.shrink_to_fit();
    }
}

/// No tracker sees accesses of base pages.
fn is_untracked(world: &World) -> bool {
    world.blind.contains(&Unseen::AccessedShare)
}

fn seconds(at: Instant) -> u32 {
    u32::try_from(at.0 / 1_000_000_000)
        .unwrap_or(u32::MAX)
        .max(1)
}

impl Policy for Mega {
    fn name(&self) -> &'static str {
        NAME
    }

    fn notes(&self, world: &World) -> Vec<String> {
        let mut notes = vec!["without compaction".to_owned()];
        if is_untracked(world) {
            notes.push("no tracker of accesses: present share alone decides a collapse".to_owned());
        }
        notes
    }

    fn plan(&mut self, tick: &Tick) -> Wish {
        let world = tick.world;
        for process in &tick.seen.exited {
            self.forget(ObjectId::Private(*process));
        }
        for object in tick
            .seen
            .objects
            .iter()
            .filter(|object| object.mappings.is_empty())
        {
            self.forget(object.object);
        }
        for change in tick.changes {
            self.consider(world, change);
        }
        self.learn_zeros(world, &tick.seen.answers);
        self.credit(world.at);
        let mut actions = self.wishes(world);
        actions.extend(self.probe(world));
        let mut looks = self.zero_looks(world);
        looks.extend(self.track(world));
        Wish { actions, looks }
    }

    fn account(&mut self, world: &World, done: &Accounted, change: Option<&SlotChange>) {
        let Some(slot) = done.planned.action.slot() else {
            return;
        };
        self.turn.answered();
        let split = matches!(done.planned.action, Action::Split { .. });
        let sparse = matches!(
            done.planned.reason,
            Reason::Sparse {
                by: PresentBy::ZeroLook,
                ..
            }
        );
        if split && sparse && done.outcome.class == OutcomeClass::Done {
            self.useless_splits = if done.outcome.freed == Bytes::ZERO {
                self.useless_splits + 1
            } else {
                0
            };
        }
        let Some(memory) = self.slots.get_mut(slot) else {
            return;
        };
        if change.is_some_and(|change| change.after.is_none()) {
            self.slots.remove(slot);
            self.candidates.remove(slot);
            return;
        }
        if done.outcome.class == OutcomeClass::Done {
            memory.clear_history();
            memory.in_use = 0;
            memory.flags = Flags {
                suspect: false,
                split_by_us: split,
            };
        }
        self.judge(world, slot);
    }

    fn watches(&self) -> bool {
        true
    }

    fn state(&self) -> Value {
        json!({
            "slots": self.slots.len(),
            "candidates": self.candidates.iter().map(|(slot, ())| slot).collect::<Vec<_>>(),
            "skipped": self.turn.skipped(),
            "tracked": self.tracked.len(),
            "useless_splits": self.useless_splits,
        })
    }

    fn bytes(&self) -> usize {
        self.slots.bytes() + self.candidates.bytes() + self.tracked.len() * size_of::<SlotId>()
    }
}
