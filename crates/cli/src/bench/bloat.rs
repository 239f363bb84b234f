//! `hugepilot bench bloat`: memory that huge pages hold and nobody uses, and what a policy brings back.
//!
//! A holder touches one base page in each slot, under never (what it takes) and under always (512 times as much). The
//! switch is put back, so that the kernel makes no further huge pages, and a policy manages the holder. What comes back
//! is read from the holder's own cgroup: resident size would fall before the memory does.

use super::holder::Holder;
use super::interrupt::Interrupt;
use super::manager::Manager;
use super::switches::Switches;
use super::{machine, own_program, size};
use crate::demo::cgroup::Cgroup;
use anyhow::{Context, bail};
use hugepilot_bench::hold::HoldSpec;
use hugepilot_bench::schedule::Mode;
use hugepilot_bench::table;
use hugepilot_core::units::{BasePages, Bytes, Span};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// `bench bloat`.
#[derive(Debug, clap::Args)]
pub struct BloatArgs {
    /// Address space of the holder: one base page in each 2 MiB of it is touched
    #[arg(long, default_value = "2GiB", value_parser = size::parse)]
    size: Bytes,
    /// Policies to compare
    #[arg(long, value_delimiter = ',', default_value = "mega,ingens")]
    modes: Vec<Mode>,
    /// Seconds that a policy has at most
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=3600))]
    settle: u64,
    /// A parameter of the policy, as `manage` takes it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Within this much of what base pages take, the memory counts as brought back.
const CLOSE: f64 = 1.05;
/// The cgroup is read so often.
const POLL: Duration = Duration::from_millis(250);

/// One holder's memory.
#[derive(Debug, Clone, Serialize)]
struct Figure {
    mode: String,
    /// Charged to its cgroup after the touches.
    touched_bytes: Bytes,
    /// Charged at the end.
    settled_bytes: Bytes,
    /// How long it took to come within 5 % of never's, if it did.
    seconds: Option<f64>,
    /// The manager's processor time.
    manager_cpu: Span,
}

/// Runs it.
///
/// # Errors
/// Without root or room, or if a holder or a manager fails.
pub fn run(args: &BloatArgs) -> anyhow::Result<ExitCode> {
    machine::require_root("sets the system's THP switch and manages a process")?;
    let needed = args.size + Bytes::mib(512);
    let available = machine::memory_available()?;
    if available < needed {
        bail!("{available} of memory are available and {needed} are needed: use a smaller --size");
    }
    let interrupt = Interrupt::install()?;
    let switches = Switches::open()?;
    switches.settle_base()?;
    let bar = super::progress(args.modes.len() as u64 + 2);
    let mut figures = Vec::new();
    for mode in [Mode::Never, Mode::Always].iter().chain(&args.modes) {
        bar.set_message(mode.to_string());
        let base = figures.first().map(|never: &Figure| never.settled_bytes);
        figures.push(measure(args, *mode, base, &switches, &interrupt)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(&figures, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(
    args: &BloatArgs,
    mode: Mode,
    base: Option<Bytes>,
    switches: &Switches,
    interrupt: &Interrupt,
) -> anyhow::Result<Figure> {
    let cgroup = Cgroup::new("bloat")?;
    let touching = match mode {
        Mode::Never => Mode::Never,
        Mode::Always | Mode::Mega | Mode::Ingens => Mode::Always,
    };
    let held = switches.hold(touching)?;
    let holder = holder(args, &cgroup)?;
    holder.wait(interrupt)?;
    drop(held);
    let touched_bytes = cgroup.charged()?;
    let manager = Manager::start_for(mode, holder.pid(), &args.sets, interrupt)?;
    let seconds = match (&manager, base) {
        (Some(_), Some(base)) => settle(args, &cgroup, base, interrupt)?,
        (Some(_), None) | (None, _) => None,
    };
    let manager_cpu = match manager {
        Some(manager) => manager.stop()?.cpu,
        None => Span::ZERO,
    };
    let mode = mode.to_string();
    Ok(Figure {
        mode,
        touched_bytes,
        settled_bytes: cgroup.charged()?,
        seconds,
        manager_cpu,
    })
}

fn holder(args: &BloatArgs, cgroup: &Cgroup) -> anyhow::Result<Holder> {
    let spec = HoldSpec {
        bytes: args.size,
        pages_per_slot: BasePages(1),
        huge: false,
        file: None,
        fault_every: Span::ZERO,
    };
    let own = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = own_program();
    command
        .args(["demo", "exec", "--cgroup"])
        .arg(cgroup.procs())
        .arg("--");
    command
        .arg(own)
        .args(["bench", "hold"])
        .arg(serde_json::to_string(&spec)?);
    Holder::start(&mut command)
}

/// Waits until the memory is back, or time is up.
fn settle(
    args: &BloatArgs,
    cgroup: &Cgroup,
    base: Bytes,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<f64>> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(args.settle) {
        #[expect(clippy::cast_precision_loss, reason = "a ratio of sizes")]
        let ratio = cgroup.charged()?.0 as f64 / base.0 as f64;
        if ratio <= CLOSE {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
        interrupt.sleep(POLL)?;
    }
    Ok(None)
}

fn print(figures: &[Figure], json: bool) -> anyhow::Result<()> {
    if json {
        println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({"bloat": figures}))?
        );
        return Ok(());
    }
    let head = [
        "mode",
        "touched",
        "settled",
        "against never",
        "back after",
        "manager CPU",
    ]
    .map(str::to_owned);
    let never = figures
        .first()
        .map_or(Bytes::ZERO, |figure| figure.settled_bytes);
    let row = |figure: &Figure| {
        #[expect(clippy::cast_precision_loss, reason = "a ratio of sizes")]
        let ratio = figure.settled_bytes.0 as f64 / never.0.max(1) as f64;
        vec![
            figure.mode.clone(),
            figure.touched_bytes.to_string(),
            figure.settled_bytes.to_string(),
            format!("{ratio:.2}"),
            figure
                .seconds
                .map_or("-".to_owned(), |seconds| format!("{seconds:.1} s")),
            figure.manager_cpu.to_string(),
        ]
    };
    print!(
        "{}",
        table::render(&head, &figures.iter().map(row).collect::<Vec<_>>())
    );
    Ok(())
}
