//! Looking at what memory holds: how many base pages of a slot are nothing but zeros.

use crate::sys::Errno;
use crate::sys::process::read_memory;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::BasePages;

/// Read in one call at the most: the kernel pins what it copies.
const PIECE_PAGES_MAX: u64 = 16;

/// What was found in a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZeroCount {
    /// Base pages read.
    pub read: BasePages,
    /// Those of them that held nothing but zeros.
    pub zero: BasePages,
}

/// Reads at most `pages_max` base pages of the slot at `address`, spread evenly over it, and counts the zero ones.
/// Pages that cannot be read are left out.
///
/// # Errors
/// Where nothing at all could be read: the process is gone, or we may not.
pub fn count_zero_pages(
    pid: Pid,
    address: u64,
    pages_max: BasePages,
    geometry: &Geometry,
    buffer: &mut Vec<u8>,
) -> Result<ZeroCount, Errno> {
    let page = geometry.base_page().0;
    let slot = geometry.slot_pages().0;
    let wanted = pages_max.0.min(slot);
    let mut found = ZeroCount::default();
    let mut failure = None;
    for (first, count) in pieces(slot, wanted) {
        let length = usize::try_from(count * page).unwrap_or(0);
        buffer.resize(length, 0);
        match read_memory(pid, address + first * page, buffer) {
            Ok(read) => found.add(&buffer[..read], page),
            Err(errno) => failure = Some(errno),
        }
    }
    match failure {
        Some(errno) if found.read == BasePages::ZERO => Err(errno),
        Some(_) | None => Ok(found),
    }
}

impl ZeroCount {
    fn add(&mut self, bytes: &[u8], page: u64) {
        let page = usize::try_from(page).unwrap_or(usize::MAX);
        for page in bytes.chunks_exact(page) {
            self.read += BasePages(1);
            if is_zero(page) {
                self.zero += BasePages(1);
            }
        }
    }
}

/// Word by word, so that the first byte that is not zero ends it soon and a zero page is a plain loop.
fn is_zero(page: &[u8]) -> bool {
    const WORDS: usize = 64;
    page.chunks(WORDS)
        .all(|words| words.iter().fold(0, |all, byte| all | byte) == 0)
}

/// `wanted` of `slot` pages as (first, count): one page each, evenly spread; or all of them in pieces.
fn pieces(slot: u64, wanted: u64) -> Vec<(u64, u64)> {
    if wanted == slot {
        let whole = |first| (first, PIECE_PAGES_MAX.min(slot - first));
        return (0..slot).step_by(16).map(whole).collect();
    }
    (0..wanted).map(|nth| (nth * slot / wanted, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_spread_and_bounded() {
        assert_eq!(pieces(512, 2), [(0, 1), (256, 1)]);
        assert_eq!(pieces(512, 512).len(), 32);
        assert_eq!(
            pieces(512, 512).iter().map(|piece| piece.1).sum::<u64>(),
            512
        );
        assert_eq!(pieces(512, 511).len(), 511);
        assert_eq!(pieces(512, 0), []);
    }

    #[test]
    fn our_own_zero_pages_are_counted() {
        let geometry = Geometry::X86_64;
        let mut memory = vec![0_u8; 4 << 20];
        let start = u64::try_from(memory.as_ptr().addr()).expect("64-bit");
        let slot = start.next_multiple_of(geometry.slot().0);
        let into = usize::try_from(slot - start).expect("small");
        for page in [0, 100, 511] {
            memory[into + page * 4096 + 17] = 1;
        }
        let me = Pid(std::process::id());
        let all = count_zero_pages(me, slot, BasePages(512), &geometry, &mut Vec::new());
        let expected = ZeroCount {
            read: BasePages(512),
            zero: BasePages(509),
        };
        assert_eq!(all, Ok(expected));
        let first = count_zero_pages(me, slot, BasePages(1), &geometry, &mut Vec::new());
        assert_eq!(
            first,
            Ok(ZeroCount {
                read: BasePages(1),
                zero: BasePages(0)
            })
        );
        assert!(count_zero_pages(me, 0, BasePages(1), &geometry, &mut Vec::new()).is_err());
    }
}
