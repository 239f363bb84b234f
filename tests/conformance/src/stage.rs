//! Where cases play: programs that can be told what to do with their memory, and the machine that watches them.

use hugepilot_core::ids::{ObjectId, ProcessId, SlotId, SlotRange};
use hugepilot_core::machine::Machine;
use hugepilot_core::units::{BasePages, Bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// The stage itself failed: nothing is said about the machine.
#[derive(Debug, thiserror::Error)]
#[error("stage: {0}")]
pub struct StageError(pub String);

impl StageError {
    /// From any other error.
    pub fn from_error(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// What kernels differ in, as far as cases depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// A split gives back base pages that hold nothing but zeros (from 6.12).
    SplitFreesZeroPages,
    /// Huge pages that are mapped in part can be told by their page frames.
    SeesPartialMappings,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::SplitFreesZeroPages, Self::SeesPartialMappings];
}

/// What a machine has of each feature.
pub type Features = BTreeMap<Feature, bool>;

/// Kinds of memory that cases use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Private anonymous.
    Private,
    /// A memfd, mapped shared.
    Shmem,
}

/// Memory that a program mapped, from a slot's border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Whose mapping.
    pub process: ProcessId,
    /// Its first address.
    pub address: u64,
    /// Its length.
    pub bytes: Bytes,
    /// What it maps.
    pub object: ObjectId,
    /// Index of its first slot in the object.
    pub first_slot: u64,
    /// Its slots, started ones included.
    pub slots: u64,
}

impl Area {
    /// Its slot number `number`.
    #[must_use]
    pub const fn slot(&self, number: u64) -> SlotId {
        SlotId {
            object: self.object,
            index: self.first_slot + number,
        }
    }

    /// All of its slots.
    #[must_use]
    pub const fn range(&self) -> SlotRange {
        SlotRange {
            object: self.object,
            first: self.first_slot,
            count: self.slots,
        }
    }
}

type Done = Result<(), StageError>;

/// Programs and the machine that they run on. A stage serves one case and is thrown away.
///
/// All programs are started before the machine is used for the first time.
pub trait Stage {
    /// The machine under test.
    type M: Machine;

    /// The machine that watches every program started so far.
    ///
    /// # Errors
    /// If it cannot be had.
    fn machine(&mut self) -> Result<&mut Self::M, StageError>;

    /// Starts a program.
    ///
    /// # Errors
    /// If it does not start.
    fn start(&mut self) -> Result<ProcessId, StageError>;

    /// Maps new memory from a slot's border; nothing else lies in its slots.
    ///
    /// # Errors
    /// If the program cannot.
    fn map(&mut self, process: ProcessId, bytes: Bytes, memory: Memory)
    -> Result<Area, StageError>;

    /// Maps in another program what `area` maps.
    ///
    /// # Errors
    /// If the program cannot.
    fn share(&mut self, area: &Area, process: ProcessId) -> Result<Area, StageError>;

    /// Writes something into each of these base pages.
    ///
    /// # Errors
    /// If the program cannot.
    fn write(&mut self, area: &Area, pages: Range<u64>) -> Done;

    /// Fills these base pages with zeros, by writing.
    ///
    /// # Errors
    /// If the program cannot.
    fn zero(&mut self, area: &Area, pages: Range<u64>) -> Done;

    /// Reads each of these base pages.
    ///
    /// # Errors
    /// If the program cannot.
    fn read(&mut self, area: &Area, pages: Range<u64>) -> Done;

    /// Gives these base pages back (`MADV_DONTNEED`).
    ///
    /// # Errors
    /// If the program cannot.
    fn free(&mut self, area: &Area, pages: Range<u64>) -> Done;

    /// Unmaps these base pages.
    ///
    /// # Errors
    /// If the program cannot.
    fn unmap(&mut self, area: &Area, pages: Range<u64>) -> Done;

    /// Advises against huge pages (`MADV_NOHUGEPAGE`).
    ///
    /// # Errors
    /// If the program cannot.
    fn refuse_huge(&mut self, area: &Area) -> Done;

    /// Opts the whole program out of THP.
    ///
    /// # Errors
    /// If the program cannot.
    fn opt_out(&mut self, process: ProcessId) -> Done;

    /// Locks the area in memory.
    ///
    /// # Errors
    /// If the program cannot.
    fn lock(&mut self, area: &Area) -> Done;

    /// Holds a base page, as DMA does.
    ///
    /// # Errors
    /// If the program cannot.
    fn pin(&mut self, area: &Area, page: BasePages) -> Done;

    /// Lets it go.
    ///
    /// # Errors
    /// If it was not held.
    fn unpin(&mut self, area: &Area, page: BasePages) -> Done;

    /// Forks a child that waits.
    ///
    /// # Errors
    /// If the program cannot.
    fn fork(&mut self, process: ProcessId) -> Done;

    /// Ends the program's children.
    ///
    /// # Errors
    /// If the program cannot.
    fn end_children(&mut self, process: ProcessId) -> Done;

    /// Lets the program itself make a slot huge, past the machine under test.
    ///
    /// # Errors
    /// If it does not become huge.
    fn make_huge(&mut self, area: &Area, slot: u64) -> Done;

    /// Puts the program, which holds nothing yet, into a memory cgroup of its own.
    ///
    /// # Errors
    /// If there is none to be had.
    fn confine(&mut self, process: ProcessId) -> Done;

    /// Sets the limit of the program's own cgroup to what it holds now and `room` more.
    ///
    /// # Errors
    /// If it is not confined.
    fn limit(&mut self, process: ProcessId, room: Bytes) -> Done;

    /// Lets a moment pass between two looks at what takes the machine a while to notice.
    fn wait(&mut self);

    /// Kills a program and waits until it is gone.
    ///
    /// # Errors
    /// If it was gone before.
    fn kill(&mut self, process: ProcessId) -> Done;
}
