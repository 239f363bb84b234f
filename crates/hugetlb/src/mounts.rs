//! Where hugetlbfs is mounted, and files there that have no name.
//!
//! `HUGETLB_PATH` comes first; then the first line of `/proc/mounts` for a page size that may be used. Lines may be of any
//! length. What was found stays: callers hold pointers to it. What was not found is looked for again, so that a mount
//! made later is seen. A mount that is gone is noticed when a file is made there, by asking the file.

use crate::options;
use crate::say::{Level, Piece, say};
use crate::sizes::{self, PageSize};
use crate::sys::{self, Errno, File, Published};
use crate::text::Buffer;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Page sizes with a mount that are remembered. Linux has 2 on x86, 4 on arm64, at most 15 elsewhere.
const SIZES_MAX: usize = 16;
/// Bytes of a path, with its zero: the kernel's own bound.
const PATH_MAX: usize = 4096;
/// Bytes of a file system's name that matter.
const KIND_MAX: usize = 16;
/// Names that are tried for a file before giving up.
const NAMES_MAX: usize = 64;

struct Mount {
    /// Bytes of its pages; 0: this place is free.
    size: AtomicUsize,
    path: Published<[AtomicU8; PATH_MAX]>,
    /// The environment names it: it is to be used wherever huge pages are.
    preferred: AtomicBool,
}

static MOUNTS: [Mount; SIZES_MAX] = [const {
    Mount {
        size: AtomicUsize::new(0),
        path: Published::new(),
        preferred: AtomicBool::new(false),
    }
}; SIZES_MAX];

fn held(size: PageSize) -> Option<&'static Mount> {
    let is_of = |mount: &&Mount| mount.size.load(Ordering::Relaxed) == size.bytes();
    MOUNTS.iter().find(is_of)
}

/// The place of a page size that was seen on a mount, taken if it had none.
fn held_or_taken(size: PageSize) -> Option<&'static Mount> {
    let relaxed = Ordering::Relaxed;
    MOUNTS.iter().find(|mount| {
        let taken = mount
            .size
            .compare_exchange(0, size.bytes(), relaxed, relaxed);
        taken.is_ok_and(|free| free == 0) || taken == Err(size.bytes())
    })
}

/// A path as it is remembered: bytes, of which the last is zero.
#[derive(Clone, Copy)]
pub struct Path(&'static [AtomicU8; PATH_MAX]);

impl Path {
    /// For callers in C.
    pub fn as_ptr(self) -> *const c_char {
        sys::c_string(self.0)
    }

    fn copy_to(self, buffer: &mut Buffer<PATH_MAX>) {
        for byte in self.0 {
            match byte.load(Ordering::Relaxed) {
                0 => return,
                byte => buffer.push(byte),
            }
        }
    }
}

fn known(size: PageSize) -> Option<Path> {
    held(size)?.path.get()?.first().map(Path)
}

/// A mount for this page size.
pub fn find(size: PageSize) -> Result<Path, Errno> {
    if let Some(path) = known(size) {
        return Ok(path);
    }
    let file = sys::open_to_read(c"/proc/mounts")?;
    let mut line = Line::new();
    sizes::read_bytes(&file, |byte| {
        if line.take(byte) == Some(Kind::Hugetlbfs) {
            consider(&mut line.path, Wish::Any);
        }
    })?;
    known(size).ok_or(Errno::ENOENT)
}

/// Did the environment name a mount for this page size?
pub fn is_preferred(size: PageSize) -> bool {
    held(size).is_some_and(|mount| mount.preferred.load(Ordering::Relaxed))
}

/// Takes a list of paths with colons: the mounts to use before all others.
pub fn prefer(list: &[u8]) {
    for path in list
        .split(|byte| *byte == b':')
        .filter(|path| !path.is_empty())
    {
        let mut buffer = Buffer::<PATH_MAX>::new();
        buffer.push_all(path);
        if !consider(&mut buffer, Wish::Preferred) {
            let words = "HUGETLB_PATH: no hugetlbfs that this program may use, and ignored: ";
            say(Level::Error, &[Piece::Words(words), Piece::Bytes(path)]);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Any,
    Preferred,
}

/// Remembers a mount, if it can be used and its page size has none yet. Can it be used?
fn consider(path: &mut Buffer<PATH_MAX>, wish: Wish) -> bool {
    let usable = path.as_c_str().and_then(usable);
    let Some((size, bytes)) = usable else {
        return false;
    };
    let Some(mount) = held_or_taken(size) else {
        return false;
    };
    if mount.path.get().is_none()
        && mount
            .path
            .get_or_make(1, |place| fill(place, bytes))
            .is_ok()
    {
        mount
            .preferred
            .store(wish == Wish::Preferred, Ordering::Relaxed);
        let words = "hugetlbfs is mounted at ";
        say(Level::Note, &[Piece::Words(words), Piece::Bytes(bytes)]);
    }
    true
}

fn usable(path: &CStr) -> Option<(PageSize, &[u8])> {
    let system = sys::statfs(path).ok().filter(|system| system.hugetlbfs)?;
    let size = PageSize::new(system.page_size)?;
    sys::may_use(path).then_some((size, path.to_bytes()))
}

fn fill(place: &[[AtomicU8; PATH_MAX]], bytes: &[u8]) {
    for (to, from) in place.iter().flatten().zip(bytes) {
        to.store(*from, Ordering::Relaxed);
    }
}

/// Is this path on hugetlbfs?
pub fn is_hugetlbfs(path: &CStr) -> Result<bool, Errno> {
    sys::statfs(path).map(|system| system.hugetlbfs)
}

/// A new file of pages of this size, without a name.
pub fn unlinked(size: PageSize) -> Result<File, Errno> {
    options::read();
    let mut path = Buffer::<PATH_MAX>::new();
    find(size)?.copy_to(&mut path);
    let unnamed = path
        .as_c_str()
        .ok_or(Errno::EINVAL)
        .and_then(sys::open_unnamed);
    // Kernels before 5.2 make no unnamed files on hugetlbfs.
    let file = unnamed.or_else(|_unsupported| create_and_unlink(&mut path))?;
    let system = sys::fstatfs(&file)?;
    if system.hugetlbfs && system.page_size == size.bytes() {
        Ok(file)
    } else {
        Err(Errno::ENODEV)
    }
}

fn create_and_unlink(directory: &mut Buffer<PATH_MAX>) -> Result<File, Errno> {
    let first = sys::seed() ^ sys::process();
    for number in first..=first.saturating_add(NAMES_MAX) {
        let mut path = Buffer::<PATH_MAX>::new();
        path.push_all(directory.cut());
        path.push_all(b"/hugepilot.");
        path.push_number(number);
        let path = path.as_c_str().ok_or(Errno::ENOENT)?;
        match sys::create(path) {
            Ok(file) => return sys::unlink(path).map(|()| file),
            Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EEXIST)
}

/// The file system of a whole line of `/proc/mounts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hugetlbfs,
    Other,
}

/// A line of `/proc/mounts`, byte by byte: what is mounted, where, which file system. Blanks in paths are `\040`.
struct Line {
    field: usize,
    path: Buffer<PATH_MAX>,
    kind: Buffer<KIND_MAX>,
    escape: Option<Escape>,
}

/// A backslash, and up to three octal digits.
#[derive(Clone, Copy)]
struct Escape {
    value: u8,
    digits: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            field: 0,
            path: Buffer::new(),
            kind: Buffer::new(),
            escape: None,
        }
    }

    /// Takes the next byte; at the end of a line it says of which file system that was, and `path` is where.
    fn take(&mut self, byte: u8) -> Option<Kind> {
        if self.field > FIELD_KIND && byte == b'\n' {
            let hugetlbfs = self.kind.whole() == Some(b"hugetlbfs");
            self.field = 0;
            return Some(if hugetlbfs {
                Kind::Hugetlbfs
            } else {
                Kind::Other
            });
        }
        match byte {
            b'\n' => self.field = 0,
            b' ' => self.next_field(),
            _ if self.field == FIELD_PATH => self.take_of_path(byte),
            _ if self.field == FIELD_KIND => self.kind.push(byte),
            _ => {}
        }
        None
    }

    fn next_field(&mut self) {
        self.field = self.field.saturating_add(1);
        if self.field == FIELD_PATH {
            self.path.clear();
            self.kind.clear();
            self.escape = None;
        }
    }

    fn take_of_path(&mut self, byte: u8) {
        match self.escape {
            None if byte == b'\\' => {
                self.escape = Some(Escape {
                    value: 0,
                    digits: 0,
                })
            }
            None => self.path.push(byte),
            Some(escape) => {
                let digit = byte.wrapping_sub(b'0') & 7;
                let value = escape.value.wrapping_mul(8).wrapping_add(digit);
                let digits = escape.digits.saturating_add(1);
                self.escape = Some(Escape { value, digits }).filter(|escape| escape.digits < 3);
                if self.escape.is_none() {
                    self.path.push(value);
                }
            }
        }
    }
}

/// Fields of a line: what is mounted is 0.
const FIELD_PATH: usize = 1;
const FIELD_KIND: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn mounts(text: &[u8]) -> Vec<Vec<u8>> {
        let mut line = Line::new();
        let mut found = Vec::new();
        for byte in text {
            if line.take(*byte) == Some(Kind::Hugetlbfs) {
                found.extend(line.path.whole().map(<[u8]>::to_vec));
            }
        }
        found
    }

    #[test]
    fn the_file_system_is_the_third_field() {
        let text =
            b"none /a tmpfs rw 0 0\nhugetlbfs /b tmpfs rw 0 0\nx /c hugetlbfs rw,pagesize=2M 0 0\n";
        assert_eq!(mounts(text), [b"/c"]);
    }

    #[test]
    fn lines_may_be_of_any_length() {
        let long = "o".repeat(100_000);
        let text = format!(
            "x /a tmpfs {long} 0 0\n{long} /b hugetlbfs {long} 0 0\nx /c hugetlbfs rw 0 0\n"
        );
        assert_eq!(mounts(text.as_bytes()), [b"/b", b"/c"]);
    }

    #[test]
    fn paths_are_unescaped() {
        let text = br"x /a\040b\134c\011d hugetlbfs rw 0 0
";
        assert_eq!(mounts(text), [b"/a b\\c\td"]);
    }

    #[test]
    fn a_path_that_is_too_long_is_none_and_the_next_line_counts() {
        let long = "p".repeat(PATH_MAX + 1);
        let text = format!("x /{long} hugetlbfs rw 0 0\nx /c hugetlbfs rw 0 0\n");
        assert_eq!(mounts(text.as_bytes()), [b"/c"]);
    }

    #[test]
    fn what_is_no_line_is_nothing() {
        for text in [
            "",
            "\n",
            "x\n",
            "x /a\n",
            "x /a hugetlbfs",
            " \n \n",
            "x /a hugetlbfs\n",
        ] {
            assert!(mounts(text.as_bytes()).is_empty(), "{text:?}");
        }
    }

    /// The same by splitting, for lines that are whole.
    fn by_splitting(text: &str) -> Vec<Vec<u8>> {
        let of_line = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let path = (fields.len() > 3 && fields[2] == "hugetlbfs").then(|| unescaped(fields[1]));
            path.filter(|path| path.len() <= PATH_MAX)
        };
        text.lines().filter_map(of_line).collect()
    }

    fn unescaped(path: &str) -> Vec<u8> {
        let mut parts = path.split('\\');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(&part[..3], 8).expect("three octal digits"));
            bytes.extend(&part.as_bytes()[3..]);
        }
        bytes
    }

    proptest! {
        #[test]
        fn lines_are_read_as_they_would_be_split(
            lines in vec((r"[a-z/]{1,9}", r"(/[a-z]{0,9}(\\0(11|12|40)|\\134)?){1,5}",
                "hugetlbfs|tmpfs|hugetlb|hugetlbfsx", r"[a-z=,]{1,40}"), 0..20),
        ) {
            let line = |(what, path, kind, options): &(String, String, String, String)| {
                format!("{what} {path} {kind} {options} 0 0\n")
            };
            let text: String = lines.iter().map(line).collect();
            prop_assert_eq!(mounts(text.as_bytes()), by_splitting(&text));
        }

        #[test]
        fn no_bytes_are_too_much(text in vec(any::<u8>(), 0..10_000)) {
            mounts(&text);
        }
    }
}
