//! One event on every processor, each with a ring of its own.
//!
//! **Why by processor, and not by task.** An event of a task that its later threads inherit has a descriptor for each thread
//! and processor, and finds out about a thread only by looking. An event of a processor needs as many descriptors as
//! there are processors, and misses nobody. The price is records of processes that nobody watches, which are passed over.
//!
//! **Bounds.** A ring holds [`RING_BYTES`]. Emptying goes from processor to processor, [`PIECE_BYTES`] at a time and starting
//! elsewhere each time, so that a busy processor does not take the others' part of the budget. Once the budget is used
//! up, what waits is thrown away, and counted by its length.

use super::records::{Layout, Record, SampleRecord};
use super::{Intake, SamplerUnavailable};
use crate::procfs::{SysRoot, meminfo, read, understood};
use crate::sys::Errno;
use crate::sys::perf::{self, Event, Excluded, Ring};
use std::os::fd::OwnedFd;

/// Bytes of one ring: some 13,000 faults between two looks; with its first page no more than what
/// `kernel.perf_event_mlock_kb` (516) gives each processor by default.
const RING_BYTES: usize = 512 << 10;
/// Bytes taken from one ring at a time: some 1,600 faults, some 100 µs.
const PIECE_BYTES: usize = 64 << 10;

/// What an event is made of.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The event itself.
    pub event: Event,
    /// What is left out of it.
    pub excluded: Excluded,
    /// An event that must lead the group; it is only counted.
    pub leader: Option<Event>,
}

/// The rings of all processors.
#[derive(Debug)]
pub struct Rings {
    rings: Vec<Processor>,
    layout: Layout,
    /// Where the next emptying begins.
    first: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Processor {
    // Declared first, dropped first: the ring is a mapping of the event.
    ring: Ring,
    _event: OwnedFd,
    _leader: Option<OwnedFd>,
}

impl Rings {
    /// Opens `wanted` on every processor that is online; `name` is for messages.
    ///
    /// # Errors
    /// If perf refuses on one of them, or the processors cannot be listed.
    pub fn open(wanted: &Wanted, name: &str, sys: &SysRoot) -> Result<Self, SamplerUnavailable> {
        let refused = |source| SamplerUnavailable::Perf {
            event: name.to_owned(),
            source,
            fix: "it needs CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below",
        };
        let layout = Layout::of(wanted.event.sample_type).ok_or_else(|| refused(Errno::INVAL))?;
        let rings = online(sys)?
            .into_iter()
            .map(|cpu| Processor::open(wanted, cpu))
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused)?;
        Ok(Self {
            rings,
            layout,
            first: 0,
            bytes: Vec::new(),
        })
    }

    /// Gives every sample to `take`, which offers it to the intake.
    pub fn drain(
        &mut self,
        intake: &mut Intake<'_>,
        mut take: impl FnMut(&SampleRecord, &mut Intake<'_>),
    ) {
        let count = self.rings.len();
        self.first = (self.first + 1) % count.max(1);
        let mut busy = true;
        while busy && !intake.over_budget() {
            busy = false;
            for at in 0..count {
                let processor = &self.rings[(self.first + at) % count];
                processor.ring.take_some(PIECE_BYTES, &mut self.bytes);
                busy |= self.bytes.len() > PIECE_BYTES / 2;
                for record in self.layout.records(&self.bytes) {
                    match record {
                        Record::Sample(sample) => take(&sample, intake),
                        Record::Lost(count) => intake.lose(count),
                        Record::Throttled | Record::Other => {}
                    }
                }
            }
        }
        self.discard(intake);
    }

    /// What was not taken within the budget is lost.
    fn discard(&self, intake: &mut Intake<'_>) {
        if intake.over_budget() {
            let bytes: u64 = self.rings.iter().map(|cpu| cpu.ring.discard()).sum();
            intake.lose(bytes / self.layout.record_bytes());
        }
    }
}

impl Processor {
    fn open(wanted: &Wanted, cpu: u32) -> Result<Self, Errno> {
        let lead = |event| perf::open_on_cpu(event, cpu, wanted.excluded, None);
        let leader = wanted.leader.as_ref().map(lead).transpose()?;
        let event = perf::open_on_cpu(&wanted.event, cpu, wanted.excluded, leader.as_ref())?;
        let page = usize::try_from(crate::sys::limits::base_page()?.0)
            .map_err(|_too_large| Errno::INVAL)?;
        let order =
            u8::try_from((RING_BYTES / page).max(1).ilog2()).map_err(|_too_large| Errno::INVAL)?;
        Ok(Self {
            ring: Ring::map(&event, page, order)?,
            _event: event,
            _leader: leader,
        })
    }
}

/// Processors that are online.
fn online(sys: &SysRoot) -> Result<Vec<u32>, SamplerUnavailable> {
    let path = sys.path("devices/system/cpu/online");
    let list = read(&path).and_then(|text| understood(&path, meminfo::parse_node_list(&text)));
    match list {
        Ok(list) => Ok(list.into_iter().map(|cpu| u32::from(cpu.0)).collect()),
        Err(error) => Err(SamplerUnavailable::Absent(format!(
            "the processors cannot be listed: {error}"
        ))),
    }
}
