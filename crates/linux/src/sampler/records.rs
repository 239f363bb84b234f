//! Records of a perf ring, from bytes.
//!
//! A record is a header (type, flags, size) and fields whose presence and order `sample_type` decides, as
//! `perf_event_open(2)` has them. Of the fields between CPU and weight (callchains, registers, stacks) none is ever asked
//! for; a `sample_type` with one of them is refused ([`Layout::of`]), since their length stands in the record itself.

/// Fields of a sample, as bits of `sample_type`.
pub mod field {
    /// The instruction's address.
    pub const IP: u64 = 1;
    /// Process and thread.
    pub const TID: u64 = 1 << 1;
    /// When.
    pub const TIME: u64 = 1 << 2;
    /// The address accessed.
    pub const ADDR: u64 = 1 << 3;
    /// On which processor.
    pub const CPU: u64 = 1 << 7;
    /// Events that it stands for.
    pub const PERIOD: u64 = 1 << 8;
    /// Cycles that it took.
    pub const WEIGHT: u64 = 1 << 14;
    /// What served it.
    pub const DATA_SRC: u64 = 1 << 15;
    /// The physical address accessed.
    pub const PHYS_ADDR: u64 = 1 << 19;
    /// Size of the page accessed.
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
}

/// The fields that we know, in the order that they have in a record. Each takes eight bytes.
const ORDER: [u64; 10] = [
    field::IP,
    field::TID,
    field::TIME,
    field::ADDR,
    field::CPU,
    field::PERIOD,
    field::WEIGHT,
    field::DATA_SRC,
    field::PHYS_ADDR,
    field::DATA_PAGE_SIZE,
];

const RECORD_LOST: u32 = 2;
const RECORD_THROTTLE: u32 = 5;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;
/// Where a lost record has its count: behind the event's id.
const LOST_AT: usize = 16;
const HEADER_BYTES: usize = 8;
const MODE_MASK: u16 = 7;
const MODE_USER: u16 = 2;

/// One sample. Fields that were not asked for are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// Was it in user mode?
    pub user: bool,
    /// The instruction's address.
    pub ip: Option<u64>,
    /// Process and thread.
    pub who: Option<(u32, u32)>,
    /// Nanoseconds, of perf's clock.
    pub time: Option<u64>,
    /// The address accessed.
    pub address: Option<u64>,
    /// The processor.
    pub cpu: Option<u32>,
    /// Events that it stands for.
    pub period: Option<u64>,
    /// Cycles that it took.
    pub weight: Option<u64>,
    /// `union perf_mem_data_src`.
    pub data_source: Option<u64>,
    /// The physical address accessed; 0 where the kernel could not tell.
    pub physical: Option<u64>,
    /// Bytes of the page accessed; 0 where the kernel could not tell.
    pub page_bytes: Option<u64>,
}

/// A record of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A sample.
    Sample(SampleRecord),
    /// So many records did not fit into the ring, or were dropped by the hardware.
    Lost(u64),
    /// The kernel holds the event back until its next tick.
    Throttled,
    /// One that says nothing to us.
    Other,
}

/// How samples of one event look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    sample_type: u64,
}

impl Layout {
    /// Samples with these fields; `None` if one of them is not known here.
    #[must_use]
    pub fn of(sample_type: u64) -> Option<Self> {
        let known = ORDER.iter().fold(0, |known, field| known | field);
        (sample_type & !known == 0).then_some(Self { sample_type })
    }

    /// Bytes of one sample.
    #[must_use]
    pub fn record_bytes(self) -> u64 {
        8 + 8 * u64::from(self.sample_type.count_ones())
    }

    /// All whole records in `bytes`. A torn or absurd one ends the walk.
    pub fn records(self, bytes: &[u8]) -> impl Iterator<Item = Record> + '_ {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let size = usize::from(u16::from_ne_bytes(rest.get(6..8)?.try_into().ok()?));
            let record = rest.get(..size).filter(|_| size >= HEADER_BYTES)?;
            rest = &rest[size..];
            self.record(record)
        })
    }

    fn record(self, record: &[u8]) -> Option<Record> {
        let kind = u32::from_ne_bytes(record.get(..4)?.try_into().ok()?);
        Some(match kind {
            RECORD_SAMPLE => Record::Sample(self.sample(record)?),
            RECORD_LOST => Record::Lost(word(record, LOST_AT)?),
            RECORD_LOST_SAMPLES => Record::Lost(word(record, HEADER_BYTES)?),
            RECORD_THROTTLE => Record::Throttled,
            _other => Record::Other,
        })
    }

    fn sample(self, record: &[u8]) -> Option<SampleRecord> {
        let flags = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
        let mut sample = SampleRecord {
            user: flags & MODE_MASK == MODE_USER,
            ..SampleRecord::default()
        };
        let wanted = ORDER
            .into_iter()
            .filter(|field| self.sample_type & field != 0);
        for (place, field) in wanted.enumerate() {
            let at = HEADER_BYTES + 8 * place;
            sample.put(field, record.get(at..at + 8)?.try_into().ok()?);
        }
        Some(sample)
    }
}

impl SampleRecord {
    fn put(&mut self, field: u64, bytes: [u8; 8]) {
        let value = u64::from_ne_bytes(bytes);
        let [a, b, c, d, e, f, g, h] = bytes;
        let halves = (
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, g, h]),
        );
        match field {
            field::IP => self.ip = Some(value),
            field::TID => self.who = Some(halves),
            field::TIME => self.time = Some(value),
            field::ADDR => self.address = Some(value),
            field::CPU => self.cpu = Some(halves.0),
            field::PERIOD => self.period = Some(value),
            field::WEIGHT => self.weight = Some(value),
            field::DATA_SRC => self.data_source = Some(value),
            field::PHYS_ADDR => self.physical = Some(value),
            field::DATA_PAGE_SIZE => self.page_bytes = Some(value),
            unknown => unreachable!("no field {unknown:#x} passes `Layout::of`"),
        }
    }
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    let bytes = record.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAULTS: u64 = field::TID | field::TIME | field::ADDR | field::CPU;

    fn record(kind: u32, flags: u16, words: &[u64]) -> Vec<u8> {
        let size = u16::try_from(8 + 8 * words.len()).expect("small");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn records(bytes: &[u8]) -> Vec<Record> {
        Layout::of(FAULTS).expect("known").records(bytes).collect()
    }

    #[test]
    fn a_fault_says_who_when_where_and_on_which_processor() {
        let bytes = record(9, 2, &[8 << 32 | 7, 99, 0xdead_b123, 3]);
        let Record::Sample(sample) = records(&bytes)[0] else {
            panic!("a sample");
        };
        assert_eq!(sample.who, Some((7, 8)));
        assert_eq!(sample.time, Some(99));
        assert_eq!(sample.address, Some(0xdead_b123));
        assert_eq!((sample.cpu, sample.user), (Some(3), true));
        assert_eq!(sample.weight, None);
    }

    #[test]
    fn losses_and_throttling_are_told() {
        let mut bytes = record(2, 0, &[1, 17]);
        bytes.extend(record(13, 0, &[4]));
        bytes.extend(record(5, 0, &[1, 2, 3]));
        bytes.extend(record(3, 0, &[1]));
        let told = [
            Record::Lost(17),
            Record::Lost(4),
            Record::Throttled,
            Record::Other,
        ];
        assert_eq!(records(&bytes), told);
    }

    #[test]
    fn torn_and_absurd_records_end_the_walk() {
        let whole = record(9, 2, &[1, 2, 3, 4]);
        assert!(records(&whole[..20]).is_empty());
        assert!(records(&[0; 64]).is_empty());
        // A sample that is shorter than its fields.
        assert!(records(&record(9, 2, &[1, 2])).is_empty());
    }

    #[test]
    fn fields_of_their_own_length_are_refused() {
        const CALLCHAIN: u64 = 1 << 5;
        assert_eq!(Layout::of(FAULTS | CALLCHAIN), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..512), fields in any::<u64>()) {
            let known = ORDER.iter().fold(0, |known, field| known | field);
            let layout = Layout::of(fields & known).expect("known fields");
            prop_assert!(layout.records(&bytes).count() <= bytes.len() / HEADER_BYTES);
        }
    }
}
