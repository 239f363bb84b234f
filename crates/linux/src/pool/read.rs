//! Pools as sysfs shows them, and the two files that every change goes through.

use super::{Counters, NodePool, PageSize, Pool};
use crate::error::Error;
use crate::procfs::{self, ParseError, ProcRoot, SysRoot, decimal, lines};
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::Bytes;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const POOLS: &str = "kernel/mm/hugepages";
const NODES: &str = "devices/system/node";

/// All pools, smallest pages first; none on a kernel without hugetlb.
///
/// # Errors
/// If one cannot be read or understood.
pub fn pools(sys: &SysRoot) -> Result<Vec<Pool>, Error> {
    let mut sizes: Vec<PageSize> = names(&sys.path(POOLS))?
        .iter()
        .filter_map(|name| PageSize::of_directory(name))
        .collect();
    sizes.sort_unstable();
    sizes.into_iter().map(|size| pool(sys, size)).collect()
}

/// The pool of one size.
///
/// # Errors
/// If it does not exist, or cannot be read or understood.
pub fn pool(sys: &SysRoot, size: PageSize) -> Result<Pool, Error> {
    let directory = directory(sys, size, None);
    let divides_into = match procfs::read_if_there(&directory.join("demote_size"))? {
        Some(text) => kilobytes(&text),
        None => None,
    };
    Ok(Pool {
        size,
        counters: counters(&directory)?,
        reserved: number(&directory.join("resv_hugepages"))?,
        overcommit: number(&directory.join("nr_overcommit_hugepages"))?,
        divides_into,
        nodes: nodes(sys, size)?,
    })
}

fn nodes(sys: &SysRoot, size: PageSize) -> Result<Vec<NodePool>, Error> {
    let mut nodes: Vec<NodeId> = names(&sys.path(NODES))?
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok().map(NodeId))
        .collect();
    nodes.sort_unstable();
    let here = |node: NodeId| directory(sys, size, Some(node));
    nodes.retain(|&node| here(node).exists());
    let read = |node| counters(&here(node)).map(|counters| NodePool { node, counters });
    nodes.into_iter().map(read).collect()
}

/// Where a pool is, or its part on a node.
pub(super) fn directory(sys: &SysRoot, size: PageSize, node: Option<NodeId>) -> PathBuf {
    let parent = match node {
        Some(NodeId(node)) => sys.path(&format!("{NODES}/node{node}/hugepages")),
        None => sys.path(POOLS),
    };
    parent.join(size.directory())
}

/// The counters in one of these directories.
pub(super) fn counters(directory: &Path) -> Result<Counters, Error> {
    Ok(Counters {
        total: number(&directory.join("nr_hugepages"))?,
        free: number(&directory.join("free_hugepages"))?,
        surplus: number(&directory.join("surplus_hugepages"))?,
    })
}

/// A file that holds one number.
fn number(path: &Path) -> Result<u64, Error> {
    let text = procfs::read(path)?;
    let wrong = ParseError::new("hugepages", 1, "expected a number");
    procfs::understood(path, decimal(text.trim_ascii()).ok_or(wrong))
}

/// The size that the kernel takes where a program names none, and that `vm.nr_hugepages` counts.
///
/// # Errors
/// If `meminfo` cannot be read.
pub fn default_size(proc: &ProcRoot) -> Result<Option<PageSize>, Error> {
    let text = procfs::read(&proc.system("meminfo"))?;
    let mut found = lines(&text).filter_map(|(_, line)| line.strip_prefix(b"Hugepagesize:"));
    let size = found.next().and_then(|value| {
        let kib = decimal(value.trim_ascii().strip_suffix(b"kB")?.trim_ascii())?;
        PageSize::new(Bytes(kib.checked_mul(1 << 10)?))
    });
    Ok(size)
}

/// `2048kB`
fn kilobytes(text: &[u8]) -> Option<PageSize> {
    let kib = decimal(text.trim_ascii().strip_suffix(b"kB")?)?;
    PageSize::new(Bytes(kib.checked_mul(1 << 10)?))
}

/// The names in a directory; none where it does not exist.
fn names(path: &Path) -> Result<Vec<String>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect::<Result<_, _>>().map_err(failed)
}

/// Writes a number to a file of the kernel; the file must be there.
pub(super) fn write(path: &Path, value: u64) -> Result<(), Error> {
    let text = value.to_string();
    let open = OpenOptions::new().write(true).truncate(true).open(path);
    open.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| Error::Write {
            path: path.to_owned(),
            value: text,
            source,
        })
}

/// Sets how many surplus pages there may be.
///
/// # Errors
/// If the kernel does not take it: there are no surplus pages of 1 GiB.
pub fn set_overcommit(sys: &SysRoot, size: PageSize, pages: u64) -> Result<(), Error> {
    let file = directory(sys, size, None).join("nr_overcommit_hugepages");
    write(&file, pages)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A false `/sys` with pools of 2 MiB (on two nodes) and 1 GiB.
    pub fn fake() -> (tempfile::TempDir, SysRoot) {
        let root = tempfile::tempdir().expect("a directory");
        let sys = SysRoot::new(root.path());
        let (two, one) = (size(Bytes::mib(2)), size(Bytes::gib(1)));
        put(&directory(&sys, two, None), [8, 5, 2]);
        put(&directory(&sys, two, Some(NodeId(0))), [6, 4, 2]);
        put(&directory(&sys, two, Some(NodeId(1))), [2, 1, 0]);
        put(&directory(&sys, one, None), [3, 3, 0]);
        fs::write(directory(&sys, one, None).join("demote_size"), "2048kB\n").expect("a file");
        fs::write(directory(&sys, one, None).join("demote"), "").expect("a file");
        (root, sys)
    }

    pub fn size(bytes: Bytes) -> PageSize {
        PageSize::new(bytes).expect("a power of two")
    }

    fn put(directory: &Path, [total, free, surplus]: [u64; 3]) {
        fs::create_dir_all(directory).expect("a directory");
        let files = [
            ("nr_hugepages", total),
            ("free_hugepages", free),
            ("surplus_hugepages", surplus),
            ("resv_hugepages", 1),
            ("nr_overcommit_hugepages", 4),
        ];
        for (name, value) in files {
            fs::write(directory.join(name), format!("{value}\n")).expect("a file");
        }
    }

    #[test]
    fn every_size_and_node_is_read() {
        let (_root, sys) = fake();
        let pools = pools(&sys).expect("two pools");
        let sizes: Vec<String> = pools.iter().map(|pool| pool.size.short()).collect();
        assert_eq!(sizes, ["2M", "1G"]);
        assert_eq!((pools[0].counters.minimum(), pools[0].maximum()), (6, 10));
        assert_eq!((pools[0].reserved, pools[0].available()), (1, 4));
        let nodes: Vec<u64> = pools[0]
            .nodes
            .iter()
            .map(|node| node.counters.total)
            .collect();
        assert_eq!(nodes, [6, 2]);
        assert_eq!(pools[1].divides_into, Some(size(Bytes::mib(2))));
        assert!(pools[1].nodes.is_empty());
    }

    #[test]
    fn a_kernel_without_hugetlb_has_no_pools() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(pools(&SysRoot::new(root.path())).expect("nothing").len(), 0);
    }

    #[test]
    fn the_default_size_is_what_meminfo_says() {
        let root = tempfile::tempdir().expect("a directory");
        let proc = ProcRoot::new(root.path());
        for (text, expected) in [
            (
                "MemTotal: 8 kB\nHugepagesize:       2048 kB\n",
                Some(size(Bytes::mib(2))),
            ),
            ("MemTotal: 8 kB\n", None),
        ] {
            fs::write(root.path().join("meminfo"), text).expect("a file");
            assert_eq!(default_size(&proc).expect("readable"), expected);
        }
    }

    #[test]
    fn what_is_no_number_is_told_with_its_file() {
        let (_root, sys) = fake();
        let file = directory(&sys, size(Bytes::mib(2)), None).join("resv_hugepages");
        fs::write(&file, "some\n").expect("a file");
        let said = pools(&sys).expect_err("no number").to_string();
        assert!(said.contains("resv_hugepages"), "{said}");
    }

    #[test]
    fn nothing_is_written_where_no_file_is() {
        let (root, sys) = fake();
        assert!(set_overcommit(&sys, size(Bytes::kib(64)), 1).is_err());
        assert!(
            !root
                .path()
                .join("kernel/mm/hugepages/hugepages-64kB")
                .exists()
        );
        set_overcommit(&sys, size(Bytes::mib(2)), 11).expect("written");
        let pool = pool(&sys, size(Bytes::mib(2))).expect("the pool");
        assert_eq!(pool.overcommit, 11);
    }
}
