//! What happens to whole processes and to the machine under them: fork, exit, swap, fragmentation.

use crate::frame::Frame;
use crate::sim::{Process, Sim, SimError};
use crate::space::{Entry, Source, Space, frame_of, place};
use crate::world::Area;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{NodeId, ProcessId};

impl Sim {
    /// Forks: the child has the same regions and shares all private pages copy-on-write.
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, SimError> {
        let child = self.next_process();
        let geometry = *self.geometry();
        let old = self.process(parent)?;
        let mut space = old.space.clone();
        space
            .regions
            .values_mut()
            .for_each(|region| region.locked = false);
        drop_shared_entries(&mut space, &geometry);
        let process = Process {
            comm: old.comm.clone(),
            cgroup: old.cgroup,
            consent: old.consent,
            space,
            forked_from: Some(parent),
            node: old.node,
            faults: 0,
        };
        let frames = process
            .space
            .tables
            .values()
            .flat_map(|table| table.frames(&geometry));
        frames.for_each(|frame| self.frames.refer(frame));
        self.processes.insert(child, process);
        Ok(child)
    }

    /// Ends a process.
    ///
    /// # Errors
    /// If it ended before.
    pub fn exit(&mut self, id: ProcessId) -> Result<(), SimError> {
        let process = self.processes.remove(&id).ok_or(SimError::NoProcess(id))?;
        for table in process.space.tables.values() {
            table
                .frames(self.geometry())
                .into_iter()
                .for_each(|frame| self.frames.release(frame));
        }
        self.drop_unmapped_objects();
        Ok(())
    }

    /// Frees objects that nobody maps any more.
    pub(crate) fn drop_unmapped_objects(&mut self) {
        let mut mapped = vec![false; self.caches.len()];
        for region in self
            .processes
            .values()
            .flat_map(|process| process.space.regions.values())
        {
            if let Source::Shared { object, .. } = region.source {
                mapped[object.index()] = true;
            }
        }
        for (cache, mapped) in self.caches.iter_mut().zip(mapped) {
            if !mapped {
                let tables = std::mem::take(&mut cache.tables);
                let frames = tables
                    .values()
                    .flat_map(|table| table.frames(&self.config.geometry));
                frames.for_each(|frame| self.frames.release(frame));
            }
        }
    }

    /// Swaps an area's private base pages out, where they are neither shared, held nor locked.
    ///
    /// # Errors
    /// If the process is not alive.
    pub fn swap_out(&mut self, area: Area) -> Result<(), SimError> {
        self.each_page(area, |sim, address| {
            sim.swap_out_page(area.process, address)
        })
    }

    fn swap_out_page(&mut self, id: ProcessId, address: u64) -> Result<(), SimError> {
        let geometry = *self.geometry();
        let space = &self.process(id)?.space;
        let swappable = space
            .region_at(address)
            .is_some_and(|(_, region)| region.source == Source::Anonymous && !region.locked);
        let frame = frame_of(&space.entry(address, &geometry).0);
        let Some(frame) = frame.filter(|_| swappable) else {
            return Ok(());
        };
        if self.frames.references(frame) > 1 || self.frames.is_pinned(frame) {
            return Ok(());
        }
        let (index, page) = place(address, &geometry);
        self.process_mut(id)?.space.base_table(index, &geometry)[page] = Entry::Swapped;
        self.frames.split(frame);
        self.frames.release(frame);
        Ok(())
    }

    /// Lets the simulated kernel take every base page of a node but each `keep`-th: no huge page is left free.
    ///
    /// # Panics
    /// If there is no such node, or `keep` is zero.
    pub fn fragment(&mut self, node: NodeId, keep: usize) {
        let taken: Vec<Frame> = std::iter::from_fn(|| self.frames.take_for_kernel(node)).collect();
        for (number, frame) in taken.into_iter().enumerate() {
            if number % keep == 0 {
                self.frames.give_back_kernel(frame);
            } else {
                self.kernel.push(frame);
            }
        }
    }

    /// Gives back all that [`Sim::fragment`] took.
    pub fn defragment(&mut self) {
        for frame in std::mem::take(&mut self.kernel) {
            self.frames.give_back_kernel(frame);
        }
    }
}

/// Shared mappings are not copied by a fork: the child faults them in.
fn drop_shared_entries(space: &mut Space, geometry: &Geometry) {
    let page = usize::try_from(geometry.base_page().0).expect("a page fits in memory");
    let shared: Vec<u64> = space
        .regions
        .iter()
        .filter(|(_, region)| region.source != Source::Anonymous)
        .flat_map(|(start, region)| (*start..start + region.bytes).step_by(page))
        .collect();
    for address in shared {
        let (index, page) = place(address, geometry);
        if space.tables.contains_key(&index) {
            space.base_table(index, geometry)[page] = Entry::Empty;
        }
    }
    space.tables.retain(|_, table| !table.is_empty());
}
