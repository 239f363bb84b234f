//! Tries a tracker on the kernel that runs: a child process accesses a known share of each of its slots in a loop, and
//! the readings must say so.
//!
//! `tracker_live check virtual|physical [--take-damon]` ends with 0 if they do. `tracker_live measure SLOTS PRESENT` shows
//! what following so many slots costs of which so many are present in base pages. `tracker_live best` says which tracker
//! this kernel has. `tracker_live crash` kills a tracker and recovers what it left. It is for guests: it sets THP switches (and restores them).

use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, Pid, ProcessId, SlotId};
use hugepilot_core::units::{Instant, Span};
use hugepilot_linux::journal::{Journal, value};
use hugepilot_linux::procfs::{ProcRoot, SysRoot, stat};
use hugepilot_linux::sys::time;
use hugepilot_linux::tracker::damon::Bounds;
use hugepilot_linux::tracker::{
    AccessTracker, DamonTracker, Roots, Space, TakeDamon, TrackedSlot, probe_best,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const GEOMETRY: Geometry = Geometry::X86_64;
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const PERIOD: Span = Span::secs(2);
/// Enough for eight readings under software emulation.
const DEADLINE: Span = Span::secs(60);
const READINGS: usize = 8;
/// Slots that the child accesses: a third in full, a third in half, a third not after the first time.
const SLOTS: u64 = 12;
/// The child goes on accessing these; those beyond are only present.
const LIVELY: usize = 12;
/// How far a mean may be from what the child does: four standard deviations of 64 looks at one half.
const TOLERANCE: f64 = 0.25;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["touch", slots, present] => touch(slots, present),
        ["check", space] => check(space, TakeDamon::No),
        ["check", space, "--take-damon"] => check(space, TakeDamon::FromStatistics),
        ["measure", slots, present] => measure(slots, present),
        ["best"] => best(),
        ["hold"] => hold(),
        ["crash"] => crash(),
        _ => Err(
            "usage: tracker_live check virtual|physical [--take-damon] | measure SLOTS PRESENT | best | crash"
                .into(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tracker_live: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The child: says where its slots lie, then accesses them until it is killed.
fn touch(slots: &str, present: &str) -> Result<()> {
    let (slots, present): (usize, usize) = (slots.parse()?, present.parse()?);
    let slot = usize::try_from(GEOMETRY.slot().0)?;
    let mut memory = vec![0_u8; (slots + 1) * slot];
    let skip = memory.as_ptr().align_offset(slot);
    let memory = &mut memory[skip..skip + slots * slot];
    let touched = present.min(slots) * slot;
    memory[..touched]
        .iter_mut()
        .step_by(4096)
        .for_each(|byte| *byte = 1);
    println!("{}", memory.as_ptr().addr());
    std::io::stdout().flush()?;
    loop {
        for (index, one) in memory[..touched].chunks_mut(slot).take(LIVELY).enumerate() {
            let length = match index % 3 {
                0 => slot,
                1 => slot / 2,
                _ => 0,
            };
            one[..length]
                .iter_mut()
                .step_by(4096)
                .for_each(|byte| *byte = byte.wrapping_add(1));
        }
        flush_translations();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Unmaps enough for the kernel to flush this process's TLB. A page whose translation never leaves the TLB keeps its
/// accessed bit clear however often it is accessed, and an emulated TLB with a processor to itself keeps everything.
fn flush_translations() {
    /// More than the allocator ever keeps for the next time.
    const BYTES: usize = 40 << 20;
    let mut memory = std::hint::black_box(vec![0_u8; BYTES]);
    memory[0] = 1;
    memory[BYTES - 1] = 1;
    drop(std::hint::black_box(memory));
}

/// A child that touches, killed when dropped.
struct Toucher {
    child: Child,
    process: ProcessId,
    address: u64,
}

impl Toucher {
    fn start(slots: u64, present: u64) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["touch", &slots.to_string(), &present.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
        let pid = Pid(child.id());
        let stat = stat::parse(&std::fs::read(format!("/proc/{pid}/stat"))?)?;
        let process = ProcessId {
            pid,
            start_ticks: stat.start_ticks,
        };
        let address = line.trim().parse()?;
        Ok(Self {
            child,
            process,
            address,
        })
    }

    fn slots(&self, count: u64, huge: bool) -> Vec<TrackedSlot> {
        let object = ObjectId::Private(self.process);
        let first = self.address >> GEOMETRY.slot_shift();
        (first..first + count)
            .map(|index| TrackedSlot {
                slot: SlotId { object, index },
                process: self.process,
                address: index << GEOMETRY.slot_shift(),
                bytes: GEOMETRY.slot(),
                huge,
            })
            .collect()
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        let _already_dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn roots() -> Roots {
    Roots {
        sys: SysRoot::default(),
        proc: ProcRoot::default(),
        geometry: GEOMETRY,
    }
}

fn check(space: &str, take: TakeDamon) -> Result<()> {
    let space = match space {
        "virtual" => Space::Virtual,
        "physical" => Space::Physical,
        other => return Err(format!("{other} is neither virtual nor physical").into()),
    };
    let journal = Journal::open(Path::new("/run/hugepilot-example"))?;
    let mut kinds = vec![("always", true)];
    if space == Space::Virtual {
        kinds.push(("never", false));
    }
    for (enabled, huge) in kinds {
        journal.set(Path::new(ENABLED), enabled)?;
        let toucher = Toucher::start(SLOTS, SLOTS)?;
        let mut tracker = DamonTracker::take(&roots(), &journal, space, take)?;
        tracker.track(&toucher.slots(SLOTS, huge), PERIOD);
        let readings = collect(&mut tracker, SLOTS)?;
        judge(&readings, &toucher, huge)?;
    }
    for restored in journal.restore() {
        println!("{restored}");
    }
    Ok(())
}

/// At least [`READINGS`] readings of each of `slots` slots.
fn collect(tracker: &mut DamonTracker, slots: u64) -> Result<BTreeMap<u64, Vec<f64>>> {
    let mut readings: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let deadline = time::since_boot().after(DEADLINE);
    loop {
        let at = time::since_boot();
        for (slot, accessed) in tracker.poll(at) {
            readings
                .entry(slot.index)
                .or_default()
                .push(accessed.share.get());
        }
        let enough = readings
            .values()
            .filter(|of_one| of_one.len() >= READINGS)
            .count();
        if u64::try_from(enough)? == slots {
            return Ok(readings);
        }
        if at > deadline {
            return Err(format!("too few readings: {readings:?}, {:?}", tracker.blind()).into());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn judge(readings: &BTreeMap<u64, Vec<f64>>, toucher: &Toucher, huge: bool) -> Result<()> {
    let mut wrong = 0;
    for (index, shares) in readings {
        // The first reading may have begun before the child's first round.
        let shares = &shares[1..];
        #[expect(clippy::cast_precision_loss, reason = "a handful of readings")]
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let place = index - (toucher.address >> GEOMETRY.slot_shift());
        let expected = match (place % 3, huge) {
            (0, _) | (1, true) => 1.0,
            (1, false) => 0.5,
            (_, _) => 0.0,
        };
        let good = (mean - expected).abs() <= TOLERANCE;
        wrong += u32::from(!good);
        let verdict = if good { "" } else { "  WRONG" };
        println!("huge {huge}, slot {place}: read {mean:.2}, accessed {expected:.2}{verdict}");
    }
    if wrong > 0 {
        return Err(format!("{wrong} slots were read wrongly").into());
    }
    Ok(())
}

fn measure(slots: &str, present: &str) -> Result<()> {
    let count: u64 = slots.parse()?;
    let journal = Journal::open(Path::new("/run/hugepilot-example"))?;
    journal.set(Path::new(ENABLED), "never")?;
    let toucher = Toucher::start(count, present.parse()?)?;
    let mut tracker = DamonTracker::take(
        &roots(),
        &journal,
        Space::Virtual,
        TakeDamon::FromStatistics,
    )?
    .bounded(Bounds {
        regions_max: count,
        slots_max: usize::try_from(count)?,
    });
    tracker.track(&toucher.slots(count, false), PERIOD);
    let cpu = time::thread_cpu();
    tracker.poll(time::since_boot());
    println!(
        "{count} slots: set up in {} of our processor time",
        Span(time::thread_cpu().0 - cpu.0)
    );
    let thread = tracker.thread().ok_or("nothing is followed")?;
    let (began, before) = (time::since_boot(), kernel_cpu(thread)?);
    let (mut reading, mut read, mut periods) = (Span::ZERO, 0, 0);
    let mut resident = kernel_memory()?;
    while periods < 5 {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let cpu = time::thread_cpu();
        let got = tracker.poll(time::since_boot()).len();
        reading += Span(time::thread_cpu().0 - cpu.0);
        read += got;
        periods = read / usize::try_from(count)?;
        resident = resident.max(kernel_memory()?);
        if time::since_boot().since(began) > Span::secs(120) {
            return Err(format!("only {read} readings, {} lost", tracker.lost()).into());
        }
    }
    report(count, periods, read, reading, &tracker);
    let took = time::since_boot().since(began);
    let used = Span(kernel_cpu(thread)?.0 - before.0);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = 100.0 * used.0 as f64 / took.0 as f64;
    println!(
        "  kdamond: {used} in {took} ({share:.2} % of a processor), kernel slab {resident} KiB"
    );
    let (sysfs, files) = tried_regions()?;
    println!("  tried_regions: {sysfs} for {files} files");
    Ok(())
}

fn report(count: u64, periods: usize, read: usize, reading: Span, tracker: &DamonTracker) {
    println!(
        "  {read} readings in {periods} periods of {PERIOD}: {reading} of our processor time; {} regions a period of {count} set up, {} lost",
        tracker.counted() / u64::try_from(periods).unwrap_or(1).max(1),
        tracker.lost()
    );
}

/// What the same would cost through files: here just reading two settings of each region that we wrote.
fn tried_regions() -> Result<(Span, u64)> {
    let regions = Path::new("/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/targets/0/regions");
    let count: u64 = value::read(&regions.join("nr_regions"))?.parse()?;
    let cpu = time::thread_cpu();
    for index in 0..count {
        let region = regions.join(index.to_string());
        value::read(&region.join("start"))?;
        value::read(&region.join("end"))?;
    }
    Ok((Span(time::thread_cpu().0 - cpu.0), 2 * count))
}

fn kernel_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Slab:"))
        .ok_or("no Slab")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn kernel_cpu(thread: Pid) -> Result<Instant> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat"))?;
    let spent = text.split_ascii_whitespace().next().ok_or("no schedstat")?;
    Ok(Instant(spent.parse()?))
}

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

/// In a child: follows its own memory until it is killed.
fn hold() -> Result<()> {
    let journal = Journal::open(Path::new("/run/hugepilot-example"))?;
    let toucher = Toucher::start(SLOTS, SLOTS)?;
    let mut tracker = DamonTracker::take(
        &roots(),
        &journal,
        Space::Virtual,
        TakeDamon::FromStatistics,
    )?;
    tracker.track(&toucher.slots(SLOTS, false), PERIOD);
    tracker.poll(time::since_boot());
    println!("{:?}", tracker.thread());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// A tracker that is killed while its kdamond runs is recovered by the next one.
fn crash() -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("hold")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    let left = value::read(Path::new(KDAMONDS))?;
    println!("left behind: {left} kdamond(s), thread {}", line.trim());
    for restored in Journal::recover(Path::new("/run/hugepilot-example"))? {
        println!("{restored}");
    }
    match (left.as_str(), value::read(Path::new(KDAMONDS))?.as_str()) {
        ("1", "0") => Ok(()),
        (before, after) => Err(format!("{before} kdamonds before, {after} after recovery").into()),
    }
}

fn best() -> Result<()> {
    let journal = Journal::open(Path::new("/run/hugepilot-example"))?;
    let (tracker, blind) = probe_best(&roots(), &journal, TakeDamon::No);
    match tracker {
        Some(tracker) => println!("{:?}", tracker.kind()),
        None => println!("none"),
    }
    for spot in blind {
        println!("{}", spot.why);
    }
    Ok(())
}
