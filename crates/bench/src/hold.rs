//! A holder: a process that has memory of a given shape and, if asked, keeps some of it changing, while somebody else
//! watches it and is timed.

use crate::BenchError;
use crate::sys::Mapping;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::{BasePages, Bytes, Span};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::PathBuf;

/// What to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldSpec {
    /// Length, a multiple of a slot.
    pub bytes: Bytes,
    /// Base pages touched in each slot, from its start.
    pub pages_per_slot: BasePages,
    /// Ask for huge pages?
    pub huge: bool,
    /// Map this file, shared, instead of private memory.
    pub file: Option<PathBuf>,
    /// Map and unmap a page so often while holding, so that the process faults; zero: never.
    pub fault_every: Span,
}

/// Memory held until dropped.
#[derive(Debug)]
pub struct Held {
    _mapping: Mapping,
}

/// Maps and touches what `spec` says.
///
/// # Errors
/// If the kernel has no room or the file is not there.
pub fn hold(spec: &HoldSpec) -> Result<Held, BenchError> {
    let slot = Geometry::X86_64.slot().0;
    let map = |source| BenchError::Map {
        bytes: spec.bytes,
        source,
    };
    let mut mapping = Mapping::anonymous(length(spec.bytes.0 + slot)).map_err(map)?;
    let first = mapping.address().next_multiple_of(length(slot)) - mapping.address();
    if let Some(path) = &spec.file {
        let file = File::options().read(true).write(true).open(path);
        let read = |source| BenchError::Read {
            path: path.display().to_string(),
            source,
        };
        mapping
            .overlay(file.map_err(read)?, first, length(spec.bytes.0))
            .map_err(map)?;
    }
    if spec.huge {
        mapping.advise_huge().map_err(map)?;
    }
    for at in (0..spec.bytes.0).step_by(length(slot)) {
        for page in 0..spec.pages_per_slot.0 {
            mapping.write(
                first + length(at + Geometry::X86_64.bytes(BasePages(page)).0),
                1,
            );
        }
    }
    Ok(Held { _mapping: mapping })
}

/// Makes the process fault once: maps a page, touches it, unmaps it.
///
/// # Errors
/// If the kernel has no room.
pub fn fault() -> Result<(), BenchError> {
    let bytes = Geometry::X86_64.base_page();
    let page =
        Mapping::anonymous(length(bytes.0)).map_err(|source| BenchError::Map { bytes, source });
    page?.write(0, 1);
    Ok(())
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("x86-64 addresses")
}
