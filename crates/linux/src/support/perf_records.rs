//! Records of a perf ring, parsed from bytes: the addresses of sampled page faults.

use crate::support::env::PerfEvent;

/// `PERF_SAMPLE_TID | TIME | ADDR | CPU`.
const SAMPLE_TYPE: u64 = 0x2 | 0x4 | 0x8 | 0x80;
/// Where the address lies in such a sample: behind the header, pid, tid and time, of 8 bytes each.
const ADDRESS_AT: usize = 24;
const RECORD_SAMPLE: u32 = 9;
const HEADER_BYTES: usize = 8;

/// Each page fault, with its address: `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_PAGE_FAULTS`, period 1.
pub const PAGE_FAULTS: PerfEvent = PerfEvent {
    kind: 1,
    config: 2,
    config1: 0,
    period: 1,
    sample_type: SAMPLE_TYPE,
    precise: 0,
};

/// The addresses of all whole samples in `bytes`; other records are passed over.
#[must_use]
pub fn addresses(bytes: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((kind, size)) = header(rest) {
        let Some(record) = rest.get(..size) else {
            break;
        };
        if kind == RECORD_SAMPLE {
            found.extend(word(record, ADDRESS_AT));
        }
        rest = &rest[size..];
    }
    found
}

/// Kind and size of the record that `bytes` starts with; `None` where no whole header is left or its size is absurd.
fn header(bytes: &[u8]) -> Option<(u32, usize)> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let size = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
    let size = usize::from(size);
    (size >= HEADER_BYTES).then_some((kind, size))
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    let bytes = record.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = u16::try_from(8 + 8 * words.len()).expect("small");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn samples_give_their_address_and_other_records_none() {
        let mut bytes = record(2, &[7, 7, 7]);
        bytes.extend(record(RECORD_SAMPLE, &[1, 2, 0xdead_b000, 3]));
        assert_eq!(addresses(&bytes), [0xdead_b000]);
    }

    #[test]
    fn torn_and_absurd_records_end_the_walk() {
        let whole = record(RECORD_SAMPLE, &[1, 2, 3, 4]);
        assert!(addresses(&whole[..20]).is_empty());
        assert!(addresses(&[0; 64]).is_empty());
    }
}
