//! `hugepilot bench numa` on this machine, whatever its nodes: it runs, is right, and refuses what means nothing.

mod common;

use common::hugepilot;
use serde_json::Value;

fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = hugepilot()
        .args(["bench", "numa"])
        .args(arguments)
        .arg("--json")
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect()
}

const SMALL: [&str; 8] = [
    "--threads",
    "1",
    "--size",
    "8MiB",
    "--intervals",
    "2",
    "--accesses",
    "5000",
];

#[test]
fn every_workload_tells_what_it_did() {
    for name in [
        "first-touch",
        "hot-vector",
        "false-sharing",
        "false-sharing-phases",
        "hash-table",
        "map-reduce",
    ] {
        let lines = lines(&[&[name][..], &SMALL].concat());
        let events: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["event"].as_str())
            .collect();
        assert_eq!(events, ["begins", "interval", "interval", "done"], "{name}");
        assert_eq!(lines[3]["wrong"], 0, "{name}");
        assert!(lines[3]["accesses"].as_u64() >= Some(10_000), "{name}");
    }
}

#[test]
fn the_region_of_a_gigantic_page_can_be_had_in_ordinary_ones() {
    let lines = lines(&[&["hot-gigantic", "--backing", "ordinary"][..], &SMALL].concat());
    assert_eq!(lines[3]["updates_lost"], 0);
}

#[test]
fn without_a_gigantic_page_it_says_what_to_do() {
    let free =
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages");
    let output = hugepilot()
        .args(["bench", "numa", "hot-gigantic"])
        .args(SMALL)
        .output()
        .expect("it starts");
    if free.is_ok_and(|free| free.trim() != "0") {
        assert!(output.status.success());
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("no free 1 GiB page"), "{errors}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn what_means_nothing_is_wrong_usage() {
    for wrong in [
        &["hash-table", "--size", "3MiB"][..],
        &["hash-table", "--cpus", "4-"],
        &["hash-table", "--cpus", "1023"],
        &["no-such-workload"],
        &["hash-table", "--intervals", "0"],
    ] {
        let output = hugepilot()
            .args(["bench", "numa"])
            .args(wrong)
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_help_names_the_published_counterparts() {
    let output = hugepilot()
        .args(["bench", "numa", "--help"])
        .output()
        .expect("it starts");
    let help = String::from_utf8(output.stdout).expect("text");
    for counterpart in ["CG.D", "UA.B", "SSCA", "SPECjbb", "Metis", "streamcluster"] {
        assert!(help.contains(counterpart), "{counterpart}: {help}");
    }
}
