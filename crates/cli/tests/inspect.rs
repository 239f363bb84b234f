//! `inspect` on real processes, judged by what the kernel shows.

mod common;

use common::{Worker, huge, hugepilot, resident, run, stderr, stdout};
use serde_json::Value;

const MIB: u32 = 32;
/// Whole slots that a worker has at least: all but one at each end of its buffer.
const SLOTS_MIN: u64 = (MIB as u64 >> 1) - 2;

fn inspect(pid: u32) -> Value {
    let output = run(&["inspect", "--json", &pid.to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Actions of a name that a policy would carry out.
fn would(census: &Value, policy: &str, action: &str) -> u64 {
    let policies = census["policies"].as_array().expect("a list");
    let verdict = policies
        .iter()
        .find(|verdict| verdict["policy"] == policy)
        .expect("every policy");
    let actions = verdict["actions"].as_array().expect("a list");
    actions
        .iter()
        .filter(|entry| entry["action"] == action)
        .map(|entry| number(&entry["count"]))
        .sum()
}

#[test]
fn base_pages_and_what_would_become_of_them() {
    let worker = Worker::start(MIB);
    let census = inspect(worker.pid());
    assert_eq!(census["comm"], "dd");
    assert_eq!(census["thp"], "allowed");
    assert_eq!(
        number(&census["total"]["resident_bytes"]),
        resident(worker.pid())
    );
    assert_eq!(number(&census["total"]["huge_bytes"]), huge(worker.pid()));
    let tenths = census["total"]["slots"]["by_present_tenths"]
        .as_array()
        .expect("ten numbers");
    assert_eq!(tenths.len(), 10);
    assert!(number(&tenths[9]) >= SLOTS_MIN, "{tenths:?}");
    let base = &census["by_kind"]["anonymous"]["orders"];
    assert!(number(&base[0]["bytes"]) >= u64::from(MIB) << 20, "{base}");
    let nodes = census["total"]["nodes"].as_object().expect("by node");
    // The kernel leaves pages out that have no node of their own.
    let on_nodes: u64 = nodes.values().map(number).sum();
    assert!(
        (u64::from(MIB) << 20..=resident(worker.pid())).contains(&on_nodes),
        "{nodes:?}"
    );
    assert!(
        would(&census, "ingens", "collapse") >= SLOTS_MIN,
        "{}",
        census["policies"]
    );
    assert_eq!(would(&census, "linux", "baseline"), 1);
    worker.kill();
}

#[test]
fn huge_pages_are_seen_as_such() {
    let worker = Worker::start(MIB);
    let pid = worker.pid().to_string();
    let managed = run(&["manage", "--policy", "ingens", "--for", "3s", "--pid", &pid]);
    assert_eq!(managed.status.code(), Some(0), "{}", stderr(&managed));
    let census = inspect(worker.pid());
    assert!(
        huge(worker.pid()) >= SLOTS_MIN << 21,
        "nothing became huge: {}",
        stdout(&managed)
    );
    assert_eq!(number(&census["total"]["huge_bytes"]), huge(worker.pid()));
    assert_eq!(
        number(&census["total"]["slots"]["huge"]),
        huge(worker.pid()) >> 21
    );
    assert_eq!(
        would(&census, "ingens", "collapse"),
        0,
        "{}",
        census["policies"]
    );
    worker.kill();
}

/// The text of an inspection under a locale.
fn text(pid: u32, locale: &str) -> String {
    let output = hugepilot()
        .args(["inspect", &pid.to_string(), "--regions", "1"])
        .env("LC_ALL", locale)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_histogram_is_drawn_as_the_locale_can() {
    let worker = Worker::start(4);
    let unicode = text(worker.pid(), "C.UTF-8");
    assert!(unicode.contains('█'), "{unicode}");
    let ascii = text(worker.pid(), "C");
    assert!(ascii.contains("####"), "{ascii}");
    assert!(
        ascii.contains("--regions"),
        "it says that there are more: {ascii}"
    );
    assert!(!unicode.contains('\u{1b}'), "no colours into a pipe");
    worker.kill();
}
