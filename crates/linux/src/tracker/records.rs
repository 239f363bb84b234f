//! Records of the tracepoint `damon:damon_aggregated`, one a region and aggregation: parsing alone.
//!
//! DAMON offers its numbers in two ways: as a directory of files a region (`tried_regions`), which the kernel builds on
//! request and whose building blocks the writer for up to an aggregation; and by this tracepoint. The tracepoint costs
//! no file, blocks nobody, and needs no scheme, so it is what we read (docs/results.md has both figures). Where a
//! field lies is read from the tracepoint's own `format` file.

use std::ops::Range;

/// What one region counted in one aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Which of the context's targets, from 0.
    pub target: u64,
    /// First address.
    pub start: u64,
    /// Address past the last.
    pub end: u64,
    /// Sampling intervals in which the sampled page had been accessed.
    pub accesses: u64,
}

/// What came out of the ring.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order in which the kernel wrote them.
    pub regions: Vec<Region>,
    /// Records that the kernel dropped because the ring was full.
    pub lost: u64,
}

/// Where the fields lie within a raw record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    target: Range<usize>,
    start: Range<usize>,
    end: Range<usize>,
    accesses: Range<usize>,
}

impl Format {
    /// From the text of the tracepoint's `format` file; `None` where a field is missing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self {
            target: field(text, "target_id")?,
            start: field(text, "start")?,
            end: field(text, "end")?,
            accesses: field(text, "nr_accesses")?,
        })
    }

    fn region(&self, raw: &[u8]) -> Option<Region> {
        Some(Region {
            target: number(raw, &self.target)?,
            start: number(raw, &self.start)?,
            end: number(raw, &self.end)?,
            accesses: number(raw, &self.accesses)?,
        })
    }

    /// All records in `bytes`, as the ring gave them. What is cut short or of another kind is skipped.
    #[must_use]
    pub fn records(&self, mut bytes: &[u8]) -> Batch {
        let mut batch = Batch::default();
        while let Some((kind, body, rest)) = next_record(bytes) {
            match kind {
                PERF_RECORD_SAMPLE => batch.regions.extend(raw(body).and_then(|r| self.region(r))),
                PERF_RECORD_LOST => batch.lost += number(body, &(8..16)).unwrap_or(0),
                _other_kinds => (),
            }
            bytes = rest;
        }
        batch
    }
}

const PERF_RECORD_LOST: u64 = 2;
const PERF_RECORD_SAMPLE: u64 = 9;
const HEADER_BYTES: usize = 8;

/// Splits off one record: its type, its body, and the rest.
fn next_record(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let kind = number(bytes, &(0..4))?;
    let size = usize::try_from(number(bytes, &(6..8))?).ok()?;
    let body = bytes.get(HEADER_BYTES..size)?;
    Some((kind, body, &bytes[size..]))
}

/// The raw tracepoint record in the body of a sample that has nothing else.
fn raw(body: &[u8]) -> Option<&[u8]> {
    let size = usize::try_from(number(body, &(0..4))?).ok()?;
    body.get(4..4 + size)
}

/// The number of 1 to 8 bytes that lies at `range`, in this machine's order.
fn number(bytes: &[u8], range: &Range<usize>) -> Option<u64> {
    let field = bytes.get(range.clone())?;
    let mut word = [0; 8];
    if cfg!(target_endian = "big") {
        word.get_mut(8_usize.checked_sub(field.len())?..)?
            .copy_from_slice(field);
    } else {
        word.get_mut(..field.len())?.copy_from_slice(field);
    }
    Some(u64::from_ne_bytes(word))
}

/// A line of the file: `field:unsigned long start; offset:24; size:8; signed:0;`, with tabs between.
fn field(text: &str, name: &str) -> Option<Range<usize>> {
    text.lines().find_map(|line| {
        let mut parts = line.trim().split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        if declared.split_ascii_whitespace().last()? != name {
            return None;
        }
        let offset: usize = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size: usize = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        (size <= 8).then_some(offset..offset.checked_add(size)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.12 and 7.3 print it, less the fields that every tracepoint has.
    const FORMAT: &str = "name: damon_aggregated\nID: 734\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id\n";

    const REGION: Region = Region {
        target: 1,
        start: 0x7f00_0020_0000,
        end: 0x7f00_0040_0000,
        accesses: 3,
    };

    fn format() -> Format {
        Format::parse(FORMAT).expect("all fields")
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER_BYTES + body.len()).expect("short");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(2_u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn sample(region: &Region) -> Vec<u8> {
        let mut raw = vec![0; 8];
        raw.extend(region.target.to_ne_bytes());
        raw.extend(7_u64.to_ne_bytes());
        raw.extend(region.start.to_ne_bytes());
        raw.extend(region.end.to_ne_bytes());
        raw.extend(u32::try_from(region.accesses).expect("small").to_ne_bytes());
        raw.extend(9_u32.to_ne_bytes());
        let mut body = u32::try_from(raw.len())
            .expect("short")
            .to_ne_bytes()
            .to_vec();
        body.extend(raw);
        body.extend([0; 4]);
        record(9, &body)
    }

    fn lost(count: u64) -> Vec<u8> {
        let mut body = 5_u64.to_ne_bytes().to_vec();
        body.extend(count.to_ne_bytes());
        record(2, &body)
    }

    #[test]
    fn samples_become_regions_and_losses_add_up() {
        let bytes = [
            sample(&REGION),
            lost(4),
            record(5, &[0; 16]),
            lost(2),
            sample(&REGION),
        ];
        let batch = format().records(&bytes.concat());
        assert_eq!(batch.regions, [REGION, REGION]);
        assert_eq!(batch.lost, 6);
    }

    #[test]
    fn what_is_cut_short_is_skipped() {
        let bytes = [sample(&REGION), sample(&REGION)].concat();
        for length in 0..bytes.len() {
            let batch = format().records(&bytes[..length]);
            assert_eq!(batch.regions.len(), length / sample(&REGION).len());
        }
    }

    #[test]
    fn a_record_of_size_zero_ends_the_walk() {
        assert_eq!(format().records(&[0; 64]), Batch::default());
    }

    #[test]
    fn a_format_without_the_addresses_is_refused() {
        assert_eq!(Format::parse(&FORMAT.replace("start", "begin")), None);
        assert_eq!(Format::parse(""), None);
    }
}
