//! C programs against the library, shared and static: what they check stands in each, in `tests/c`.

use crate::common::{Link, Pool, passes};

/// 16 MiB where huge pages are of 2 MiB.
const PAGES: u32 = 8;
/// What the conformance program wants: so few that a child runs out of them.
const PAGES_CONFORMANCE: u32 = 4;

#[track_caller]
fn passes_both(name: &str) {
    passes(name, Link::Shared);
    passes(name, Link::Static);
}

#[test]
fn page_sizes_are_found() {
    passes_both("sizes");
}

#[test]
fn huge_pages_are_reserved_and_given_back() {
    let _pool = Pool::of(PAGES);
    passes_both("alloc");
}

#[test]
fn regions_are_strict_or_fall_back_and_have_colours() {
    let _pool = Pool::of(PAGES);
    passes_both("region");
}

#[test]
fn an_empty_pool_is_no_disaster() {
    let _pool = Pool::of(0);
    passes_both("empty_pool");
}

#[test]
fn threads_race_for_pages_and_none_is_lost() {
    let _pool = Pool::of(PAGES);
    passes_both("race");
}

#[test]
fn forked_children_find_nothing_locked() {
    let _pool = Pool::of(PAGES);
    passes_both("fork");
}

#[test]
fn mounts_are_found_however_they_are_written() {
    let _pool = Pool::of(PAGES);
    passes_both("mounts");
}

#[test]
fn files_behave_as_the_kernel_has_them() {
    let _pool = Pool::of(PAGES);
    passes_both("files");
}

#[test]
fn kernels_without_huge_pages_are_told() {
    let _pool = Pool::of(PAGES);
    passes("false_kernel", Link::Shared);
}

#[test]
fn reservation_fork_and_copy_on_write_are_as_the_paper_has_them() {
    let _pool = Pool::of(PAGES_CONFORMANCE);
    let table = passes("conformance", Link::Shared);
    println!("{table}");
    assert!(table.lines().count() > 30, "{table}");
}
