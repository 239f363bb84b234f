//! Trackers on the kernel that runs here. What they read is checked in guests (`examples/tracker_live.rs`), whose
//! kernels have what hosts lack; here: that probing leaves everybody else's DAMON as it was, whatever is found.

use hugepilot_core::geometry::Geometry;
use hugepilot_core::observation::{Tracker, Unseen};
use hugepilot_linux::journal::Journal;
use hugepilot_linux::procfs::{ProcRoot, SysRoot};
use hugepilot_linux::tracker::{Roots, TakeDamon, probe_best};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Whatever configures DAMON, with its text.
fn configuration() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut directories = vec![PathBuf::from("/sys/kernel/mm/damon/admin")];
    directories.extend(
        ["damon_stat", "damon_reclaim", "damon_lru_sort"]
            .map(|module| Path::new("/sys/module").join(module).join("parameters")),
    );
    while let Some(directory) = directories.pop() {
        // A kernel without it has nothing to keep.
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if !is_counter(&path) {
                // Some files can only be written.
                files.extend(fs::read_to_string(&path).ok().map(|text| (path, text)));
            }
        }
    }
    files
}

/// Numbers that a running kdamond changes by itself.
fn is_counter(path: &Path) -> bool {
    let path = path.to_string_lossy();
    [
        "/stats/",
        "/tried_regions/",
        "effective_bytes",
        "nr_",
        "bytes_",
        "memory_idle",
        "estimated",
    ]
    .iter()
    .any(|part| path.contains(part) && !path.ends_with("nr_kdamonds"))
}

#[test]
fn probing_leaves_damon_as_it_was_and_says_what_is_not_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = Journal::open(&dir.path().join("journals")).expect("a journal");
    let roots = Roots {
        sys: SysRoot::default(),
        proc: ProcRoot::default(),
        geometry: Geometry::X86_64,
    };
    let before = configuration();
    let (tracker, blind) = probe_best(&roots, &journal, TakeDamon::No);
    let kind = tracker.as_ref().map(|tracker| tracker.kind());
    drop(tracker);
    assert_eq!(configuration(), before);
    assert_eq!(journal.entries(), []);
    let sees_base_pages = matches!(kind, Some(Tracker::DamonVirtual | Tracker::PageIdle));
    assert_eq!(blind.is_empty(), sees_base_pages, "{kind:?}: {blind:?}");
    for spot in blind {
        assert_eq!(spot.what, Unseen::AccessedShare);
        assert!(spot.why.contains("accessed"), "{}", spot.why);
    }
}
