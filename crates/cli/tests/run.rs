//! `run`: the command's exit code, its signals, its memory.

mod common;

use common::{dd, huge, hugepilot, lines_of, next_line, run, signal, stderr, stdout, wait_for};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

fn check(command: &[&str], code: i32) {
    let arguments: Vec<&str> = ["run", "--"].iter().chain(command).copied().collect();
    let output = run(&arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}: {}",
        stderr(&output)
    );
}

#[test]
fn the_exit_code_is_the_commands() {
    check(&["true"], 0);
    check(&["false"], 1);
    check(&["sh", "-c", "exit 42"], 42);
    check(&["sh", "-c", "kill -9 $$"], 128 + 9);
    check(&["sh", "-c", "kill -TERM $$"], 128 + 15);
    check(&["/no/such/command"], 127);
    check(&["no-such-command-either"], 127);
    check(&["/etc/passwd"], 126);
}

#[test]
fn what_the_command_prints_is_its_own() {
    let output = run(&["run", "--", "echo", "hello", "--json"]);
    assert_eq!(stdout(&output), "hello --json\n");
    assert!(stderr(&output).contains("cost"), "{}", stderr(&output));
}

/// A shell that answers signals, and says when it is ready.
///
/// It leads a process group of its own, whose parent is in the same session: in an orphaned group, as a test may be in
/// where there is no terminal, the kernel drops `SIGTSTP`.
fn shell(script: &str) -> Child {
    hugepilot()
        .process_group(0)
        .args(["run", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

#[test]
fn signals_are_passed_on() {
    for (name, code) in [
        ("INT", 3),
        ("TERM", 4),
        ("HUP", 5),
        ("QUIT", 6),
        ("USR1", 7),
        ("USR2", 8),
    ] {
        let script = format!(
            "trap 'exit {code}' {name}; echo ready; while :; do read line || :; sleep 0.01; done"
        );
        let mut child = shell(&script);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(
            lines.next().expect("a line").expect("a pipe of ours"),
            "ready"
        );
        signal(child.id(), name);
        assert_eq!(
            child.wait().expect("a child of ours").code(),
            Some(code),
            "{name}"
        );
    }
}

/// The state letter of a process.
fn state(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().next().map(str::to_owned)
}

#[test]
fn both_stop_and_both_go_on() {
    let mut child = shell("echo $$; read line; exit 9");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let command = lines.next().expect("a line").expect("a pipe of ours");
    let command: u32 = command.parse().expect("the shell's pid");
    let both = [child.id(), command];
    let stopped = |pid: &u32| state(*pid).as_deref() == Some("T");
    signal(child.id(), "TSTP");
    wait_for("both to stop", || both.iter().all(stopped).then_some(()));
    signal(child.id(), "CONT");
    wait_for("both to go on", || {
        (!both.iter().any(stopped)).then_some(())
    });
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("a child of ours").code(), Some(9));
}

#[test]
fn a_stop_that_the_command_does_not_follow_stops_nobody() {
    let mut child = shell("trap '' TSTP; echo $$; read line; exit 9");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let command = lines.next().expect("a line").expect("a pipe of ours");
    let command: u32 = command.parse().expect("the shell's pid");
    signal(child.id(), "TSTP");
    signal(child.id(), "CONT");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("a child of ours").code(), Some(9));
    assert_ne!(state(command).as_deref(), Some("T"));
}

#[test]
fn a_child_that_lost_its_parent_is_managed_and_reaped() {
    let mut child = hugepilot()
        .args(["run", "--json", "--", "sh", "-c"])
        // The inner shell ends at once, so that dd is an orphan; the outer one waits for dd's bytes to be taken.
        .arg(format!("sh -c 'dd {} &' ; read line", dd(32).join(" ")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = lines_of(child.stderr.take().expect("piped"));
    let collapse = next_line(&mut lines, |line| {
        line["action"] == "collapse" && line["outcome"] == "done"
    });
    let pid = u32::try_from(collapse["process"]["pid"].as_u64().expect("a pid")).expect("a pid");
    wait_for("huge memory", || (huge(pid) >= 24 << 20).then_some(()));
    let mut bytes = Vec::new();
    let mut out = child.stdout.take().expect("piped");
    out.by_ref()
        .take(32 << 20)
        .read_to_end(&mut bytes)
        .expect("a pipe of ours");
    assert_eq!(bytes.len(), 32 << 20);
    wait_for("the orphan to be reaped", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    drop(child.stdin.take());
    // `read` meets the end of its input: exit code 1.
    assert_eq!(child.wait().expect("a child of ours").code(), Some(1));
}

#[test]
fn the_command_keeps_its_faults_on_base_pages_where_the_kernel_can() {
    let output = run(&["run", "--", "grep", "THP_enabled", "/proc/self/status"]);
    let plain = Command::new("grep")
        .args(["THP_enabled", "/proc/self/status"])
        .output()
        .expect("grep is essential");
    // THP_enabled says 1 for "except advised" too: the program is told to be allowed, whatever we set.
    assert_eq!(stdout(&output), stdout(&plain));
    let said = stderr(&output);
    assert!(said.contains("except where advised"), "{said}");
    let left = run(&["run", "--no-except-advised", "--", "true"]);
    assert!(
        !stderr(&left).contains("except where advised"),
        "{}",
        stderr(&left)
    );
}
