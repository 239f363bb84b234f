//! On a false bitmap. The kernel's adds the ones that are written; a false one keeps the word, so each base page has a
//! frame in a word of its own.

use super::*;
use crate::procfs::{ProcRoot, SysRoot};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::{ObjectId, Pid, ProcessId};
use std::fs;

const GEOMETRY: Geometry = Geometry::X86_64;
const PAGES: u64 = 512;
const SLOT: u64 = 3;
const PERIOD: Span = Span::secs(4);
const PRESENT: u64 = 1 << 63;
const LATER: Instant = Instant(PERIOD.0);

struct World {
    dir: tempfile::TempDir,
    tracker: PageIdleTracker,
}

const fn frame_of(page: u64) -> u64 {
    (page + 1) * WORD_BITS
}

impl World {
    /// A process with one slot of which the first `present` base pages are present.
    fn new(present: u64, huge: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let idle = dir.path().join("sys/kernel/mm/page_idle");
        fs::create_dir_all(&idle).expect("a directory");
        let bitmap = File::create(idle.join("bitmap")).expect("a bitmap");
        bitmap.set_len((PAGES + 1) * WORD_BYTES).expect("room");
        fs::create_dir_all(dir.path().join("proc/7")).expect("a directory");
        let roots = Roots {
            sys: SysRoot::new(dir.path().join("sys")),
            proc: ProcRoot::new(dir.path().join("proc")),
            geometry: GEOMETRY,
        };
        let tracker = PageIdleTracker::open(&roots).expect("a bitmap");
        let mut world = Self { dir, tracker };
        world.map(0..present, frame_of);
        world.tracker.track(&[world.tracked(huge)], PERIOD);
        assert_eq!(world.tracker.poll(Instant(0)), []);
        world
    }

    fn tracked(&self, huge: bool) -> TrackedSlot {
        let process = ProcessId {
            pid: Pid(7),
            start_ticks: 1,
        };
        let object = ObjectId::Private(process);
        let slot = SlotId {
            object,
            index: SLOT,
        };
        TrackedSlot {
            slot,
            process,
            address: slot.start(&GEOMETRY),
            bytes: GEOMETRY.slot(),
            huge,
        }
    }

    fn map(&self, pages: std::ops::Range<u64>, frame: impl Fn(u64) -> u64) {
        let path = self.dir.path().join("proc/7/pagemap");
        let mut options = OpenOptions::new();
        let pagemap = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .expect("a file");
        pagemap.set_len((SLOT + 1) * PAGES * 8).expect("room");
        for page in pages {
            let entry = PRESENT | frame(page);
            let offset = (SLOT * PAGES + page) * 8;
            pagemap
                .write_all_at(&entry.to_ne_bytes(), offset)
                .expect("room");
        }
    }

    /// The program accesses these base pages.
    fn access(&self, pages: std::ops::Range<u64>) {
        for page in pages {
            let offset = frame_of(page) / WORD_BITS * WORD_BYTES;
            self.tracker
                .bitmap
                .write_all_at(&[0; 8], offset)
                .expect("room");
        }
    }

    fn share(&mut self) -> Option<f64> {
        let readings = self.tracker.poll(LATER);
        readings.first().map(|(_, accessed)| accessed.share.get())
    }
}

#[test]
fn half_of_the_base_pages_accessed_is_one_half() {
    let mut world = World::new(PAGES, false);
    world.access(0..PAGES / 2);
    assert_eq!(world.share(), Some(0.5));
}

#[test]
fn nothing_accessed_is_nothing() {
    let mut world = World::new(PAGES, false);
    assert_eq!(world.share(), Some(0.0));
}

#[test]
fn what_is_not_present_is_not_accessed() {
    let mut world = World::new(PAGES / 4, false);
    world.access(0..PAGES / 4);
    assert_eq!(world.share(), Some(0.25));
}

#[test]
fn a_page_that_moved_gives_no_look() {
    let mut world = World::new(PAGES, false);
    world.access(0..PAGES / 2);
    world.map(PAGES / 2..PAGES, |page| frame_of(page) + 1);
    assert_eq!(world.share(), Some(1.0));
}

#[test]
fn a_huge_page_has_one_bit() {
    let mut idle = World::new(PAGES, true);
    idle.access(1..PAGES);
    assert_eq!(idle.share(), Some(0.0));
    let mut used = World::new(PAGES, true);
    used.access(0..1);
    assert_eq!(used.share(), Some(1.0));
}

#[test]
fn a_period_gives_one_reading_and_the_next_looks_at_other_pages() {
    let mut world = World::new(PAGES, false);
    let first: Vec<u64> = world.tracker.watched[0]
        .marked
        .iter()
        .map(|m| m.address)
        .collect();
    assert_eq!(world.tracker.poll(Instant(PERIOD.0 - 1)), []);
    assert_eq!(world.tracker.poll(LATER).len(), 1);
    let second: Vec<u64> = world.tracker.watched[0]
        .marked
        .iter()
        .map(|m| m.address)
        .collect();
    assert_eq!(first.len(), 8);
    assert!(first.iter().all(|address| !second.contains(address)));
}

#[test]
fn a_process_that_vanished_gives_no_reading() {
    let mut world = World::new(PAGES, false);
    fs::remove_dir_all(world.dir.path().join("proc/7")).expect("removable");
    assert_eq!(world.share(), None);
}

#[test]
fn a_kernel_without_it_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let roots = Roots {
        sys: SysRoot::new(dir.path()),
        proc: ProcRoot::new(dir.path()),
        geometry: GEOMETRY,
    };
    let error = PageIdleTracker::open(&roots).expect_err("nothing there");
    assert!(
        error.to_string().contains("CONFIG_IDLE_PAGE_TRACKING"),
        "{error}"
    );
}
