//! One guest in QEMU's software emulation: how it is started, listened to, and ended.
//!
//! QEMU never outlives us: the kernel kills it when our main thread ends, whatever ends it (so that
//! no signal needs a handler here). The main thread must therefore be the one that starts it.
//! Everything that QEMU reads or writes is a descriptor that it inherits, named to it as
//! `/dev/fd/N`.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_parent_process_death_signal,
};

use super::cache::Kernel;
use super::command;
use super::console::{LastWords, Tail};
use super::pmu::Pmu;
use super::topology::Topology;

const QEMU: &str = "qemu-system-x86_64";
/// A panic or an oops ends the run at once (with `-no-reboot`) instead of hanging it.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 rdinit=/init panic=-1 oops=panic";
/// The report is one short line.
const REPORT_BYTES_MAX: u64 = 256;

/// What to boot.
pub struct Machine {
    pub kernel: Kernel,
    pub topology: Topology,
    /// In addition to ours.
    pub kernel_arguments: Vec<String>,
    pub pmu: Option<Pmu>,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let package = &self.kernel.package;
        write!(
            f,
            "Linux {} ({}), {}",
            package.upstream_version(),
            package.release,
            self.topology
        )
    }
}

impl Machine {
    fn arguments(&self, ports: &PortPaths) -> Vec<String> {
        let fixed = [
            // Multi-threaded emulation: one host thread a guest CPU.
            ["-accel", "tcg,thread=multi"],
            // QEMU 7.2 gets 5-level paging wrong; from 6.12 on the kernel does not survive it.
            ["-cpu", "max,la57=off"],
            ["-machine", "q35"],
            ["-display", "none"],
            ["-monitor", "none"],
        ];
        let mut arguments: Vec<String> = fixed.concat().into_iter().map(str::to_owned).collect();
        arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
        arguments.extend(self.topology.arguments());
        if let Some(pmu) = &self.pmu {
            arguments.extend(pmu.arguments(&self.topology));
        }
        let command_line = [&[KERNEL_ARGUMENTS.to_owned()], &self.kernel_arguments[..]]
            .concat()
            .join(" ");
        arguments.extend([
            "-kernel".to_owned(),
            self.kernel.image.display().to_string(),
        ]);
        arguments.extend(["-initrd".to_owned(), ports.initramfs.clone()]);
        arguments.extend(["-append".to_owned(), command_line]);
        // The order makes them ttyS0, ttyS1 and ttyS2.
        for (name, path) in [
            ("console", &ports.console),
            ("output", &ports.output),
            ("report", &ports.report),
        ] {
            arguments.extend(["-chardev".to_owned(), format!("file,id={name},path={path}")]);
            arguments.extend(["-serial".to_owned(), format!("chardev:{name}")]);
        }
        arguments
    }
}

/// The names under which QEMU opens what it inherits.
struct PortPaths {
    initramfs: String,
    console: String,
    output: String,
    report: String,
}

/// A running guest.
pub struct Guest {
    qemu: Child,
    started: Instant,
    console: JoinHandle<LastWords>,
    complaints: JoinHandle<LastWords>,
    output: JoinHandle<bool>,
    report: JoinHandle<Option<u8>>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// The program ended, and this is its exit code (128 and the signal's number, if a signal ended
    /// it).
    Exited {
        code: u8,
        took: Duration,
    },
    TimedOut {
        limit: Duration,
        evidence: Evidence,
    },
    Panicked {
        message: String,
        /// Did the program begin? A kernel that dies before that died of booting.
        began: bool,
        evidence: Evidence,
    },
    /// The machine went off without a report.
    Vanished {
        status: ExitStatus,
        evidence: Evidence,
    },
}

/// What is shown when a run went wrong.
#[derive(Debug)]
pub struct Evidence {
    console: Vec<String>,
    complaints: Vec<String>,
}

impl Guest {
    pub fn start(machine: &Machine, initramfs: &[u8], verbose: bool) -> Result<Self> {
        let memory = memory_file(initramfs)?;
        let (console, console_end) = pipe_to_qemu()?;
        let (output, output_end) = pipe_to_qemu()?;
        let (report, report_end) = pipe_to_qemu()?;
        let ports = PortPaths {
            initramfs: inherited_path(&memory),
            console: inherited_path(&console_end),
            output: inherited_path(&output_end),
            report: inherited_path(&report_end),
        };
        let mut qemu = spawn(&machine.arguments(&ports))?;
        let complaints = qemu.stderr.take().context("QEMU has no standard error")?;
        Ok(Self {
            qemu,
            started: Instant::now(),
            console: thread::spawn(move || keep_tail(File::from(console), verbose)),
            complaints: thread::spawn(move || keep_tail(complaints, false)),
            output: thread::spawn(move || copy_output(File::from(output))),
            report: thread::spawn(move || read_report(File::from(report))),
        })
    }

    /// Waits for the guest's end, but not longer than this.
    pub fn wait(mut self, limit: Duration) -> Result<Outcome> {
        let ended = wait_until(&self.qemu, self.started + limit)?;
        if !ended {
            self.qemu.kill().context("cannot kill QEMU")?;
        }
        let status = self.qemu.wait().context("cannot wait for QEMU")?;
        let took = self.started.elapsed();
        let began = join(self.output)?;
        let report = join(self.report)?;
        let LastWords {
            lines: console,
            panic,
        } = join(self.console)?;
        let evidence = Evidence {
            console,
            complaints: join(self.complaints)?.lines,
        };
        Ok(match (report, panic) {
            (Some(code), _) => Outcome::Exited { code, took },
            (None, Some(message)) => Outcome::Panicked {
                message,
                began,
                evidence,
            },
            (None, None) if !ended => Outcome::TimedOut { limit, evidence },
            (None, None) => Outcome::Vanished { status, evidence },
        })
    }
}

impl Outcome {
    /// What may show why it went wrong; nothing when the program ended by itself.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Exited { .. } => None,
            Self::TimedOut { evidence, .. }
            | Self::Panicked { evidence, .. }
            | Self::Vanished { evidence, .. } => Some(evidence),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code, took } => {
                write!(f, "exit code {code} after {:.1} s", took.as_secs_f64())
            }
            Self::TimedOut { limit, .. } => {
                write!(
                    f,
                    "still running after {} s, so it was killed (--timeout gives it longer)",
                    limit.as_secs()
                )
            }
            Self::Panicked { message, .. } => write!(f, "the kernel panicked: {message}"),
            Self::Vanished { status, .. } => {
                write!(f, "it ended without an exit code (QEMU: {status})")
            }
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (source, lines) in [("the console", &self.console), ("QEMU", &self.complaints)] {
            if !lines.is_empty() {
                writeln!(f, "last lines of {source}:\n  {}", lines.join("\n  "))?;
            }
        }
        Ok(())
    }
}

fn spawn(arguments: &[String]) -> Result<Child> {
    let mut qemu = Command::new(QEMU);
    qemu.args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let parent = getpid();
    // SAFETY: between fork and exec only system calls are made: prctl and getppid.
    unsafe { qemu.pre_exec(move || die_with(parent)) };
    qemu.spawn()
        .map_err(|error| command::cannot_start(&qemu, error))
}

/// Has the kernel kill this process when its parent ends, or refuses to go on when it already has.
fn die_with(parent: Pid) -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH.into())
    }
}

/// Whether the process ended before the deadline.
fn wait_until(process: &Child, deadline: Instant) -> Result<bool> {
    let pidfd =
        pidfd_open(Pid::from_child(process), PidfdFlags::empty()).context("cannot watch QEMU")?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("the timeout is too long")?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for QEMU"),
        }
    }
}

/// A file without a name that QEMU inherits.
fn memory_file(contents: &[u8]) -> Result<File> {
    let mut file = File::from(
        memfd_create("initramfs", MemfdFlags::empty()).context("cannot create a memory file")?,
    );
    file.write_all(contents)
        .context("cannot fill the memory file of the initramfs")?;
    Ok(file)
}

/// Our end, and the end that QEMU inherits.
fn pipe_to_qemu() -> Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).context("cannot create a pipe")?;
    fcntl_setfd(&theirs, FdFlags::empty()).context("cannot let QEMU inherit a pipe")?;
    Ok((ours, theirs))
}

pub fn inherited_path(descriptor: &impl AsFd) -> String {
    format!("/dev/fd/{}", descriptor.as_fd().as_raw_fd())
}

fn keep_tail(mut source: impl Read, verbose: bool) -> LastWords {
    let mut tail = Tail::default();
    for_each_chunk(&mut source, |chunk| {
        tail.feed(chunk);
        if verbose {
            // Who cannot be shown the console is not helped by an error about it.
            let _ = std::io::stderr().write_all(chunk);
        }
    });
    tail.finish()
}

/// Passes the program's output on. Was there any?
fn copy_output(mut source: File) -> bool {
    let mut closed = false;
    let mut began = false;
    for_each_chunk(&mut source, |chunk| {
        began = true;
        let mut stdout = std::io::stdout();
        if !closed
            && stdout
                .write_all(chunk)
                .and_then(|()| stdout.flush())
                .is_err()
        {
            eprintln!("guest: nobody reads the program's output any more; the rest is dropped");
            closed = true;
        }
    });
    began
}

fn read_report(source: File) -> Option<u8> {
    let mut text = String::new();
    source
        .take(REPORT_BYTES_MAX)
        .read_to_string(&mut text)
        .ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("exit ")?.trim().parse().ok())
}

/// Reads to the end, which a pipe from QEMU reaches when QEMU is gone.
fn for_each_chunk(source: &mut impl Read, mut act: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => act(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                eprintln!("guest: cannot read from QEMU: {error}");
                return;
            }
        }
    }
}

fn join<T>(reader: JoinHandle<T>) -> Result<T> {
    reader
        .join()
        .map_err(|_panic| anyhow!("a thread that reads from QEMU panicked"))
}

#[cfg(test)]
mod tests {
    use super::super::kernel::KernelPackage;
    use super::super::topology::Mebibytes;
    use super::*;

    #[test]
    fn the_arguments_name_every_part() {
        let package = KernelPackage {
            package: "p".into(),
            version: "6.12.107-1".into(),
            release: "6.12.107".into(),
            size: 1,
        };
        let machine = Machine {
            kernel: Kernel {
                package,
                image: "/cache/vmlinuz".into(),
            },
            topology: Topology::even(1, 2, Mebibytes(512)).unwrap(),
            kernel_arguments: vec!["a=1".into(), "b".into()],
            pmu: None,
        };
        let path = |name: &str| format!("/dev/fd/{name}");
        let ports = PortPaths {
            initramfs: path("3"),
            console: path("4"),
            output: path("5"),
            report: path("6"),
        };
        let arguments = machine.arguments(&ports);
        let value_after = |name: &str| {
            let position = arguments.iter().position(|argument| argument == name);
            position
                .and_then(|position| arguments.get(position + 1))
                .cloned()
        };
        assert_eq!(value_after("-kernel").as_deref(), Some("/cache/vmlinuz"));
        assert_eq!(value_after("-initrd").as_deref(), Some("/dev/fd/3"));
        assert_eq!(
            value_after("-append"),
            Some(format!("{KERNEL_ARGUMENTS} a=1 b"))
        );
        let serial: Vec<_> = arguments
            .iter()
            .filter(|argument| argument.starts_with("chardev:"))
            .collect();
        assert_eq!(
            serial,
            ["chardev:console", "chardev:output", "chardev:report"]
        );
        assert!(arguments.contains(&"file,id=output,path=/dev/fd/5".to_owned()));
    }

    #[test]
    fn a_process_is_waited_for_up_to_the_deadline() {
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!wait_until(&sleeper, Instant::now()).unwrap());
        sleeper.kill().unwrap();
        assert!(wait_until(&sleeper, Instant::now() + Duration::from_secs(60)).unwrap());
        sleeper.wait().unwrap();
    }

    #[test]
    fn reports() {
        let report = |text: &str| {
            let file = memory_file(text.as_bytes()).unwrap();
            read_report(File::open(inherited_path(&file)).unwrap())
        };
        assert_eq!(report("exit 7\r\n"), Some(7));
        assert_eq!(report("exit 255\n"), Some(255));
        for bad in ["", "exit", "exit 256\n", "exit -1\n", "exi"] {
            assert_eq!(report(bad), None, "{bad}");
        }
    }
}
