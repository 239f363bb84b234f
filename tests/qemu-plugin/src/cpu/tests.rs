// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::arguments::Settings;
use crate::topology::{Reports, Topology};
use hugepilot_vpmu::{Layout, Machine, Reader, Thread, WORDS};
use serde_json::Value;
use std::fs;
use std::sync::atomic::AtomicU64;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// A plugin at work for a guest of two nodes with a CPU each, and its files.
struct Rig {
    plugin: Plugin,
    cpus: Vec<Cpu>,
    directory: tempfile::TempDir,
}

impl Rig {
    fn new(more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            format!("{name}={}", path.display())
        };
        let mut words = vec![path("out"), path("samples"), "shared=-".to_owned()];
        words.extend(["cpu_nodes=0:1", "memory_mib=256:256"].map(str::to_owned));
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let settings = Settings::parse(&words).unwrap();
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let machine = Machine { nodes: 2, cpus: 2 };
        let layout = Layout::prepare(words.leak(), machine, 1024).unwrap();
        let sizes = vec![256 * MIB; 2];
        let topology = Topology::new(vec![0, 1], sizes, Reports::Addresses);
        let plugin = Plugin::new(settings, topology, layout).unwrap();
        let cpus = (0..2).map(|cpu| Cpu::new(&plugin, cpu).unwrap()).collect();
        Self {
            plugin,
            cpus,
            directory,
        }
    }

    fn publish(&self, cpu: u32, kind: Kind) -> hugepilot_vpmu::Slot {
        let thread = Thread {
            cpu,
            pid: 10,
            tid: 11 + cpu,
            addresses: BASE..BASE + 1024 * MIB,
            kind,
        };
        self.plugin.layout.publish_thread(&thread).unwrap()
    }

    /// Loads, one a block of ten instructions, from pages of one node.
    fn load(&mut self, cpu: usize, node: u64, count: u64) {
        for access in 0..count {
            let offset = access * 64 % MIB;
            let seen = Seen {
                vaddr: BASE + node * 256 * MIB + offset,
                store: false,
            };
            self.cpus[cpu].block(&self.plugin, 10, Mode::User);
            let paddr = node * 256 * MIB + 0x3000 + offset;
            self.cpus[cpu].access(&self.plugin, seen, || Some(paddr));
        }
    }

    fn close(&mut self) -> Value {
        let number = self.plugin.layout.next_window();
        self.cpus[0].block(&self.plugin, INSTRUCTIONS_PER_LOOK, Mode::Kernel);
        assert_eq!(self.plugin.layout.windows_closed(), number);
        let lines = fs::read_to_string(self.directory.path().join("out")).unwrap();
        serde_json::from_str(lines.lines().last().expect("a line")).unwrap()
    }
}

#[test]
fn the_upper_half_is_the_kernels() {
    assert_eq!(Mode::of(0x7fff_ffff_ffff), Mode::User);
    assert_eq!(Mode::of(0xffff_8000_0000_0000), Mode::Kernel);
}

#[test]
fn accesses_are_counted_by_thread_and_node() {
    let mut rig = Rig::new(&["caches=off"]);
    rig.publish(0, Kind::Workload);
    rig.publish(1, Kind::Workload);
    rig.load(0, 0, 300);
    rig.load(0, 1, 100);
    rig.load(1, 1, 600);
    let line = rig.close();
    assert_eq!(line["raw"]["lar"], 0.9);
    assert_eq!(
        line["raw"]["matrix"],
        serde_json::json!([[300, 100], [0, 600]])
    );
    assert_eq!(line["dram"]["accesses"], 1000);
    assert_eq!(
        line["threads"][0]["raw_by_node"],
        serde_json::json!([300, 100])
    );
    assert_eq!(line["cpus"][0]["user_instructions"], 4000);
    assert_eq!(
        line["cpus"][0]["kernel_instructions"],
        INSTRUCTIONS_PER_LOOK
    );
    // The second thread uses the first's two pages, 128 times.
    assert_eq!(line["raw"]["base_pages"]["psp_threads"], 0.228);
}

#[test]
fn each_window_begins_anew() {
    let mut rig = Rig::new(&[]);
    rig.publish(0, Kind::Workload);
    rig.load(0, 0, 300);
    assert_eq!(rig.close()["raw"]["accesses"], 300);
    rig.load(0, 1, 50);
    let line = rig.close();
    assert_eq!(
        (&line["raw"]["accesses"], &line["window"]),
        (&50.into(), &2.into())
    );
    assert_eq!(line["raw"]["base_pages"]["pages"], 1);
    assert_eq!(rig.close()["raw"]["lar"], Value::Null);
}

#[test]
fn what_caches_serve_is_no_access_to_memory() {
    let mut rig = Rig::new(&[]);
    rig.publish(0, Kind::Workload);
    rig.load(0, 0, 256);
    rig.load(0, 0, 256);
    let line = rig.close();
    assert_eq!(line["raw"]["accesses"], 512);
    assert_eq!(line["dram"]["accesses"], 256);
    // And one line of a page table, for four pages.
    assert_eq!(line["threads"][0]["l2_misses"], 257);
}

#[test]
fn nobody_else_counts_but_a_manager_is_shown() {
    let mut rig = Rig::new(&["caches=off"]);
    rig.load(0, 0, 100);
    rig.publish(1, Kind::Manager);
    rig.load(0, 0, 100);
    rig.load(1, 0, 70);
    let line = rig.close();
    assert_eq!(line["raw"]["accesses"], 0);
    assert_eq!(line["threads"][0]["kind"], "manager");
    assert_eq!(line["threads"][0]["raw_by_node"][0], 70);
}

#[test]
fn a_withdrawn_thread_has_one_more_window() {
    let mut rig = Rig::new(&[]);
    let slot = rig.publish(0, Kind::Workload);
    rig.load(0, 0, 10);
    rig.plugin.layout.withdraw(slot);
    rig.load(0, 0, 10);
    assert_eq!(rig.close()["raw"]["accesses"], 10);
    assert_eq!(rig.close()["threads"], serde_json::json!([]));
}

#[test]
fn a_thread_that_stays_is_counted_on_when_another_comes() {
    let mut rig = Rig::new(&[]);
    rig.publish(0, Kind::Workload);
    rig.load(0, 0, 10);
    rig.publish(1, Kind::Workload);
    rig.load(0, 0, 10);
    let line = rig.close();
    assert_eq!(line["raw"]["accesses"], 20);
}

#[test]
fn samples_reach_the_guest_and_the_file_until_the_cap() {
    let mut rig = Rig::new(&[]);
    rig.publish(0, Kind::Workload);
    let mut reader = Reader::new(rig.plugin.layout);
    rig.plugin.layout.set_sampling(Sampling {
        period_accesses: 100,
        skid_instructions: 0,
        window_samples_max: 5,
    });
    rig.cpus[0].block(&rig.plugin, INSTRUCTIONS_PER_LOOK, Mode::User);
    rig.load(0, 1, 1000);
    let line = rig.close();
    let taken = reader.read(100);
    assert_eq!(taken.records.len(), 5);
    assert!(taken.records.iter().all(|record| record.memory_node == 1));
    assert_eq!(
        (&line["samples"], line["samples_dropped"].as_u64()),
        (&5.into(), Some(taken.lost))
    );
    assert!((4..=6).contains(&taken.lost), "{}", taken.lost);
    let file = fs::read_to_string(rig.directory.path().join("samples")).unwrap();
    assert_eq!(file.lines().count(), 5);
}

#[test]
fn windows_close_by_instructions_too() {
    let mut rig = Rig::new(&["window=1000000"]);
    rig.load(0, 0, 250_000);
    let lines = fs::read_to_string(rig.directory.path().join("out")).unwrap();
    assert_eq!(lines.lines().count(), 2);
    assert_eq!(rig.close()["request"], 1);
}

#[test]
fn the_guest_sees_counters() {
    let mut rig = Rig::new(&[]);
    rig.publish(0, Kind::Workload);
    rig.load(0, 0, 10_000);
    let (_, counters) = rig.plugin.layout.counters().remove(0);
    assert!((4096..=10_000).contains(&counters.accesses));
    assert!(counters.l2_misses > 0 && counters.l2_misses_by_walks > 0);
}

#[test]
fn accesses_to_devices_are_told_apart() {
    let mut rig = Rig::new(&[]);
    rig.publish(0, Kind::Workload);
    rig.cpus[0].block(&rig.plugin, 1, Mode::User);
    let seen = Seen {
        vaddr: BASE,
        store: true,
    };
    rig.cpus[0].access(&rig.plugin, seen, || None);
    rig.cpus[0].access(&rig.plugin, seen, || Some(1 << 40));
    let line = rig.close();
    assert_eq!(
        (&line["raw"]["accesses"], &line["threads"][0]["unplaced"]),
        (&0.into(), &2.into())
    );
}
