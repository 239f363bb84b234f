//! The command that was started: its signals, its end, its orphans.

use crate::manage::session::{Ended, Pace};
use crate::signals::Signals;
use anyhow::Context;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::Span;
use rustix::process::{
    Pid as RawPid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_process,
    set_child_subreaper, wait,
};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::ExitCode;

/// Signals that are passed on.
const PASSED: [i32; 9] = [
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP,
];

/// Exit code of a shell where there is no such command.
const NOT_FOUND: u8 = 127;
/// Exit code of a shell where the command cannot be run.
const NOT_RUN: u8 = 126;

/// Everything that must be in place before the command is started.
pub struct Command {
    signals: Signals,
}

/// Was it started?
pub enum Started {
    /// It runs.
    Running(Child),
    /// It does not; this is the exit code.
    Not(ExitCode),
}

impl Command {
    /// Catches signals and takes orphans in.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn prepare() -> anyhow::Result<Self> {
        set_child_subreaper(Some(getpid())).context("cannot take orphaned children in")?;
        let ignored = ignored_signals()?;
        let caught: Vec<i32> = PASSED
            .into_iter()
            .filter(|signal| ignored >> (signal - 1) & 1 == 0)
            .chain([SIGCHLD])
            .collect();
        Ok(Self {
            signals: Signals::catch(&caught)?,
        })
    }

    /// Starts it.
    ///
    /// # Errors
    /// If there is no process to be had for it.
    pub fn start(self, words: &[OsString]) -> anyhow::Result<Started> {
        let (name, arguments) = words
            .split_first()
            .context("the command line was checked")?;
        match std::process::Command::new(name).args(arguments).spawn() {
            Ok(child) => {
                let pid = i32::try_from(child.id()).context("a process id fits 31 bits")?;
                let pid = RawPid::from_raw(pid).context("no child has id 0")?;
                Ok(Started::Running(Child {
                    signals: self.signals,
                    pid,
                    status: None,
                    alone: false,
                }))
            }
            Err(error) => {
                let (code, hint) = if error.kind() == io::ErrorKind::NotFound {
                    (NOT_FOUND, "is it installed, and spelt right?")
                } else if error.kind() == io::ErrorKind::PermissionDenied {
                    (NOT_RUN, "may you run it, and is it a program?")
                } else {
                    (NOT_RUN, "try it without hugepilot")
                };
                eprintln!(
                    "hugepilot: cannot start {}: {error}; {hint}",
                    name.to_string_lossy()
                );
                Ok(Started::Not(ExitCode::from(code)))
            }
        }
    }
}

/// Signals that whoever started us ignores (`nohup`), bit n - 1 for signal n: the command shall ignore them too.
fn ignored_signals() -> anyhow::Result<u64> {
    let status =
        std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .context("/proc/self/status names no ignored signals")?;
    u64::from_str_radix(mask.trim(), 16).context("cannot make sense of SigIgn in /proc/self/status")
}

/// The command.
pub struct Child {
    signals: Signals,
    pid: RawPid,
    status: Option<WaitStatus>,
    /// Has it no children of ours beside it any more?
    alone: bool,
}

impl Child {
    /// Its id.
    pub fn pid(&self) -> Pid {
        Pid(u32::try_from(self.pid.as_raw_nonzero().get()).expect("ids are positive"))
    }

    /// Waits until it ended, and gives its exit code.
    ///
    /// # Errors
    /// If the kernel does not let us wait.
    pub fn finish(mut self) -> anyhow::Result<ExitCode> {
        /// A signal ends the wait at once; this is only how often the loop turns without one.
        const TURN: Span = Span::secs(60);
        loop {
            if let Some(status) = self.status {
                if !self.alone {
                    eprintln!(
                        "hugepilot: note: processes that the command started go on, unmanaged from now on"
                    );
                }
                return Ok(ExitCode::from(exit_code(status)));
            }
            self.wait(TURN)?;
        }
    }

    /// Takes in who ended: the command, and orphans that became ours. Once the command is stopped by its terminal, so are
    /// we; `SIGCONT` wakes both. (In a group that no shell looks after, the kernel does not stop it, and we go on too.)
    fn reap(&mut self) -> anyhow::Result<()> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.pid && status.stopped() => {
                    if status.stopping_signal() == Some(SIGTSTP) {
                        stop();
                    }
                }
                Ok(Some((pid, status))) if pid == self.pid => self.status = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(rustix::io::Errno::CHILD) => {
                    self.alone = true;
                    return Ok(());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for the command"),
            }
        }
    }

    /// Passes a signal on, unless the terminal sent it to the command too.
    fn pass(&self, number: i32) {
        let by_terminal = [SIGINT, SIGQUIT, SIGTSTP, SIGWINCH].contains(&number) && in_foreground();
        if !by_terminal && self.status.is_none() {
            let signal = Signal::from_named_raw(number).expect("one of those that are passed");
            if let Err(errno) = kill_process(self.pid, signal) {
                eprintln!("hugepilot: note: signal {number} could not be passed on: {errno}");
            }
        }
    }
}

fn stop() {
    if let Err(errno) = kill_process(getpid(), Signal::STOP) {
        eprintln!("hugepilot: note: cannot stop: {errno}");
    }
}

impl Pace for Child {
    fn wait(&mut self, span: Span) -> anyhow::Result<Option<Ended>> {
        if span > Span::ZERO && self.status.is_none() {
            self.signals.wait(span, &[])?;
        }
        let arrived = self.signals.arrived();
        if arrived.contains(&SIGCHLD) || span > Span::ZERO {
            self.reap()?;
        }
        arrived
            .into_iter()
            .filter(|number| *number != SIGCHLD)
            .for_each(|number| self.pass(number));
        Ok(self.status.map(|_| Ended::TargetsGone))
    }
}

/// Is our process group the one in the foreground of our terminal?
fn in_foreground() -> bool {
    File::open("/dev/tty")
        .ok()
        .and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok())
        .is_some_and(|group| group == getpgrp())
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(crate::failure::FAILED)
}
