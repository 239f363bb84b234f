//! Tries the NUMA side of the machine on the kernel that runs: for guests with several nodes, one processor each or more.
//!
//! `numa_live hinting base|huge`: a child touches memory from one thread, then accesses it from two, one every even base
//! page and one every odd; the samples must say so, and first touches must be told from the rest.
//! `numa_live virtual`: the same by the hypervisor's samples, in a guest that has the virtual PMU. `numa_live crash` kills a run that set `kernel.numa_balancing`, and
//! restores it. `numa_live faults`: a child that does nothing but fault spends more of its time so than one that does not.
//! All switches are found as they were.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{CpuId, ObjectId, Pid, SlotRange, Tid};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::sample::{Sample, Sampler};
use hugepilot_core::units::{Instant, Ratio, Span};
use hugepilot_linux::actuators::switches::{SwitchRoots, Switches, SysSwitch};
use hugepilot_linux::journal::{Journal, value};
use hugepilot_linux::machine::LiveMachine;
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use hugepilot_linux::sampler::choice::{Choice, Kind, Places, Wish, choose};
use hugepilot_linux::sampler::virtual_ibs::device;
use hugepilot_linux::sensors::fault_time::FaultTime;
use hugepilot_linux::sensors::nodes::Topology;
use hugepilot_linux::sensors::selection::Selection;
use hugepilot_linux::sensors::walks::WalkCounters;
use hugepilot_linux::sys::time;
use hugepilot_vpmu::Thread;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const GEOMETRY: Geometry = Geometry::X86_64;
const JOURNAL: &str = "/run/hugepilot-example";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Slots that the child accesses.
const SLOTS: usize = 8;
/// Under software emulation, where the kernel's scan begins only after a second of a thread's processor time.
const DEADLINE: Span = Span::secs(120);
/// Samples of each thread that must have come.
const SAMPLES: usize = 200;
/// The same under huge pages, where a slot faults once a scan.
const SAMPLES_HUGE: usize = 12;
/// Between two looks.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["access"] => access(),
        ["hinting", "base"] => hinting("never", SAMPLES),
        ["hinting", "huge"] => hinting("always", SAMPLES_HUGE),
        ["virtual"] => virtual_ibs(),
        ["fault"] => fault(),
        ["faults"] => faults(),
        ["hold"] => hold(),
        ["crash"] => crash(),
        _ => Err("usage: numa_live hinting base|huge | virtual | faults | crash".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("numa_live: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The child: says where its memory lies; at a first line touches it, at a second accesses it from two threads until it is
/// killed. Answers each line with one.
fn access() -> Result<()> {
    let slot = usize::try_from(GEOMETRY.slot().0)?;
    // Untouched: zeroed memory of that size comes fresh from the kernel.
    let mut memory = vec![0_u8; (SLOTS + 1) * slot];
    let skip = memory.as_ptr().align_offset(slot);
    let memory = &mut memory[skip..skip + SLOTS * slot];
    let mut lines = std::io::stdin().lines();
    pin(0)?;
    say(&memory.as_ptr().addr())?;
    lines.next().ok_or("told nothing")??;
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    say(&"touched")?;
    lines.next().ok_or("told nothing more")??;
    let (mut even, mut odd) = (Vec::new(), Vec::new());
    for pair in memory.chunks_mut(2 * 4096) {
        let (first, second) = pair.split_at_mut(4096);
        even.push(first);
        odd.push(second);
    }
    std::thread::scope(|scope| {
        let threads = [(0, even), (1, odd)]
            .map(|(parity, pages)| scope.spawn(move || use_pages(parity, pages)));
        let [first, second] = threads.map(|thread| thread.join().expect("no panic"));
        first.and(second)
    })?;
    Ok(())
}

/// A thread: accesses its pages until it is killed.
fn use_pages(parity: usize, mut pages: Vec<&mut [u8]>) -> std::io::Result<()> {
    pin(parity + 1)?;
    say(&format!(
        "{parity} {}",
        rustix::thread::gettid().as_raw_nonzero()
    ))?;
    loop {
        for page in &mut pages {
            page[0] = std::hint::black_box(page[0]).wrapping_add(1);
        }
    }
}

fn say(what: &dyn std::fmt::Display) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{what}")?;
    out.flush()
}

/// The child, killed when dropped.
struct Accessor {
    child: Child,
    lines: BufReader<ChildStdout>,
    input: ChildStdin,
    address: u64,
}

impl Accessor {
    fn start() -> Result<Self> {
        Self::start_as("access")
    }

    fn start_as(what: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let input = child.stdin.take().ok_or("no pipe")?;
        let mut accessor = Self {
            child,
            lines,
            input,
            address: 0,
        };
        accessor.address = accessor.line()?.parse()?;
        Ok(accessor)
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn tell(&mut self) -> Result<()> {
        Ok(writeln!(self.input, "go")?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// The threads, by the parity of their pages.
    fn threads(&mut self) -> Result<BTreeMap<Tid, u64>> {
        let mut threads = BTreeMap::new();
        for _ in 0..2 {
            let line = self.line()?;
            let (parity, tid) = line.split_once(' ').ok_or("no thread")?;
            threads.insert(Tid(tid.parse()?), parity.parse()?);
        }
        Ok(threads)
    }

    fn tables(&self, machine: &LiveMachine) -> Look {
        Look::PageTables(SlotRange {
            object: ObjectId::Private(machine.watched()[0]),
            first: self.address >> GEOMETRY.slot_shift(),
            count: SLOTS as u64,
        })
    }

    fn holds(&self, sample: &Sample) -> bool {
        let first = self.address >> GEOMETRY.slot_shift();
        (first..first + SLOTS as u64).contains(&sample.slot.index)
    }
}

impl Drop for Accessor {
    fn drop(&mut self) {
        let _already_dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn chosen(kind: Kind) -> Result<Choice> {
    let places = Places {
        proc: ProcRoot::default(),
        sys: SysRoot::default(),
        geometry: GEOMETRY,
    };
    let choice = choose(Wish::Only(kind), &places);
    match choice.sampler {
        Some(_) => Ok(choice),
        None => Err(choice.reasons().collect::<Vec<_>>().join("; ").into()),
    }
}

fn machine(pid: Pid, choice: Choice) -> Result<LiveMachine> {
    Ok(LiveMachine::builder()
        .select(Selection::pid(pid))
        .watch_cpu_max(Ratio::ONE)
        .sample_cpu_max(Ratio::ONE)
        .sampler(choice.sampler)
        .build()?)
}

const SAMPLING: Look = Look::Sample {
    samples_max: 100_000,
};

fn hinting(thp: &str, wanted: usize) -> Result<()> {
    let journal = Journal::open(Path::new(JOURNAL))?;
    let switches = Switches::new(journal.clone(), SwitchRoots::default());
    switches.set(SysSwitch::ThpEnabled, thp)?;
    switches.set(SysSwitch::NumaBalancing, "1")?;
    let mut accessor = Accessor::start()?;
    let mut machine = machine(accessor.pid(), chosen(Kind::Hinting)?)?;
    machine.observe(&[SAMPLING])?;
    accessor.tell()?;
    accessor.line()?;
    // The samples come first, then the page tables are read.
    let touched = machine.observe(&[accessor.tables(&machine)])?.samples;
    let first: Vec<&Sample> = touched
        .taken
        .iter()
        .filter(|sample| accessor.holds(sample))
        .collect();
    accessor.tell()?;
    let threads = accessor.threads()?;
    check_first_touches(&first, thp)?;
    let (samples, lost) = collect(&mut machine, &accessor, &threads, wanted)?;
    judge(&samples, &threads)?;
    println!("{} samples, {lost} lost", samples.len());
    drop(accessor);
    for restored in journal.restore() {
        println!("{restored}");
    }
    Ok(())
}

/// All first touches are the main thread's, one for each page that came by itself.
fn check_first_touches(first: &[&Sample], thp: &str) -> Result<()> {
    let expected = match thp {
        "always" => SLOTS,
        _ => SLOTS * 512,
    };
    let told = first
        .iter()
        .filter(|sample| sample.sampler == Sampler::FirstTouch)
        .count();
    let cpu_0 = first.iter().all(|sample| sample.cpu == CpuId(0));
    println!(
        "{told} first touches of {expected}, {} others",
        first.len() - told
    );
    // A few may have come before the ring was read, or be lost to a fault in the kernel's name.
    if !cpu_0 || told * 100 < expected * 95 || told > expected || told != first.len() {
        return Err(format!(
            "first touches are not told: {told} of {expected}, all on CPU 0: {cpu_0}"
        )
        .into());
    }
    Ok(())
}

/// Samples of accesses by the two threads, until each has given `wanted`.
fn collect(
    machine: &mut LiveMachine,
    accessor: &Accessor,
    threads: &BTreeMap<Tid, u64>,
    wanted: usize,
) -> Result<(Vec<Sample>, u64)> {
    let deadline: Instant = time::since_boot().after(DEADLINE);
    let (mut samples, mut lost) = (Vec::new(), 0);
    loop {
        let seen = machine.observe(&[])?;
        lost += seen.samples.lost;
        let of_threads = seen.samples.taken.into_iter();
        samples.extend(
            of_threads
                .filter(|sample| accessor.holds(sample) && threads.contains_key(&sample.thread)),
        );
        let of = |tid: &Tid| {
            samples
                .iter()
                .filter(|sample: &&Sample| sample.thread == *tid)
                .count()
        };
        if threads.keys().all(|tid| of(tid) >= wanted) {
            println!("coverage {:?}", seen.samples.coverage);
            return Ok((samples, lost));
        }
        if seen.at > deadline {
            let counts: Vec<usize> = threads.keys().map(of).collect();
            return Err(
                format!("too few samples: {counts:?}, {lost} lost, {:?}", seen.blind).into(),
            );
        }
        std::thread::sleep(TICK);
    }
}

/// Every sample is of a page of its thread's parity, from the processor that the thread is pinned to.
fn judge(samples: &[Sample], threads: &BTreeMap<Tid, u64>) -> Result<()> {
    let mut by_thread: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    let mut wrong = 0;
    for sample in samples {
        let parity = threads[&sample.thread];
        let right = sample.base_page.0 % 2 == parity && u64::from(sample.cpu.0) == parity + 1;
        wrong += u64::from(!right);
        let told = match sample.sampler {
            Sampler::FirstTouch => "first touch",
            Sampler::Pebs | Sampler::Ibs | Sampler::Virtual | Sampler::HintingFault => "access",
        };
        *by_thread.entry((parity, told)).or_default() += 1;
    }
    let placed = samples
        .iter()
        .filter(|sample| sample.page_node.is_some())
        .count();
    println!("by thread: {by_thread:?}, {wrong} wrong, {placed} with the page's node");
    // A page that the kernel is moving just then has none.
    if placed * 2 < samples.len() {
        return Err("present pages have nodes".into());
    }
    let first_touches: u64 = [0, 1]
        .iter()
        .filter_map(|parity| by_thread.get(&(*parity, "first touch")))
        .sum();
    if wrong > 0 || first_touches > 0 {
        return Err(format!("{wrong} samples of another thread's pages, {first_touches} accesses taken for first touches").into());
    }
    Ok(())
}

/// The hypervisor's samples tell the threads apart as hinting faults do, and how often; and it counts their L2 misses.
fn virtual_ibs() -> Result<()> {
    let sys = SysRoot::default();
    let layout = device(&sys)?;
    let mut accessor = Accessor::start()?;
    let mut machine = LiveMachine::builder()
        .select(Selection::pid(accessor.pid()))
        .watch_cpu_max(Ratio::ONE)
        .sample_cpu_max(Ratio::ONE)
        .sampler(chosen(Kind::Virtual)?.sampler)
        .walks(Some(WalkCounters::probe(&sys)?))
        .build()?;
    accessor.tell()?;
    accessor.line()?;
    machine.observe(&[SAMPLING])?;
    machine.observe(&[accessor.tables(&machine)])?;
    accessor.tell()?;
    let threads = accessor.threads()?;
    for (tid, parity) in &threads {
        layout.publish_thread(&Thread {
            cpu: u32::try_from(parity + 1)?,
            pid: accessor.pid().0,
            tid: tid.0,
            addresses: 0..0,
            kind: hugepilot_vpmu::Kind::Workload,
        })?;
    }
    let (samples, lost) = collect(&mut machine, &accessor, &threads, SAMPLES)?;
    judge(&samples, &threads)?;
    println!("{} samples, {lost} lost", samples.len());
    if samples
        .iter()
        .any(|sample| sample.page_node.is_none() || sample.rate.is_none())
    {
        return Err("a sample without its page's node or its rate".into());
    }
    let deadline = time::since_boot().after(DEADLINE);
    loop {
        let seen = machine.observe(&[])?;
        let counted = seen
            .processes
            .iter()
            .find_map(|one| Some((one.l2_misses?, one.l2_misses_by_walks?)));
        if let Some((misses, by_walks)) = counted.filter(|(misses, _)| *misses > 0) {
            println!("{misses} L2 misses, {by_walks} by page walks");
            return Ok(());
        }
        if seen.at > deadline {
            return Err("no L2 miss was counted".into());
        }
        std::thread::sleep(TICK);
    }
}

/// In a child: takes memory, touches it and gives it back until it is killed.
fn fault() -> Result<()> {
    say(&0)?;
    loop {
        std::hint::black_box(vec![1_u8; 32 << 20]);
    }
}

fn faults() -> Result<()> {
    let sys = SysRoot::default();
    let cpus = Topology::read(&sys)?.cpus();
    let (faulter, idler) = (Accessor::start_as("fault")?, Accessor::start()?);
    let mut machine = LiveMachine::builder()
        .select(Selection {
            pids: vec![faulter.pid(), idler.pid()],
            ..Selection::default()
        })
        .watch_cpu_max(Ratio::ONE)
        .fault_time(Some(FaultTime::start(&sys, cpus)?))
        .build()?;
    let mut shares: BTreeMap<Pid, Ratio> = BTreeMap::new();
    let deadline = time::since_boot().after(DEADLINE);
    while shares.len() < 2 {
        let seen = machine.observe(&[])?;
        let known = seen
            .processes
            .iter()
            .filter_map(|one| Some((one.process.pid, one.fault_time_share_max?)));
        shares.extend(known);
        if seen.at > deadline {
            return Err(format!("shares of {} processes, {:?}", shares.len(), seen.blind).into());
        }
        std::thread::sleep(TICK);
    }
    let (busy, idle) = (shares[&faulter.pid()].get(), shares[&idler.pid()].get());
    println!("in faults: {busy:.3} of a processor's time, and {idle:.3}");
    if busy > 0.05 && idle < busy / 10.0 {
        Ok(())
    } else {
        Err("who faults and who does not is not told apart".into())
    }
}

/// In a child: turns the kernel's balancing on, and waits to be killed.
fn hold() -> Result<()> {
    let journal = Journal::open(Path::new(JOURNAL))?;
    let switches = Switches::new(journal, SwitchRoots::default());
    switches.set(SysSwitch::NumaBalancing, "1")?;
    say(&"set")?;
    loop {
        std::thread::park();
    }
}

/// What a killed run set is put back.
fn crash() -> Result<()> {
    std::fs::write(BALANCING, "0")?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("hold")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    let left = value::read(Path::new(BALANCING))?;
    for restored in Journal::recover(Path::new(JOURNAL))? {
        println!("{restored}");
    }
    match (left.as_str(), value::read(Path::new(BALANCING))?.as_str()) {
        ("1", "0") => Ok(()),
        (before, after) => {
            Err(format!("numa_balancing {before} after the kill, {after} after recovery").into())
        }
    }
}
