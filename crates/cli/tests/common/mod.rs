//! Real processes to try the program on, and waiting for what they do.
#![allow(dead_code, reason = "each test file uses a part of it")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything is waited for, before the test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The program.
pub fn hugepilot() -> Command {
    Command::new(env!("CARGO_BIN_EXE_hugepilot"))
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    hugepilot()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

/// Standard error, as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output, as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until `ready` gives something.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(
            began.elapsed() < DEADLINE,
            "{what} did not happen within {DEADLINE:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process with memory: `dd` that read random bytes into its buffer and waits for us to take them.
pub struct Worker {
    child: Child,
    out: ChildStdout,
}

/// The arguments that make `dd` hold `mib` MiB of random bytes.
pub fn dd(mib: u32) -> Vec<String> {
    [
        "if=/dev/urandom",
        "count=1",
        "iflag=fullblock",
        "status=none",
    ]
    .iter()
    .map(|&word| word.to_owned())
    .chain([format!("bs={mib}M")])
    .collect()
}

impl Worker {
    /// Starts it, and waits until all its memory is there.
    pub fn start(mib: u32) -> Self {
        Self::of(Command::new("dd"), mib)
    }

    /// The same as another user.
    pub fn start_as(user: u32, mib: u32) -> Self {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .args(["--clear-groups", "dd"]);
        Self::of(command, mib)
    }

    fn of(mut command: Command, mib: u32) -> Self {
        let mut child = command
            .args(dd(mib))
            .stdout(Stdio::piped())
            .spawn()
            .expect("coreutils are essential");
        let out = child.stdout.take().expect("piped");
        let worker = Self { child, out };
        let wanted = u64::from(mib) << 20;
        wait_for("the worker's memory", || {
            (resident(worker.pid()) >= wanted && sleeps(worker.pid())).then_some(())
        });
        worker
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes its bytes, so that it ends; how many they were.
    pub fn finish(mut self) -> usize {
        let mut bytes = Vec::new();
        self.out.read_to_end(&mut bytes).expect("a pipe of ours");
        assert!(self.child.wait().expect("a child of ours").success());
        bytes.len()
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }
}

/// Does it wait, for us to take its bytes?
fn sleeps(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| rest.starts_with(" S"))
}

fn smaps_sum(pid: u32, key: &str) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/smaps")) else {
        return 0;
    };
    let kilobytes = |line: &str| {
        line.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<u64>()
            .ok()
    };
    text.lines()
        .filter_map(|line| line.strip_prefix(key))
        .filter_map(kilobytes)
        .sum::<u64>()
        << 10
}

/// Bytes of a process in anonymous huge pages, as the kernel says.
pub fn huge(pid: u32) -> u64 {
    smaps_sum(pid, "AnonHugePages:")
}

/// Bytes of a process that are resident, as the kernel says.
pub fn resident(pid: u32) -> u64 {
    smaps_sum(pid, "Rss:")
}

/// The JSON lines of an output.
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// The next JSON line that `wanted` likes.
pub fn next_line(
    lines: &mut impl Iterator<Item = Value>,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    lines
        .find(|line| wanted(line))
        .expect("the output ended before that")
}

/// The JSON lines of a running child, as they come.
pub fn lines_of(out: impl Read) -> impl Iterator<Item = Value> {
    BufReader::new(out)
        .lines()
        .map(|line| line.expect("a pipe of ours"))
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

/// Sends a signal.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()
        .expect("kill is essential");
    assert!(sent.success(), "kill -{name} {pid}");
}
