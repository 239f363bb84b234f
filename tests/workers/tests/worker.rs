//! The worker does what it is told, and nothing outlives it.

use hugepilot_workers::client::{Kind, Worker, WorkerError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SLOT: u64 = 2 << 20;
const PAGE: u64 = 4096;
/// The kernel takes a killed process down within this time, or something is wrong.
const GONE_AFTER_MAX: Duration = Duration::from_secs(10);

fn file() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hugepilot-worker"))
}

fn worker() -> Worker {
    Worker::start(file()).expect("the worker starts")
}

fn ask(worker: &mut Worker, command: &str, key: &str) -> u64 {
    let reply = worker
        .ask(command)
        .unwrap_or_else(|error| panic!("{error}"));
    reply.number(key).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn memory_is_aligned_and_holds_what_was_written() {
    let mut worker = worker();
    let mapped = worker.map("a", 2 * SLOT, &Kind::Anonymous).expect("memory");
    assert_eq!(mapped.address % SLOT, 0);
    worker.ask("fill a 7").expect("filled");
    assert_eq!(worker.check("a").expect("checked"), 0);
    worker.ask("zero a 0 4096").expect("zeroed");
    assert_eq!(ask(&mut worker, "read a 0 8192", "nonzero"), 1);
    assert!(
        worker.check("a").expect("checked") > PAGE / 2,
        "wrong bytes are counted"
    );
}

#[test]
fn shared_memory_is_the_same_for_two_workers() {
    let (mut first, mut second) = (worker(), worker());
    let mapped = first.map("a", SLOT, &Kind::Shmem).expect("memory");
    let file = mapped.file.expect("a memfd");
    let other = second
        .map("b", SLOT, &Kind::File(file.path))
        .expect("the same memory");
    let theirs = other.file.expect("a file");
    assert_eq!((theirs.device, theirs.inode), (file.device, file.inode));
    first.touch("a", 0, PAGE).expect("touched");
    assert_eq!(ask(&mut second, "read b 0 8192", "nonzero"), 1);
}

#[test]
fn contents_survive_a_move_and_an_exec_starts_anew() {
    let mut worker = worker();
    worker.map("a", SLOT, &Kind::Anonymous).expect("memory");
    worker.ask("fill a").expect("filled");
    worker.ask("mremap a").expect("moved");
    assert_eq!(worker.check("a").expect("checked"), 0);
    assert_eq!(ask(&mut worker, "exec", "pid"), u64::from(worker.pid()));
    assert!(matches!(
        worker.check("a"),
        Err(WorkerError::Refused { .. })
    ));
}

#[test]
fn threads_keep_what_they_verify() {
    let mut worker = worker();
    worker.map("a", SLOT, &Kind::Anonymous).expect("memory");
    worker.ask("fill a").expect("filled");
    worker.ask("threads a 2").expect("started");
    assert_eq!(ask(&mut worker, "mmap-latency 100", "count"), 100);
    assert!(worker.ask("unmap a").is_err(), "threads use it");
    assert_eq!(ask(&mut worker, "join", "wrong"), 0);
}

#[test]
fn base_pages_come_whatever_the_system_says() {
    let mut worker = worker();
    worker.ask("base-pages").expect("obeyed");
    worker.map("a", 8 * SLOT, &Kind::Anonymous).expect("memory");
    worker.ask("advise a hugepage").expect("advised");
    let before = ask(&mut worker, "resident", "bytes");
    for slot in 0..8 {
        worker.touch("a", slot * SLOT, PAGE).expect("touched");
    }
    let grown = ask(&mut worker, "resident", "bytes") - before;
    assert!(grown < SLOT, "eight base pages took {grown} bytes");
}

#[test]
fn nonsense_is_refused_and_the_worker_goes_on() {
    let mut worker = worker();
    for nonsense in [
        "",
        "map",
        "map a ten",
        "touch nobody 0 4096",
        "free nobody 0 1",
        "pin a 0",
    ] {
        assert!(
            matches!(worker.ask(nonsense), Err(WorkerError::Refused { .. })),
            "{nonsense}"
        );
    }
    worker.map("a", SLOT, &Kind::Anonymous).expect("memory");
    assert!(matches!(
        worker.ask("touch a 0 4194304"),
        Err(WorkerError::Refused { .. })
    ));
    assert!(matches!(
        worker.ask("touch a 0 4096 0"),
        Err(WorkerError::Refused { .. })
    ));
}

#[test]
fn a_forked_child_dies_with_its_worker() {
    let mut worker = worker();
    let child = ask(&mut worker, "fork", "pid");
    worker.kill().expect("killed");
    let status = format!("/proc/{child}/stat");
    let until = Instant::now() + GONE_AFTER_MAX;
    // It may stay a zombie where nobody reaps it.
    let running = || std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z "));
    while running() {
        assert!(Instant::now() < until, "{status} is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_missing_program_says_what_to_run() {
    let missing = Worker::start(Path::new("/nowhere/hugepilot-worker")).expect_err("not there");
    assert!(
        missing
            .to_string()
            .contains("cargo build -p hugepilot-workers"),
        "{missing}"
    );
}

#[test]
fn a_storm_hurts_no_byte_by_itself() {
    let storm = Command::new(file())
        .args([
            "storm",
            "--seconds",
            "2",
            "--seed",
            "3",
            "--bytes",
            "16777216",
        ])
        .stderr(Stdio::inherit())
        .output()
        .expect("the storm starts");
    let text = String::from_utf8(storm.stdout).expect("text");
    assert!(storm.status.success(), "{text}");
    let counts = text.lines().last().expect("a last line");
    assert!(
        counts.contains("\"wrong_bytes\":0,") && counts.contains("\"crashes\":0"),
        "{counts}"
    );
    assert!(!counts.contains("\"verified_bytes\":0,"), "{counts}");
}
