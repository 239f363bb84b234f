//! `manage` on real processes, judged by what the kernel shows.

mod common;

use common::{
    Worker, huge, hugepilot, json_lines, lines_of, next_line, run, signal, stderr, stdout, wait_for,
};
use serde_json::Value;
use std::process::{Command, Stdio};

/// MiB of a worker, and the huge bytes that it must get: all its whole slots but one at each end.
const MIB: u32 = 32;
const HUGE_MIN: u64 = (MIB as u64 - 4) << 20;

fn is_done_collapse(line: &Value) -> bool {
    line["action"] == "collapse" && line["outcome"] == "done"
}

#[test]
fn memory_becomes_huge_and_the_lines_tell_the_truth() {
    let worker = Worker::start(MIB);
    let pid = worker.pid();
    let mut manager = hugepilot()
        .args(["manage", "--json", "--pid", &pid.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = lines_of(manager.stdout.take().expect("piped"));
    let start = next_line(&mut lines, |_| true);
    assert_eq!(start["start"]["policy"], "mega");
    let first = next_line(&mut lines, is_done_collapse);
    assert_eq!(first["process"]["pid"], pid);
    assert_eq!(first["verified"]["huge"], true);
    assert_eq!(first["verified"]["present_pages"], 512);
    assert_eq!(first["reason"]["rule"], "present_and_used");
    wait_for("huge memory", || (huge(pid) >= HUGE_MIN).then_some(()));
    assert_eq!(worker.finish(), usize::try_from(MIB).expect("small") << 20);
    // Its only process is gone, so it ends by itself.
    let summary = &next_line(&mut lines, |line| line["summary"].is_object())["summary"];
    assert_eq!(summary["ended"], "targets_gone");
    assert!(
        summary["actions"]["collapse"]["done"].as_u64() >= Some(HUGE_MIN >> 21),
        "{summary}"
    );
    assert!(manager.wait().expect("a child of ours").success());
}

#[test]
fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    let worker = Worker::start(MIB);
    let pid = worker.pid().to_string();
    let before = huge(worker.pid());
    let output = run(&[
        "manage",
        "--dry-run",
        "--json",
        "--for",
        "3s",
        "--pid",
        &pid,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = json_lines(&stdout(&output));
    let collapses = lines
        .iter()
        .filter(|line| line["action"] == "collapse" && line["dry_run"] == true);
    assert!(
        collapses.count() >= usize::try_from(HUGE_MIN >> 21).expect("few"),
        "{lines:?}"
    );
    assert!(
        lines.iter().all(|line| line.get("outcome").is_none()),
        "{lines:?}"
    );
    assert_eq!(huge(worker.pid()), before);
    worker.kill();
}

#[test]
fn a_recording_plans_the_same_again() {
    let worker = Worker::start(MIB);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("run.trace");
    let trace = trace.to_str().expect("temporary names are plain");
    let pid = worker.pid().to_string();
    let output = run(&[
        "manage", "--json", "--for", "3s", "--record", trace, "--pid", &pid,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    worker.kill();
    let done = json_lines(&stdout(&output))
        .iter()
        .filter(|line| is_done_collapse(line))
        .count();
    assert!(done > 0, "nothing was recorded that matters");
    let replayed = run(&["replay", "--json", trace]);
    assert_eq!(
        replayed.status.code(),
        Some(0),
        "{}{}",
        stdout(&replayed),
        stderr(&replayed)
    );
    let report: Value = serde_json::from_slice(&replayed.stdout).expect("JSON");
    assert_eq!(report["same"], true, "{report}");
    let other = run(&["replay", "--policy", "ingens", trace]);
    assert_eq!(other.status.code(), Some(0), "{}", stderr(&other));
    let planned = stdout(&other)
        .lines()
        .filter(|line| line.contains("collapse"))
        .count();
    assert!(
        planned >= done,
        "ingens plans {planned} collapses where mega did {done}"
    );
}

#[test]
fn a_signal_ends_it_with_a_summary_and_code_0() {
    for name in ["TERM", "INT"] {
        let worker = Worker::start(4);
        let mut manager = hugepilot()
            .args(["manage", "--json", "--pid", &worker.pid().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut lines = lines_of(manager.stdout.take().expect("piped"));
        next_line(&mut lines, |line| line["start"].is_object());
        signal(manager.id(), name);
        let summary = next_line(&mut lines, |line| line["summary"].is_object());
        assert_eq!(summary["summary"]["ended"], "asked", "{name}");
        assert_eq!(
            manager.wait().expect("a child of ours").code(),
            Some(0),
            "{name}"
        );
        worker.kill();
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let worker = Worker::start(MIB);
    let mut manager = hugepilot()
        .args(["manage", "--json", "--pid", &worker.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(manager.stdout.take());
    let output = manager.wait_with_output().expect("a child of ours");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    worker.kill();
}

/// The program as nobody in particular, with these capabilities alone. It is copied to where nobody may read it.
fn with_capabilities(directory: &tempfile::TempDir, capabilities: &[&str]) -> Command {
    use std::os::unix::fs::PermissionsExt;
    let program = directory.path().join("hugepilot");
    std::fs::copy(env!("CARGO_BIN_EXE_hugepilot"), &program).expect("a copy");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("our own directory");
    let set: String = capabilities
        .iter()
        .map(|name| format!(",+{name}"))
        .collect();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    for kind in ["bounding-set", "inh-caps", "ambient-caps"] {
        command.arg(format!("--{kind}=-all{set}"));
    }
    command.arg(program);
    command
}

/// The user that the program runs as when it has few capabilities: nobody.
const NOBODY: u32 = 65_534;

/// Manages `worker` with these capabilities alone.
fn manage_with(capabilities: &[&str], worker: &Worker) -> std::process::Output {
    let directory = tempfile::tempdir().expect("a temporary directory");
    with_capabilities(&directory, capabilities)
        .args([
            "manage",
            "--json",
            "--for",
            "3s",
            "--pid",
            &worker.pid().to_string(),
        ])
        .output()
        .expect("util-linux is essential")
}

#[test]
fn two_capabilities_are_enough_for_the_main_job() {
    let worker = Worker::start_as(NOBODY, MIB);
    let output = manage_with(&["sys_nice", "sys_ptrace"], &worker);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        huge(worker.pid()) >= HUGE_MIN,
        "{} huge; {}",
        huge(worker.pid()),
        stdout(&output)
    );
    worker.kill();
}

#[test]
fn three_are_enough_for_other_users_processes() {
    let worker = Worker::start(MIB);
    let output = manage_with(&["sys_nice", "sys_ptrace", "dac_read_search"], &worker);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        huge(worker.pid()) >= HUGE_MIN,
        "{} huge; {}",
        huge(worker.pid()),
        stdout(&output)
    );
    worker.kill();
}

#[test]
fn a_missing_capability_is_named() {
    let worker = Worker::start(4);
    let check = |capabilities: &[&str], missing: &str| {
        let output = manage_with(capabilities, &worker);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{capabilities:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(missing),
            "{capabilities:?}: {}",
            stderr(&output)
        );
    };
    check(&["sys_ptrace", "dac_read_search"], "CAP_SYS_NICE");
    check(&["sys_nice", "dac_read_search"], "CAP_SYS_PTRACE");
    check(&["sys_nice", "sys_ptrace"], "CAP_DAC_READ_SEARCH");
    worker.kill();
}

#[test]
fn what_was_restrained_is_restored_after_any_end() {
    let file = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
    let value = || std::fs::read_to_string(file).expect("a kernel with khugepaged");
    let before = value();
    assert_ne!(
        before.trim(),
        "0",
        "this machine leaves nothing to restrain; set {file} to 511"
    );
    for end in ["TERM", "KILL"] {
        let worker = Worker::start(4);
        let mut manager = hugepilot()
            .args([
                "manage",
                "--restrain-khugepaged",
                "--json",
                "--pid",
                &worker.pid().to_string(),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut lines = lines_of(manager.stdout.take().expect("piped"));
        next_line(&mut lines, |line| line["start"].is_object());
        assert_eq!(value().trim(), "0");
        signal(manager.id(), end);
        manager.wait().expect("a child of ours");
        if end == "KILL" {
            let output = run(&["restore"]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{}{}",
                stdout(&output),
                stderr(&output)
            );
        }
        assert_eq!(value(), before, "after SIG{end}");
        worker.kill();
    }
}
