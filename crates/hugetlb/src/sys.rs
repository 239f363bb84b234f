//! The C library's calls, one function a call, each safe to use as its types say.
//!
//! Files are opened by `open`, `read` and `opendir`, not by system calls of our own: programs (and the regression suites
//! of others) interpose these, and what they show is then what we see.

mod published;

pub use published::Published;

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU8;
use libc::{DIR, mode_t, size_t};

/// What a call failed of: a value of `errno`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    /// No such file, and no mount.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Not enough memory, or address space.
    pub const ENOMEM: Self = Self(libc::ENOMEM);
    /// A wrong argument.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// The kernel has no huge pages.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// There already.
    pub const EEXIST: Self = Self(libc::EEXIST);
    /// Not that kind of file system.
    pub const ENODEV: Self = Self(libc::ENODEV);

    /// What the last call that failed left.
    pub fn last() -> Self {
        // SAFETY: the C library gives a valid pointer to this thread's errno.
        Self(unsafe { *libc::__errno_location() })
    }

    /// Makes it this thread's errno.
    pub fn set(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// An open file, closed when dropped.
#[derive(Debug)]
pub struct File(c_int);

impl File {
    /// Gives up ownership.
    pub fn into_raw(self) -> c_int {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and open.
        unsafe { libc::close(self.0) };
    }
}

fn opened(raw: c_int) -> Result<File, Errno> {
    if raw < 0 {
        Err(Errno::last())
    } else {
        Ok(File(raw))
    }
}

/// `open(path, O_RDONLY | O_CLOEXEC)`
pub fn open_to_read(path: &CStr) -> Result<File, Errno> {
    // SAFETY: the path is a C string.
    opened(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })
}

/// Only the owner may read and write.
const OWNER_ONLY: mode_t = 0o600;

/// `open(directory, O_TMPFILE | O_RDWR)`: a file that never had a name.
pub fn open_unnamed(directory: &CStr) -> Result<File, Errno> {
    let flags = libc::O_TMPFILE | libc::O_RDWR;
    // SAFETY: the path is a C string, and the mode is given as O_TMPFILE demands.
    opened(unsafe { libc::open(directory.as_ptr(), flags, OWNER_ONLY) })
}

/// `open(path, O_CREAT | O_EXCL | O_RDWR)`
pub fn create(path: &CStr) -> Result<File, Errno> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    // SAFETY: the path is a C string, and the mode is given as O_CREAT demands.
    opened(unsafe { libc::open(path.as_ptr(), flags, OWNER_ONLY) })
}

/// `unlink(path)`
pub fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is a C string.
    done(unsafe { libc::unlink(path.as_ptr()) })
}

fn done(result: c_int) -> Result<(), Errno> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(())
    }
}

/// `read(file, buffer)`, again when a signal came: how many bytes, 0 at the end.
pub fn read(file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        // SAFETY: the buffer is ours, and as long as said.
        let count = unsafe { libc::read(file.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) if Errno::last().0 == libc::EINTR => {}
            Err(_) => return Err(Errno::last()),
        }
    }
}

/// `write(2, text)`; nobody is left to tell of its failure.
pub fn write_stderr(text: &[u8]) {
    // SAFETY: the text is as long as said.
    let _written = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// A directory that is being read.
pub struct Directory(NonNull<DIR>);

impl Directory {
    /// `opendir(path)`
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        // SAFETY: the path is a C string.
        let directory = unsafe { libc::opendir(path.as_ptr()) };
        NonNull::new(directory).map(Self).ok_or_else(Errno::last)
    }

    /// `readdir`: the next name, given to `take`; false at the end.
    pub fn next(&mut self, take: impl FnOnce(&[u8])) -> bool {
        // SAFETY: the directory is open, and ours alone.
        let entry = unsafe { libc::readdir(self.0.as_ptr()) };
        if entry.is_null() {
            return false;
        }
        // SAFETY: an entry's name is a C string, valid until the next call.
        take(unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes());
        true
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: the directory is ours and open.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

/// What a file system says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Is it hugetlbfs?
    pub hugetlbfs: bool,
    /// Its pages' size in bytes.
    pub page_size: usize,
}

fn file_system(call: impl FnOnce(*mut libc::statfs) -> c_int) -> Result<FileSystem, Errno> {
    // SAFETY: all zeros is a valid value of a structure of numbers.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    done(call(&raw mut stat))?;
    Ok(FileSystem {
        hugetlbfs: stat.f_type == libc::HUGETLBFS_MAGIC,
        page_size: usize::try_from(stat.f_bsize).unwrap_or(0),
    })
}

/// `statfs(path)`
pub fn statfs(path: &CStr) -> Result<FileSystem, Errno> {
    // SAFETY: a C string, and a place for the answer.
    file_system(|stat| unsafe { libc::statfs(path.as_ptr(), stat) })
}

/// `fstatfs(file)`
pub fn fstatfs(file: &File) -> Result<FileSystem, Errno> {
    // SAFETY: an open file, and a place for the answer.
    file_system(|stat| unsafe { libc::fstatfs(file.0, stat) })
}

/// `access(path, R_OK | W_OK | X_OK)`: may files be made there?
pub fn may_use(path: &CStr) -> bool {
    // SAFETY: the path is a C string.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK | libc::X_OK) == 0 }
}

/// `access(path, F_OK)`
pub fn exists(path: &CStr) -> bool {
    // SAFETY: the path is a C string.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}

/// `readlink(path, buffer)`
pub fn read_link<'buffer>(path: &CStr, buffer: &'buffer mut [u8]) -> Result<&'buffer [u8], Errno> {
    // SAFETY: a C string, and a buffer as long as said.
    let length = unsafe { libc::readlink(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let held = usize::try_from(length)
        .ok()
        .and_then(|length| buffer.get(..length));
    held.ok_or_else(Errno::last)
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// `secure_getenv(name)`: none in a program that runs with more rights than its user's. The value lives until the
/// program changes its environment, so it is used at once, at the start.
pub fn environment<T>(name: &CStr, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
    // SAFETY: the name is a C string; so is what is returned, unless null.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: as above.
    Some(take(unsafe { CStr::from_ptr(value) }.to_bytes()))
}

/// `sysconf(_SC_PAGESIZE)`, which cannot fail on Linux.
pub fn base_page_size() -> usize {
    // SAFETY: no memory is involved.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// `getpid()`
pub fn process() -> usize {
    // SAFETY: no memory is involved.
    usize::try_from(unsafe { libc::getpid() }).unwrap_or(0)
}

/// 16 random bytes that the kernel gave the program, as a number; the program's own are not touched.
pub fn seed() -> usize {
    // SAFETY: no memory is involved.
    let bytes = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let bytes = ptr::with_exposed_provenance::<usize>(usize::try_from(bytes).unwrap_or(0));
    if bytes.is_null() {
        return process();
    }
    // SAFETY: where AT_RANDOM points there are 16 bytes, as long as the process lives.
    unsafe { bytes.read_unaligned() }
}

/// Where new memory comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'file> {
    /// Base pages.
    Anonymous,
    /// Huge pages of this many bytes, 2 to the given power, without a file of ours.
    Huge { log2: u32 },
    /// A file on hugetlbfs.
    File(&'file File),
}

/// Whether memory is set aside when it is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// It is: later faults cannot fail for want of it.
    Now,
    /// It is not.
    Never,
}

/// A mapping that is ours: where and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The first byte's address.
    pub start: usize,
    /// Bytes.
    pub length: usize,
}

/// `mmap`: private, readable and writable, wherever the kernel likes.
pub fn map(length: usize, source: Source<'_>, reservation: Reservation) -> Result<Mapping, Errno> {
    let (kind, file) = match source {
        Source::Anonymous => (libc::MAP_ANONYMOUS, -1),
        Source::Huge { log2 } => {
            let size = c_int::try_from(log2).unwrap_or(0) << libc::MAP_HUGE_SHIFT;
            (libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size, -1)
        }
        Source::File(file) => (0, file.0),
    };
    let reserve = match reservation {
        Reservation::Now => 0,
        Reservation::Never => libc::MAP_NORESERVE,
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | kind | reserve;
    // SAFETY: no address is asked for, so no mapping of anybody is touched.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    Ok(Mapping {
        start: start.expose_provenance(),
        length,
    })
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// `munmap`. Only for mappings that this library made and whose user gave them back.
pub fn unmap(mapping: Mapping) -> Result<(), Errno> {
    // SAFETY: the mapping is ours, and nobody uses it any more: so the interface's contract says.
    done(unsafe { libc::munmap(pointer(mapping.start), mapping.length) })
}

/// `madvise(MADV_POPULATE_WRITE)`: faults all pages in now. Kernels before 5.14 answer EINVAL.
pub fn populate(mapping: Mapping) -> Result<(), Errno> {
    let advice = libc::MADV_POPULATE_WRITE;
    // SAFETY: the mapping is ours; its content does not change.
    done(unsafe { libc::madvise(pointer(mapping.start), mapping.length, advice) })
}

/// The system call `shmget`, past the function that we have in its place.
pub fn shmget(key: libc::key_t, size: size_t, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: no memory is involved.
    let id: c_long = unsafe { libc::syscall(libc::SYS_shmget, key, size, flags) };
    match c_int::try_from(id) {
        Ok(id) if id >= 0 => Ok(id),
        Ok(_) | Err(_) => Err(Errno::last()),
    }
}

/// Bytes that end in a zero, and that do not change any more, as a C string that lives for good.
pub fn c_string(bytes: &'static [AtomicU8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// `abort()`
#[cfg(all(not(test), panic = "abort"))]
pub fn abort() -> ! {
    // SAFETY: it does not return.
    unsafe { libc::abort() }
}
