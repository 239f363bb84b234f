//! Settings from the environment: read once, when the library is loaded.
//!
//! In a program that runs with more rights than its user's (setuid), the environment does not count. With
//! `HUGETLB_RESTRICT_EXE` it counts in the programs named there. What is asked for and not done is said.

use crate::say::{self, Level, Piece, say};
use crate::sys::{self, Reservation};
use crate::{mounts, text};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Verbosity that `HUGETLB_DEBUG` stands for: everything.
const VERBOSITY_MAX: usize = 99;
/// Bytes of a program's path.
const PATH_MAX: usize = 4096;

static READ: AtomicBool = AtomicBool::new(false);
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);
static RESERVES: AtomicBool = AtomicBool::new(true);
static MAPS_WITHOUT_MOUNT: AtomicBool = AtomicBool::new(true);
static PREFAULTS: AtomicBool = AtomicBool::new(false);
static SHM: AtomicBool = AtomicBool::new(false);

/// The size of huge pages that is asked for, in bytes.
pub fn page_size() -> Option<usize> {
    match PAGE_SIZE.load(Ordering::Relaxed) {
        0 => None,
        bytes => Some(bytes),
    }
}

/// Whether huge pages are reserved when they are mapped.
pub fn reservation() -> Reservation {
    if RESERVES.load(Ordering::Relaxed) {
        Reservation::Now
    } else {
        Reservation::Never
    }
}

/// Are huge pages mapped by MAP_HUGETLB, or by files on a mount?
pub fn maps_without_mount() -> bool {
    MAPS_WITHOUT_MOUNT.load(Ordering::Relaxed)
}

/// Are mappings faulted in at once?
pub fn prefaults() -> bool {
    PREFAULTS.load(Ordering::Relaxed)
}

/// Is shared memory to be of huge pages?
pub fn shm() -> bool {
    SHM.load(Ordering::Relaxed)
}

/// Reads the environment, unless that was done. Two threads that do it at once read the same.
pub fn read() {
    if !READ.load(Ordering::Acquire) {
        read_now();
        READ.store(true, Ordering::Release);
    }
}

fn read_now() {
    if !concerns_us() {
        return;
    }
    read_verbosity();
    read_size();
    RESERVES.store(!is_yes(c"HUGETLB_NO_RESERVE"), Ordering::Relaxed);
    SHM.store(is_yes(c"HUGETLB_SHM"), Ordering::Relaxed);
    sys::environment(c"HUGETLB_FEATURES", |list| {
        list.split(|byte| *byte == b',').for_each(take_feature)
    });
    if sys::environment(c"HUGETLB_NO_PREFAULT", |_| ()).is_some() {
        PREFAULTS.store(false, Ordering::Relaxed);
    }
    sys::environment(c"HUGETLB_PATH", mounts::prefer);
    say_what_is_not_done();
}

/// Does `HUGETLB_RESTRICT_EXE` name this program, or is it not set?
fn concerns_us() -> bool {
    let named = sys::environment(c"HUGETLB_RESTRICT_EXE", |list| {
        let mut path = [0; PATH_MAX];
        let program = sys::read_link(c"/proc/self/exe", &mut path);
        program.is_ok_and(|program| text::listed(list, text::base_name(program)))
    });
    named.unwrap_or(true)
}

fn read_verbosity() {
    let verbosity = sys::environment(c"HUGETLB_VERBOSE", |value| {
        text::number(value).map_or(say::VERBOSITY, |(number, _)| number)
    });
    let debug = sys::environment(c"HUGETLB_DEBUG", |_| VERBOSITY_MAX);
    if let Some(verbosity) = debug.or(verbosity) {
        say::up_to(verbosity);
    }
}

fn read_size() {
    sys::environment(c"HUGETLB_DEFAULT_PAGE_SIZE", |value| {
        match text::size(value) {
            Some(bytes) => PAGE_SIZE.store(bytes, Ordering::Relaxed),
            None if value.is_empty() => {}
            None => complain("HUGETLB_DEFAULT_PAGE_SIZE is no size, and ignored: ", value),
        }
    });
}

fn complain(words: &str, value: &[u8]) {
    say(Level::Error, &[Piece::Words(words), Piece::Bytes(value)]);
}

fn is_yes(name: &CStr) -> bool {
    sys::environment(name, |value| value.eq_ignore_ascii_case(b"yes")).unwrap_or(false)
}

/// One of `HUGETLB_FEATURES`: what the kernel is said to have, or with `no_` not to have, whatever it has.
fn take_feature(feature: &[u8]) {
    match feature {
        b"map_hugetlb" => MAPS_WITHOUT_MOUNT.store(true, Ordering::Relaxed),
        b"no_map_hugetlb" => MAPS_WITHOUT_MOUNT.store(false, Ordering::Relaxed),
        b"private_reservations" => PREFAULTS.store(false, Ordering::Relaxed),
        // Without reservations, only what is there already is certain.
        b"no_private_reservations" => PREFAULTS.store(true, Ordering::Relaxed),
        b"no_noreserve_safe" => RESERVES.store(true, Ordering::Relaxed),
        b"noreserve_safe" | b"" => {}
        _ => complain("HUGETLB_FEATURES names what is not known: ", feature),
    }
}

/// What the variable asks for, where a variable that is not taken is set to something else than `no`.
const NOT_DONE: [(&CStr, &str); 4] = [
    (
        MORECORE,
        "HUGETLB_MORECORE: this library does not back the heap; glibc does, with GLIBC_TUNABLES=glibc.malloc.hugetlb=",
    ),
    (
        c"HUGETLB_ELFMAP",
        "HUGETLB_ELFMAP: this library does not remap text and data; asked for: ",
    ),
    (
        c"HUGETLB_FORCE_ELFMAP",
        "HUGETLB_FORCE_ELFMAP: this library does not remap text and data; asked for: ",
    ),
    (
        c"HUGETLB_SHARE",
        "HUGETLB_SHARE: this library does not remap text and data; asked for: ",
    ),
];

/// Asking and not getting is never silent.
fn say_what_is_not_done() {
    for (name, words) in &NOT_DONE {
        sys::environment(name, |value| {
            let asked_for = ![&b""[..], b"no", b"0"].contains(&value);
            let done_by_another = *name == MORECORE && glibc_backs_the_heap();
            if asked_for && !done_by_another {
                complain(words, instead_of(name, value));
            }
        });
    }
}

const MORECORE: &CStr = c"HUGETLB_MORECORE";

/// Is the tunable set that makes glibc do it?
fn glibc_backs_the_heap() -> bool {
    let tunable = b"glibc.malloc.hugetlb=";
    let set = |value: &[u8]| value.windows(tunable.len()).any(|part| part == tunable);
    sys::environment(c"GLIBC_TUNABLES", set).unwrap_or(false)
}

/// For the heap, what to set glibc's tunable to: 1 is THP, 2 hugetlb pages of the default size, else the size.
fn instead_of<'value>(name: &CStr, value: &'value [u8]) -> &'value [u8] {
    if name != MORECORE {
        value
    } else if value.eq_ignore_ascii_case(b"thp") {
        b"1"
    } else {
        b"2"
    }
}
