//! The simulated machine as a stage.

use hugepilot_conformance::{Area, Fault, Faulty, Feature, Features, Memory, Stage, StageError};
use hugepilot_core::action::Action;
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::ids::{ObjectId, ProcessId};
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::ThpConsent;
use hugepilot_core::outcome::OutcomeClass;
use hugepilot_core::units::{BasePages, Bytes, Span};
use hugepilot_sim::{Advice, CgroupIndex, Config, Contents, PinId, Sim, SplitZeroPages};
use std::collections::BTreeMap;
use std::ops::Range;

pub struct SimStage {
    machine: Faulty<Sim>,
    pins: BTreeMap<u64, PinId>,
    cgroups: BTreeMap<ProcessId, CgroupIndex>,
    children: Vec<(ProcessId, ProcessId)>,
}

/// What a machine with that configuration has.
pub fn features(split_zero_pages: SplitZeroPages) -> Features {
    let frees = split_zero_pages == SplitZeroPages::Freed;
    [
        (Feature::SplitFreesZeroPages, frees),
        (Feature::SeesPartialMappings, true),
    ]
    .into()
}

impl SimStage {
    pub fn new(split_zero_pages: SplitZeroPages, fault: Option<Fault>) -> Self {
        let sim = Sim::new(Config {
            split_zero_pages,
            ..Config::default()
        });
        Self {
            machine: Faulty::new(sim, fault),
            pins: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            children: Vec::new(),
        }
    }

    fn sim(&mut self) -> &mut Sim {
        self.machine.inner_mut()
    }
}

fn part(area: &Area, pages: Range<u64>) -> hugepilot_sim::Area {
    let (first, count) = (BasePages(pages.start), BasePages(pages.end - pages.start));
    whole(area).part(&Geometry::X86_64, first, count)
}

fn whole(area: &Area) -> hugepilot_sim::Area {
    hugepilot_sim::Area {
        process: area.process,
        address: area.address,
        bytes: area.bytes,
    }
}

fn area_of(mapped: hugepilot_sim::Area, object: ObjectId) -> Area {
    let geometry = Geometry::X86_64;
    let first_slot = match object {
        ObjectId::Private(_) => mapped.address >> geometry.slot_shift(),
        ObjectId::Shared { .. } => 0,
    };
    Area {
        process: mapped.process,
        address: mapped.address,
        bytes: mapped.bytes,
        object,
        first_slot,
        slots: mapped.bytes.0.div_ceil(geometry.slot().0),
    }
}

type Done = Result<(), StageError>;

impl Stage for SimStage {
    type M = Faulty<Sim>;

    fn machine(&mut self) -> Result<&mut Faulty<Sim>, StageError> {
        Ok(&mut self.machine)
    }

    fn start(&mut self) -> Result<ProcessId, StageError> {
        Ok(self.sim().start("worker"))
    }

    fn map(
        &mut self,
        process: ProcessId,
        bytes: Bytes,
        memory: Memory,
    ) -> Result<Area, StageError> {
        let (mapped, object) = match memory {
            Memory::Private => (self.sim().map(process, bytes), ObjectId::Private(process)),
            Memory::Shmem => {
                let (area, object) = self
                    .sim()
                    .map_shmem(process, bytes)
                    .map_err(StageError::from_error)?;
                (Ok(area), object)
            }
        };
        Ok(area_of(mapped.map_err(StageError::from_error)?, object))
    }

    fn share(&mut self, area: &Area, process: ProcessId) -> Result<Area, StageError> {
        let mapped = self.sim().share(process, area.object, area.bytes);
        Ok(area_of(
            mapped.map_err(StageError::from_error)?,
            area.object,
        ))
    }

    fn write(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.sim()
            .write(part(area, pages), Contents::Data)
            .map_err(StageError::from_error)
    }

    fn zero(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.sim()
            .write(part(area, pages), Contents::Zeros)
            .map_err(StageError::from_error)
    }

    fn read(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.sim()
            .read(part(area, pages))
            .map_err(StageError::from_error)
    }

    fn free(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.sim()
            .free(part(area, pages))
            .map_err(StageError::from_error)
    }

    fn unmap(&mut self, area: &Area, pages: Range<u64>) -> Done {
        self.sim()
            .unmap(part(area, pages))
            .map_err(StageError::from_error)
    }

    fn refuse_huge(&mut self, area: &Area) -> Done {
        self.sim()
            .advise(whole(area), Advice::NoHuge)
            .map_err(StageError::from_error)
    }

    fn opt_out(&mut self, process: ProcessId) -> Done {
        self.sim()
            .set_consent(process, ThpConsent::Refused)
            .map_err(StageError::from_error)
    }

    fn lock(&mut self, area: &Area) -> Done {
        self.sim().lock(whole(area)).map_err(StageError::from_error)
    }

    fn pin(&mut self, area: &Area, page: BasePages) -> Done {
        let address = area.address + Geometry::X86_64.bytes(page).0;
        let pin = self
            .sim()
            .pin(area.process, address)
            .map_err(StageError::from_error)?;
        self.pins.insert(address, pin);
        Ok(())
    }

    fn unpin(&mut self, area: &Area, page: BasePages) -> Done {
        let address = area.address + Geometry::X86_64.bytes(page).0;
        let pin = self
            .pins
            .remove(&address)
            .ok_or_else(|| StageError("not pinned".to_owned()))?;
        self.sim().unpin(pin).map_err(StageError::from_error)
    }

    fn fork(&mut self, process: ProcessId) -> Done {
        let child = self.sim().fork(process).map_err(StageError::from_error)?;
        self.children.push((process, child));
        Ok(())
    }

    fn end_children(&mut self, process: ProcessId) -> Done {
        let (ending, staying) = std::mem::take(&mut self.children)
            .into_iter()
            .partition(|(parent, _)| *parent == process);
        self.children = staying;
        let ending: Vec<(ProcessId, ProcessId)> = ending;
        ending
            .into_iter()
            .try_for_each(|(_, child)| self.sim().exit(child))
            .map_err(StageError::from_error)
    }

    fn make_huge(&mut self, area: &Area, slot: u64) -> Done {
        let order = Order(9);
        let (outcome, _) = self.sim().act(&Action::Collapse {
            slot: area.slot(slot),
            order,
        });
        let done = outcome.class == OutcomeClass::Done;
        let failed = || StageError(format!("could not be made huge: {}", outcome.class));
        done.then_some(()).ok_or_else(failed)
    }

    fn confine(&mut self, process: ProcessId) -> Done {
        let cgroup = self.sim().create_cgroup("/confined");
        self.cgroups.insert(process, cgroup);
        self.sim()
            .join_cgroup(process, cgroup)
            .map_err(StageError::from_error)
    }

    fn limit(&mut self, process: ProcessId, room: Bytes) -> Done {
        let cgroup = *self
            .cgroups
            .get(&process)
            .ok_or_else(|| StageError("not confined".to_owned()))?;
        let max = self.sim().charged(cgroup) + room;
        self.sim().limit_cgroup(cgroup, Some(max));
        Ok(())
    }

    fn wait(&mut self) {
        self.sim().advance(Span::millis(50));
    }

    fn kill(&mut self, process: ProcessId) -> Done {
        self.end_children(process)?;
        self.sim().exit(process).map_err(StageError::from_error)
    }
}
