//! Page faults: what an access does to page tables and memory.

use crate::config::ThpMode;
use crate::frame::{Frame, Place};
use crate::shared::SharedIndex;
use crate::sim::{Process, Sim, SimError};
use crate::space::{Advice, Entry, Region, Source, Table, place};
use crate::world::Contents;
use hugepilot_core::geometry::Order;
use hugepilot_core::ids::ProcessId;
use hugepilot_core::observation::ThpConsent;

/// One access to one base page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write(Contents),
}

impl Sim {
    /// Accesses the base page at `address` and serves the fault, if it makes one.
    pub(crate) fn access(
        &mut self,
        id: ProcessId,
        address: u64,
        access: Access,
    ) -> Result<(), SimError> {
        let geometry = *self.geometry();
        let process = self.process(id)?;
        let (_, region) = process
            .space
            .region_at(address)
            .ok_or(SimError::Unmapped(address))?;
        let (start, source) = (
            process
                .space
                .region_at(address)
                .map_or(0, |(start, _)| start),
            region.source,
        );
        match source {
            Source::Anonymous => self.access_private(id, address, access)?,
            Source::Shared { object, offset } => {
                self.access_shared(id, address, (object, offset + (address - start)), access)?;
            }
        }
        self.note_access(id, address);
        let (entry, _) = self.process(id)?.space.entry(address, &geometry);
        if let (Entry::Frame(frame), Access::Write(contents)) = (entry, access) {
            self.frames.set_filled(frame, contents == Contents::Data);
        }
        Ok(())
    }

    fn access_private(
        &mut self,
        id: ProcessId,
        address: u64,
        access: Access,
    ) -> Result<(), SimError> {
        let geometry = *self.geometry();
        let (entry, _) = self.process(id)?.space.entry(address, &geometry);
        match (entry, access) {
            (Entry::Frame(frame), Access::Write(_)) if self.frames.references(frame) > 1 => {
                self.install_base(id, address, Some(frame))
            }
            (Entry::Frame(_), _) | (Entry::Zero, Access::Read) => Ok(()),
            (Entry::Empty, Access::Read) => {
                let (index, page) = place(address, &geometry);
                let process = self.process_mut(id)?;
                process.faults += 1;
                process.space.base_table(index, &geometry)[page] = Entry::Zero;
                Ok(())
            }
            (Entry::Empty, Access::Write(_)) => {
                if self.install_huge(id, address)? {
                    Ok(())
                } else {
                    self.install_base(id, address, None)
                }
            }
            (Entry::Zero, Access::Write(_)) => self.install_base(id, address, None),
            (Entry::Swapped, _) => {
                self.install_base(id, address, None)?;
                let (entry, _) = self.process(id)?.space.entry(address, &geometry);
                crate::space::frame_of(&entry)
                    .into_iter()
                    .for_each(|frame| self.frames.set_filled(frame, true));
                Ok(())
            }
        }
    }

    /// Gives a private page its own new frame; `old` is the shared one that it replaces.
    fn install_base(
        &mut self,
        id: ProcessId,
        address: u64,
        old: Option<Frame>,
    ) -> Result<(), SimError> {
        let geometry = *self.geometry();
        let (node, cgroup) = self
            .process(id)
            .map(|process| (process.node, process.cgroup))?;
        let frame = self
            .frames
            .allocate(Place::Near(node), Order::BASE, cgroup)
            .map_err(|_reason| SimError::OutOfMemory(address))?;
        self.frames.refer(frame);
        let (index, page) = place(address, &geometry);
        let process = self.process_mut(id)?;
        process.faults += 1;
        process.space.base_table(index, &geometry)[page] = Entry::Frame(frame);
        if let Some(region) = process.space.region_at_mut(address) {
            region.written = true;
        }
        old.into_iter().for_each(|old| self.frames.release(old));
        Ok(())
    }

    /// Serves a first touch with a huge page, if the switches and the region allow it and there is one.
    fn install_huge(&mut self, id: ProcessId, address: u64) -> Result<bool, SimError> {
        let geometry = *self.geometry();
        let (index, _) = place(address, &geometry);
        let process = self.process(id)?;
        if process.space.tables.contains_key(&index)
            || !huge_at_fault(self.thp, process, index, &geometry)
        {
            return Ok(false);
        }
        let (node, cgroup) = (process.node, process.cgroup);
        let Ok(head) = self
            .frames
            .allocate(Place::On(node), geometry.slot_order, cgroup)
        else {
            return Ok(false);
        };
        self.map_huge(id, index, head)?;
        let process = self.process_mut(id)?;
        process.faults += 1;
        if let Some(region) = process.space.region_at_mut(address) {
            region.written = true;
        }
        Ok(true)
    }

    /// Maps the folio at `head` huge at table `index`, where nothing is mapped.
    pub(crate) fn map_huge(
        &mut self,
        id: ProcessId,
        index: u64,
        head: Frame,
    ) -> Result<(), SimError> {
        let table = Table::Huge(head);
        table
            .frames(&self.config.geometry)
            .into_iter()
            .for_each(|frame| self.frames.refer(frame));
        let old = self.process_mut(id)?.space.tables.insert(index, table);
        assert!(
            old.is_none_or(|old| old.is_empty()),
            "a huge page never replaces a populated table"
        );
        Ok(())
    }

    fn access_shared(
        &mut self,
        id: ProcessId,
        address: u64,
        (object, offset): (SharedIndex, u64),
        _access: Access,
    ) -> Result<(), SimError> {
        let geometry = *self.geometry();
        if self.process(id)?.space.entry(address, &geometry).0 != Entry::Empty {
            return Ok(());
        }
        self.process_mut(id)?.faults += 1;
        let (object_slot, object_page) = place(offset, &geometry);
        self.fill_cache(id, address, object, (object_slot, object_page))?;
        if self.map_cached_huge(id, address, object, offset)? {
            return Ok(());
        }
        let Entry::Frame(frame) = self.caches[object.index()].entry(object_slot, object_page)
        else {
            unreachable!("was just filled");
        };
        self.frames.refer(frame);
        let (index, page) = place(address, &geometry);
        self.process_mut(id)?.space.base_table(index, &geometry)[page] = Entry::Frame(frame);
        Ok(())
    }

    /// Makes sure that the object's page is in its cache.
    fn fill_cache(
        &mut self,
        id: ProcessId,
        address: u64,
        object: SharedIndex,
        (slot, page): (u64, usize),
    ) -> Result<(), SimError> {
        if self.caches[object.index()].entry(slot, page) != Entry::Empty {
            return Ok(());
        }
        let (node, cgroup) = self
            .process(id)
            .map(|process| (process.node, process.cgroup))?;
        let frame = self
            .frames
            .allocate(Place::Near(node), Order::BASE, cgroup)
            .map_err(|_reason| SimError::OutOfMemory(address))?;
        self.frames.refer(frame);
        self.caches[object.index()].set(slot, page, Entry::Frame(frame), &self.config.geometry);
        Ok(())
    }

    /// Maps a huge page of the cache as such, where the region and an empty table allow it.
    fn map_cached_huge(
        &mut self,
        id: ProcessId,
        address: u64,
        object: SharedIndex,
        offset: u64,
    ) -> Result<bool, SimError> {
        let geometry = *self.geometry();
        let (object_slot, object_page) = place(offset, &geometry);
        let (index, page) = place(address, &geometry);
        let Some(Table::Huge(head)) = self.caches[object.index()].tables.get(&object_slot) else {
            return Ok(false);
        };
        let (head, process) = (*head, self.process(id)?);
        let empty = process.space.tables.get(&index).is_none_or(Table::is_empty);
        let fits = page == object_page && process.space.whole_region(index, &geometry).is_some();
        if !empty || !fits || opted_out(process, index, &geometry) {
            return Ok(false);
        }
        self.map_huge(id, index, head)?;
        Ok(true)
    }
}

/// Did the process, or the region of the slot at `index`, opt out of huge pages?
pub(crate) fn opted_out(
    process: &Process,
    index: u64,
    geometry: &hugepilot_core::geometry::Geometry,
) -> bool {
    let start = index << geometry.slot_shift();
    let refused = |region: &Region| region.advice == Advice::NoHuge;
    let overlapping = process.space.overlapping(start, start + geometry.slot().0);
    process.consent == ThpConsent::Refused
        || overlapping.into_iter().any(|(_, region)| refused(region))
}

fn huge_at_fault(
    mode: ThpMode,
    process: &Process,
    index: u64,
    geometry: &hugepilot_core::geometry::Geometry,
) -> bool {
    let Some(region) = process.space.whole_region(index, geometry) else {
        return false;
    };
    let advised = region.advice == Advice::Huge;
    let wanted = match (mode, process.consent) {
        (_, ThpConsent::Refused) | (ThpMode::Never, _) => false,
        (ThpMode::Madvise, ThpConsent::Allowed | ThpConsent::ExceptAdvised)
        | (ThpMode::Always, ThpConsent::ExceptAdvised) => advised,
        (ThpMode::Always, ThpConsent::Allowed) => true,
    };
    wanted && region.advice != Advice::NoHuge
}
