//! Random histories: after every operation all accounts of memory agree, and the same history gives the same machine.
//!
//! A failure prints its operations as source: paste them into a named test below.

use hugepilot_core::action::Action;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{NodeId, ObjectId, ProcessId, SlotId, SlotRange};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::ThpConsent;
use hugepilot_core::units::{BasePages, Bytes};
use hugepilot_sim::{
    Advice, Area, CgroupIndex, Config, Contents, PinId, Sim, SplitZeroPages, ThpMode,
};
use proptest::prelude::*;

/// Slots of each area: three whole ones and a bit.
const AREA: Bytes = Bytes::kib(6 * 1024 + 512);
const AREA_PAGES: u16 = 1664;

/// One step of a history. Processes, areas and pins are named by how many there are, modulo.
#[derive(Debug, Clone)]
enum Op {
    Start,
    Exit(u8),
    Fork(u8),
    Map(u8),
    MapShmem(u8),
    Share { area: u8, process: u8 },
    Write { area: u8, first: u16, pages: u16 },
    Zero { area: u8, first: u16, pages: u16 },
    Read { area: u8, first: u16, pages: u16 },
    Free { area: u8, first: u16, pages: u16 },
    Unmap { area: u8, first: u16, pages: u16 },
    Lock { area: u8, first: u16, pages: u16 },
    Advise { area: u8, huge: bool },
    OptOut(u8),
    Swap { area: u8, first: u16, pages: u16 },
    Pin { area: u8, page: u16 },
    Unpin(u8),
    Limit { mib: u8 },
    Fragment,
    Defragment,
    Collapse { area: u8, slot: u8 },
    Split { area: u8, slot: u8 },
    MoveSlot { area: u8, slot: u8, node: u8 },
    MovePage { area: u8, slot: u8, page: u16 },
    Interleave { area: u8, slot: u8 },
    Observe,
}

fn any_op() -> impl Strategy<Value = Op> {
    let range = || (any::<u8>(), 0..AREA_PAGES, 1..700_u16);
    let slot = || (any::<u8>(), 0..4_u8);
    prop_oneof![
        1 => Just(Op::Start),
        1 => any::<u8>().prop_map(Op::Exit),
        1 => any::<u8>().prop_map(Op::Fork),
        3 => any::<u8>().prop_map(Op::Map),
        2 => any::<u8>().prop_map(Op::MapShmem),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(area, process)| Op::Share { area, process }),
        6 => range().prop_map(|(area, first, pages)| Op::Write { area, first, pages }),
        2 => range().prop_map(|(area, first, pages)| Op::Zero { area, first, pages }),
        2 => range().prop_map(|(area, first, pages)| Op::Read { area, first, pages }),
        3 => range().prop_map(|(area, first, pages)| Op::Free { area, first, pages }),
        1 => range().prop_map(|(area, first, pages)| Op::Unmap { area, first, pages }),
        1 => range().prop_map(|(area, first, pages)| Op::Lock { area, first, pages }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(area, huge)| Op::Advise { area, huge }),
        1 => any::<u8>().prop_map(Op::OptOut),
        1 => range().prop_map(|(area, first, pages)| Op::Swap { area, first, pages }),
        1 => (any::<u8>(), 0..AREA_PAGES).prop_map(|(area, page)| Op::Pin { area, page }),
        1 => any::<u8>().prop_map(Op::Unpin),
        1 => (0..64_u8).prop_map(|mib| Op::Limit { mib }),
        1 => Just(Op::Fragment),
        1 => Just(Op::Defragment),
        8 => slot().prop_map(|(area, slot)| Op::Collapse { area, slot }),
        6 => slot().prop_map(|(area, slot)| Op::Split { area, slot }),
        1 => (slot(), 0..3_u8).prop_map(|((area, slot), node)| Op::MoveSlot { area, slot, node }),
        1 => (slot(), 0..512_u16).prop_map(|((area, slot), page)| Op::MovePage { area, slot, page }),
        1 => slot().prop_map(|(area, slot)| Op::Interleave { area, slot }),
        2 => Just(Op::Observe),
    ]
}

struct Run {
    sim: Sim,
    cgroup: CgroupIndex,
    processes: Vec<ProcessId>,
    areas: Vec<(Area, ObjectId)>,
    pins: Vec<PinId>,
    log: String,
}

impl Run {
    fn new(thp: ThpMode) -> Self {
        let nodes = vec![Bytes::mib(32), Bytes::mib(16)];
        let split_zero_pages = SplitZeroPages::Freed;
        let mut sim = Sim::new(Config {
            nodes,
            thp,
            split_zero_pages,
            ..Config::default()
        });
        let cgroup = sim.create_cgroup("/limited");
        Self {
            sim,
            cgroup,
            processes: Vec::new(),
            areas: Vec::new(),
            pins: Vec::new(),
            log: String::new(),
        }
    }

    fn process(&self, number: u8) -> Option<ProcessId> {
        pick(&self.processes, number)
    }

    fn part(&self, area: u8, first: u16, pages: u16) -> Option<Area> {
        let (area, _) = pick(&self.areas, area)?;
        let pages = pages.min(AREA_PAGES - first.min(AREA_PAGES - 1));
        let first = BasePages(u64::from(first.min(AREA_PAGES - 1)));
        Some(area.part(&Geometry::X86_64, first, BasePages(u64::from(pages))))
    }

    fn slot(&self, area: u8, slot: u8) -> Option<SlotId> {
        let (area, object) = pick(&self.areas, area)?;
        let first = match object {
            ObjectId::Private(_) => area.address >> Geometry::X86_64.slot_shift(),
            ObjectId::Shared { .. } => 0,
        };
        Some(SlotId {
            object,
            index: first + u64::from(slot),
        })
    }

    fn note<T: std::fmt::Debug>(&mut self, result: &T) {
        use std::fmt::Write;
        writeln!(self.log, "{result:?}").expect("writing to a string");
    }

    fn act(&mut self, action: &Action) {
        let result = self.sim.act(action);
        self.note(&result);
    }

    /// Errors are the program's own doing (nothing mapped, no memory) and part of a history.
    fn step(&mut self, op: &Op) -> Option<()> {
        match *op {
            Op::Start => {
                let process = self.sim.start("random");
                self.sim
                    .join_cgroup(process, self.cgroup)
                    .expect("just started");
                self.processes.push(process);
            }
            Op::Exit(number) => {
                let process = self.process(number)?;
                self.sim.exit(process).expect("alive");
                self.processes.retain(|alive| *alive != process);
                self.areas.retain(|(area, _)| area.process != process);
            }
            Op::Fork(number) => {
                let child = self.sim.fork(self.process(number)?).expect("alive");
                let of_parent: Vec<_> = self.areas.clone();
                let parent = self.process(number)?;
                self.processes.push(child);
                for (area, object) in of_parent
                    .into_iter()
                    .filter(|(area, _)| area.process == parent)
                {
                    let object = match object {
                        ObjectId::Private(_) => ObjectId::Private(child),
                        ObjectId::Shared { .. } => object,
                    };
                    self.areas.push((
                        Area {
                            process: child,
                            ..area
                        },
                        object,
                    ));
                }
            }
            Op::Map(number) => {
                let process = self.process(number)?;
                let area = self.sim.map(process, AREA).expect("alive");
                self.areas.push((area, ObjectId::Private(process)));
            }
            Op::MapShmem(number) => {
                let mapped = self
                    .sim
                    .map_shmem(self.process(number)?, AREA)
                    .expect("alive");
                self.areas.push(mapped);
            }
            Op::Share { area, process } => {
                let (_, object) = pick(&self.areas, area)?;
                let area = self.sim.share(self.process(process)?, object, AREA).ok()?;
                self.areas.push((area, object));
            }
            Op::Write { area, first, pages } => {
                let result = self
                    .sim
                    .write(self.part(area, first, pages)?, Contents::Data);
                self.note(&result);
            }
            Op::Zero { area, first, pages } => {
                let result = self
                    .sim
                    .write(self.part(area, first, pages)?, Contents::Zeros);
                self.note(&result);
            }
            Op::Read { area, first, pages } => {
                let result = self.sim.read(self.part(area, first, pages)?);
                self.note(&result);
            }
            Op::Free { area, first, pages } => self
                .sim
                .free(self.part(area, first, pages)?)
                .expect("alive"),
            Op::Unmap { area, first, pages } => self
                .sim
                .unmap(self.part(area, first, pages)?)
                .expect("alive"),
            Op::Lock { area, first, pages } => self
                .sim
                .lock(self.part(area, first, pages)?)
                .expect("alive"),
            Op::Advise { area, huge } => {
                let advice = if huge { Advice::Huge } else { Advice::NoHuge };
                self.sim
                    .advise(pick(&self.areas, area)?.0, advice)
                    .expect("alive");
            }
            Op::OptOut(number) => {
                self.sim
                    .set_consent(self.process(number)?, ThpConsent::Refused)
                    .expect("alive");
            }
            Op::Swap { area, first, pages } => {
                self.sim
                    .swap_out(self.part(area, first, pages)?)
                    .expect("alive");
            }
            Op::Pin { area, page } => {
                let part = self.part(area, page, 1)?;
                self.pins
                    .push(self.sim.pin(part.process, part.address).ok()?);
            }
            Op::Unpin(number) => {
                let pin = pick(&self.pins, number)?;
                self.pins.retain(|held| *held != pin);
                self.sim.unpin(pin).expect("held");
            }
            Op::Limit { mib } => self
                .sim
                .limit_cgroup(self.cgroup, Some(Bytes::mib(u64::from(mib)))),
            Op::Fragment => self.sim.fragment(NodeId(0), 2),
            Op::Defragment => self.sim.defragment(),
            Op::Collapse { area, slot } => {
                let slot = self.slot(area, slot)?;
                self.act(&Action::Collapse {
                    slot,
                    order: Order(9),
                });
            }
            Op::Split { area, slot } => {
                let slot = self.slot(area, slot)?;
                self.act(&Action::Split {
                    slot,
                    order: Order(0),
                });
            }
            Op::MoveSlot { area, slot, node } => {
                let slot = self.slot(area, slot)?;
                self.act(&Action::MoveSlot {
                    slot,
                    to: NodeId(u16::from(node)),
                });
            }
            Op::MovePage { area, slot, page } => {
                let slot = self.slot(area, slot)?;
                let pages = vec![(BasePages(u64::from(page)), NodeId(1))];
                self.act(&Action::MovePages { slot, pages });
            }
            Op::Interleave { area, slot } => {
                let slot = self.slot(area, slot)?;
                self.act(&Action::Interleave {
                    slot,
                    nodes: vec![(NodeId(0), 1), (NodeId(1), 3)],
                });
            }
            Op::Observe => {
                let ranges = self.areas.iter().map(|(area, object)| SlotRange {
                    object: *object,
                    first: match object {
                        ObjectId::Private(_) => area.address >> Geometry::X86_64.slot_shift(),
                        ObjectId::Shared { .. } => 0,
                    },
                    count: 4,
                });
                let looks: Vec<Look> = ranges.map(Look::PageTables).collect();
                let Ok(seen) = self.sim.observe(&looks);
                self.note(&seen);
            }
        }
        Some(())
    }
}

fn pick<T: Copy>(all: &[T], number: u8) -> Option<T> {
    (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
}

/// Plays a history; its log, or what is wrong after which step.
fn replay(thp: ThpMode, ops: &[Op]) -> Result<String, String> {
    let mut run = Run::new(thp);
    for (number, op) in ops.iter().enumerate() {
        run.step(op);
        run.sim
            .check()
            .map_err(|fault| format!("after step {number}, {op:?}: {fault}"))?;
    }
    Ok(run.log)
}

/// A history as source to paste.
fn source(ops: &[Op]) -> String {
    let steps: Vec<String> = ops
        .iter()
        .map(|op| format!("        Op::{op:?},\n"))
        .collect();
    format!("    check(&[\n{}    ]);", steps.concat())
}

fn check(ops: &[Op]) {
    for thp in [ThpMode::Never, ThpMode::Madvise, ThpMode::Always] {
        let log =
            replay(thp, ops).unwrap_or_else(|fault| panic!("{thp:?}: {fault}\n{}", source(ops)));
        assert_eq!(Ok(log), replay(thp, ops), "two runs of\n{}", source(ops));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accounts_agree_whatever_happens(ops in proptest::collection::vec(any_op(), 1..60)) {
        let mut started = vec![Op::Start, Op::Map(0)];
        started.extend(ops);
        check(&started);
    }
}

#[test]
fn a_history_prints_as_source() {
    let text = source(&[
        Op::Start,
        Op::Free {
            area: 0,
            first: 1,
            pages: 2,
        },
    ]);
    assert_eq!(
        text,
        "    check(&[\n        Op::Start,\n        Op::Free { area: 0, first: 1, pages: 2 },\n    ]);"
    );
}
