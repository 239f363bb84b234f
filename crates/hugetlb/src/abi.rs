//! What C programs see. Names, types and values are libhugetlbfs's; `include/hugetlbfs.h` declares them, `link.sh` gives
//! them their symbol versions.
//!
//! `errno` is what it was when all went well, whatever calls failed on the way; else it says why.

use crate::regions::{self, Colour, Otherwise};
use crate::say::{Level, Piece, say};
use crate::sizes::{self, PageSize};
use crate::sys::{self, Errno};
use crate::{mounts, options, shm};
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::ptr;

/// Huge pages of the default size.
const GHP_DEFAULT: c_ulong = 0x01;
/// Huge pages or nothing.
const GHR_STRICT: c_ulong = 0x1000_0000;
/// Base pages if there are no huge ones.
const GHR_FALLBACK: c_ulong = 0x2000_0000;
/// Coloured.
const GHR_COLOR: c_ulong = 0x4000_0000;

/// Runs with `errno` saved: it is given back on success, set on failure.
fn with_errno<T>(failed: T, run: impl FnOnce() -> Result<T, Errno>) -> T {
    let before = Errno::last();
    match run() {
        Ok(value) => {
            before.set();
            value
        }
        Err(error) => {
            error.set();
            failed
        }
    }
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

fn page_size(bytes: c_long) -> Option<PageSize> {
    usize::try_from(bytes).ok().and_then(PageSize::new)
}

/// `void *get_huge_pages(size_t len, ghp_t flags)`
#[unsafe(no_mangle)]
extern "C" fn get_huge_pages(len: usize, flags: c_ulong) -> *mut c_void {
    if flags & (GHR_STRICT | GHR_FALLBACK | GHR_COLOR) != 0 {
        say(
            Level::Error,
            &[Piece::Words("get_huge_pages takes GHP_ flags, not GHR_")],
        );
    }
    with_errno(ptr::null_mut(), || regions::huge_pages(len).map(pointer))
}

/// `void free_huge_pages(void *ptr)`
#[unsafe(no_mangle)]
extern "C" fn free_huge_pages(ptr: *mut c_void) {
    free_hugepage_region(ptr);
}

/// `void *get_hugepage_region(size_t len, ghr_t flags)`
#[unsafe(no_mangle)]
extern "C" fn get_hugepage_region(len: usize, flags: c_ulong) -> *mut c_void {
    if flags & GHP_DEFAULT != 0 {
        say(
            Level::Error,
            &[Piece::Words(
                "get_hugepage_region takes GHR_ flags, not GHP_",
            )],
        );
    }
    let otherwise = if flags & GHR_FALLBACK != 0 && flags & GHR_STRICT == 0 {
        Otherwise::BasePages
    } else {
        Otherwise::Fail
    };
    let colour = if flags & GHR_COLOR != 0 {
        Colour::Spread
    } else {
        Colour::None
    };
    let region = || regions::region(len, otherwise, colour).map(pointer);
    with_errno(ptr::null_mut(), region)
}

/// `void free_hugepage_region(void *ptr)`
#[unsafe(no_mangle)]
extern "C" fn free_hugepage_region(ptr: *mut c_void) {
    with_errno((), || {
        regions::give_back(ptr.expose_provenance());
        Ok(())
    });
}

/// `long gethugepagesize(void)`
#[unsafe(no_mangle)]
extern "C" fn gethugepagesize() -> c_long {
    with_errno(-1, || {
        options::read();
        let size = sizes::default()?;
        c_long::try_from(size.bytes()).or(Err(Errno::ENOSYS))
    })
}

/// `int gethugepagesizes(long pagesizes[], int n_elem)`
///
/// # Safety
/// `pagesizes` is null, or has room for `n_elem` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethugepagesizes(pagesizes: *mut c_long, n_elem: c_int) -> c_int {
    with_errno(-1, || {
        // SAFETY: the caller's word.
        let mut sizes = unsafe { Sizes::into(pagesizes, n_elem) }?;
        sizes::each(|size| sizes.push(size.bytes()))?;
        Ok(sizes.count)
    })
}

/// `int getpagesizes(long pagesizes[], int n_elem)`
///
/// # Safety
/// `pagesizes` is null, or has room for `n_elem` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpagesizes(pagesizes: *mut c_long, n_elem: c_int) -> c_int {
    with_errno(-1, || {
        // SAFETY: the caller's word.
        let mut sizes = unsafe { Sizes::into(pagesizes, n_elem) }?;
        sizes.push(sys::base_page_size());
        sizes::each(|size| sizes.push(size.bytes()))?;
        Ok(sizes.count)
    })
}

/// Sizes, written into a caller's array as long as there is room, or only counted.
struct Sizes<'array> {
    room: Option<core::slice::IterMut<'array, c_long>>,
    count: c_int,
}

impl Sizes<'_> {
    /// # Safety
    /// `array` is null, or has room for `count` numbers and stays so.
    unsafe fn into(array: *mut c_long, count: c_int) -> Result<Self, Errno> {
        let length = usize::try_from(count).or(Err(Errno::EINVAL))?;
        if array.is_null() {
            let counted = Self {
                room: None,
                count: 0,
            };
            return if length == 0 {
                Ok(counted)
            } else {
                Err(Errno::EINVAL)
            };
        }
        // SAFETY: the caller's word.
        let array = unsafe { core::slice::from_raw_parts_mut(array, length) };
        Ok(Self {
            room: Some(array.iter_mut()),
            count: 0,
        })
    }

    fn push(&mut self, size: usize) {
        let counted = match &mut self.room {
            None => true,
            Some(room) => match (room.next(), c_long::try_from(size)) {
                (Some(place), Ok(size)) => {
                    *place = size;
                    true
                }
                (Some(_) | None, Ok(_) | Err(_)) => false,
            },
        };
        if counted {
            self.count = self.count.saturating_add(1);
        }
    }
}

/// `int hugetlbfs_test_path(const char *mount)`
///
/// # Safety
/// `mount` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn hugetlbfs_test_path(mount: *const c_char) -> c_int {
    with_errno(-1, || {
        if mount.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller's word.
        let path = unsafe { CStr::from_ptr(mount) };
        mounts::is_hugetlbfs(path).map(c_int::from)
    })
}

/// `const char *hugetlbfs_find_path(void)`
#[unsafe(no_mangle)]
extern "C" fn hugetlbfs_find_path() -> *const c_char {
    with_errno(ptr::null(), || {
        options::read();
        mounts::find(sizes::default()?).map(mounts::Path::as_ptr)
    })
}

/// `const char *hugetlbfs_find_path_for_size(long page_size)`
#[unsafe(no_mangle)]
extern "C" fn hugetlbfs_find_path_for_size(bytes: c_long) -> *const c_char {
    with_errno(ptr::null(), || {
        options::read();
        let size = page_size(bytes).ok_or(Errno::EINVAL)?;
        mounts::find(size).map(mounts::Path::as_ptr)
    })
}

/// `int hugetlbfs_unlinked_fd(void)`
#[unsafe(no_mangle)]
extern "C" fn hugetlbfs_unlinked_fd() -> c_int {
    with_errno(-1, || {
        options::read();
        mounts::unlinked(sizes::default()?).map(sys::File::into_raw)
    })
}

/// `int hugetlbfs_unlinked_fd_for_size(long page_size)`
#[unsafe(no_mangle)]
extern "C" fn hugetlbfs_unlinked_fd_for_size(bytes: c_long) -> c_int {
    with_errno(-1, || {
        let size = page_size(bytes).ok_or(Errno::EINVAL)?;
        mounts::unlinked(size).map(sys::File::into_raw)
    })
}

/// `int shmget(key_t key, size_t size, int shmflg)`
#[unsafe(no_mangle)]
extern "C" fn shmget(key: libc::key_t, size: usize, shmflg: c_int) -> c_int {
    with_errno(-1, || shm::get(key, size, shmflg))
}

/// For libhugetlbfs's own tests, which show the library false page sizes: forgets the default.
#[unsafe(no_mangle)]
extern "C" fn __tp_kernel_default_hugepage_size_reset() {
    sizes::forget_default();
}

/// Reads the environment before the program can change it.
#[cfg(not(test))]
extern "C" fn start() {
    with_errno((), || {
        options::read();
        Ok(())
    });
}

#[cfg(not(test))]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".init_array")]
#[used]
static HUGEPILOT_HUGETLB_START: extern "C" fn() = start;

/// Never called: the built library refers to nothing that panics. The compiler wants it all the same.
#[cfg(all(not(test), panic = "abort"))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    sys::abort()
}
