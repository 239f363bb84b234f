//! What must hold of the machine at all times, whatever was done to it.

use crate::frame::{Frame, Use};
use crate::sim::Sim;
use crate::space::{Entry, Table};
use hugepilot_core::units::BasePages;
use std::collections::BTreeMap;

impl Sim {
    /// Compares all accounts of memory with each other; says the first thing that is wrong.
    ///
    /// # Errors
    /// With what is wrong, which is always a defect of the simulator.
    pub fn check(&self) -> Result<(), String> {
        self.check_free_lists()?;
        self.check_references()?;
        self.check_cgroups()
    }

    fn check_free_lists(&self) -> Result<(), String> {
        for (node, buddy) in self.frames.nodes() {
            if let Some(fault) = buddy.fault() {
                return Err(format!("{node:?}: {fault}"));
            }
            let taken = self.frames.taken_on(node);
            let accounted = taken + buddy.free_pages();
            if accounted != BasePages(u64::from(buddy.frames())) {
                return Err(format!(
                    "{node:?}: {accounted:?} taken or free of {} frames",
                    buddy.frames()
                ));
            }
            for (start, order) in buddy.blocks() {
                let mut frames = crate::frame::folio_frames(start, order);
                if let Some(frame) = frames.find(|frame| self.frames.used(*frame) != Use::Free) {
                    return Err(format!("{frame:?} is in use and in a free block"));
                }
            }
        }
        Ok(())
    }

    /// Every reference that a frame counts is one entry of a table or a cache, and the other way round.
    fn check_references(&self) -> Result<(), String> {
        let mut entries: BTreeMap<Frame, u32> = BTreeMap::new();
        for table in self.all_tables() {
            self.check_table(table)?;
            table
                .frames(self.geometry())
                .into_iter()
                .for_each(|frame| *entries.entry(frame).or_default() += 1);
        }
        let mut pins: BTreeMap<Frame, u32> = BTreeMap::new();
        for frame in self.pins.values() {
            *pins.entry(self.frames.folio(*frame).0).or_default() += 1;
        }
        let mut totals: BTreeMap<Frame, u32> = BTreeMap::new();
        for frame in self.frames.all() {
            let Use::Folio(head) = self.frames.used(frame) else {
                continue;
            };
            let found = entries.remove(&frame).unwrap_or(0);
            if self.frames.references(frame) != found {
                return Err(format!(
                    "{frame:?} counts {} references, {found} exist",
                    self.frames.references(frame)
                ));
            }
            *totals.entry(head).or_default() += found;
        }
        if let Some(frame) = entries.keys().next() {
            return Err(format!("{frame:?} is mapped and not part of a folio"));
        }
        totals.into_iter().try_for_each(|(head, total)| {
            let expected = (total, pins.get(&head).copied().unwrap_or(0));
            let accounted = self.frames.accounted(head);
            if accounted != expected {
                return Err(format!(
                    "folio {head:?} accounts for {accounted:?}, {expected:?} exist"
                ));
            }
            if expected == (0, 0) {
                Err(format!("folio {head:?} is leaked"))
            } else {
                Ok(())
            }
        })
    }

    fn all_tables(&self) -> impl Iterator<Item = &Table> {
        let private = self
            .processes
            .values()
            .flat_map(|process| process.space.tables.values());
        private.chain(self.caches.iter().flat_map(|cache| cache.tables.values()))
    }

    fn check_table(&self, table: &Table) -> Result<(), String> {
        match table {
            Table::Huge(head) if self.frames.used(*head) != Use::Folio(*head) => {
                Err(format!("a huge mapping of {head:?}, which starts no folio"))
            }
            Table::Huge(head)
                if self.frames.folio(*head) != (*head, self.geometry().slot_order) =>
            {
                Err(format!("a huge mapping of {head:?}, which is no huge page"))
            }
            Table::Huge(_) => Ok(()),
            Table::Base(entries) => {
                let free = |entry: &&Entry| {
                    crate::space::frame_of(entry)
                        .is_some_and(|frame| self.frames.used(frame) == Use::Free)
                };
                entries
                    .iter()
                    .find(free)
                    .map_or(Ok(()), |entry| Err(format!("{entry:?} is mapped and free")))
            }
        }
    }

    fn check_cgroups(&self) -> Result<(), String> {
        self.frames.cgroups.all().try_for_each(|cgroup| {
            let (charged, counted) = (
                self.frames.cgroups.current(cgroup),
                self.frames.charged_to(cgroup),
            );
            if charged == counted {
                Ok(())
            } else {
                Err(format!(
                    "{cgroup:?} is charged {charged:?}, {counted:?} exist"
                ))
            }
        })
    }
}
