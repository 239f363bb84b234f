//! `hugepilot pool` on the running kernel's pools: real pages, real holders, real mounts. As root, with at most 16 MiB, put back after
//! each test however it ends.

mod common;

use common::{dd, hugepilot, run, stderr, stdout, wait_for};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File};
use std::process::{Child, Command, Output, Stdio};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// The pool of 2 MiB pages, set for a test. Another process puts it back when we are gone, so also after a panic and after
/// `kill -9`; it holds the lock that keeps other tests, of other crates too, away from the pool meanwhile.
struct Pool {
    restorer: Child,
}

impl Pool {
    /// A pool of just so many pages, all of them free, without surplus.
    fn of(pages: u64) -> Self {
        let lock = std::env::temp_dir().join("hugepilot-pool.lock");
        let lock = File::create(lock).expect("a lock file");
        flock(&lock, FlockOperation::LockExclusive).expect("the lock");
        let [total, overcommit] = ["nr_hugepages", "nr_overcommit_hugepages"].map(number);
        let restore = format!(
            "trap '' INT TERM HUP; read -r _; echo {total} > {POOL}/nr_hugepages; echo {overcommit} > {POOL}/nr_overcommit_hugepages"
        );
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &restore])
            .stdin(Stdio::piped())
            .stdout(lock);
        let pool = Self {
            restorer: shell.spawn().expect("sh"),
        };
        write("nr_overcommit_hugepages", 0);
        write("nr_hugepages", pages);
        assert_eq!(
            number("free_hugepages"),
            pages,
            "free huge pages: is there memory, and does nobody else use them?"
        );
        pool
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        let restored = self.restorer.wait();
        if !std::thread::panicking() {
            assert!(
                restored.expect("sh").success(),
                "the pool is not what it was"
            );
        }
    }
}

fn number(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{POOL}/{name}")).expect("the kernel has huge pages");
    text.trim().parse().expect("a number")
}

fn write(name: &str, value: u64) {
    fs::write(format!("{POOL}/{name}"), value.to_string()).expect("these tests need root");
}

/// A process with pages of the pool: `dd`, whose buffer glibc takes from it.
struct Holder(Child);

impl Holder {
    /// Starts it, and waits until it has touched `mib` MiB of it.
    fn start(mib: u32) -> Self {
        let before = number("free_hugepages");
        let mut command = Command::new("dd");
        command
            .args(dd(mib))
            .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")
            .stdout(Stdio::piped());
        let holder = Self(command.spawn().expect("coreutils are essential"));
        let wanted = u64::from(mib) / 2;
        wait_for("the holder's memory", || {
            (number("free_hugepages") + wanted <= before).then_some(())
        });
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }
}

#[track_caller]
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        stderr(&output)
    );
    stdout(&output)
}

#[track_caller]
fn fails(output: &Output, code: i32, parts: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(
        (said.lines().count(), stdout(output).as_str()),
        (1, ""),
        "{said}"
    );
    for part in parts {
        assert!(said.contains(part), "{said:?} should contain {part:?}");
    }
}

fn listed() -> Value {
    serde_json::from_str(&done(&["pool", "list", "--json"])).expect("JSON")
}

/// The pool of 2 MiB pages in the list.
fn pool_of(listed: &Value) -> &Value {
    let pools = listed["pools"].as_array().expect("pools");
    let found = pools.iter().find(|pool| pool["page_bytes"] == 2 << 20);
    found.expect("the kernel has such pages")
}

#[test]
fn a_pool_is_what_it_was_asked_to_be() {
    let _pool = Pool::of(2);
    let said = done(&["pool", "grow", "2M", "+3"]);
    assert!(said.contains("2 before, 5 now"), "{said}");
    assert!(
        said.contains("hugepages=5"),
        "it says how to keep it: {said}"
    );
    assert_eq!(number("nr_hugepages"), 5);
    done(&["pool", "shrink", "2M", "-1"]);
    assert_eq!(number("nr_hugepages"), 4);
    done(&["pool", "set", "2M=16M@0"]);
    assert_eq!(number("nr_hugepages"), 8);
    done(&["pool", "set", "2M=1", "--overcommit", "3"]);
    let listed = listed();
    let pool = pool_of(&listed);
    assert_eq!(
        (&pool["minimum_pages"], &pool["maximum_pages"]),
        (&1.into(), &4.into())
    );
    assert_eq!(pool["nodes"][0]["current_pages"], 1);
}

#[test]
fn who_holds_pages_is_named_and_keeps_them() {
    let _pool = Pool::of(6);
    let holder = Holder::start(4);
    let listed = listed();
    let holders = listed["holders"].as_array().expect("holders");
    let pid = u64::from(holder.0.id());
    let ours = holders.iter().find(|one| one["pid"] == pid);
    let ours = ours.expect("dd is listed");
    assert!(ours["private_bytes"].as_u64() >= Some(4 << 20), "{ours}");
    assert_eq!(pool_of(&listed)["unaccounted_bytes"], 0);
    let in_use = 6 - number("free_hugepages") + number("resv_hugepages");
    let said = done(&["pool", "set", "2M=0"]);
    assert!(said.contains("stay as surplus"), "{said}");
    assert_eq!(
        (number("nr_hugepages"), number("surplus_hugepages")),
        (in_use, in_use)
    );
    drop(holder);
    wait_for("the surplus going", || {
        (number("nr_hugepages") == 0).then_some(())
    });
}

#[test]
fn explain_says_what_the_kernel_then_does() {
    let _pool = Pool::of(4);
    let said = done(&["pool", "explain", "2M", "--length", "8M"]);
    assert!(
        said.contains("4 pages of 2 MiB (8 MiB) succeeds now"),
        "{said}"
    );
    let refused = run(&["pool", "explain", "2M", "--length", "10M"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stdout(&refused).contains("1 missing"),
        "{}",
        stdout(&refused)
    );
    write("nr_overcommit_hugepages", 1);
    let perhaps = done(&["pool", "explain", "2M", "--length", "10M"]);
    assert!(perhaps.contains("1 page of surplus"), "{perhaps}");
    let _holder = Holder::start(4);
    assert_eq!(
        run(&["pool", "explain", "2M", "--length", "10M"])
            .status
            .code(),
        Some(1)
    );
}

/// In a mount namespace of its own, so that nothing is left whatever happens.
#[test]
fn a_mount_is_there_and_not_made_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory
        .path()
        .to_str()
        .expect("temporary names are plain");
    let program = env!("CARGO_BIN_EXE_hugepilot");
    let script = format!(
        "{program} pool mount --size 2M --max 4M {at} && grep ' {at} ' /proc/self/mountinfo && {program} pool mount {at}"
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output()
        .expect("util-linux is essential");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("already"), "{}", stderr(&output));
    let said = stdout(&output);
    for part in [
        "nosuid,nodev",
        "pagesize=2M,size=4194304",
        "/etc/fstab",
        "\nWhere=/",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

#[test]
fn wrong_usage_changes_nothing() {
    let _pool = Pool::of(2);
    let usage: [(&[&str], &str); 10] = [
        (&["set", "2M"], "SIZE=N"),
        (&["set", "2M=-1"], "512"),
        (&["set", "3M=1"], "2M or 1G"),
        (&["set", "8M=1"], "no pool of 8 MiB"),
        (&["set", "2M=1", "2M=1@99"], "no node 99"),
        (&["shrink", "2M", "-3"], "only 2 pages"),
        (&["demote", "2M", "1"], "cannot be broken"),
        (&["explain", "2M", "--length", "0"], "one byte at least"),
        (&["explain", "2M", "--pid", "4194304"], "no process"),
        (
            &["mount", "--size", "2M", "--max", "3M", "/"],
            "whole number",
        ),
    ];
    for (arguments, part) in usage {
        let output = run(&[&["pool"], arguments].concat());
        fails(&output, 2, &[part]);
    }
    assert_eq!(number("nr_hugepages"), 2);
}

#[test]
fn without_root_it_says_so() {
    let _pool = Pool::of(2);
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(hugepilot().get_program())
            .args(arguments);
        command.output().expect("util-linux is essential")
    };
    fails(
        &as_nobody(&["pool", "set", "2M=4"]),
        1,
        &["root alone", "nr_hugepages"],
    );
    assert_eq!(number("nr_hugepages"), 2);
    let listed = as_nobody(&["pool", "list"]);
    assert_eq!(listed.status.code(), Some(0), "{}", stderr(&listed));
    assert!(
        stdout(&listed).contains("processes that we may not look into"),
        "{}",
        stdout(&listed)
    );
}
