//! Memory in huge pages: mapped, reserved, coloured, given back.
//!
//! *Reservation*: the kernel reserves huge pages when they are mapped, or refuses; so no fault of this process fails
//! later for want of one. (It is not so for a forked child, nor under `HUGETLB_NO_RESERVE`.)
//!
//! *Colouring*: buffers that all begin at the beginning of a huge page compete for the same cache sets. Where rounding up
//! left bytes over, a buffer begins some cache lines later. The lines follow the golden ratio, so that however many
//! buffers there are, they are spread over all that was left.

use crate::say::{Level, Piece, say};
use crate::sizes::{self, PageSize};
use crate::sys::{self, Errno, Mapping, Source};
use crate::table::Table;
use crate::{mounts, options};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of a cache line, by which buffers are shifted.
const CACHE_LINE: usize = if cfg!(target_arch = "s390x") {
    256
} else if cfg!(any(target_arch = "powerpc64", target_arch = "aarch64")) {
    128
} else {
    64
};

static TABLE: Table = Table::new();

/// What to do when there are no huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// Fail.
    Fail,
    /// Take base pages.
    BasePages,
}

/// Where in its mapping a buffer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// At its beginning.
    None,
    /// At some cache line within what rounding up left over.
    Spread,
}

/// Memory in whole huge pages of the default size. The length is rounded up, as the kernel does.
pub fn huge_pages(length: usize) -> Result<usize, Errno> {
    options::read();
    let mapping = map_huge(length)?;
    hand_out(mapping, mapping.start)
}

/// Memory of any length.
pub fn region(length: usize, otherwise: Otherwise, colour: Colour) -> Result<usize, Errno> {
    options::read();
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let mapping = match map_huge(length) {
        Err(error) if otherwise == Otherwise::BasePages => {
            let mapping = map_base(length).ok_or(error)?;
            say_fallback(length);
            mapping
        }
        mapping => mapping?,
    };
    let shift = match colour {
        Colour::None => 0,
        Colour::Spread => shift_within(mapping.length.saturating_sub(length)),
    };
    hand_out(mapping, mapping.start.wrapping_add(shift))
}

static FELL_BACK: AtomicBool = AtomicBool::new(false);

/// The first time it is said aloud; later only when warnings are wanted.
fn say_fallback(length: usize) {
    let level = if FELL_BACK.swap(true, Ordering::Relaxed) {
        Level::Warning
    } else {
        Level::Error
    };
    let words =
        "no huge pages left, base pages instead (said once unless HUGETLB_VERBOSE is 2); bytes: ";
    say(level, &[Piece::Words(words), Piece::Number(length)]);
}

/// Unmaps what was handed out as this pointer. A null pointer is nothing; another that is not ours is said to be none.
pub fn give_back(pointer: usize) {
    if pointer == 0 {
        return;
    }
    let Some(mapping) = TABLE.take(pointer) else {
        say(
            Level::Error,
            &[Piece::Words(
                "freed what is not, or no longer, a region of this library",
            )],
        );
        return;
    };
    // In the middle of a merged mapping of base pages this needs one more mapping, and there may be none to be had.
    if sys::unmap(mapping).is_err() {
        say(
            Level::Error,
            &[Piece::Words("a region could not be unmapped, and stays")],
        );
        // There is room: it was there a moment ago, and if another took it, this region is not freed, which was said.
        let _kept = TABLE.put(pointer, mapping);
    }
}

/// Remembers a mapping by the pointer that is handed out for it.
fn hand_out(mapping: Mapping, pointer: usize) -> Result<usize, Errno> {
    TABLE
        .put(pointer, mapping)
        .or_else(|error| sys::unmap(mapping).and(Err(error)))?;
    Ok(pointer)
}

fn map_huge(length: usize) -> Result<Mapping, Errno> {
    let size = sizes::default()?;
    let whole = size.round_up(length).ok_or(Errno::ENOMEM)?;
    let mapping = map_from_mount_or_none(whole, size)?;
    if !options::prefaults() {
        return Ok(mapping);
    }
    match sys::populate(mapping) {
        Ok(()) | Err(Errno::EINVAL) => Ok(mapping),
        Err(error) => sys::unmap(mapping).and(Err(error)),
    }
}

/// A mount that the environment names has its own quota and policy, so it is used; else none is needed.
fn map_from_mount_or_none(whole: usize, size: PageSize) -> Result<Mapping, Errno> {
    let reservation = options::reservation();
    if options::maps_without_mount() && !mounts::is_preferred(size) {
        let log2 = size.log2();
        return sys::map(whole, Source::Huge { log2 }, reservation);
    }
    let file = mounts::unlinked(size)?;
    sys::map(whole, Source::File(&file), reservation)
}

fn map_base(length: usize) -> Option<Mapping> {
    let whole = PageSize::new(sys::base_page_size())?.round_up(length)?;
    sys::map(whole, Source::Anonymous, sys::Reservation::Now).ok()
}

/// Buffers that were coloured so far.
static COLOURED: AtomicUsize = AtomicUsize::new(0);

fn shift_within(left_over: usize) -> usize {
    let number = COLOURED.fetch_add(1, Ordering::Relaxed);
    spread(sys::seed().wrapping_add(number), left_over)
}

/// The shift in bytes of a numbered buffer that has so many bytes left over: whole cache lines, evenly spread.
fn spread(number: usize, left_over: usize) -> usize {
    /// The golden ratio's part of a word.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let lines = u128::try_from(left_over / CACHE_LINE)
        .unwrap_or(0)
        .wrapping_add(1);
    let turn = u64::try_from(number).unwrap_or(0).wrapping_mul(GOLDEN);
    let line = (u128::from(turn).wrapping_mul(lines)) >> 64;
    usize::try_from(line).unwrap_or(0).wrapping_mul(CACHE_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn shifts_are_whole_lines_within_what_is_left() {
        for left_over in [0, 1, CACHE_LINE - 1, CACHE_LINE, 4095, (2 << 20) - 1] {
            for number in (0..1000).chain(usize::MAX - 10..usize::MAX) {
                let shift = spread(number, left_over);
                assert!(shift <= left_over, "{number}: {shift} of {left_over}");
                assert_eq!(shift % CACHE_LINE, 0);
            }
        }
    }

    #[test]
    fn shifts_are_spread_over_all_lines() {
        let lines = 64;
        let left_over = (lines - 1) * CACHE_LINE;
        let shifts: HashSet<usize> = (0..2 * lines)
            .map(|number| spread(number, left_over))
            .collect();
        assert_eq!(shifts.len(), lines, "each line is used");
    }
}
