//! Parsers on files recorded from real kernels, and on arbitrary bytes.

use hugepilot_core::units::Bytes;
use hugepilot_linux::procfs::{
    ParseError, buddyinfo, cgroup, kpageflags, maps, meminfo, mountinfo, pagemap, pressure, smaps,
    stat, status,
};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

/// One directory a kernel; each file is named as the kernel names it, a node's `meminfo` as `node_meminfo`.
fn recordings() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = fs::read_dir(root).expect("fixtures");
    let directories: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("maps").exists())
        .collect();
    assert!(!directories.is_empty(), "no recordings");
    directories
}

fn read(directory: &Path, file: &str) -> Vec<u8> {
    let path = directory.join(file);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parsed<T>(directory: &Path, file: &str, parse: impl Fn(&[u8]) -> Result<T, ParseError>) -> T {
    parse(&read(directory, file)).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
}

#[test]
fn smaps_has_the_regions_of_maps_and_the_sums_of_the_rollup() {
    for kernel in recordings() {
        let (maps_text, smaps_text) = (read(&kernel, "maps"), read(&kernel, "smaps"));
        let regions = maps::parse(&maps_text).expect("maps");
        let detailed = smaps::parse(&smaps_text).expect("smaps");
        let entries: Vec<_> = detailed.iter().map(|region| region.entry).collect();
        assert_eq!(entries, regions, "{}", kernel.display());
        let rollup = parsed(&kernel, "smaps_rollup", smaps::parse_rollup);
        let resident: Bytes = detailed.iter().map(|region| region.usage.resident).sum();
        assert_eq!(resident, rollup.resident, "{}", kernel.display());
        assert!(
            detailed
                .iter()
                .all(|region| region.usage.kernel_page == Bytes::kib(4))
        );
        let named = |name: &[u8]| regions.iter().any(|region| region.name == name);
        assert!(
            named(b"[stack]") && named(b"[vdso]"),
            "{}",
            kernel.display()
        );
    }
}

#[test]
fn stat_and_status_are_of_one_process() {
    for kernel in recordings() {
        let stat = parsed(&kernel, "stat", stat::parse);
        let status = parsed(&kernel, "status", status::parse);
        assert!(stat.runs() && !stat.kernel_thread);
        assert_eq!(status.namespace_pids, [stat.pid.0]);
        assert_eq!(status.thp_enabled, Some(true));
        let layout = stat.layout;
        let regions = read(&kernel, "maps");
        let regions = maps::parse(&regions).expect("maps");
        let stack = regions
            .iter()
            .find(|region| region.name == b"[stack]")
            .expect("a stack");
        assert!((stack.start..stack.end).contains(&layout.start_stack));
        assert!((stack.start..stack.end).contains(&layout.arg_start));
        let code = regions
            .iter()
            .find(|region| region.start <= layout.start_code && layout.start_code < region.end);
        assert!(code.expect("text").permissions.execute);
    }
}

#[test]
fn the_machine_has_memory() {
    for kernel in recordings() {
        let all = parsed(&kernel, "meminfo", meminfo::parse);
        let node = parsed(&kernel, "node_meminfo", meminfo::parse);
        assert!(all.total >= node.total && all.free > Bytes::ZERO && all.available.is_some());
        let blocks = parsed(&kernel, "buddyinfo", buddyinfo::parse);
        assert!(blocks.values().all(|orders| orders.len() == 11));
        let _share = parsed(&kernel, "pressure", pressure::parse);
        let mounts = parsed(&kernel, "mountinfo", mountinfo::parse);
        assert!(mounts.iter().any(|mount| mount.kind == "proc"));
        let member = parsed(&kernel, "cgroup", cgroup::parse_membership);
        assert!(member.expect("a memory cgroup").path.starts_with('/'));
        let stat = parsed(&kernel, "memory.stat", cgroup::parse_stat);
        assert!(stat.anon.is_some() && stat.anon_thp.is_some());
    }
}

/// All parsers on one text: whatever it is, an answer or an error that names a line of it.
fn feed(text: &[u8]) {
    let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let check = |outcome: Result<(), ParseError>| {
        if let Err(error) = outcome {
            assert!(error.line <= lines, "{error} of {lines} lines");
        }
    };
    check(maps::parse(text).map(drop));
    check(smaps::parse(text).map(drop));
    check(smaps::parse_rollup(text).map(drop));
    check(stat::parse(text).map(drop));
    check(status::parse(text).map(drop));
    check(cgroup::parse_membership(text).map(drop));
    check(cgroup::parse_stat(text).map(drop));
    check(cgroup::parse_limit(text).map(drop));
    check(cgroup::parse_limit_v1(text).map(drop));
    check(cgroup::parse_counter(text).map(drop));
    check(mountinfo::parse(text).map(drop));
    check(buddyinfo::parse(text).map(drop));
    check(meminfo::parse(text).map(drop));
    check(meminfo::parse_node_list(text).map(drop));
    check(pressure::parse(text).map(drop));
    let words: Vec<u64> = pagemap::entries(text).map(|entry| entry.0).collect();
    assert_eq!(words.len(), text.len() / 8);
    let flags: Vec<_> = words.into_iter().map(kpageflags::PageFlags).collect();
    let _one = kpageflags::is_one_folio(&flags);
}

/// A recorded file with some bytes replaced, and cut somewhere: nearly right is where parsers break.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let texts: Vec<Vec<u8>> = recordings()
        .iter()
        .flat_map(|kernel| fs::read_dir(kernel).expect("a recording"))
        .map(|entry| fs::read(entry.expect("an entry").path()).expect("a file"))
        .collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    let cut = any::<prop::sample::Index>();
    (prop::sample::select(texts), changes, cut).prop_map(|(mut text, changes, cut)| {
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        text.truncate(cut.index(text.len() + 1));
        text
    })
}

/// Lines of the shapes that parsers look for, with absurd numbers.
fn shaped() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        "[0-9a-f]{1,17}-[0-9a-f]{1,17} [-rwxsp]{4} [0-9a-f]{1,17} [0-9a-f]{1,9}:[0-9]{1,3} [0-9]{1,21} {0,9}.{0,9}",
        "[A-Za-z_]{1,12}: {1,4}[0-9]{1,21}( kB)?",
        "[0-9]{1,11} \\(.{0,9}\\) [A-Z]( -?[0-9]{1,21}){40,60}",
        "Node [0-9]{1,6}, zone {1,4}[A-Z]{1,4}( [0-9]{1,21}){0,12}",
        "[0-9]{1,3}:[a-z,=]{0,9}:.{0,9}",
        "(some|full) avg10=[0-9a-zA-Z.+-]{1,9}",
        "[0-9]{0,6}[-,][0-9]{0,6}",
    ];
    prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n").into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_do_no_harm(text in prop::collection::vec(any::<u8>(), 0..512)) {
        feed(&text);
    }

    #[test]
    fn nearly_right_files_do_no_harm(text in nearly_right()) {
        feed(&text);
    }

    #[test]
    fn absurd_numbers_do_no_harm(text in shaped()) {
        feed(&text);
    }

    #[test]
    fn a_name_may_hold_anything(comm in prop::collection::vec(any::<u8>(), 0..16)) {
        let recorded = read(&recordings()[0], "stat");
        let open = recorded.iter().position(|&byte| byte == b'(').expect("a name");
        let close = recorded.iter().rposition(|&byte| byte == b')').expect("a name");
        let text = [&recorded[..=open], &comm, &recorded[close..]].concat();
        let named = stat::parse(&text).expect("only the name differs");
        let expected = stat::parse(&recorded).expect("recorded");
        prop_assert_eq!(&named.comm, &String::from_utf8_lossy(&comm));
        prop_assert_eq!(stat::Stat { comm: expected.comm.clone(), ..named }, expected);
    }
}
