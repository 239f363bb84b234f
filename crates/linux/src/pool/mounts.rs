//! hugetlbfs: where it is mounted, and mounting it.

use super::PageSize;
use crate::error::Error;
use crate::procfs::{self, ProcRoot, decimal, mountinfo};
use hugepilot_core::units::Bytes;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// One mount of hugetlbfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub at: PathBuf,
    /// The size of its pages; `None` where the kernel does not say.
    pub size: Option<PageSize>,
    /// How much its files may take together.
    pub most: Option<Bytes>,
}

/// All mounts that a process of this mount namespace sees.
///
/// # Errors
/// If the list cannot be read or understood.
pub fn all(proc: &ProcRoot) -> Result<Vec<Mount>, Error> {
    let mounts = system(proc)?.into_iter();
    let hugetlbfs = mounts.filter(|mount| mount.kind == "hugetlbfs");
    Ok(hugetlbfs.map(of).collect())
}

/// Mounts of any kind.
pub(super) fn system(proc: &ProcRoot) -> Result<Vec<mountinfo::Mount>, Error> {
    let path = proc.system("self/mountinfo");
    let text = procfs::read(&path)?;
    procfs::understood(&path, mountinfo::parse(&text))
}

fn of(mount: mountinfo::Mount) -> Mount {
    let option = |name: &str| {
        let mut given = mount.options.split(',');
        given.find_map(|option| option.strip_prefix(name)?.strip_prefix('=').and_then(bytes))
    };
    Mount {
        size: option("pagesize").and_then(PageSize::new),
        most: option("size"),
        at: mount.at,
    }
}

/// `2M`, `1024M`, `64K`, `4194304`
fn bytes(text: &str) -> Option<Bytes> {
    let (digits, shift) = match text.as_bytes() {
        [digits @ .., b'K'] => (digits, 10),
        [digits @ .., b'M'] => (digits, 20),
        [digits @ .., b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    decimal(digits)?.checked_mul(1 << shift).map(Bytes)
}

/// The options that make a mount's pages of this size, and limit it.
#[must_use]
pub fn options(size: PageSize, most: Option<Bytes>) -> String {
    match most {
        Some(most) => format!("pagesize={},size={}", size.short(), most.0),
        None => format!("pagesize={}", size.short()),
    }
}

/// Mounts hugetlbfs on a directory, for programs that run as data alone: no devices, no setuid.
///
/// # Errors
/// The kernel's.
pub fn attach(at: &Path, options: &str) -> Result<(), Error> {
    let failed = |source| Error::Call {
        call: "mount(2) of hugetlbfs",
        source,
    };
    // Options are made of letters and digits by `options` above; a zero byte cannot be in them.
    let options = CString::new(options)
        .map_err(|_zero_byte: std::ffi::NulError| failed(rustix::io::Errno::INVAL))?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount(
        "hugetlbfs",
        at,
        "hugetlbfs",
        flags,
        Some(options.as_c_str()),
    )
    .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::size;
    use super::*;

    #[test]
    fn mounts_say_their_pages_and_their_limit() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("self")).expect("a directory");
        let text = "36 31 0:33 / /dev/huge\\040pages rw - hugetlbfs none rw,relatime,pagesize=1024M,size=4294967296\n\
            37 31 0:34 / /tmp rw - tmpfs none rw,size=4k\n38 31 0:35 / /b rw - hugetlbfs x rw,pagesize=2M\n";
        std::fs::write(root.path().join("self/mountinfo"), text).expect("a file");
        let mounts = all(&ProcRoot::new(root.path())).expect("two mounts");
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].at, Path::new("/dev/huge pages"));
        assert_eq!(mounts[0].size, Some(size(Bytes::gib(1))));
        assert_eq!(mounts[0].most, Some(Bytes::gib(4)));
        assert_eq!(
            (mounts[1].size, mounts[1].most),
            (Some(size(Bytes::mib(2))), None)
        );
    }

    #[test]
    fn options_are_what_the_kernel_reads() {
        assert_eq!(options(size(Bytes::gib(1)), None), "pagesize=1G");
        let both = options(size(Bytes::mib(2)), Some(Bytes::mib(8)));
        assert_eq!(both, "pagesize=2M,size=8388608");
    }
}
