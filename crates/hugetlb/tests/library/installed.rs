//! `make install`'s part: what is put where, found by pkg-config's file, and removed again.

use crate::common::{library, run, text};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const PREFIX: &str = "/opt/somewhere";

fn install(what: &str, destination: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
    let mut command = Command::new(script);
    command
        .arg(what)
        .arg(library())
        .arg(PREFIX)
        .env("DESTDIR", destination);
    let output = run(&mut command, &[]);
    assert!(output.status.success(), "{what}: {}", text(&output.stderr));
}

/// Files below a directory, with paths from there.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                directories.push(entry.path());
            } else {
                let path = entry.path();
                let name = path
                    .strip_prefix(root)
                    .expect("below")
                    .to_str()
                    .expect("ASCII");
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn what_is_installed_is_whole_and_goes_away_again() {
    let destination = tempfile::tempdir().expect("a directory");
    let prefix = destination.path().join(&PREFIX[1..]);
    install("install", destination.path());
    let installed = files(&prefix);
    for file in [
        "lib/libhugetlbfs.so.0",
        "lib/libhugetlbfs.so",
        "lib/libhugetlbfs.a",
        "lib/pkgconfig/libhugetlbfs.pc",
        "include/hugetlbfs.h",
        "share/man/man7/libhugetlbfs.7",
        "share/man/man3/getpagesizes.3",
        "share/man/man3/free_huge_pages.3",
    ] {
        assert!(
            installed.contains(file),
            "{file} is not among {installed:?}"
        );
    }
    for file in &installed {
        let content = fs::read(prefix.join(file)).expect("no link leads nowhere");
        assert!(!content.is_empty(), "{file}");
    }
    // Again, over what is there; and others' files stay.
    install("install", destination.path());
    symlink("nowhere", prefix.join("lib/other")).expect("a link");
    install("uninstall", destination.path());
    assert_eq!(files(&prefix), ["lib/other".to_owned()].into());
}

#[test]
fn the_flags_of_pkg_config_are_right() {
    let destination = tempfile::tempdir().expect("a directory");
    install("install", destination.path());
    let prefix = destination.path().join(&PREFIX[1..]);
    let file = fs::read_to_string(prefix.join("lib/pkgconfig/libhugetlbfs.pc")).expect("installed");
    let value = |key: &str| {
        file.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(str::trim)
    };
    assert_eq!(value("prefix="), Some(PREFIX));
    assert_eq!(value("Libs:"), Some("-L${libdir} -lhugetlbfs"));
    assert_eq!(value("Cflags:"), Some("-I${includedir}"));
}
