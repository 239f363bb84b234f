//! `hugepilot manage`: managing running processes.
//!
//! First everything that the user said is checked, the recording's file opened, the processes looked for; only then is
//! anything touched. What a run changes on the system is in the journal before it is changed, and restored when the
//! journal is dropped: at the end, on SIGTERM and SIGINT, on an error, in a panic; after `kill -9` by the next start.

pub mod lines;
pub mod live;
pub mod predict;
pub mod recorder;
pub mod report;
pub mod session;
pub mod tally;
pub mod targets;

use crate::config::ConfigArgs;
use crate::kernel::LiveKernel;
use crate::numa::{Gathered, View};
use crate::own::Meter;
use crate::signals::{self, Signals};
use crate::{kernel, text};
use anyhow::Context;
use hugepilot_core::machine::Machine;
use hugepilot_core::policy::Settings;
use hugepilot_core::tick::Pilot;
use hugepilot_core::units::{Bytes, Span};

use hugepilot_linux::sampler::choice::Wish;
use hugepilot_trace::{Header, VERSION, Writer};
use lines::{Lines, Style};
use live::Live;
use recorder::Recorder;
use report::Summary;
use session::{Acting, Ended, Listener, Pace, Session, Terms};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use targets::TargetArgs;

/// `hugepilot manage`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hugepilot manage --pid 1234 --for 10m\n  hugepilot manage --comm redis-server --policy ingens --json\n  hugepilot manage --all --exclude-comm postgres --dry-run --verbose\n  hugepilot manage --pid 1234 --set mega.present_min=0.95 --record run.trace\n\nIt ends on SIGTERM or SIGINT, after --for, or when all processes given by --pid are gone."
)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    how: HowArgs,
    /// End after this time: 30s, 5m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = text::span)]
    time_max: Option<Span>,
    /// Decide and say, but change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print a line for every action
    #[arg(long, short)]
    verbose: bool,
}

/// How to manage: what `manage` and `run` have in common.
#[derive(Debug, Clone, clap::Args)]
pub struct HowArgs {
    /// What decides: mega, ingens or linux
    #[arg(long, value_name = "NAME", default_value = "mega", value_parser = text::policy)]
    pub policy: String,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Record observations, plans and outcomes
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Let the recording grow to this size at the most: 100M, 2G
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = text::bytes)]
    pub record_max: Bytes,
    /// Print JSON lines: the start, every action, the summary
    #[arg(long)]
    pub json: bool,
    /// Turn off DAMON_STAT, the kernel's own statistics, where it holds DAMON, until the end
    #[arg(long)]
    pub take_damon: bool,
    /// Keep khugepaged from undoing splits, until the end
    #[arg(long)]
    pub restrain_khugepaged: bool,
    /// What samples accesses, for the NUMA policies: auto (the best there is), pebs, ibs, virtual, hinting or none
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = text::sampler)]
    pub sampler: Wish,
    /// Turn kernel.numa_balancing on until the end, so that there are hinting faults to sample; this is for the whole system, and
    /// makes the kernel move pages of every process between nodes too
    #[arg(long)]
    pub numa_balancing: bool,
}

/// Runs it.
///
/// # Errors
/// Where something given does not fit, or nothing can be managed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.how.config.settings()?;
    let selection = args.targets.selection()?;
    let acting = if args.dry_run {
        Acting::DryRun
    } else {
        Acting::Really
    };
    kernel::check_capabilities(&args.how.policy, acting)?;
    let record = args.how.recording()?;
    let meter = Meter::start();
    signals::second_one_ends()?;
    let mut pace = UntilAsked(Signals::catch(&[SIGINT, SIGTERM])?);
    let machine = kernel::machine(selection, &args.how, &settings, acting)?;
    let terms = Terms {
        acting,
        targets: args.targets.kind(),
        time_max: args.time_max,
    };
    let style = match (args.how.json, args.verbose) {
        (true, _) => Style::Json,
        (false, true) => Style::Verbose,
        (false, false) => Style::Quiet,
    };
    let out = std::io::stdout;
    let ended = Managed {
        how: &args.how,
        settings: &settings,
        terms,
        record,
        style,
        live: if style == Style::Quiet {
            Live::new()
        } else {
            Live::hidden()
        },
        meter,
    };
    ended.run(machine, &mut pace, out)?;
    Ok(ExitCode::SUCCESS)
}

/// One managed run from its start to its summary.
pub struct Managed<'a> {
    /// How.
    pub how: &'a HowArgs,
    /// The parameters.
    pub settings: &'a Settings,
    /// What the session is told.
    pub terms: Terms,
    /// The recording's file, empty.
    pub record: Option<File>,
    /// How lines look.
    pub style: Style,
    /// The line that says how it is going.
    pub live: Live,
    /// Measures from the start on.
    pub meter: Meter,
}

impl Managed<'_> {
    /// Manages until the end and prints the summary; `out` opens what lines and summary are written to.
    ///
    /// # Errors
    /// Where the machine cannot be seen, or output or recording not be written.
    pub fn run<W: Write>(
        self,
        mut machine: LiveKernel,
        pace: &mut dyn Pace,
        out: impl Fn() -> W,
    ) -> anyhow::Result<Ended> {
        let policy = self
            .settings
            .policy(&self.how.policy)
            .context("the name was checked")?;
        let pilot = Pilot::new(machine.geometry(), policy, self.settings);
        let header = self.header(&machine)?;
        let mut recorder = match self.record {
            Some(file) => Some(Recorder::new(Writer::new(
                file,
                &header,
                Some(self.how.record_max),
            )?)),
            None => None,
        };
        let mut lines = Lines::new(out(), self.style, self.terms.acting);
        let mut gathered = Gathered::default();
        let mut live = self.live;
        let notes = std::mem::take(&mut machine.notes);
        let mut session = Session::new(machine, pilot, self.terms, notes);
        let mut listeners: Vec<&mut dyn Listener> = vec![&mut lines, &mut live, &mut gathered];
        listeners.extend(
            recorder
                .as_mut()
                .map(|recorder| recorder as &mut dyn Listener),
        );
        let ended = session.run(pace, &mut listeners);
        live.clear();
        let ended = match ended {
            Err(error) if is_closed_pipe(&error) => return Ok(Ended::Asked),
            ended => ended?,
        };
        let summary = Summary {
            policy: session.pilot().policy().name(),
            dry_run: self.terms.acting == Acting::DryRun,
            ended,
            tally: session.tally(),
            world: session.pilot().world(),
            numa: View::of(
                &gathered,
                session.pilot().world(),
                self.settings.reactive.hot_share_min,
            ),
            cost: self.meter.cost(),
        };
        print(out(), self.style, &summary)?;
        Ok(ended)
    }

    fn header(&self, machine: &impl Machine) -> anyhow::Result<Header> {
        Ok(Header {
            hugepilot_trace: VERSION,
            geometry: machine.geometry(),
            policy: self.how.policy.clone(),
            settings: self.settings.values(),
            kernel: kernel::release(),
            started_unix_ms: kernel::unix_ms()?,
            dry_run: self.terms.acting == Acting::DryRun,
        })
    }
}

fn print(mut out: impl Write, style: Style, summary: &Summary<'_>) -> anyhow::Result<()> {
    let written = match style {
        Style::Json => writeln!(out, "{}", summary.json()),
        Style::Verbose | Style::Quiet => write!(out, "{}", summary.text()),
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the summary"),
    }
}

/// Has the reader of our output gone? Then nobody wants more of it: a reason to end, no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

impl HowArgs {
    /// Opens the recording's file, so that one that cannot be written is told before anything is touched.
    ///
    /// # Errors
    /// If it cannot be written, or holds something already.
    pub fn recording(&self) -> anyhow::Result<Option<File>> {
        self.record.as_deref().map(create).transpose()
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    let shown = path.display();
    if std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
        anyhow::bail!("{shown} exists already; remove it or name another file for the recording");
    }
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| {
            anyhow::anyhow!("cannot write the recording {shown} ({error}); name a file in a directory that you may write")
        })
}

/// Goes on until a signal asks for the end.
struct UntilAsked(Signals);

impl Pace for UntilAsked {
    fn wait(&mut self, span: Span) -> anyhow::Result<Option<Ended>> {
        if span > Span::ZERO {
            self.0.wait(span, &[])?;
        }
        Ok(self.0.arrived().first().map(|_| Ended::Asked))
    }
}
