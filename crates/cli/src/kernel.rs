//! The kernel that we run on, put together as a machine, and what we may do on it.

use crate::manage::HowArgs;
use crate::manage::session::Acting;
use anyhow::{Context, bail};
use hugepilot_core::action::Action;
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{Pid, ProcessId};
use hugepilot_core::look::Look;
use hugepilot_core::machine::Machine;
use hugepilot_core::observation::{BlindSpot, Observation, Unseen};
use hugepilot_core::outcome::Outcome;
use hugepilot_core::policy::{Settings, carrefour_lp, conservative, ingens, linux, mega};
use hugepilot_core::units::Ratio;
use hugepilot_linux::actuators::baseline::{
    KhugepagedGuard, SystemActuator, WouldUndo, khugepaged_would_undo,
};
use hugepilot_linux::actuators::switches::{SwitchRoots, Switches, SysSwitch};
use hugepilot_linux::journal::{DEFAULT_DIR, Journal, RestoreOutcome, Restored};
use hugepilot_linux::machine::{LiveMachine, geometry};
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use hugepilot_linux::sampler::choice::{Choice, Places, Wish, choose};
use hugepilot_linux::sensors::fault_time::FaultTime;
use hugepilot_linux::sensors::nodes::Topology;
use hugepilot_linux::sensors::selection::Selection;
use hugepilot_linux::sensors::walks::WalkCounters;
use hugepilot_linux::sys::{self, caps};
use hugepilot_linux::tracker::{self, Roots, TakeDamon};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// `CAP_DAC_READ_SEARCH` of `linux/capability.h`: opening `/proc/PID/pagemap`, which its owner alone may read.
const CAP_DAC_READ_SEARCH: u32 = 2;
/// `CAP_SYS_PTRACE`: looking at memory of other users' processes.
const CAP_SYS_PTRACE: u32 = 19;
/// `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_SYS_NICE`: acting on another process's memory.
const CAP_SYS_NICE: u32 = 23;

/// What is needed to manage, and how to get it.
const HOW_TO_GET: &str =
    "run it with sudo, or once `sudo setcap cap_sys_nice,cap_sys_ptrace=ep` on the program";

/// Do we hold what this policy needs?
///
/// # Errors
/// One sentence that says what is missing and how to get it.
pub fn check_capabilities(policy: &str, acting: Acting) -> anyhow::Result<()> {
    let held = caps::effective().context("cannot read our own capabilities")?;
    let lacks = |capability: u32| held >> capability & 1 == 0;
    if acting == Acting::DryRun {
        return Ok(());
    }
    if policy == linux::NAME {
        if lacks(CAP_SYS_ADMIN) {
            bail!(
                "the policy linux sets the whole machine's switches and needs root; run it with sudo"
            );
        }
        return Ok(());
    }
    if lacks(CAP_SYS_NICE) {
        bail!(
            "CAP_SYS_NICE is missing, without which the kernel lets nobody collapse or split another process's memory; {HOW_TO_GET}"
        );
    }
    if lacks(CAP_SYS_PTRACE) {
        eprintln!(
            "hugepilot: note: CAP_SYS_PTRACE is missing, so only your own processes with no more privileges than yours can be managed; {HOW_TO_GET}"
        );
    } else if lacks(CAP_DAC_READ_SEARCH) {
        eprintln!(
            "hugepilot: note: CAP_DAC_READ_SEARCH is missing, so only processes of your own user can be managed: the kernel lets nobody else read their page tables; run it with sudo for others"
        );
    }
    Ok(())
}

/// The kernel's release.
pub fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Milliseconds since 1970.
///
/// # Errors
/// If the machine's clock is before that.
pub fn unix_ms() -> anyhow::Result<u64> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?;
    u64::try_from(since.as_millis()).context("the clock is far in the future")
}

/// The live kernel, watching `selection`, with the best tracker of accesses there is.
///
/// # Errors
/// If this kernel cannot be managed at all, or something asked for by name cannot be had.
pub fn machine(
    selection: Selection,
    how: &HowArgs,
    settings: &Settings,
    acting: Acting,
) -> anyhow::Result<LiveKernel> {
    sys::limits::raise_open_files().context("cannot raise the limit of open files")?;
    let builder = LiveMachine::builder()
        .select(selection)
        .watch_cpu_max(settings.watch.cpu_max)
        .sample_cpu_max(settings.watch.sample_cpu_max);
    let journal = match acting {
        Acting::Really => open_journal(how)?,
        Acting::DryRun if how.numa_balancing => {
            bail!("a dry run changes nothing; leave --numa-balancing or --dry-run away")
        }
        Acting::DryRun => Err("a dry run starts no tracker of accesses".to_owned()),
    };
    let mut notes = match &journal {
        Ok(journal) => balancing(journal, how)?,
        Err(_) => Vec::new(),
    };
    let chosen = sampler(how)?;
    notes.extend(sampler_notes(&chosen, how));
    let (fault_time, walks) = counters(how, &mut notes)?;
    let builder = builder
        .sampler(chosen.sampler)
        .fault_time(fault_time)
        .walks(walks);
    let journal = match journal {
        Ok(journal) => journal,
        Err(why) => {
            let blind = vec![unseen(why)];
            return Ok(LiveKernel {
                machine: builder.build()?,
                blind,
                notes,
                _journal: None,
            });
        }
    };
    let system = SystemActuator::new(journal.clone(), SwitchRoots::default());
    let (mut tracker, mut blind) = (None, Vec::new());
    if how.policy != linux::NAME {
        notes.extend(khugepaged(&system, how)?);
        let take = if how.take_damon {
            TakeDamon::FromStatistics
        } else {
            TakeDamon::No
        };
        (tracker, blind) = tracker::probe_best(&roots()?, &journal, take);
    }
    let machine = builder
        .tracker(tracker)
        .switches(Box::new(system))
        .build()?;
    Ok(LiveKernel {
        machine,
        blind,
        notes,
        _journal: Some(journal),
    })
}

/// Turns the kernel's own balancing on where that was asked for.
fn balancing(journal: &Journal, how: &HowArgs) -> anyhow::Result<Vec<String>> {
    if !how.numa_balancing {
        return Ok(Vec::new());
    }
    let switches = Switches::new(journal.clone(), SwitchRoots::default());
    switches
        .set(SysSwitch::NumaBalancing, "1")
        .context("cannot turn the kernel's balancing between nodes on")?;
    Ok(vec![
        "kernel.numa_balancing is 1 until the end, for the whole system: the kernel moves pages of every process between nodes by itself, too".to_owned(),
    ])
}

/// The sampler that was asked for, or the best there is. Policies that never sample get none.
fn sampler(how: &HowArgs) -> anyhow::Result<Choice> {
    let wish = if samples(&how.policy) {
        how.sampler
    } else {
        Wish::None
    };
    let choice = choose(wish, &places()?);
    match (wish, &choice.sampler) {
        (Wish::Only(_), None) => bail!("{}", choice.reasons().collect::<Vec<_>>().join("; ")),
        (Wish::Only(_) | Wish::Auto | Wish::None, _) => Ok(choice),
    }
}

/// Does a policy decide by samples of accesses?
fn samples(policy: &str) -> bool {
    ![mega::NAME, ingens::NAME, linux::NAME].contains(&policy)
}

/// Counters for the policies that decide by them; the notes say which cannot be had.
fn counters(
    how: &HowArgs,
    notes: &mut Vec<String>,
) -> anyhow::Result<(Option<FaultTime>, Option<WalkCounters>)> {
    if ![conservative::NAME, carrefour_lp::NAME].contains(&how.policy.as_str()) {
        return Ok((None, None));
    }
    let sys = SysRoot::default();
    let topology = Topology::read(&sys).context("the processors of nodes are not known")?;
    let fault_time = FaultTime::start(&sys, topology.cpus());
    let walks = WalkCounters::probe(&sys);
    notes.extend(fault_time.as_ref().err().map(ToString::to_string));
    notes.extend(
        walks
            .as_ref()
            .err()
            .map(|why| format!("L2 misses by page walks are not known: {why}")),
    );
    Ok((fault_time.ok(), walks.ok()))
}

fn sampler_notes(choice: &Choice, how: &HowArgs) -> Vec<String> {
    if !samples(&how.policy) {
        return Vec::new();
    }
    let better: Vec<String> = choice.reasons().collect();
    let why = if better.is_empty() {
        String::new()
    } else {
        format!(" ({})", better.join("; "))
    };
    vec![format!("{}{why}", choice.said())]
}

/// Where samplers look.
///
/// # Errors
/// If the kernel has no THP.
pub fn places() -> anyhow::Result<Places> {
    let Roots {
        sys,
        proc,
        geometry,
    } = roots()?;
    Ok(Places {
        proc,
        sys,
        geometry,
    })
}

/// Keeps khugepaged from undoing splits where that was asked for; else says if it may.
fn khugepaged(system: &SystemActuator, how: &HowArgs) -> anyhow::Result<Option<String>> {
    if how.restrain_khugepaged {
        system
            .guard(KhugepagedGuard::OnlyFull)
            .context("cannot restrain khugepaged")?;
        return Ok(Some(
            "khugepaged collapses only what is wholly present, until the end".to_owned(),
        ));
    }
    let undo = khugepaged_would_undo(system.switches())?;
    Ok((undo != WouldUndo::No).then(|| format!("{undo} (--restrain-khugepaged)")))
}

/// The live kernel, watching one process, to look at it as fast as it can be looked at, with what samples its accesses.
///
/// # Errors
/// If this kernel cannot be managed at all.
pub fn onlooker(pid: Pid, choice: Choice) -> anyhow::Result<LiveMachine> {
    Ok(LiveMachine::builder()
        .select(Selection::pid(pid))
        .watch_cpu_max(Ratio::ONE)
        .sample_cpu_max(Ratio::ONE)
        .sampler(choice.sampler)
        .build()?)
}

/// Restores what earlier runs left, and opens our journal; why not, where we can do without.
///
/// # Errors
/// If something was asked for by name that needs a journal.
fn open_journal(how: &HowArgs) -> anyhow::Result<Result<Journal, String>> {
    let dir = Path::new(DEFAULT_DIR);
    let opened = Journal::recover(dir).and_then(|report| {
        report
            .iter()
            .filter(|restored| is_news(restored))
            .for_each(|restored| {
                eprintln!("hugepilot: note: left by an earlier run: {restored}");
            });
        Journal::open(dir)
    });
    let needed = how.policy == linux::NAME
        || how.take_damon
        || how.restrain_khugepaged
        || how.numa_balancing;
    match opened {
        Ok(journal) => Ok(Ok(journal)),
        Err(error) if needed => Err(error).context("nothing was changed"),
        Err(error) => Ok(Err(format!("no tracker of accesses: {error}"))),
    }
}

/// A living instance restores by itself: nothing to tell.
fn is_news(restored: &Restored) -> bool {
    !matches!(restored.outcome, RestoreOutcome::Living(_))
}

const fn unseen(why: String) -> BlindSpot {
    BlindSpot {
        process: None,
        what: Unseen::AccessedShare,
        why,
    }
}

/// The live kernel, with what putting it together found to be unseen, and the journal that restores what it changes.
pub struct LiveKernel {
    machine: LiveMachine,
    /// Told with the next observation.
    blind: Vec<BlindSpot>,
    /// What the user must know of it.
    pub notes: Vec<String>,
    /// Dropped last, when nothing changes the system any more.
    _journal: Option<Journal>,
}

impl Machine for LiveKernel {
    type Error = hugepilot_linux::error::Error;

    fn geometry(&self) -> Geometry {
        self.machine.geometry()
    }

    fn observe(&mut self, looks: &[Look]) -> Result<Observation, Self::Error> {
        let mut seen = self.machine.observe(looks)?;
        seen.blind.append(&mut self.blind);
        Ok(seen)
    }

    fn act(&mut self, action: &Action) -> (Outcome, Option<ProcessId>) {
        self.machine.act(action)
    }
}

fn roots() -> anyhow::Result<Roots> {
    let sys = SysRoot::default();
    let geometry = geometry(&sys)?;
    Ok(Roots {
        sys,
        proc: ProcRoot::default(),
        geometry,
    })
}
