//! `hugepilot bench watch`: what watching costs, of processors and of memory.
//!
//! Holders have memory of a given shape and do nothing, or fault a little; a manager watches them and may not act
//! (`--dry-run`). Once its first sweep is over, its processor time is read from the scheduler's own count. Slots are
//! touched so that no policy wants to collapse them: what is timed is watching alone.

use super::holder::{Holder, Killed};
use super::interrupt::Interrupt;
use super::machine;
use super::{die_with_parent, own_program, size};
use anyhow::{Context, bail};
use hugepilot_bench::hold::{self, HoldSpec};
use hugepilot_bench::table;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::units::{BasePages, Bytes, Span};
use serde::Serialize;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// `bench watch`.
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// Memory of the large holder
    #[arg(long, default_value = "8GiB", value_parser = size::parse)]
    size: Bytes,
    /// Processes that share half of it
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2000))]
    sharers: u32,
    /// Processes of the largest crowd
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    crowd: u32,
    /// Only the cases whose names hold this
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Seconds that each case is timed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Base pages of a slot that no policy collapses: 78 %, below every threshold.
const PAGES_DENSE: BasePages = BasePages(400);
/// Address space of the sparse holders, to weigh what a slot costs in memory: 32,768 slots, and twice as many.
const SPARSE: Bytes = Bytes::gib(64);
const SPARSE_TWICE: Bytes = Bytes::gib(128);
/// The cases of these two.
const SPARSE_CASE: &str = "one base page in each slot";
/// A busy holder faults so often.
const FAULT_EVERY: Span = Span::millis(10);
/// The first sweep and what it learns is over after this.
const WARM_UP: Duration = Duration::from_secs(30);

/// One case: so many holders of one shape.
#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    holders: u32,
    spec: HoldSpec,
    /// All map one file of `spec.bytes`.
    shared: bool,
}

/// What one case cost.
#[derive(Debug, Clone, Serialize)]
struct Figure {
    case: &'static str,
    processes: u32,
    bytes_each: Bytes,
    /// Processor time over time, of one core.
    cpu_share: f64,
    /// The manager's private memory at the end.
    manager_bytes: Bytes,
}

/// Runs it.
///
/// # Errors
/// Without root or room, or if a holder or the manager fails.
pub fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    machine::require_root("watches processes through a manager")?;
    let needed = args.size + Bytes::gib(1);
    let available = machine::memory_available()?;
    if available < needed {
        bail!("{available} of memory are available and {needed} are needed: use a smaller --size");
    }
    let interrupt = Interrupt::install()?;
    let mut cases = cases(args);
    cases.retain(|case| case.name.contains(&args.case));
    if cases.is_empty() {
        bail!(
            "no case has {:?} in its name: leave --case out to see all names",
            args.case
        );
    }
    let bar = super::progress(cases.len() as u64);
    let mut figures = Vec::new();
    for case in cases {
        bar.set_message(case.name);
        figures.push(measure(
            &case,
            Duration::from_secs(args.seconds),
            &interrupt,
        )?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(&figures, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn cases(args: &WatchArgs) -> Vec<Case> {
    let spec = |bytes: Bytes, pages_per_slot: BasePages| HoldSpec {
        bytes,
        pages_per_slot,
        huge: false,
        file: None,
        fault_every: Span::ZERO,
    };
    let case = |name, holders, spec| Case {
        name,
        holders,
        spec,
        shared: false,
    };
    let base = spec(args.size, PAGES_DENSE);
    let huge = HoldSpec {
        huge: true,
        ..base.clone()
    };
    let busy = |spec: &HoldSpec| HoldSpec {
        fault_every: FAULT_EVERY,
        ..spec.clone()
    };
    let half = spec(Bytes(args.size.0 / 2), PAGES_DENSE);
    let slot = Geometry::X86_64.slot();
    vec![
        case("one small process", 1, spec(slot, BasePages(1))),
        case("base pages, quiet", 1, base.clone()),
        case("base pages, faulting", 1, busy(&base)),
        case("huge pages, quiet", 1, huge.clone()),
        case("huge pages, faulting", 1, busy(&huge)),
        Case {
            shared: true,
            ..case("shared memory, one process", 1, half.clone())
        },
        Case {
            shared: true,
            ..case("shared memory, many processes", args.sharers, half)
        },
        case(
            "a crowd of small processes",
            args.crowd,
            spec(slot, BasePages(1)),
        ),
        case(SPARSE_CASE, 1, spec(SPARSE, BasePages(1))),
        case(SPARSE_CASE, 1, spec(SPARSE_TWICE, BasePages(1))),
    ]
}

/// Is a holder: the hidden subcommand.
///
/// # Errors
/// If the orders mean nothing or there is no room.
pub fn hold(spec: &str) -> anyhow::Result<ExitCode> {
    let spec: HoldSpec = serde_json::from_str(spec).context("a holder's orders are JSON")?;
    die_with_parent()?;
    let _held = hold::hold(&spec)?;
    println!("held");
    loop {
        if spec.fault_every == Span::ZERO {
            std::thread::park();
        } else {
            hold::fault()?;
            std::thread::sleep(Duration::from_nanos(spec.fault_every.0));
        }
    }
}

fn measure(case: &Case, time: Duration, interrupt: &Interrupt) -> anyhow::Result<Figure> {
    let (_file, spec) = shared_file(case)?;
    let holders = (0..case.holders)
        .map(|_| holder(&spec))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for holder in &holders {
        holder.wait(interrupt)?;
    }
    let manager = Killed(manager(holders.iter().map(Holder::pid))?);
    let pid = manager.0.id();
    interrupt.sleep(WARM_UP)?;
    let (cpu, began) = (processor_time(pid)?, Instant::now());
    interrupt.sleep(time)?;
    let used = processor_time(pid)?.growth_since(cpu);
    Ok(Figure {
        case: case.name,
        processes: case.holders,
        bytes_each: case.spec.bytes,
        cpu_share: used.as_secs_f64() / began.elapsed().as_secs_f64(),
        manager_bytes: private_memory(pid)?,
    })
}

/// The file that all holders of a case share, and their orders with it.
fn shared_file(case: &Case) -> anyhow::Result<(Option<File>, HoldSpec)> {
    if !case.shared {
        return Ok((None, case.spec.clone()));
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(
        rustix::fs::memfd_create("hugepilot-bench", flags).context("cannot make shared memory")?,
    );
    file.set_len(case.spec.bytes.0)
        .context("cannot make shared memory")?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let spec = HoldSpec {
        file: Some(path.into()),
        ..case.spec.clone()
    };
    Ok((Some(file), spec))
}

fn holder(spec: &HoldSpec) -> anyhow::Result<Holder> {
    let mut command = own_program();
    command
        .args(["bench", "hold"])
        .arg(serde_json::to_string(spec)?);
    Holder::start(&mut command)
}

fn manager(pids: impl Iterator<Item = u32>) -> anyhow::Result<Child> {
    let mut command = own_program();
    command.args(["manage", "--policy", "mega", "--dry-run"]);
    for pid in pids {
        command.args(["--pid", &pid.to_string()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().context("cannot start the manager")
}

/// The scheduler's count of a process's time on a processor, all threads.
fn processor_time(pid: u32) -> anyhow::Result<Span> {
    let tasks =
        std::fs::read_dir(format!("/proc/{pid}/task")).context("the manager ended too early")?;
    let mut sum = Span::ZERO;
    for task in tasks {
        let path = task?.path().join("schedstat");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let first = text
            .split_whitespace()
            .next()
            .context("an empty schedstat")?;
        sum += Span(first.parse().context("a schedstat that is no number")?);
    }
    Ok(sum)
}

fn private_memory(pid: u32) -> anyhow::Result<Bytes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .context("the manager ended too early")?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse().ok());
    kib.map(Bytes::kib)
        .context("/proc/PID/status has no RssAnon")
}

fn print(figures: &[Figure], json: bool) -> anyhow::Result<()> {
    let per_slot = bytes_per_slot(figures);
    if json {
        let report = serde_json::json!({"watch": figures, "manager_bytes_per_slot": per_slot});
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let head = [
        "case",
        "processes",
        "memory each",
        "share of one core",
        "manager's memory",
    ]
    .map(str::to_owned);
    let row = |figure: &Figure| {
        vec![
            figure.case.to_owned(),
            figure.processes.to_string(),
            figure.bytes_each.to_string(),
            format!("{:.3} %", figure.cpu_share * 100.0),
            figure.manager_bytes.to_string(),
        ]
    };
    print!(
        "{}",
        table::render(&head, &figures.iter().map(row).collect::<Vec<_>>())
    );
    if let Some(per_slot) = per_slot {
        println!(
            "\nA slot costs the manager {per_slot:.1} bytes (the last case against the one before)."
        );
    }
    Ok(())
}

/// What a slot costs: what the manager of the larger sparse holder has more than that of the smaller one.
fn bytes_per_slot(figures: &[Figure]) -> Option<f64> {
    let sparse: Vec<&Figure> = figures
        .iter()
        .filter(|figure| figure.case == SPARSE_CASE)
        .collect();
    let [smaller, larger] = sparse[..] else {
        return None;
    };
    let slots = (larger.bytes_each - smaller.bytes_each).0 / Geometry::X86_64.slot().0;
    #[expect(clippy::cast_precision_loss, reason = "a mean, shown with one decimal")]
    let mean = larger.manager_bytes.growth_since(smaller.manager_bytes).0 as f64 / slots as f64;
    Some(mean)
}
