//! What served a sampled access, from `union perf_mem_data_src` (`linux/perf_event.h`).
//!
//! Newer kernels fill the level's number; where that is not available, the older set of bits says it.

use hugepilot_core::sample::ServedBy;

/// `mem_lvl`, 14 bits.
const LEVELS_SHIFT: u32 = 5;
const LEVELS_MASK: u64 = (1 << 14) - 1;
/// `mem_lvl_num`, 4 bits.
const NUMBER_SHIFT: u32 = 33;
const NUMBER_MASK: u64 = 0xf;

/// Bits of `mem_lvl`.
const HIT: u64 = 0x02;
/// L1, line-fill buffer, L2, L3.
const CACHES: u64 = 0x08 | 0x10 | 0x20 | 0x40;
/// Caches one hop and two hops away.
const REMOTE_CACHES: u64 = 0x400 | 0x800;
/// Memory here, one hop and two hops away.
const MEMORY: u64 = 0x80 | 0x100 | 0x200;

/// Values of `mem_lvl_num`.
mod number {
    pub const L1: u64 = 1;
    pub const L4: u64 = 4;
    pub const L2_MISS_BUFFER: u64 = 5;
    pub const MEMORY_SIDE_CACHE: u64 = 6;
    pub const CXL: u64 = 9;
    pub const ANY_CACHE: u64 = 0xb;
    pub const FILL_BUFFER: u64 = 0xc;
    pub const RAM: u64 = 0xd;
    pub const PERSISTENT: u64 = 0xe;
}

/// What served the access of which `source` tells.
#[must_use]
pub const fn served_by(source: u64) -> ServedBy {
    match (source >> NUMBER_SHIFT) & NUMBER_MASK {
        number::RAM | number::PERSISTENT | number::CXL => ServedBy::Dram,
        number::L1..=number::L4
        | number::L2_MISS_BUFFER
        | number::MEMORY_SIDE_CACHE
        | number::ANY_CACHE
        | number::FILL_BUFFER => ServedBy::Cache,
        _uncached_io_or_not_available => by_levels((source >> LEVELS_SHIFT) & LEVELS_MASK),
    }
}

const fn by_levels(levels: u64) -> ServedBy {
    if levels & HIT == 0 {
        ServedBy::Unknown
    } else if levels & MEMORY != 0 {
        ServedBy::Dram
    } else if levels & (CACHES | REMOTE_CACHES) != 0 {
        ServedBy::Cache
    } else {
        ServedBy::Unknown
    }
}
