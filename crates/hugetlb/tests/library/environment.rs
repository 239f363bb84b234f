//! The environment variables: what each does, what is said, and where they do not count.

use crate::common::{Link, Pool, Program, compile, library, run, text};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

const PAGES: u32 = 8;
/// Whom a setuid program runs as: nobody.
const NOBODY: u32 = 65534;

/// The program that prints what it finds, and what it is asked for.
struct Finder(Program);

impl Finder {
    fn new(link: Link) -> Self {
        Self(compile("environment", link))
    }

    /// What it printed, and what the library said.
    #[track_caller]
    fn with(&self, what: &str, settings: &[(&str, &str)]) -> (String, String) {
        let output = run(Command::new(self.0.path()).arg(what), settings);
        let (said, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{what} {settings:?}: {said}{complaint}"
        );
        (said.trim().to_owned(), complaint)
    }

    #[track_caller]
    fn silent(&self, what: &str, settings: &[(&str, &str)]) -> String {
        let (said, complaint) = self.with(what, settings);
        assert_eq!(complaint, "", "{what} {settings:?}");
        said
    }

    #[track_caller]
    fn complains(&self, what: &str, settings: &[(&str, &str)], word: &str) -> String {
        let (said, complaint) = self.with(what, settings);
        assert_eq!(complaint.lines().count(), 1, "one message: {complaint}");
        assert!(
            complaint.starts_with("libhugetlbfs [") && complaint.contains(word),
            "{complaint}"
        );
        said
    }
}

fn kernel_default() -> String {
    let meminfo = fs::read_to_string("/proc/meminfo").expect("there is one");
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("Hugepagesize:"));
    let kib: u64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse().ok())
        .expect("a size");
    (kib * 1024).to_string()
}

#[test]
fn the_size_is_the_one_asked_for_if_there_is_such() {
    let program = Finder::new(Link::Shared);
    let default = kernel_default();
    let name = "HUGETLB_DEFAULT_PAGE_SIZE";
    assert_eq!(program.silent("size", &[]), default);
    assert_eq!(program.silent("size", &[(name, "")]), default);
    assert_eq!(program.silent("size", &[(name, &default)]), default);
    for entry in fs::read_dir("/sys/kernel/mm/hugepages").expect("the kernel has huge pages") {
        let file_name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("ASCII");
        let kib = file_name
            .trim_start_matches("hugepages-")
            .trim_end_matches("kB");
        let bytes = kib.parse::<u64>().expect("a number") * 1024;
        assert_eq!(
            program.silent("size", &[(name, &format!("{kib}K"))]),
            bytes.to_string()
        );
    }
    assert_eq!(program.complains("size", &[(name, "3M")], name), default);
    assert_eq!(program.complains("size", &[(name, "64G")], name), default);
    assert_eq!(program.complains("size", &[(name, "many")], name), default);
}

#[test]
fn huge_pages_are_reserved_unless_they_are_not_to_be() {
    let _pool = Pool::of(PAGES);
    for link in [Link::Shared, Link::Static] {
        let program = Finder::new(link);
        assert!(
            program
                .silent("reserved", &[])
                .starts_with("reserved 2, faulted 0")
        );
        let never = [("HUGETLB_NO_RESERVE", "yes")];
        assert!(
            program
                .silent("reserved", &never)
                .starts_with("reserved 0, faulted 0")
        );
        assert_eq!(program.silent("too-much", &[]), "refused");
        assert!(
            program
                .silent("too-much", &never)
                .starts_with("reserved 0, faulted 0")
        );
        let unsafe_there = [never[0], ("HUGETLB_FEATURES", "no_noreserve_safe")];
        assert!(
            program
                .silent("reserved", &unsafe_there)
                .starts_with("reserved 2, faulted 0")
        );
    }
}

#[test]
fn features_that_the_kernel_is_said_not_to_have_are_done_without() {
    let _pool = Pool::of(PAGES);
    let program = Finder::new(Link::Shared);
    let prefault = ("HUGETLB_FEATURES", "no_private_reservations");
    assert!(
        program
            .silent("reserved", &[prefault])
            .starts_with("reserved 0, faulted 2")
    );
    let not = [prefault, ("HUGETLB_NO_PREFAULT", "yes")];
    assert!(
        program
            .silent("reserved", &not)
            .starts_with("reserved 2, faulted 0")
    );
    let mounted = [("HUGETLB_FEATURES", "no_map_hugetlb")];
    assert_eq!(
        program.silent("mounted", &mounted),
        "reserved 2, faulted 0, mount known"
    );
    program.complains(
        "size",
        &[("HUGETLB_FEATURES", "map_hugetlb,wings")],
        "wings",
    );
}

#[test]
fn a_path_that_is_no_hugetlbfs_is_said_and_ignored() {
    let _pool = Pool::of(PAGES);
    let program = Finder::new(Link::Shared);
    let said = program.complains("reserved", &[("HUGETLB_PATH", "/proc")], "HUGETLB_PATH");
    assert!(said.starts_with("reserved 2"), "{said}");
}

#[test]
fn only_programs_that_are_named_are_concerned() {
    let program = Finder::new(Link::Shared);
    let name = program
        .0
        .path()
        .file_name()
        .and_then(|name| name.to_str())
        .expect("ASCII");
    let wrong = ("HUGETLB_DEFAULT_PAGE_SIZE", "many");
    for list in ["other", "", &format!("{name}x"), &name[1..]] {
        program.silent("size", &[wrong, ("HUGETLB_RESTRICT_EXE", list)]);
    }
    for list in [name, &format!("other:{name}"), &format!(":{name}:other")] {
        program.complains("size", &[wrong, ("HUGETLB_RESTRICT_EXE", list)], "many");
    }
}

#[test]
fn a_program_with_more_rights_than_its_user_does_not_listen() {
    let program = Finder::new(Link::Static);
    let wrong = ("HUGETLB_DEFAULT_PAGE_SIZE", "many");
    program.complains("size", &[wrong], "many");
    chown(program.0.path(), Some(NOBODY), None).expect("these tests need root");
    fs::set_permissions(program.0.path(), fs::Permissions::from_mode(0o4755)).expect("it is ours");
    program.silent("size", &[wrong]);
}

#[test]
fn what_is_not_done_is_said_unless_nobody_wants_to_hear() {
    let program = Finder::new(Link::Shared);
    for (name, value, word) in [
        ("HUGETLB_MORECORE", "yes", "glibc.malloc.hugetlb=2"),
        ("HUGETLB_MORECORE", "2M", "glibc.malloc.hugetlb=2"),
        ("HUGETLB_MORECORE", "thp", "glibc.malloc.hugetlb=1"),
        ("HUGETLB_ELFMAP", "RW", "RW"),
        ("HUGETLB_FORCE_ELFMAP", "yes", "text"),
        ("HUGETLB_SHARE", "1", "text"),
    ] {
        program.complains("size", &[(name, value)], word);
        program.silent("size", &[(name, value), ("HUGETLB_VERBOSE", "0")]);
        program.silent("size", &[(name, "no")]);
    }
}

#[test]
fn a_heap_that_glibc_backs_is_not_complained_of() {
    let program = Finder::new(Link::Shared);
    let heap = ("HUGETLB_MORECORE", "yes");
    program.silent(
        "size",
        &[heap, ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")],
    );
    program.complains(
        "size",
        &[heap, ("GLIBC_TUNABLES", "glibc.malloc.perturb=1")],
        "MORECORE",
    );
}

#[test]
fn more_is_said_when_more_is_asked_for() {
    let _pool = Pool::of(PAGES);
    let program = Finder::new(Link::Shared);
    for loud in [("HUGETLB_VERBOSE", "3"), ("HUGETLB_DEBUG", "1")] {
        let said = program.complains("mounted", &[loud], "hugetlbfs is mounted at /mnt/huge");
        assert!(said.starts_with("reserved 2"), "{said}");
    }
}

#[test]
fn shared_memory_is_of_huge_pages_when_asked_for_and_possible() {
    let huge: u64 = kernel_default().parse().expect("a number");
    let asked: u64 = 5 << 20;
    let pages = asked.div_ceil(huge);
    let expected = format!("huge pages, reserved {pages}, {} bytes", pages * huge);
    let base = format!("base pages, reserved 0, {asked} bytes");
    let program = Finder::new(Link::Shared);
    {
        let _pool = Pool::of(PAGES);
        for yes in ["yes", "YES"] {
            assert_eq!(program.silent("shm", &[("HUGETLB_SHM", yes)]), expected);
        }
        for no in ["no", "1", ""] {
            assert_eq!(program.silent("shm", &[("HUGETLB_SHM", no)]), base);
        }
        for yes_or_no in ["yes", "no"] {
            let setting = ("HUGETLB_SHM", yes_or_no);
            assert_eq!(program.silent("shm-key", &[setting]), "found");
        }
    }
    let _pool = Pool::of(0);
    assert_eq!(
        program.complains("shm", &[("HUGETLB_SHM", "yes")], "HUGETLB_SHM"),
        base
    );
}

/// A program that knows nothing of the library.
#[test]
fn preloaded_it_stands_for_the_c_library_s_shmget() {
    let _pool = Pool::of(PAGES);
    let program = compile("plain_shm", Link::None);
    let preload = library().join("libhugetlbfs.so.0").display().to_string();
    let settings = [("LD_PRELOAD", preload.as_str()), ("HUGETLB_SHM", "yes")];
    let output = run(&mut Command::new(program.path()), &settings[..1]);
    assert_eq!(
        (text(&output.stdout).trim(), text(&output.stderr).as_str()),
        ("4 kB", "")
    );
    let output = run(&mut Command::new(program.path()), &settings);
    assert_eq!(
        (text(&output.stdout).trim(), text(&output.stderr).as_str()),
        ("2048 kB", "")
    );
}
