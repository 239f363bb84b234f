//! `guest-pmu`: makes memory accesses whose numbers are known by construction, to prove the virtual PMU.
//!
//! ```text
//! guest-pmu PHASE...          PHASE = ITEM[+ITEM...]     ITEM = THREAD/NODE/FIRST_PAGE/PAGES/LOADS
//! ```
//!
//! Thread N is pinned to the first CPU of node N. The memory of each node is bound to it and was touched before. In a
//! phase, each thread makes the loads of its items, one every cache line, around and around the pages: a loop of
//! [`INSTRUCTIONS_PER_LOAD`] instructions, with nothing else in it. Each phase is a window of its own; what comes before
//! the first is another. Nothing is measured here: the program does what it says, or fails.

mod device;
mod memory;
mod plan;

use std::io;
use std::process::ExitCode;
use std::sync::Barrier;

use hugepilot_vpmu::{Kind, Layout, Reader, Sampling, Thread};
use memory::Memory;
use plan::{Item, Phase};
use rustix::thread::{CpuSet, gettid, sched_setaffinity, sched_yield};

/// The loop: load, add, mask, decrement, jump.
pub const INSTRUCTIONS_PER_LOAD: u64 = 5;
/// Accesses of a thread per sample.
const PERIOD: u64 = 1_000;
/// Samples may differ from loads over period by this part.
const SAMPLES_TOLERANCE: u64 = 50;
/// The ring has more room than any window here has samples.
const RECORDS_MAX: usize = 1 << 16;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest-pmu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let phases: Vec<Phase> = std::env::args()
        .skip(1)
        .map(|text| plan::parse(&text))
        .collect::<io::Result<_>>()?;
    let cpus = first_cpus()?;
    let memory = Memory::new(cpus.len())?;
    let words = device::map()?;
    let layout = Layout::over(words).map_err(io::Error::other)?;
    let mut reader = Reader::new(layout);
    layout.set_sampling(Sampling {
        period_accesses: PERIOD,
        ..Sampling::default()
    });
    let barrier = Barrier::new(cpus.len() + 1);
    std::thread::scope(|scope| {
        let start = |(number, cpu): (usize, &u32)| {
            let (phases, memory, barrier, cpu) = (&phases, &memory, &barrier, *cpu);
            scope.spawn(move || work(number, cpu, phases, memory, layout, barrier))
        };
        let threads: Vec<_> = cpus.iter().enumerate().map(start).collect();
        conduct(layout, phases.len(), &barrier);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread panicked"))
    })?;
    check_samples(&mut reader, &phases)?;
    memory.check_places()
}

/// The guest's end of the virtual IBS: as many samples as there must be, from where the loads were.
fn check_samples(reader: &mut Reader<'_>, phases: &[Phase]) -> io::Result<()> {
    let taken = reader.read(RECORDS_MAX);
    let found = u64::try_from(taken.records.len()).expect("64 bits");
    let loads: u64 = phases.iter().flatten().map(|item| item.loads).sum();
    println!("{found} samples of {loads} loads, {} lost", taken.lost);
    let expected = loads / PERIOD;
    if taken.lost > 0 || found.abs_diff(expected) > expected / SAMPLES_TOLERANCE {
        return Err(io::Error::other(format!("{expected} samples were due")));
    }
    let astray = |record: &&hugepilot_vpmu::Record| {
        Memory::node_of(record.vaddr) != Some(record.memory_node) || record.store
    };
    match taken.records.iter().find(astray) {
        Some(record) => Err(io::Error::other(format!("a sample is wrong: {record:?}"))),
        None => Ok(()),
    }
}

/// Lets the threads do phase after phase, each in a window of its own.
fn conduct(layout: Layout<'_>, phases: usize, barrier: &Barrier) {
    barrier.wait();
    for phase in 0..phases {
        end_window(layout);
        layout.set_label(u64::try_from(phase + 1).expect("few phases"));
        barrier.wait();
        barrier.wait();
    }
    end_window(layout);
    barrier.wait();
}

fn end_window(layout: Layout<'_>) {
    let window = layout.next_window();
    while layout.windows_closed() < window {
        sched_yield();
    }
}

/// One thread's life. It waits as often as [`conduct`] does, also when something goes wrong.
fn work(
    number: usize,
    cpu: u32,
    phases: &[Phase],
    memory: &Memory,
    layout: Layout<'_>,
    barrier: &Barrier,
) -> io::Result<()> {
    let ready = pin(cpu).and_then(|()| {
        let thread = Thread {
            cpu,
            pid: std::process::id(),
            tid: gettid().as_raw_nonzero().get().unsigned_abs(),
            addresses: memory.addresses(),
            kind: Kind::Workload,
        };
        layout.publish_thread(&thread).map_err(io::Error::other)
    });
    barrier.wait();
    for phase in phases {
        barrier.wait();
        for item in phase.iter().filter(|item| item.thread == number) {
            load(memory, item);
        }
        barrier.wait();
    }
    barrier.wait();
    ready.map(|slot| layout.withdraw(slot))
}

fn load(memory: &Memory, item: &Item) {
    memory.load(item.node, item.first_page, item.pages, item.loads);
}

fn pin(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(usize::try_from(cpu).expect("64 bits"));
    Ok(sched_setaffinity(None, &set)?)
}

/// The first CPU of each node.
fn first_cpus() -> io::Result<Vec<u32>> {
    let mut cpus = Vec::new();
    loop {
        let path = format!("/sys/devices/system/node/node{}/cpulist", cpus.len());
        match std::fs::read_to_string(&path) {
            Ok(list) => {
                let digits = list.split(|letter: char| !letter.is_ascii_digit());
                let first = digits.into_iter().next().and_then(|cpu| cpu.parse().ok());
                cpus.push(first.ok_or_else(|| io::Error::other(format!("{path}: {list:?}")))?);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(cpus),
            Err(error) => return Err(error),
        }
    }
}
