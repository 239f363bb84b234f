//! A cgroup at its limit: managing a process in it kills nobody, and leaves the headroom.

use hugepilot_workers::cgroup::LimitedCgroup;
use hugepilot_workers::client::{Kind, Worker, binary};
use std::process::{Command, Stdio};

const SLOT: u64 = 2 << 20;
const PAGE: u64 = 4096;
const LIMIT: u64 = 512 << 20;
/// The law's headroom in a cgroup of this size.
const HEADROOM: u64 = 64 << 20;
/// Slots of 461 base pages each: 414 MiB, which a collapse of all would make 460 MiB, beyond the headroom.
const SLOTS: u64 = 230;
const PRESENT: u64 = 461;
/// Accounting is in batches of some pages for each processor.
const TOLERANCE: u64 = 4 << 20;

#[test]
fn a_cgroup_near_its_limit_keeps_its_headroom_and_its_processes() {
    let cgroup = LimitedCgroup::make("limit", LIMIT).expect("a memory cgroup");
    let worker = binary().expect("built");
    let mut worker = Worker::start_command(cgroup.command(&worker, &["serve"])).expect("started");
    worker
        .map("a", SLOTS * SLOT, &Kind::Anonymous)
        .expect("mapped");
    worker.ask("base-pages").expect("first touches are small");
    for slot in 0..SLOTS {
        worker
            .touch("a", slot * SLOT, PRESENT * PAGE)
            .expect("touched");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_hugepilot"))
        .args(["manage", "--policy", "mega", "--for", "8s", "--json"])
        .args(["--pid", &worker.pid().to_string()])
        .stdin(Stdio::null())
        .output()
        .expect("managed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).expect("text");
    let collapsed = lines
        .lines()
        .filter(|line| line.contains(r#""outcome":"done""#))
        .count();
    assert!(collapsed > 0, "there was room for some: {lines}");
    let current = cgroup.current().expect("counted");
    assert!(
        current <= LIMIT - HEADROOM + TOLERANCE,
        "{current} of {LIMIT}"
    );
    assert_eq!(cgroup.oom_kills().expect("counted"), 0);
    // What it may use, it can still use, up to the last page below the limit.
    worker.touch("a", 0, SLOTS * SLOT).expect("touched");
    assert_eq!(cgroup.oom_kills().expect("counted"), 0);
    worker.ask("resident").expect("it lives");
}
