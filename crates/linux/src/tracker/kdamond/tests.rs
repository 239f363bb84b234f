//! On a false sysfs, where directories do not appear by themselves: they are all there from the start.

use super::*;
use crate::tracker::TrackedSlot;
use hugepilot_core::ids::{ObjectId, ProcessId, SlotId};
use hugepilot_core::units::Bytes;
use std::fs;

struct World {
    dir: tempfile::TempDir,
    journal: Journal,
}

const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
const CONTEXT: &str = "0/contexts/0";

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(&dir.path().join("journals")).expect("a journal");
        let world = Self { dir, journal };
        world.put("nr_kdamonds", "0\n");
        world.put("0/state", "off\n");
        world.put("0/contexts/nr_contexts", "0\n");
        let context = [
            ("avail_operations", "vaddr\nfvaddr\npaddr\n"),
            ("operations", "vaddr\n"),
            ("monitoring_attrs/intervals/sample_us", "5000\n"),
            ("monitoring_attrs/intervals/aggr_us", "100000\n"),
            ("monitoring_attrs/intervals/update_us", "1000000\n"),
            ("monitoring_attrs/nr_regions/min", "10\n"),
            ("monitoring_attrs/nr_regions/max", "1000\n"),
            ("targets/nr_targets", "0\n"),
            ("targets/0/pid_target", "0\n"),
            ("targets/0/regions/nr_regions", "0\n"),
        ];
        for (file, text) in context {
            world.put(&format!("{CONTEXT}/{file}"), text);
        }
        for region in 0..4 {
            for end in ["start", "end"] {
                world.put(
                    &format!("{CONTEXT}/targets/0/regions/{region}/{end}"),
                    "0\n",
                );
            }
        }
        world
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(KDAMONDS).join(file)
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().expect("not the root")).expect("a directory");
        fs::write(path, text).expect("a setting");
    }

    fn shows(&self, file: &str) -> String {
        fs::read_to_string(self.path(file))
            .expect("a setting")
            .trim()
            .to_owned()
    }

    fn of_context(&self, file: &str) -> String {
        self.shows(&format!("{CONTEXT}/{file}"))
    }

    fn take(&self, take: TakeDamon) -> Result<Kdamond, DamonUnavailable> {
        let sys = SysRoot::new(self.dir.path().join("sys"));
        Kdamond::take(&sys, &self.journal, Space::Virtual, take)
    }

    fn statistics(&self) -> PathBuf {
        let path = self
            .dir
            .path()
            .join("sys/module/damon_stat/parameters/enabled");
        fs::create_dir_all(path.parent().expect("not the root")).expect("a directory");
        path
    }
}

fn layout(slots: u64, parts: u64) -> Layout {
    let process = ProcessId {
        pid: Pid(77),
        start_ticks: 1,
    };
    let object = ObjectId::Private(process);
    let bytes = Bytes::mib(2);
    let slots: Vec<_> = (1..=slots)
        .map(|index| TrackedSlot {
            slot: SlotId { object, index },
            process,
            address: index * bytes.0,
            bytes,
            huge: false,
        })
        .collect();
    Layout::of_processes(&slots, parts)
}

#[test]
fn a_layout_becomes_targets_regions_and_as_many_as_there_are() {
    let world = World::new();
    let kdamond = world.take(TakeDamon::No).expect("free");
    kdamond
        .start(&layout(2, 2), Span::secs(4))
        .expect("writable");
    assert_eq!(world.of_context("operations"), "fvaddr");
    assert_eq!(
        world.of_context("monitoring_attrs/intervals/sample_us"),
        "4000000"
    );
    assert_eq!(
        world.of_context("monitoring_attrs/intervals/aggr_us"),
        "4000000"
    );
    assert_eq!(world.of_context("monitoring_attrs/nr_regions/min"), "4");
    assert_eq!(world.of_context("monitoring_attrs/nr_regions/max"), "4");
    assert_eq!(world.of_context("targets/0/pid_target"), "77");
    assert_eq!(world.of_context("targets/0/regions/nr_regions"), "4");
    assert_eq!(
        world.of_context("targets/0/regions/1/start"),
        (3 << 20).to_string()
    );
    assert_eq!(
        world.of_context("targets/0/regions/3/end"),
        (6 << 20).to_string()
    );
    assert_eq!(world.shows("0/state"), "on");
}

#[test]
fn the_kernel_s_least_number_of_regions_is_kept() {
    let world = World::new();
    let kdamond = world.take(TakeDamon::No).expect("free");
    kdamond
        .start(&layout(1, 1), Span::secs(4))
        .expect("writable");
    assert_eq!(world.of_context("monitoring_attrs/nr_regions/min"), "3");
}

#[test]
fn it_is_in_the_journal_marked_while_held_and_gone_when_dropped() {
    let world = World::new();
    let kdamond = world.take(TakeDamon::No).expect("free");
    let mark = DamonUndo::mark_us(world.journal.owner().pid).to_string();
    assert_eq!(
        world.of_context("monitoring_attrs/intervals/update_us"),
        mark
    );
    assert_eq!(world.journal.entries().len(), 1);
    kdamond
        .start(&layout(1, 1), Span::secs(4))
        .expect("writable");
    drop(kdamond);
    assert_eq!(world.shows("0/state"), "off");
    assert_eq!(world.shows("nr_kdamonds"), "0");
    assert_eq!(world.journal.entries(), []);
}

#[test]
fn kdamonds_of_somebody_else_are_not_touched() {
    let world = World::new();
    world.put("nr_kdamonds", "1\n");
    world.put("0/state", "on\n");
    let error = world.take(TakeDamon::FromStatistics).expect_err("in use");
    assert!(matches!(error, DamonUnavailable::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains("we do not touch theirs"),
        "{error}"
    );
    assert_eq!(
        (
            world.shows("nr_kdamonds").as_str(),
            world.shows("0/state").as_str()
        ),
        ("1", "on")
    );
    assert_eq!(world.journal.entries(), []);
}

#[test]
fn statistics_stay_on_unless_we_may_take_damon_and_come_back_then() {
    let world = World::new();
    fs::write(world.statistics(), "Y\n").expect("a setting");
    let error = world.take(TakeDamon::No).expect_err("excluded");
    assert!(error.to_string().contains("damon_stat runs"), "{error}");
    assert_eq!(world.shows("nr_kdamonds"), "0");
    let kdamond = world.take(TakeDamon::FromStatistics).expect("taken");
    assert_eq!(fs::read_to_string(world.statistics()).expect("there"), "N");
    let entered: Vec<_> = world
        .journal
        .entries()
        .iter()
        .map(|e| e.path().to_owned())
        .collect();
    assert_eq!(
        entered,
        [world.statistics(), world.path("")],
        "the kdamond is undone first"
    );
    drop(kdamond);
    assert_eq!(fs::read_to_string(world.statistics()).expect("there"), "Y");
    assert_eq!(world.journal.entries(), []);
}

#[test]
fn reclaim_by_damon_is_never_turned_off() {
    let world = World::new();
    let path = world
        .dir
        .path()
        .join("sys/module/damon_reclaim/parameters/enabled");
    fs::create_dir_all(path.parent().expect("not the root")).expect("a directory");
    fs::write(&path, "Y\n").expect("a setting");
    let error = world.take(TakeDamon::FromStatistics).expect_err("excluded");
    assert!(error.to_string().contains("damon_reclaim runs"), "{error}");
    assert_eq!(fs::read_to_string(path).expect("there"), "Y\n");
}

#[test]
fn operations_that_the_kernel_lacks_leave_nothing_behind() {
    let world = World::new();
    world.put(&format!("{CONTEXT}/avail_operations"), "paddr\n");
    let error = world.take(TakeDamon::No).expect_err("no fvaddr");
    assert!(
        error
            .to_string()
            .contains("cannot sample fvaddr: it offers paddr"),
        "{error}"
    );
    assert_eq!(world.shows("nr_kdamonds"), "0");
    assert_eq!(world.journal.entries(), []);
}

#[test]
fn a_kernel_without_damon_says_so() {
    let world = World::new();
    fs::remove_dir_all(world.dir.path().join("sys")).expect("removable");
    let error = world.take(TakeDamon::No).expect_err("absent");
    assert!(matches!(error, DamonUnavailable::Absent { .. }), "{error}");
}
