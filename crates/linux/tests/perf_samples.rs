//! Memory samples of hardware, decoded from what an independent C program writes with the kernel's own headers.
//!
//! No machine of ours has a PMU that samples memory; this is as near as we come. It needs a C compiler and the kernel's
//! user-space headers.

use hugepilot_core::sample::ServedBy;
use hugepilot_linux::sampler::hardware::{FIELDS, access};
use hugepilot_linux::sampler::records::{Layout, Record, SampleRecord};
use std::path::Path;
use std::process::Command;

/// What the program wrote: the records' bytes, and what they mean.
fn written() -> (Vec<u8>, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("samples");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perf/samples.c");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler (apt-get install gcc linux-libc-dev)");
    assert!(compiled.success(), "the C program does not compile");
    let output = Command::new(&program).output().expect("it runs");
    assert!(output.status.success(), "the C program fails");
    let meaning = String::from_utf8(output.stderr).expect("text");
    (output.stdout, meaning)
}

/// A sample as the C program prints it.
fn told(sample: &SampleRecord) -> String {
    let (pid, tid) = sample.who.expect("who");
    let source = sample.data_source.expect("a source");
    let served = match hugepilot_linux::sampler::served_by(source) {
        ServedBy::Dram => "dram",
        ServedBy::Cache => "cache",
        ServedBy::Unknown => "unknown",
    };
    let mode = if sample.user { "user" } else { "kernel" };
    let word = |field: Option<u64>| field.expect("a field that was asked for");
    format!(
        "{served} {mode} {} {pid} {tid} {} {} {} {} {} {} {}",
        word(sample.ip),
        word(sample.time),
        word(sample.address),
        sample.cpu.expect("a processor"),
        word(sample.period),
        word(sample.weight),
        word(sample.physical),
        word(sample.page_bytes),
    )
}

#[test]
fn records_mean_what_the_kernels_headers_say() {
    let (bytes, meaning) = written();
    let layout = Layout::of(FIELDS).expect("fields that are known");
    let records = layout.records(&bytes).map(|record| match record {
        Record::Sample(sample) => told(&sample),
        Record::Lost(count) => format!("lost {count}"),
        Record::Throttled | Record::Other => "another record".to_owned(),
    });
    let records: Vec<String> = records.collect();
    let meaning: Vec<&str> = meaning.lines().collect();
    assert_eq!(records, meaning);
    assert!(records.len() > 15);
}

#[test]
fn only_user_mode_becomes_an_access_and_each_knows_its_rate() {
    let (bytes, meaning) = written();
    let layout = Layout::of(FIELDS).expect("fields that are known");
    let accesses: Vec<_> = layout
        .records(&bytes)
        .filter_map(|record| match record {
            Record::Sample(sample) => access(&sample),
            Record::Lost(_) | Record::Throttled | Record::Other => None,
        })
        .collect();
    let expected = meaning
        .lines()
        .filter(|line| line.contains(" user "))
        .count();
    assert_eq!(accesses.len(), expected);
    assert!(accesses.iter().all(|access| access.rate == Some(100_003.0)));
}
