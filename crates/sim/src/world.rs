//! What programs do: start, map, touch, free, fork, lock, advise, end.

use crate::cgroup::CgroupIndex;
use crate::fault::Access;
use crate::shared::{Cache, SharedIndex};
use crate::sim::{PinId, Process, Sim, SimError};
use crate::space::{Advice, Region, Source, Space, Table, frame_of, place};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{NodeId, ObjectId, ProcessId};
use hugepilot_core::observation::ThpConsent;
use hugepilot_core::units::{BasePages, Bytes};

/// A range of one process's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Whose.
    pub process: ProcessId,
    /// First address.
    pub address: u64,
    /// Length.
    pub bytes: Bytes,
}

impl Area {
    /// `pages` base pages from base page `first` of it.
    #[must_use]
    pub const fn part(&self, geometry: &Geometry, first: BasePages, pages: BasePages) -> Self {
        Self {
            process: self.process,
            address: self.address + geometry.bytes(first).0,
            bytes: geometry.bytes(pages),
        }
    }

    const fn end(&self) -> u64 {
        self.address + self.bytes.0
    }
}

/// What a write leaves in a base page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Something.
    Data,
    /// Nothing but zeros.
    Zeros,
}

impl Sim {
    /// Starts a process in the root cgroup, its threads on node 0.
    pub fn start(&mut self, comm: &str) -> ProcessId {
        let id = self.next_process();
        let process = Process {
            comm: comm.to_owned(),
            cgroup: CgroupIndex::ROOT,
            consent: ThpConsent::Allowed,
            space: Space::new(),
            forked_from: None,
            node: NodeId(0),
            faults: 0,
        };
        self.processes.insert(id, process);
        id
    }

    /// Puts a process into a cgroup; what it holds already stays charged where it is.
    ///
    /// # Errors
    /// If it is not alive.
    pub fn join_cgroup(&mut self, id: ProcessId, cgroup: CgroupIndex) -> Result<(), SimError> {
        self.process_mut(id)?.cgroup = cgroup;
        Ok(())
    }

    /// Lets a process's threads run on another node.
    ///
    /// # Errors
    /// If it is not alive.
    pub fn run_on(&mut self, id: ProcessId, node: NodeId) -> Result<(), SimError> {
        self.process_mut(id)?.node = node;
        Ok(())
    }

    /// `prctl(PR_SET_THP_DISABLE)`.
    ///
    /// # Errors
    /// If it is not alive.
    pub fn set_consent(&mut self, id: ProcessId, consent: ThpConsent) -> Result<(), SimError> {
        self.process_mut(id)?.consent = consent;
        Ok(())
    }

    /// Maps private anonymous memory, aligned to a slot.
    ///
    /// # Errors
    /// If the process is not alive or `bytes` is not in whole base pages.
    pub fn map(&mut self, process: ProcessId, bytes: Bytes) -> Result<Area, SimError> {
        self.map_source(process, bytes, Source::Anonymous)
    }

    /// Maps a new shared object, aligned to a slot.
    ///
    /// # Errors
    /// As [`Sim::map`].
    pub fn map_shmem(&mut self, id: ProcessId, bytes: Bytes) -> Result<(Area, ObjectId), SimError> {
        let object = SharedIndex::new(self.caches.len());
        let area = self.map_source(id, bytes, Source::Shared { object, offset: 0 })?;
        self.caches.push(Cache::default());
        Ok((area, object.id()))
    }

    /// Maps an object that another process has mapped, from its start.
    ///
    /// # Errors
    /// As [`Sim::map`], or if there is no such object.
    pub fn share(
        &mut self,
        process: ProcessId,
        object: ObjectId,
        bytes: Bytes,
    ) -> Result<Area, SimError> {
        let index = SharedIndex::of(object)
            .filter(|index| index.index() < self.caches.len())
            .ok_or(SimError::NotShared(object))?;
        self.map_source(
            process,
            bytes,
            Source::Shared {
                object: index,
                offset: 0,
            },
        )
    }

    fn map_source(
        &mut self,
        id: ProcessId,
        bytes: Bytes,
        source: Source,
    ) -> Result<Area, SimError> {
        let geometry = *self.geometry();
        if bytes.0 % geometry.base_page().0 != 0 {
            return Err(SimError::Unaligned(bytes.0));
        }
        let space = &mut self.process_mut(id)?.space;
        let address = space.reserve(bytes, &geometry);
        let region = Region {
            bytes: bytes.0,
            source,
            advice: Advice::Neutral,
            locked: false,
            written: false,
        };
        space.regions.insert(address, region);
        Ok(Area {
            process: id,
            address,
            bytes,
        })
    }

    /// Writes to every base page of an area.
    ///
    /// # Errors
    /// If some of it is not mapped, or there is no memory.
    pub fn write(&mut self, area: Area, contents: Contents) -> Result<(), SimError> {
        self.each_page(area, |sim, address| {
            sim.access(area.process, address, Access::Write(contents))
        })
    }

    /// Reads from every base page of an area.
    ///
    /// # Errors
    /// As [`Sim::write`].
    pub fn read(&mut self, area: Area) -> Result<(), SimError> {
        self.each_page(area, |sim, address| {
            sim.access(area.process, address, Access::Read)
        })
    }

    pub(crate) fn each_page(
        &mut self,
        area: Area,
        mut run: impl FnMut(&mut Self, u64) -> Result<(), SimError>,
    ) -> Result<(), SimError> {
        let step = usize::try_from(self.geometry().base_page().0).expect("a page fits in memory");
        (area.address..area.end())
            .step_by(step)
            .try_for_each(|address| run(self, address))
    }

    /// `MADV_DONTNEED`: takes the pages of an area out of the process's page tables.
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn free(&mut self, area: Area) -> Result<(), SimError> {
        self.free_whole_huge(area)?;
        self.each_page(area, |sim, address| {
            let geometry = *sim.geometry();
            let space = &mut sim.process_mut(area.process)?.space;
            let (index, page) = place(address, &geometry);
            if !space.tables.contains_key(&index) {
                return Ok(());
            }
            let old = std::mem::take(&mut space.base_table(index, &geometry)[page]);
            frame_of(&old)
                .into_iter()
                .for_each(|frame| sim.frames.release(frame));
            Ok(())
        })
    }

    /// Huge mappings that lie within the area vanish as such, their tables with them.
    fn free_whole_huge(&mut self, area: Area) -> Result<(), SimError> {
        let geometry = *self.geometry();
        let shift = geometry.slot_shift();
        let whole = area.address.div_ceil(geometry.slot().0)..area.end() >> shift;
        for index in whole {
            let tables = &mut self.process_mut(area.process)?.space.tables;
            if matches!(tables.get(&index), Some(Table::Huge(_))) {
                let table = tables.remove(&index).expect("was just seen");
                table
                    .frames(&geometry)
                    .into_iter()
                    .for_each(|frame| self.frames.release(frame));
            }
        }
        Ok(())
    }

    /// Unmaps an area.
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn unmap(&mut self, area: Area) -> Result<(), SimError> {
        self.free(area)?;
        let shift = self.geometry().slot_shift();
        let space = &mut self.process_mut(area.process)?.space;
        for start in space.cut_out(area.address, area.end()) {
            space.regions.remove(&start);
        }
        let touched = area.address >> shift..=(area.end() - 1) >> shift;
        for index in touched {
            if space.tables.get(&index).is_some_and(Table::is_empty) {
                space.tables.remove(&index);
            }
        }
        self.drop_unmapped_objects();
        Ok(())
    }

    /// Advises the kernel about an area.
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn advise(&mut self, area: Area, advice: Advice) -> Result<(), SimError> {
        self.each_region(area, |region| region.advice = advice)
    }

    /// Locks an area in memory.
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn lock(&mut self, area: Area) -> Result<(), SimError> {
        self.each_region(area, |region| region.locked = true)
    }

    /// Undoes [`Sim::lock`].
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn unlock(&mut self, area: Area) -> Result<(), SimError> {
        self.each_region(area, |region| region.locked = false)
    }

    fn each_region(&mut self, area: Area, change: impl Fn(&mut Region)) -> Result<(), SimError> {
        let space = &mut self.process_mut(area.process)?.space;
        for start in space.cut_out(area.address, area.end()) {
            change(space.regions.get_mut(&start).expect("cut out just now"));
        }
        space.merge();
        Ok(())
    }

    /// Holds the base page at `address`, as DMA or a pipe does.
    ///
    /// # Errors
    /// If nothing is present there.
    pub fn pin(&mut self, process: ProcessId, address: u64) -> Result<PinId, SimError> {
        let (entry, _) = self.process(process)?.space.entry(address, self.geometry());
        let frame = frame_of(&entry).ok_or(SimError::NotPresent(address))?;
        let id = self.next_pin();
        self.frames.pin(frame);
        self.pins.insert(id, frame);
        Ok(id)
    }

    /// Lets a page go.
    ///
    /// # Errors
    /// If it was let go before.
    pub fn unpin(&mut self, pin: PinId) -> Result<(), SimError> {
        let frame = self.pins.remove(&pin).ok_or(SimError::NoPin)?;
        self.frames.unpin(frame);
        Ok(())
    }
}
