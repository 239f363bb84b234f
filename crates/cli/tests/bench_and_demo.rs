//! `bench` and `demo` as a user starts them. Like all that manages memory, this needs root.
//!
//! Whatever they set on the system is set one test at a time: two of them at once would each find the other's switch.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Held by a test that sets the system's switch.
static SYSTEM: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    SYSTEM.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hugepilot(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugepilot"));
    command
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program")
}

fn report(args: &[&str]) -> Value {
    let output = hugepilot(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

fn switch() -> String {
    std::fs::read_to_string(SWITCH).expect("a kernel with THP")
}

#[test]
fn wrong_usage_ends_with_2_and_says_why() {
    let cases: [(&[&str], &str); 6] = [
        (&["bench", "faults", "--size", "much"], "2GiB"),
        (&["bench", "faults", "--size", "3MiB"], "multiple of 2 MiB"),
        (&["bench", "access", "--modes", "thp"], "ingens"),
        (&["bench", "access", "--rounds", "0"], "--rounds"),
        (&["bench", "worker", "{}"], "JSON"),
        (&["demo", "redis", "--keys", "3"], "--keys"),
    ];
    for (args, said) in cases {
        let output = hugepilot(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
}

#[test]
fn a_missing_server_is_said_with_what_to_install() {
    let output = hugepilot(&["demo", "redis", "--server", "/nowhere/redis-server"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("apt-get install"), "{errors}");
}

#[test]
fn a_worker_waits_for_the_word_and_times_every_base_page() {
    let spec = r#"{"bytes":4194304,"closed":true,"open_per_s":null,"settle_ns_max":0,"settle_share":null,
                   "read_ns":0,"mmap_watch":false,"seed":1}"#;
    let mut worker = Command::new(env!("CARGO_BIN_EXE_hugepilot"))
        .args(["bench", "worker", spec])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(worker.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("a readable line");
        serde_json::from_str(&line).expect("JSON")
    };
    let ready = next();
    assert_eq!(
        (ready["event"].as_str(), ready["pid"].as_u64()),
        (Some("ready"), Some(worker.id().into()))
    );
    let mut input = worker.stdin.take().expect("a pipe");
    input.write_all(b"go\n").expect("a waiting worker");
    let last = std::iter::repeat_with(next)
        .find(|line| line["event"] == "done")
        .expect("an end");
    assert_eq!(last["result"]["closed"]["latency"]["count"], 1024);
    assert!(worker.wait().expect("our child").success());
}

#[test]
fn all_modes_are_measured_and_the_switch_is_as_it_was() {
    let _alone = alone();
    let before = switch();
    let report = report(&[
        "bench", "faults", "--size", "16MiB", "--rounds", "1", "--rate", "100000", "--settle", "1",
        "--json",
    ]);
    assert_eq!(switch(), before);
    let runs = report["runs"].as_array().expect("runs");
    let count = |mode: &str| {
        runs.iter()
            .filter(|run| run["cell"]["mode"] == mode)
            .count()
    };
    assert_eq!(
        ["never", "always", "mega", "ingens"].map(count),
        [2, 2, 1, 1]
    );
    for run in runs {
        assert_eq!(run["worker"]["closed"]["latency"]["count"], 4096);
        assert_eq!(run["worker"]["open"]["latency"]["count"], 4096);
        assert!(run["worker"]["mmap"]["count"].as_u64() > Some(0));
    }
    let managed = runs
        .iter()
        .find(|run| run["cell"]["mode"] == "mega")
        .expect("mega ran");
    assert!(managed["manager"]["cpu_ns"].as_u64() > Some(0), "{managed}");
    assert!(managed["manager"]["summary"].is_object(), "{managed}");
    let never = &report["figures"]["closed_huge_share"]["never"];
    assert_eq!(never["max"], 0.0);
}

#[test]
fn a_small_demo_leaves_nothing_behind() {
    let _alone = alone();
    let before = switch();
    let report = report(&[
        "demo",
        "redis",
        "--keys",
        "2000",
        "--modes",
        "never,mega",
        "--settle",
        "1",
        "--json",
    ]);
    assert_eq!(switch(), before);
    let modes = report["modes"].as_array().expect("modes");
    assert_eq!(modes.len(), 2);
    for mode in modes {
        assert_eq!(mode["filled"]["latency"]["count"], 2000);
        assert!(mode["saved"]["fork_ns"].as_u64() > Some(0));
        let charged = |when: &str| mode[when]["charged_bytes"].as_u64().expect("a number");
        assert!(charged("after_fill") > 2000 * 4096);
        assert!(charged("after_delete") < charged("after_fill") * 2);
    }
    assert!(modes[0]["deleted"].as_u64() > Some(1_400));
    assert!(modes[0]["manager"].is_null() && modes[1]["manager"].is_object());
    let left = |dir: &Path| {
        let entries = std::fs::read_dir(dir).expect("a readable directory");
        entries
            .filter(|entry| {
                let name = entry.as_ref().expect("an entry").file_name();
                name.to_string_lossy().starts_with("hugepilot-demo-")
            })
            .count()
    };
    assert_eq!(left(&std::env::temp_dir()), 0);
}
