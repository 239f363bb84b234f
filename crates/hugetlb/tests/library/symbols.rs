//! What the built libraries export, need and contain.

use crate::common::{compiler, library, run, text};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// All that is exported, with its version; `shmget` has none, so that it stands for the C library's.
const EXPORTS: [&str; 14] = [
    "__tp_kernel_default_hugepage_size_reset@@HTLBFS_2.1",
    "free_huge_pages@@HTLBFS_2.0",
    "free_hugepage_region@@HTLBFS_2.1",
    "get_huge_pages@@HTLBFS_2.0",
    "get_hugepage_region@@HTLBFS_2.1",
    "gethugepagesize@@VERS_1.0",
    "gethugepagesizes@@HTLBFS_2.1",
    "getpagesizes@@HTLBFS_2.1",
    "hugetlbfs_find_path@@VERS_1.0",
    "hugetlbfs_find_path_for_size@@HTLBFS_2.1",
    "hugetlbfs_test_path@@VERS_1.0",
    "hugetlbfs_unlinked_fd@@VERS_1.0",
    "hugetlbfs_unlinked_fd_for_size@@HTLBFS_2.1",
    "shmget",
];

/// What the library may ask the C library for: nothing that allocates but `opendir`, nothing that locks, prints through
/// `stdio` or unwinds. (The weak ones come from the compiler's own start-up code.)
const NEEDS: [&str; 24] = [
    "__errno_location",
    "access",
    "bcmp",
    "close",
    "closedir",
    "fstatfs",
    "getauxval",
    "getpid",
    "madvise",
    "memcmp",
    "memcpy",
    "memset",
    "mmap",
    "munmap",
    "open",
    "opendir",
    "read",
    "readdir",
    "readlink",
    "secure_getenv",
    "statfs",
    "strlen",
    "syscall",
    "sysconf",
];
const NEEDS_TOO: [&str; 2] = ["unlink", "write"];

fn prints(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = run(Command::new(program).args(arguments).arg(file), &[]);
    assert!(
        output.status.success(),
        "{program}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The last word of each line whose second-last is one of the kinds that `nm` tells.
fn symbols(listing: &str, kinds: &str) -> BTreeSet<String> {
    let of_kind = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let (name, kind) = (words.next()?, words.next()?);
        (kind.len() == 1 && kinds.contains(kind)).then(|| name.to_owned())
    };
    listing.lines().filter_map(of_kind).collect()
}

fn bare(names: BTreeSet<String>) -> BTreeSet<String> {
    let bare = |name: String| name.split('@').next().unwrap_or_default().to_owned();
    names.into_iter().map(bare).collect()
}

#[test]
fn exactly_the_interface_is_exported() {
    let listing = prints(
        "nm",
        &["-D", "--defined-only"],
        &library().join("libhugetlbfs.so.0"),
    );
    let exported = symbols(&listing, "TDBRWVi");
    assert_eq!(exported, EXPORTS.map(str::to_owned).into());
}

#[test]
fn the_static_library_has_the_same_and_nothing_else_global() {
    let listing = prints(
        "nm",
        &["--defined-only", "--extern-only"],
        &library().join("libhugetlbfs.a"),
    );
    let exported = symbols(&listing, "TDBRWVCi");
    assert_eq!(exported, bare(EXPORTS.map(str::to_owned).into()));
}

#[test]
fn no_more_is_needed_than_is_known() {
    let known: BTreeSet<String> = NEEDS
        .iter()
        .chain(&NEEDS_TOO)
        .map(|name| (*name).to_owned())
        .collect();
    for file in ["libhugetlbfs.so.0", "libhugetlbfs.a"] {
        let listing = prints("nm", &["--undefined-only"], &library().join(file));
        let needed = bare(symbols(&listing, "U"));
        let unknown: Vec<_> = needed.difference(&known).collect();
        assert!(
            needed.contains("mmap") && unknown.is_empty(),
            "{file}: {unknown:?}"
        );
    }
}

/// Whatever can panic refers to `core::panicking` or to what is built on it (`unwrap_failed`, `slice_index_fail`,
/// `panic_bounds_check`, …), all of which end in `panic_fmt`; and that in our own handler, which ends in `abort`. The
/// library is linked from one object without unused sections, whose symbols are all still there: so if none of these
/// names is among them, no path leads there.
#[test]
fn nothing_can_panic() {
    let listing = prints("nm", &[], &library().join("libhugetlbfs.a"));
    assert!(
        listing.contains("HUGEPILOT_HUGETLB_START"),
        "local names are there: {listing}"
    );
    for name in [
        "panic",
        "unwrap",
        "expect_failed",
        "_fail",
        "unwind",
        "abort",
        "core3fmt",
    ] {
        let found: Vec<&str> = listing.lines().filter(|line| line.contains(name)).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn it_stands_in_for_libhugetlbfs_and_needs_only_the_c_library() {
    let listing = prints(
        "readelf",
        &["--dynamic", "--wide"],
        &library().join("libhugetlbfs.so.0"),
    );
    let value = |tag: &str| -> Vec<&str> {
        let lines = listing.lines().filter(|line| line.contains(tag));
        lines
            .filter_map(|line| line.split(['[', ']']).nth(1))
            .collect()
    };
    assert_eq!(value("(SONAME)"), ["libhugetlbfs.so.0"]);
    assert_eq!(value("(NEEDED)"), ["libc.so.6"]);
    assert!(!listing.contains("TEXTREL"), "{listing}");
}

/// Every function that the header declares is exported, and has a page in the manual.
#[test]
fn header_exports_and_manual_agree() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(here.join("include/hugetlbfs.h")).expect("the header");
    let install = std::fs::read_to_string(here.join("install.sh")).expect("what installs");
    for name in bare(EXPORTS.map(str::to_owned).into()) {
        let inner = ["__tp_kernel_default_hugepage_size_reset", "shmget"].contains(&name.as_str());
        let declared = header.contains(&format!("{name}("));
        assert_eq!(declared, !inner, "{name}");
        let page = here.join(format!("man/{name}.3"));
        let documented = page.exists() || install.contains(&format!(":{name}"));
        assert!(inner || documented, "{name} has no page");
    }
}

/// Whatever a program includes before it, and however strict it is.
#[test]
fn the_header_stands_by_itself() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/hugetlbfs.h");
    for standard in ["c89", "c99", "c11", "gnu17"] {
        let mut compiler = compiler();
        let pedantic = [
            "-pedantic-errors",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wstrict-prototypes",
        ];
        compiler
            .arg(format!("-std={standard}"))
            .args(pedantic)
            .args(["-fsyntax-only", "-x", "c"]);
        let output = run(compiler.arg(&header), &[]);
        assert!(
            output.status.success(),
            "{standard}: {}",
            text(&output.stderr)
        );
    }
}
