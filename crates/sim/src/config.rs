//! What a simulated machine is like.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::Bytes;

/// Do page faults get huge pages? (`/sys/kernel/mm/transparent_hugepage/enabled`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThpMode {
    /// No.
    Never,
    /// In regions advised so.
    Madvise,
    /// Wherever a region covers a slot and opted not out.
    Always,
}

/// What becomes of base pages full of zeros when their huge page is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitZeroPages {
    /// They stay (before 6.12).
    Kept,
    /// They are freed, the shared zero page takes their place (from 6.12).
    Freed,
}

/// A machine before it runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Page sizes.
    pub geometry: Geometry,
    /// Memory of each node, in whole blocks of 4 MiB.
    pub nodes: Vec<Bytes>,
    /// Huge pages at fault.
    pub thp: ThpMode,
    /// Zero-filled base pages at split.
    pub split_zero_pages: SplitZeroPages,
    /// Of every random choice.
    pub seed: u64,
}

impl Default for Config {
    /// One node of 256 MiB, x86 pages, `enabled=madvise`, a kernel from 6.12.
    fn default() -> Self {
        Self {
            geometry: Geometry::X86_64,
            nodes: vec![Bytes::mib(256)],
            thp: ThpMode::Madvise,
            split_zero_pages: SplitZeroPages::Freed,
            seed: 0,
        }
    }
}
