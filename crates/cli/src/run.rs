//! `hugepilot run`: starting a command and managing it and its children.
//!
//! **The command** runs in our process group, with our terminal. It is started with THP disabled except where advised
//! (`PR_THP_DISABLE_EXCEPT_ADVISED`, Linux 6.18), so that only we collapse its memory: its faults stay on base pages and
//! khugepaged passes it by. The setting is inherited, so it is made on ourselves before the start and taken back after.
//!
//! **Its children** are followed; those that lose their parent become ours (`PR_SET_CHILD_SUBREAPER`), so none is lost,
//! and we reap them.
//!
//! **Signals** that reach us are passed on. What the terminal sends, it sends to every process of its foreground group,
//! and the command has it already: so INT, QUIT, TSTP and WINCH are passed on only while we are not in that group.
//!
//! **The end** is the command's, and so is the exit code; 128 + n where signal n killed it, 127 where there is no such
//! command, 126 where it cannot be run. If managing fails, the command goes on without it.

mod child;

use crate::kernel;
use crate::manage::lines::Style;
use crate::manage::live::Live;
use crate::manage::session::{Acting, Targets, Terms};
use crate::manage::{HowArgs, Managed};
use crate::own::Meter;
use child::{Command, Started};
use hugepilot_core::policy::linux;
use hugepilot_linux::sensors::selection::{Descendants, Selection};
use hugepilot_linux::sys::Errno;
use hugepilot_linux::sys::thp::{self, Consent};
use std::ffi::OsString;
use std::process::ExitCode;

/// `hugepilot run`'s arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hugepilot run -- redis-server --port 7000 --disable-thp no\n  hugepilot run --policy ingens -- make -j8\n  hugepilot run --json -- ./my-server 2> actions.json\n\nWhat was done and what it cost is printed to standard error at the end. The exit code is the command's."
)]
pub struct Args {
    #[command(flatten)]
    how: HowArgs,
    /// Leave the command's own THP setting as it is
    #[arg(long)]
    no_except_advised: bool,
    /// Print a line for every action
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs it.
///
/// # Errors
/// Where something given does not fit; the command was not started then.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.how.config.settings()?;
    kernel::check_capabilities(&args.how.policy, Acting::Really)?;
    let record = args.how.recording()?;
    let meter = Meter::start();
    let command = Command::prepare()?;
    let restrain = args.how.policy != linux::NAME && !args.no_except_advised;
    let mut child = match start(command, &args.command, restrain)? {
        Started::Running(child) => child,
        Started::Not(code) => return Ok(code),
    };
    let selection = Selection {
        descendants: Descendants::FollowedAndOurs,
        ..Selection::pid(child.pid())
    };
    let terms = Terms {
        acting: Acting::Really,
        targets: Targets::Open,
        time_max: None,
    };
    let style = match (args.how.json, args.verbose) {
        (true, _) => Style::Json,
        (false, true) => Style::Verbose,
        (false, false) => Style::Quiet,
    };
    let managed = Managed {
        how: &args.how,
        settings: &settings,
        terms,
        record,
        style,
        // The terminal is the command's.
        live: Live::hidden(),
        meter,
    };
    let ended = kernel::machine(selection, &args.how, &settings, Acting::Really)
        .and_then(|machine| managed.run(machine, &mut child, std::io::stderr));
    if let Err(error) = ended {
        eprintln!("hugepilot: {error:#}; the command goes on without being managed");
    }
    child.finish()
}

/// Starts the command, with THP disabled except where advised if that is wanted and possible.
fn start(command: Command, words: &[OsString], restrain: bool) -> anyhow::Result<Started> {
    let before = thp::consent();
    let changed = match (restrain, before) {
        (true, Ok(Consent::Allowed)) => except_advised(),
        (_, Ok(Consent::Refused)) => {
            eprintln!(
                "hugepilot: note: THP is disabled for whatever is started from here (PR_SET_THP_DISABLE), so nothing can be collapsed"
            );
            false
        }
        (true, Ok(Consent::ExceptAdvised)) | (false, Ok(_)) | (_, Err(_)) => false,
    };
    let started = command.start(words);
    if changed {
        thp::set_consent(Consent::Allowed)
            .map_err(|errno| anyhow::anyhow!("cannot take our own THP setting back: {errno}"))?;
    }
    started
}

/// Disables THP for us and what we start, except where advised. Says so; is it so now?
fn except_advised() -> bool {
    match thp::set_consent(Consent::ExceptAdvised) {
        Ok(()) => {
            eprintln!(
                "hugepilot: note: the command's faults stay on base pages (THP disabled except where advised)"
            );
            true
        }
        Err(Errno::INVAL) => {
            eprintln!(
                "hugepilot: note: this kernel cannot disable THP except where advised (Linux 6.18 can), so the kernel's own switches hold for the command"
            );
            false
        }
        Err(errno) => {
            eprintln!("hugepilot: note: THP could not be disabled except where advised: {errno}");
            false
        }
    }
}
