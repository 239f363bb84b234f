//! One mode's run: start, fill, settle, save, delete, settle.

use super::cgroup::Cgroup;
use super::load::{self, PacedWrites, Step};
use super::report::{Memory, Row, Saved};
use super::resp::Client;
use super::scratch::Scratch;
use super::server::Server;
use crate::bench::interrupt::Interrupt;
use crate::bench::manager::Manager;
use crate::bench::switches::Switches;
use anyhow::{Context, bail};
use hugepilot_bench::procfs;
use hugepilot_bench::schedule::Mode;
use hugepilot_core::units::{Bytes, Ratio, Span};
use indicatif::ProgressBar;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps of the progress bar a mode.
pub const STEPS: u64 = 100;
/// How long a manager has after the fill, and again after the deletion; every mode waits the same.
pub const SETTLE_DEFAULT_S: u64 = 10;
/// `always` must get at least this share, or the comparison shows nothing.
pub const ALWAYS_HUGE_MIN: f64 = 0.8;
/// Writes a second during the save.
const SAVE_WRITES_PER_S: u32 = 5_000;
/// And in all: one object in so many.
const SAVE_WRITES_ONE_OF: u32 = 20;
/// A save of a gigabyte takes seconds.
const SAVED_WITHIN: Duration = Duration::from_secs(300);
/// Between two questions whether the save is done.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks at the cgroup's counter during the save.
const PEAK_EVERY: Duration = Duration::from_millis(10);

/// Shares of a mode's time, for the progress bar.
const AFTER_FILL: u64 = 35;
const AFTER_SETTLE: u64 = 55;
const AFTER_SAVE: u64 = 70;
const AFTER_DELETE: u64 = 80;

/// What to run.
#[derive(Debug)]
pub struct Job<'a> {
    /// Who decides.
    pub mode: Mode,
    /// Objects.
    pub keys: u32,
    /// Parameters for the manager.
    pub sets: &'a [String],
    /// Time to settle.
    pub settle: Duration,
    /// The server's program.
    pub server: &'a Path,
    /// The system's switches.
    pub switches: &'a Switches,
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
    /// To show where it is.
    pub bar: &'a ProgressBar,
}

/// Runs it.
///
/// # Errors
/// If Redis or the manager fails, Redis opted out, `always` got too few huge pages, a switch changed, or at a signal.
pub fn run(job: &Job<'_>) -> anyhow::Result<Row> {
    measure(job).with_context(|| format!("mode {}", job.mode))
}

fn measure(job: &Job<'_>) -> anyhow::Result<Row> {
    let begun = job.bar.position();
    let at = |share: u64, doing: &str| {
        job.bar.set_position(begun + share);
        job.bar.set_message(format!("{}: {doing}", job.mode));
    };
    at(0, "starting Redis");
    let _switch = job.switches.hold(job.mode)?;
    let before = job.switches.snapshot()?;
    let scratch = Scratch::new(job.mode.name())?;
    let cgroup = Cgroup::new(job.mode.name())?;
    let server = Server::start(job.server, &cgroup, &scratch, job.interrupt)?;
    let pid = server.pid();
    check_thp_enabled(pid)?;
    let manager = Manager::start_for(job.mode, pid, job.sets, job.interrupt)?;
    let mut client = server.connect()?;

    at(0, "filling");
    let filled = load::fill(&mut client, job.keys, job.interrupt, |done| {
        job.bar
            .set_position(begun + u64::from(done) * AFTER_FILL / u64::from(job.keys));
    })?;
    at(AFTER_FILL, "settling");
    job.interrupt.sleep(job.settle)?;
    let after_fill = memory(pid, &cgroup)?;
    check_always(job.mode, after_fill.huge_share)?;
    at(AFTER_SETTLE, "saving");
    let saved = save(job, &mut client, &server, &cgroup)?;
    at(AFTER_SAVE, "deleting");
    let deleted = load::delete(&mut client, job.keys, job.interrupt)?;
    client.call(&["MEMORY", "PURGE"])?;
    at(AFTER_DELETE, "settling");
    job.interrupt.sleep(job.settle)?;
    let after_delete = memory(pid, &cgroup)?;
    job.switches.assert_same(&before, "while Redis ran")?;
    let manager = manager.map(Manager::stop).transpose()?;
    job.switches
        .assert_same(&before, "after the manager ended")?;
    at(STEPS, "done");
    Ok(Row {
        mode: job.mode,
        filled,
        after_fill,
        saved,
        deleted,
        after_delete,
        manager: manager.map(|log| log.figures(&[])),
    })
}

fn check_thp_enabled(pid: u32) -> anyhow::Result<()> {
    if !procfs::thp_enabled(&pid.to_string())? {
        bail!("Redis opted out of THP (THP_enabled: 0) in spite of --disable-thp no");
    }
    Ok(())
}

fn check_always(mode: Mode, huge: Ratio) -> anyhow::Result<()> {
    if mode == Mode::Always && huge.get() <= ALWAYS_HUGE_MIN {
        bail!(
            "only {huge} of Redis's memory is huge under always (more than {:.0} % wanted): memory is too fragmented, or \
             huge pages are switched off; see `hugepilot doctor`",
            ALWAYS_HUGE_MIN * 100.0
        );
    }
    Ok(())
}

fn memory(pid: u32, cgroup: &Cgroup) -> anyhow::Result<Memory> {
    let anon = procfs::anon_memory(&pid.to_string())?;
    Ok(Memory {
        charged_bytes: cgroup.charged()?,
        huge_share: Ratio::of(anon.huge.0, anon.all.0),
    })
}

/// BGSAVE with writes going on. The file is removed afterwards, and with it its page cache.
fn save(
    job: &Job<'_>,
    client: &mut Client,
    server: &Server,
    cgroup: &Cgroup,
) -> anyhow::Result<Saved> {
    let before = cgroup.charged()?;
    let mut asking = server.connect()?;
    let limit = (job.keys / SAVE_WRITES_ONE_OF).max(1);
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| peak(cgroup, &stop));
        let saved = write_until_saved(job, client, &mut asking, limit);
        stop.store(true, Ordering::SeqCst);
        let peak = watch
            .join()
            .expect("the thread that watches the peak panicked")?;
        let (latency, took) = saved?;
        let fork_us = asking.info("stats")?.get("latest_fork_usec")?.parse()?;
        Ok(Saved {
            fork_ns: Span::micros(fork_us),
            took_ns: took,
            writes: latency,
            before_bytes: before,
            peak_bytes: peak,
            peak_vs_never: None,
        })
    })
}

fn write_until_saved(
    job: &Job<'_>,
    client: &mut Client,
    asking: &mut Client,
    limit: u32,
) -> anyhow::Result<(hugepilot_bench::latency::LatencySummary, Span)> {
    let from = Instant::now();
    client.call(&["BGSAVE"])?;
    let mut writes = PacedWrites::new(job.keys, SAVE_WRITES_PER_S, limit)?;
    let mut asked = Instant::now();
    loop {
        if writes.step(client)? == Step::Finished {
            job.interrupt.sleep(ASK_EVERY)?;
        }
        if asked.elapsed() < ASK_EVERY {
            continue;
        }
        asked = Instant::now();
        job.interrupt.check()?;
        let info = asking.info("persistence")?;
        if info.get("rdb_bgsave_in_progress")? == "0" {
            if info.get("rdb_last_bgsave_status")? != "ok" {
                bail!("Redis could not save: is there room in the temporary directory?");
            }
            let took = Span::from_secs_f64(from.elapsed().as_secs_f64());
            return Ok((writes.latency(), took));
        }
        if from.elapsed() > SAVED_WITHIN {
            bail!("Redis did not save within {SAVED_WITHIN:?}");
        }
    }
}

fn peak(cgroup: &Cgroup, stop: &AtomicBool) -> anyhow::Result<Bytes> {
    let mut peak = cgroup.charged()?;
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(PEAK_EVERY);
        peak = peak.max(cgroup.charged()?);
    }
    Ok(peak)
}
