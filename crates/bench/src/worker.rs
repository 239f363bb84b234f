//! The process that is measured: touch, settle, read.
//!
//! It is started by the orchestrator, says `ready` with its pid, waits for a line on its standard input (by then it is
//! managed), works, and prints one JSON line a phase and its result at the end. It measures itself only: what
//! manages it is none of its business.
//!
//! Memory is written with a different word in each base page, so that no page is zero-filled and no kernel frees it at a
//! split. The closed loop's memory is given back before the open loop starts on fresh memory; the last loop's memory is
//! what settles and is read.

pub mod mmap_watch;
pub mod read;
pub mod settle;
pub mod touch;

use crate::clock::{Clock, ClockKind, monotonic};
use crate::error::BenchError;
use crate::latency::{Latencies, LatencySummary};
use crate::sys::{self, Mapping};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::{BasePages, Bytes, Instant, Span};
use mmap_watch::{MmapWatch, Quiet};
use read::ReadResult;
use serde::{Deserialize, Serialize};
use settle::SettleResult;
use std::io::{BufRead, Write};
use std::sync::Arc;
use touch::{Pace, TouchResult};

/// A touch that takes longer is a stall: two hundred times an ordinary one, and less than a huge page takes to zero on
/// a slow machine.
pub const STALL: Span = Span::micros(100);

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// How much memory it touches in each loop: a multiple of a slot.
    pub bytes: Bytes,
    /// Touch in a closed loop?
    pub closed: bool,
    /// Touch in an open loop at this rate?
    pub open_per_s: Option<u32>,
    /// After the last touch, wait this long at most.
    pub settle_ns_max: Span,
    /// Stop waiting when this share of the memory is huge; without it, wait the whole time.
    pub settle_share: Option<f64>,
    /// Read at random this long, half of it dependent, half independent.
    pub read_ns: Span,
    /// Time the own mmap and munmap in a second thread while settling?
    pub mmap_watch: bool,
    /// Seed of the random reads.
    pub seed: u64,
}

/// What a worker measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerResult {
    /// The clock of the touches.
    pub clock: ClockKind,
    /// What reading it costs.
    pub clock_overhead_ns: Span,
    /// Was the histogram's memory locked? Without the right to lock, it is only present.
    pub memory_locked: bool,
    /// The closed loop.
    pub closed: Option<TouchResult>,
    /// The open loop.
    pub open: Option<TouchResult>,
    /// After the last touch.
    pub settle: SettleResult,
    /// mmap + munmap of the own process while settling.
    pub mmap: Option<LatencySummary>,
    /// Random reads.
    pub reads: Option<ReadResult>,
}

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Touching in a closed loop.
    Closed,
    /// Touching in an open loop.
    Open,
    /// Waiting after the last touch.
    Settle,
    /// Reading at random.
    Read,
}

/// A line of a worker's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum WorkerEvent {
    /// It waits for a line on its standard input.
    Ready {
        /// Itself.
        pid: u32,
    },
    /// A phase begins.
    Begins {
        /// Which.
        phase: Phase,
        /// By CLOCK_MONOTONIC.
        at_ns: Instant,
    },
    /// All is measured.
    Done {
        /// The figures.
        result: Box<WorkerResult>,
    },
}

impl WorkerSpec {
    /// Does it mean something?
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<(), BenchError> {
        let slot = Geometry::X86_64.slot().0;
        if self.bytes.0 == 0 || self.bytes.0 % slot != 0 {
            return Err(BenchError::Spec("the size must be a multiple of 2 MiB"));
        }
        if !self.closed && self.open_per_s.is_none() {
            return Err(BenchError::Spec(
                "nothing to touch: ask for a closed or an open loop",
            ));
        }
        if self.open_per_s == Some(0) {
            return Err(BenchError::Spec(
                "an open loop needs a rate of at least one touch a second",
            ));
        }
        Ok(())
    }
}

/// The whole life of a worker, with `input` and `output` as the pipes to its orchestrator.
///
/// # Errors
/// If memory cannot be mapped, the own /proc cannot be read, or the orchestrator is gone.
pub fn run(
    spec: &WorkerSpec,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<(), BenchError> {
    spec.check()?;
    let clock = Clock::calibrated();
    let mut latencies = [Latencies::new()?, Latencies::new()?];
    let memory_locked = sys::lock_present_mappings().is_ok();
    let pid = std::process::id();
    say(&mut output, &WorkerEvent::Ready { pid })?;
    wait_for_a_line(input)?;
    let [closed, open] = &mut latencies;
    let mut begins = |phase| {
        let at_ns = monotonic();
        say(&mut output, &WorkerEvent::Begins { phase, at_ns })
    };

    let mut memory = None;
    let mut closed_result = None;
    if spec.closed {
        begins(Phase::Closed)?;
        let fresh = memory.insert(SlotMemory::map(spec.bytes)?);
        closed_result = Some(touch::touch(fresh, Pace::Closed, &clock, closed)?);
    }
    let mut open_result = None;
    if let Some(per_second) = spec.open_per_s {
        drop(memory.take());
        begins(Phase::Open)?;
        let fresh = memory.insert(SlotMemory::map(spec.bytes)?);
        open_result = Some(touch::touch(
            fresh,
            Pace::Open { per_second },
            &clock,
            open,
        )?);
    }
    let memory = memory.ok_or(BenchError::Spec("nothing was touched"))?;
    begins(Phase::Settle)?;
    let quiet = Arc::new(Quiet::default());
    let watch = spec
        .mmap_watch
        .then(|| MmapWatch::start(clock, Arc::clone(&quiet)));
    let watch = watch.transpose()?;
    let settle = settle::settle(spec, &quiet)?;
    let mmap = watch.map(MmapWatch::stop).transpose()?;
    begins(Phase::Read)?;
    let reads = (spec.read_ns > Span::ZERO).then(|| read::read(&memory, spec, &clock));
    let result = Box::new(WorkerResult {
        clock: clock.kind(),
        clock_overhead_ns: clock.overhead(),
        memory_locked,
        closed: closed_result,
        open: open_result,
        settle,
        mmap,
        reads,
    });
    say(&mut output, &WorkerEvent::Done { result })
}

fn say(mut output: impl Write, event: &WorkerEvent) -> Result<(), BenchError> {
    let failed = |source| BenchError::Io {
        what: "telling the orchestrator",
        source,
    };
    serde_json::to_writer(&mut output, event).map_err(|error| failed(error.into()))?;
    output.write_all(b"\n").map_err(failed)?;
    output.flush().map_err(failed)
}

fn wait_for_a_line(mut input: impl BufRead) -> Result<(), BenchError> {
    let mut line = String::new();
    let read = input
        .read_line(&mut line)
        .map_err(|source| BenchError::Io {
            what: "waiting for the word to begin",
            source,
        })?;
    match read {
        0 => Err(BenchError::Spec(
            "the orchestrator went away before the start",
        )),
        _ => Ok(()),
    }
}

/// Memory that starts at a slot's border.
#[derive(Debug)]
pub struct SlotMemory {
    mapping: Mapping,
    offset: usize,
    bytes: Bytes,
}

impl SlotMemory {
    /// Maps `bytes`, nothing of it present.
    ///
    /// # Errors
    /// If the kernel has no room.
    pub fn map(bytes: Bytes) -> Result<Self, BenchError> {
        let slot = as_len(Geometry::X86_64.slot());
        let mapping = Mapping::anonymous(as_len(bytes) + slot)
            .map_err(|source| BenchError::Map { bytes, source })?;
        let offset = mapping.address().next_multiple_of(slot) - mapping.address();
        Ok(Self {
            mapping,
            offset,
            bytes,
        })
    }

    /// Its length.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Its length in base pages.
    #[must_use]
    pub const fn base_pages(&self) -> BasePages {
        BasePages(self.bytes.0 >> Geometry::X86_64.base_shift)
    }

    /// Writes one word to the start of base page `page`.
    #[inline]
    pub fn touch(&mut self, page: BasePages) {
        let at = self.offset + as_len(Geometry::X86_64.bytes(page));
        self.mapping.write(at, page.0 + 1);
    }

    /// Its length in cache lines.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.bytes.0 / CACHE_LINE.0
    }

    /// Reads the first word of cache line `line`.
    #[inline]
    #[must_use]
    pub fn read_line(&self, line: u64) -> u64 {
        let at = self.offset + as_len(Bytes(line * CACHE_LINE.0));
        self.mapping.read(at)
    }
}

/// Bytes of a cache line on every x86-64 processor.
pub const CACHE_LINE: Bytes = Bytes(64);

fn as_len(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).expect("a 64-bit machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: WorkerSpec = WorkerSpec {
        bytes: Bytes::mib(4),
        closed: true,
        open_per_s: Some(1_000_000),
        settle_ns_max: Span::millis(1),
        settle_share: None,
        read_ns: Span::millis(2),
        mmap_watch: true,
        seed: 1,
    };

    fn events(spec: &WorkerSpec) -> Vec<WorkerEvent> {
        let mut output = Vec::new();
        run(spec, &b"go\n"[..], &mut output).expect("a small run");
        let text = String::from_utf8(output).expect("JSON is text");
        let parse = |line| serde_json::from_str(line).expect("an event a line");
        text.lines().map(parse).collect()
    }

    #[test]
    fn every_base_page_is_timed_in_both_loops_and_all_phases_are_told() {
        let events = events(&SMALL);
        assert!(matches!(events.first(), Some(WorkerEvent::Ready { .. })));
        let phases: Vec<Phase> = events
            .iter()
            .filter_map(|event| match event {
                WorkerEvent::Begins { phase, .. } => Some(*phase),
                WorkerEvent::Ready { .. } | WorkerEvent::Done { .. } => None,
            })
            .collect();
        assert_eq!(
            phases,
            [Phase::Closed, Phase::Open, Phase::Settle, Phase::Read]
        );
        let Some(WorkerEvent::Done { result }) = events.last() else {
            panic!("no result: {events:?}");
        };
        let count = |touches: &Option<TouchResult>| touches.map(|touches| touches.latency.count);
        assert_eq!(count(&result.closed), Some(1024));
        assert_eq!(count(&result.open), Some(1024));
        assert!(result.reads.expect("reads").dependent.accesses > 0);
        assert!(result.mmap.is_some());
    }

    #[test]
    fn an_orchestrator_that_goes_away_ends_it() {
        run(&SMALL, &b""[..], Vec::new()).expect_err("nobody says go");
    }

    #[test]
    fn meaningless_orders_are_refused() {
        let odd = WorkerSpec {
            bytes: Bytes::mib(3),
            ..SMALL
        };
        let idle = WorkerSpec {
            closed: false,
            open_per_s: None,
            ..SMALL
        };
        let still = WorkerSpec {
            open_per_s: Some(0),
            ..SMALL
        };
        for spec in [odd, idle, still] {
            spec.check().expect_err("refused");
        }
    }

    #[test]
    fn memory_starts_at_a_slot() {
        let memory = SlotMemory::map(Bytes::mib(2)).expect("one slot");
        let start = memory.mapping.address() + memory.offset;
        assert_eq!(start % (2 << 20), 0);
        assert_eq!(memory.base_pages(), BasePages(512));
    }
}
