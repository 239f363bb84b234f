//! Objects that several address spaces map: their page cache.

use crate::space::{Entry, Table};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::ObjectId;
use std::collections::BTreeMap;

/// A shared object of the machine, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedIndex(u32);

impl SharedIndex {
    pub(crate) fn new(place: usize) -> Self {
        Self(u32::try_from(place).expect("fewer than 2^32 objects"))
    }

    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).expect("usize has at least 32 bits")
    }

    /// As observations name it.
    #[must_use]
    pub fn id(self) -> ObjectId {
        ObjectId::Shared {
            device: DEVICE,
            inode: u64::from(self.0) + 1,
        }
    }

    /// The object that observations call `id`, if it is one of ours.
    pub(crate) fn of(id: ObjectId) -> Option<Self> {
        match id {
            ObjectId::Shared {
                device: DEVICE,
                inode,
            } => inode
                .checked_sub(1)
                .and_then(|place| u32::try_from(place).ok())
                .map(Self),
            ObjectId::Shared { .. } | ObjectId::Private(_) => None,
        }
    }
}

/// The device number of all simulated shared memory.
const DEVICE: u64 = 1;

/// What an object holds, by slot of the object. The cache itself refers to every frame in it.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) tables: BTreeMap<u64, Table>,
}

impl Cache {
    pub(crate) fn entry(&self, index: u64, page: usize) -> Entry {
        self.tables
            .get(&index)
            .map_or(Entry::Empty, |table| table.entry(page))
    }

    pub(crate) fn set(&mut self, index: u64, page: usize, entry: Entry, geometry: &Geometry) {
        let table = self
            .tables
            .entry(index)
            .or_insert_with(|| Table::empty(geometry));
        table.as_base(geometry)[page] = entry;
    }
}
