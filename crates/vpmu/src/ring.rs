//! The ring of samples: several CPUs write, anybody reads, nobody waits.

use std::sync::atomic::{Ordering, fence};

use crate::{Layout, word};

/// Words of a record.
pub(crate) const RECORD_WORDS: usize = 6;

/// Places of the words of a record.
mod place {
    /// Its number in the order of writing, and 1; [`super::BUSY`] while it is being written.
    pub const SEQUENCE: usize = 0;
    pub const INSTRUCTIONS: usize = 1;
    pub const VADDR: usize = 2;
    pub const PADDR: usize = 3;
    pub const WHO: usize = 4;
    pub const PACKED: usize = 5;
}

/// A record with this sequence number is being written.
const BUSY: u64 = u64::MAX;
const FLAG_STORE: u16 = 1;
const FLAG_DRAM: u16 = 2;
const FLAG_HUGE: u16 = 4;

/// One sampled access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Instructions that the CPU had executed: the only clock there is.
    pub instructions: u64,
    /// Virtual address.
    pub vaddr: u64,
    /// Guest-physical address.
    pub paddr: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// On which CPU.
    pub cpu: u16,
    /// The node of that CPU.
    pub cpu_node: u16,
    /// The node of the memory.
    pub memory_node: u16,
    /// A store, not a load.
    pub store: bool,
    /// No cache of the plugin's model served it.
    pub dram: bool,
    /// The plugin's model takes it for an access to a huge page.
    pub huge: bool,
}

impl Record {
    fn words(&self) -> [u64; RECORD_WORDS - 1] {
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        let flags =
            flag(self.store, FLAG_STORE) | flag(self.dram, FLAG_DRAM) | flag(self.huge, FLAG_HUGE);
        let [c0, c1] = self.cpu.to_le_bytes();
        let [n0, n1] = self.cpu_node.to_le_bytes();
        let [m0, m1] = self.memory_node.to_le_bytes();
        let [f0, f1] = flags.to_le_bytes();
        [
            self.instructions,
            self.vaddr,
            self.paddr,
            u64::from(self.pid) << 32 | u64::from(self.tid),
            u64::from_le_bytes([c0, c1, n0, n1, m0, m1, f0, f1]),
        ]
    }

    fn from_words(words: [u64; RECORD_WORDS - 1]) -> Self {
        let [instructions, vaddr, paddr, who, packed] = words;
        let [t0, t1, t2, t3, p0, p1, p2, p3] = who.to_le_bytes();
        let [c0, c1, n0, n1, m0, m1, f0, f1] = packed.to_le_bytes();
        let flags = u16::from_le_bytes([f0, f1]);
        Self {
            instructions,
            vaddr,
            paddr,
            pid: u32::from_le_bytes([p0, p1, p2, p3]),
            tid: u32::from_le_bytes([t0, t1, t2, t3]),
            cpu: u16::from_le_bytes([c0, c1]),
            cpu_node: u16::from_le_bytes([n0, n1]),
            memory_node: u16::from_le_bytes([m0, m1]),
            store: flags & FLAG_STORE != 0,
            dram: flags & FLAG_DRAM != 0,
            huge: flags & FLAG_HUGE != 0,
        }
    }
}

/// The plugin's end. Each CPU may have one.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    layout: Layout<'a>,
}

impl<'a> Writer<'a> {
    /// An end of this ring.
    #[must_use]
    pub fn new(layout: Layout<'a>) -> Self {
        Self { layout }
    }

    /// Adds a record; the oldest one gives way.
    ///
    /// Where a CPU is held up here until the others have gone once around the ring, they leave its
    /// record alone, and theirs is lost.
    pub fn push(&self, record: &Record) {
        let layout = &self.layout;
        let sequence = layout.words[word::HEAD].fetch_add(1, Ordering::AcqRel);
        let start = layout.record(sequence);
        if !layout.claim(start, sequence) {
            return;
        }
        for (offset, value) in record.words().into_iter().enumerate() {
            layout.words[start + place::INSTRUCTIONS + offset].store(value, Ordering::Relaxed);
        }
        layout.write(start + place::SEQUENCE, sequence + 1);
    }

    /// Counts a sample that the cap forbids.
    pub fn drop_one(&self) {
        self.layout.words[word::DROPPED].fetch_add(1, Ordering::Relaxed);
    }
}

/// What a reader got at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// In the order in which they were begun.
    pub records: Vec<Record>,
    /// Records that were overwritten before they were read, and samples that the cap dropped.
    pub lost: u64,
}

/// A guest's end. Readers do not disturb each other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    layout: Layout<'a>,
    next: u64,
    dropped: u64,
}

impl<'a> Reader<'a> {
    /// Reads what comes from now on.
    #[must_use]
    pub fn new(layout: Layout<'a>) -> Self {
        Self {
            layout,
            next: layout.read(word::HEAD),
            dropped: layout.dropped(),
        }
    }

    /// At most so many records, oldest first. One that is still being written ends the reading
    /// until the next time.
    pub fn read(&mut self, records_max: usize) -> Taken {
        let mut taken = Taken {
            lost: self.newly_dropped(),
            ..Taken::default()
        };
        let head = self.layout.read(word::HEAD);
        let oldest = head.saturating_sub(self.layout.capacity);
        if self.next < oldest {
            taken.lost += oldest - self.next;
            self.next = oldest;
        }
        while self.next < head && taken.records.len() < records_max {
            match self.layout.look(self.next) {
                Look::Whole(record) => taken.records.push(record),
                Look::Lost => taken.lost += 1,
                Look::Unfinished => break,
            }
            self.next += 1;
        }
        taken
    }

    fn newly_dropped(&mut self) -> u64 {
        let dropped = self.layout.dropped();
        let before = std::mem::replace(&mut self.dropped, dropped);
        dropped.wrapping_sub(before)
    }
}

/// What a place of the ring holds for who looks for one record.
enum Look {
    Whole(Record),
    Lost,
    Unfinished,
}

impl Layout<'_> {
    /// Where a record stands.
    fn record(&self, sequence: u64) -> usize {
        let index = usize::try_from(sequence % self.capacity).expect("less than RECORDS_MAX");
        word::RING + index * RECORD_WORDS
    }

    /// Makes an older record's place the writer's own.
    fn claim(&self, start: usize, sequence: u64) -> bool {
        let mark = &self.words[start + place::SEQUENCE];
        let older = |before: u64| (before <= sequence).then_some(BUSY);
        let claimed = mark
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, older)
            .is_ok();
        // Nothing written from here on may be seen before the mark.
        fence(Ordering::Release);
        claimed
    }

    fn look(&self, sequence: u64) -> Look {
        let start = self.record(sequence);
        let before = self.read(start + place::SEQUENCE);
        let [a, b, c, d, e] = [
            place::INSTRUCTIONS,
            place::VADDR,
            place::PADDR,
            place::WHO,
            place::PACKED,
        ]
        .map(|offset| self.words[start + offset].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.read(start + place::SEQUENCE);
        if before == sequence + 1 && after == before {
            return Look::Whole(Record::from_words([a, b, c, d, e]));
        }
        // Whoever is so far behind will not finish before the ring comes round.
        if self.read(word::HEAD) - sequence > self.capacity / 2 {
            Look::Lost
        } else {
            Look::Unfinished
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{MACHINE, blank};
    use std::sync::atomic::AtomicU64;

    fn layout(words: &[AtomicU64], capacity: u64) -> Layout<'_> {
        Layout::prepare(words, MACHINE, capacity).unwrap()
    }

    /// All of its fields tell the same number.
    fn record(number: u32) -> Record {
        let cpu = u16::try_from(number % 50_000).unwrap();
        Record {
            instructions: u64::from(number),
            vaddr: u64::from(number) << 12,
            paddr: u64::from(number) << 20,
            pid: number,
            tid: number + 1,
            cpu,
            cpu_node: cpu + 1,
            memory_node: cpu + 2,
            store: number % 2 == 0,
            dram: number % 3 == 0,
            huge: number % 5 == 0,
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        let words = blank();
        let layout = layout(&words, 64);
        let mut reader = Reader::new(layout);
        let written: Vec<Record> = (0..60).map(record).collect();
        for record in &written {
            Writer::new(layout).push(record);
        }
        let extreme = Record {
            vaddr: u64::MAX,
            pid: u32::MAX,
            cpu: u16::MAX,
            ..record(0)
        };
        Writer::new(layout).push(&extreme);
        let taken = reader.read(1000);
        assert_eq!((taken.lost, &taken.records[..60]), (0, &written[..]));
        assert_eq!(taken.records[60], extreme);
        assert_eq!(reader.read(1000), Taken::default());
    }

    #[test]
    fn a_reader_begins_with_what_comes_after_it() {
        let words = blank();
        let layout = layout(&words, 8);
        Writer::new(layout).push(&record(1));
        let mut reader = Reader::new(layout);
        Writer::new(layout).push(&record(2));
        assert_eq!(reader.read(8).records, [record(2)]);
    }

    #[test]
    fn what_was_overwritten_is_lost_and_counted() {
        let words = blank();
        let layout = layout(&words, 8);
        let mut reader = Reader::new(layout);
        for number in 0..21 {
            Writer::new(layout).push(&record(number));
        }
        let taken = reader.read(3);
        assert_eq!(taken.lost, 13);
        assert_eq!(taken.records, [record(13), record(14), record(15)]);
        assert_eq!(reader.read(100).records.len(), 5);
    }

    #[test]
    fn what_the_cap_drops_is_lost_once() {
        let words = blank();
        let layout = layout(&words, 8);
        let mut reader = Reader::new(layout);
        Writer::new(layout).drop_one();
        assert_eq!((reader.read(8).lost, reader.read(8).lost), (1, 0));
        assert_eq!(layout.dropped(), 1);
    }

    #[test]
    fn a_record_that_is_being_written_is_read_later() {
        let words = blank();
        let layout = layout(&words, 8);
        let mut reader = Reader::new(layout);
        Writer::new(layout).push(&record(1));
        Writer::new(layout).push(&record(2));
        let mark = &words[layout.record(0) + place::SEQUENCE];
        mark.store(0, Ordering::Release);
        assert_eq!(reader.read(8), Taken::default());
        mark.store(1, Ordering::Release);
        assert_eq!(reader.read(8).records, [record(1), record(2)]);
    }

    #[test]
    fn a_record_that_never_ends_holds_nobody_up_for_more_than_half_a_round() {
        let words = blank();
        let layout = layout(&words, 8);
        let mut reader = Reader::new(layout);
        for number in 0..4 {
            Writer::new(layout).push(&record(number));
        }
        words[layout.record(0) + place::SEQUENCE].store(BUSY, Ordering::Release);
        assert_eq!(reader.read(8), Taken::default());
        Writer::new(layout).push(&record(4));
        let taken = reader.read(8);
        assert_eq!((taken.lost, taken.records.len()), (1, 4));
    }

    #[test]
    fn a_record_that_is_being_written_is_left_alone_by_who_comes_round() {
        let words = blank();
        let layout = layout(&words, 2);
        Writer::new(layout).push(&record(0));
        let held_up = &words[layout.record(0) + place::SEQUENCE];
        held_up.store(BUSY, Ordering::Release);
        Writer::new(layout).push(&record(1));
        Writer::new(layout).push(&record(2));
        assert_eq!(held_up.load(Ordering::Acquire), BUSY);
    }

    #[test]
    fn nothing_torn_is_read_while_others_write() {
        const WRITERS: u32 = 3;
        const EACH: u32 = 20_000;
        let words = blank();
        let layout = layout(&words, 16);
        let mut reader = Reader::new(layout);
        let (mut read, mut lost) = (0, 0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn(move || {
                        for number in 0..EACH {
                            Writer::new(layout).push(&record(writer * EACH + number));
                        }
                    })
                })
                .collect();
            let mut last_round = false;
            while !last_round {
                last_round = writers.iter().all(|writer| writer.is_finished());
                let taken = reader.read(64);
                for found in &taken.records {
                    assert_eq!(*found, record(found.pid));
                }
                read += u64::try_from(taken.records.len()).unwrap();
                lost += taken.lost;
            }
        });
        assert!(read > 0);
        // The rest of the last half round may have been left out by its writers.
        assert!(read + lost <= u64::from(WRITERS * EACH));
        assert!(read + lost + 8 >= u64::from(WRITERS * EACH));
    }
}
