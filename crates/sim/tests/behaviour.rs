//! What the simulated machine does where the conformance suite does not look: nodes, swap, tracking, faults.

use hugepilot_core::action::{Action, LinuxMode, Switch};
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{NodeId, ObjectId, ProcessId, Scope, SlotId};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{Observation, Sharing, SlotObserved, Tracker};
use hugepilot_core::outcome::{Cause, Outcome, OutcomeClass};
use hugepilot_core::units::{BasePages, Bytes, Span};
use hugepilot_sim::{Advice, Area, Config, Contents, Sim, ThpMode};

const GEOMETRY: Geometry = Geometry::X86_64;
const HUGE: Order = Order(9);

struct Fixture {
    sim: Sim,
    area: Area,
}

impl Fixture {
    /// One process with one slot of memory, on a machine of two nodes.
    fn new(thp: ThpMode) -> Self {
        let nodes = vec![Bytes::mib(16), Bytes::mib(16)];
        let mut sim = Sim::new(Config {
            nodes,
            thp,
            ..Config::default()
        });
        let process = sim.start("test");
        let area = sim.map(process, Bytes::mib(2)).expect("alive");
        Self { sim, area }
    }

    fn written(thp: ThpMode) -> Self {
        let mut fixture = Self::new(thp);
        fixture
            .sim
            .write(fixture.area, Contents::Data)
            .expect("memory is free");
        fixture
    }

    fn slot(&self) -> SlotId {
        slot_of(self.area)
    }

    fn act(&mut self, action: &Action) -> Outcome {
        let outcome = self.sim.act(action).0;
        assert_eq!(self.sim.check(), Ok(()));
        outcome
    }

    fn collapse(&mut self) -> Outcome {
        let slot = self.slot();
        self.act(&Action::Collapse { slot, order: HUGE })
    }

    fn look(&mut self, look: Look) -> Observation {
        let Ok(seen) = self.sim.observe(&[look]);
        seen
    }

    fn nodes(&mut self) -> Vec<(NodeId, BasePages)> {
        let slot = self.slot();
        self.look(Look::Nodes(slot))
            .slots
            .pop()
            .expect("was asked for")
            .nodes
    }

    fn seen(&mut self) -> SlotObserved {
        let slot = self.slot();
        slot_seen(&mut self.sim, slot)
    }

    fn part(&self, first: u64, pages: u64) -> Area {
        self.area
            .part(&GEOMETRY, BasePages(first), BasePages(pages))
    }
}

fn slot_of(area: Area) -> SlotId {
    SlotId {
        object: ObjectId::Private(area.process),
        index: area.address >> GEOMETRY.slot_shift(),
    }
}

fn is_huge(sim: &mut Sim, area: Area) -> bool {
    let slot = slot_of(area);
    let Ok(seen) = sim.observe(&[Look::Nodes(slot)]);
    seen.slots
        .iter()
        .any(|seen| seen.slot == slot && seen.is_huge(HUGE))
}

fn huge_after_touch(thp: ThpMode, advice: Advice) -> bool {
    let mut fixture = Fixture::new(thp);
    fixture.sim.advise(fixture.area, advice).expect("alive");
    let first = fixture.part(100, 1);
    fixture
        .sim
        .write(first, Contents::Data)
        .expect("memory is free");
    assert_eq!(fixture.sim.check(), Ok(()));
    is_huge(&mut fixture.sim, fixture.area)
}

#[test]
fn faults_get_huge_pages_as_the_switch_and_the_advice_say() {
    assert!(!huge_after_touch(ThpMode::Never, Advice::Huge));
    assert!(!huge_after_touch(ThpMode::Madvise, Advice::Neutral));
    assert!(huge_after_touch(ThpMode::Madvise, Advice::Huge));
    assert!(huge_after_touch(ThpMode::Always, Advice::Neutral));
    assert!(!huge_after_touch(ThpMode::Always, Advice::NoHuge));
}

#[test]
fn baselines_and_switches_set_the_mode() {
    let mut fixture = Fixture::new(ThpMode::Never);
    let done = OutcomeClass::Done;
    assert_eq!(
        fixture
            .act(&Action::Baseline {
                mode: LinuxMode::Always
            })
            .class,
        done
    );
    let first = fixture.part(0, 1);
    fixture
        .sim
        .write(first, Contents::Data)
        .expect("memory is free");
    assert!(is_huge(&mut fixture.sim, fixture.area));
    let off = Action::HugeAllocation {
        scope: Scope::System,
        switch: Switch::Off,
    };
    assert_eq!(fixture.act(&off).class, done);
    let other = fixture
        .sim
        .map(fixture.area.process, Bytes::mib(2))
        .expect("alive");
    fixture
        .sim
        .write(other, Contents::Data)
        .expect("memory is free");
    assert!(!is_huge(&mut fixture.sim, other));
}

#[test]
fn a_collapse_goes_where_most_pages_are() {
    let mut fixture = Fixture::new(ThpMode::Never);
    let (less, more) = (fixture.part(0, 200), fixture.part(200, 312));
    fixture
        .sim
        .write(less, Contents::Data)
        .expect("memory is free");
    fixture
        .sim
        .run_on(fixture.area.process, NodeId(1))
        .expect("alive");
    fixture
        .sim
        .write(more, Contents::Data)
        .expect("memory is free");
    assert_eq!(
        fixture.nodes(),
        [(NodeId(0), BasePages(200)), (NodeId(1), BasePages(312))]
    );
    assert_eq!(fixture.collapse().class, OutcomeClass::Done);
    assert_eq!(fixture.nodes(), [(NodeId(1), BasePages(512))]);
}

#[test]
fn without_a_free_huge_page_on_that_node_there_is_no_collapse() {
    let mut fixture = Fixture::written(ThpMode::Never);
    fixture.sim.fragment(NodeId(0), 2);
    assert_eq!(fixture.collapse().class, OutcomeClass::NoMemory);
    fixture.sim.defragment();
    assert_eq!(fixture.collapse().class, OutcomeClass::Done);
}

#[test]
fn a_huge_page_moves_whole_even_for_one_base_page() {
    let mut fixture = Fixture::written(ThpMode::Always);
    let (slot, pages) = (fixture.slot(), vec![(BasePages(7), NodeId(1))]);
    assert_eq!(
        fixture.act(&Action::MovePages { slot, pages }).class,
        OutcomeClass::Done
    );
    assert_eq!(fixture.nodes(), [(NodeId(1), BasePages(512))]);
    assert!(is_huge(&mut fixture.sim, fixture.area));
}

#[test]
fn a_huge_page_is_split_where_the_target_has_only_base_pages() {
    let mut fixture = Fixture::written(ThpMode::Always);
    fixture.sim.fragment(NodeId(1), 2);
    let slot = fixture.slot();
    assert_eq!(
        fixture
            .act(&Action::MoveSlot {
                slot,
                to: NodeId(1)
            })
            .class,
        OutcomeClass::Done
    );
    assert_eq!(fixture.nodes(), [(NodeId(1), BasePages(512))]);
    assert!(!is_huge(&mut fixture.sim, fixture.area));
}

#[test]
fn interleaving_splits_and_spreads_by_weight() {
    let mut fixture = Fixture::written(ThpMode::Always);
    let (slot, nodes) = (fixture.slot(), vec![(NodeId(0), 1), (NodeId(1), 3)]);
    assert_eq!(
        fixture.act(&Action::Interleave { slot, nodes }).class,
        OutcomeClass::Done
    );
    assert_eq!(
        fixture.nodes(),
        [(NodeId(0), BasePages(128)), (NodeId(1), BasePages(384))]
    );
}

#[test]
fn swapped_pages_forbid_a_collapse() {
    let mut fixture = Fixture::written(ThpMode::Never);
    let some = fixture.part(10, 20);
    fixture.sim.swap_out(some).expect("alive");
    let outcome = fixture.collapse();
    assert_eq!(
        (outcome.class, outcome.cause),
        (OutcomeClass::Ineligible, Some(Cause::Swapped))
    );
    assert_eq!(outcome.after.map(|slot| slot.swapped), Some(BasePages(20)));
    fixture.sim.read(some).expect("memory is free");
    assert_eq!(fixture.collapse().class, OutcomeClass::Done);
}

#[test]
fn a_write_after_a_fork_copies_one_base_page() {
    let mut fixture = Fixture::written(ThpMode::Always);
    let child = fixture.sim.fork(fixture.area.process).expect("alive");
    let one = fixture.part(3, 1);
    fixture
        .sim
        .write(one, Contents::Data)
        .expect("memory is free");
    assert_eq!(fixture.sim.check(), Ok(()));
    let own = fixture.seen();
    assert_eq!(
        (own.backing.present(), own.is_huge(HUGE)),
        (BasePages(512), false)
    );
    assert_eq!(own.sharing, Sharing::ForkShared);
    let of_child = SlotId {
        object: ObjectId::Private(child),
        ..fixture.slot()
    };
    assert!(slot_seen(&mut fixture.sim, of_child).is_huge(HUGE));
    fixture.sim.exit(child).expect("alive");
    let alone = fixture.seen();
    assert_eq!(
        (alone.sharing, alone.partially_mapped),
        (Sharing::Exclusive, Some(true))
    );
}

fn slot_seen(sim: &mut Sim, slot: SlotId) -> SlotObserved {
    let Ok(mut seen) = sim.observe(&[Look::Nodes(slot)]);
    let at = seen
        .slots
        .iter()
        .position(|seen| seen.slot == slot)
        .expect("was asked for");
    seen.slots.swap_remove(at)
}

fn accessed_share(thp: ThpMode) -> f64 {
    let mut fixture = Fixture::written(thp);
    let (slot, period) = (fixture.slot(), Span::secs(1));
    fixture.look(Look::Track {
        slots: vec![slot],
        period,
    });
    let quarter = fixture.part(0, 128);
    fixture.sim.read(quarter).expect("memory is free");
    fixture.sim.advance(Span::millis(999));
    let Ok(early) = fixture.sim.observe(&[]);
    assert!(
        early.slots.is_empty(),
        "no reading before the period is over"
    );
    fixture.sim.advance(Span::millis(1));
    let Ok(seen) = fixture.sim.observe(&[]);
    let accessed = seen.slots[0].accessed.expect("is tracked");
    assert_eq!(accessed.tracker, Tracker::Simulated);
    accessed.share.get()
}

#[test]
fn the_accessed_share_is_per_base_page_or_all_of_a_huge_one() {
    assert!((accessed_share(ThpMode::Never) - 0.25).abs() < 1e-9);
    assert!((accessed_share(ThpMode::Always) - 1.0).abs() < 1e-9);
}

#[test]
fn page_faults_are_counted_over_the_interval() {
    let mut fixture = Fixture::new(ThpMode::Never);
    let Ok(_checkpoint) = fixture.sim.observe(&[]);
    fixture
        .sim
        .write(fixture.area, Contents::Data)
        .expect("memory is free");
    fixture.sim.advance(Span::secs(2));
    let Ok(seen) = fixture.sim.observe(&[]);
    let of = |process: ProcessId| seen.processes.iter().find(|seen| seen.process == process);
    let process = of(fixture.area.process).expect("lives");
    assert_eq!((process.faults, process.over), (512, Span::secs(2)));
    assert_eq!(process.resident, Bytes::mib(2));
    assert!((process.fault_rate() - 256.0).abs() < 1e-9);
}

#[test]
fn what_is_not_built_says_so() {
    let mut fixture = Fixture::new(ThpMode::Never);
    let unsupported = OutcomeClass::Unsupported;
    assert_eq!(
        fixture.act(&Action::CompactNode { node: NodeId(0) }).class,
        unsupported
    );
    let slot = fixture.slot();
    assert_eq!(
        fixture
            .act(&Action::Collapse {
                slot,
                order: Order(4)
            })
            .class,
        unsupported
    );
}
