//! Limits of the hugetlb controller, of either version of cgroups.
//!
//! There are two per size: `rsvd` counts what is reserved, so that a mapping beyond it is refused; the other counts pages, so that a fault
//! beyond it kills (SIGBUS). A cgroup is limited by all that are above it.

use super::{PageSize, mounts};
use crate::error::Error;
use crate::procfs::cgroup::{Version, parse_counter, parse_membership_of};
use crate::procfs::{self, ProcRoot, decimal};
use hugepilot_core::units::Bytes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Cgroups looked at, at the most: a machine with more is not shown in full, and that is said.
pub const GROUPS_MAX: usize = 16_384;
/// A limit from here on is none: version 1 writes "none" as 2^63 rounded down to whole pages of the pool.
const UNLIMITED: Bytes = Bytes(1 << 62);

/// One cgroup's limits on pages of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// From the root of the hierarchy.
    pub path: String,
    /// Which hierarchy.
    pub version: Version,
    /// Which pool.
    pub size: PageSize,
    /// Pages.
    pub pages: Limit,
    /// Reservations; `None` on a kernel that does not limit them.
    pub reservations: Option<Limit>,
    /// How often a limit was hit.
    pub hits: u64,
}

/// A limit, and what counts against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// `None` if there is no limit.
    pub max: Option<Bytes>,
    /// Used.
    pub current: Bytes,
}

impl Limit {
    /// What is left; `None` if there is no limit.
    #[must_use]
    pub fn left(self) -> Option<Bytes> {
        // A limit may be set below what is used.
        self.max.map(|max| max.growth_since(self.current))
    }
}

impl Group {
    /// Does it say anything: a limit, or a use?
    #[must_use]
    pub fn matters(&self) -> bool {
        let says = |limit: Limit| limit.max.is_some() || limit.current > Bytes::ZERO;
        says(self.pages) || self.reservations.is_some_and(says)
    }
}

/// The cgroups that matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// Those with a limit or a use.
    pub list: Vec<Group>,
    /// Were there more than we look at?
    pub bounded: bool,
}

/// A hierarchy that may have the controller.
struct Hierarchy {
    root: PathBuf,
    version: Version,
}

/// Every cgroup with a limit or a use.
///
/// # Errors
/// If a hierarchy cannot be read.
pub fn all(proc: &ProcRoot, sizes: &[PageSize]) -> Result<Groups, Error> {
    let mut groups = Groups::default();
    for hierarchy in hierarchies(proc)? {
        let mut waiting = vec![hierarchy.root.clone()];
        let mut seen = 0_usize;
        while let Some(directory) = waiting.pop() {
            if seen == GROUPS_MAX {
                groups.bounded = true;
                break;
            }
            seen += 1;
            groups.list.extend(of(&hierarchy, &directory, sizes)?);
            waiting.extend(below(&directory)?);
        }
    }
    groups.list.retain(Group::matters);
    groups
        .list
        .sort_by(|a, b| (&a.path, a.size).cmp(&(&b.path, b.size)));
    Ok(groups)
}

/// The cgroup of a process and all above it, with their limits on one size.
///
/// # Errors
/// If they cannot be read.
pub fn above(proc: &ProcRoot, process: &str, size: PageSize) -> Result<Vec<Group>, Error> {
    let path = proc.system(process).join("cgroup");
    let text = procfs::read(&path)?;
    let Some(member) = procfs::understood(&path, parse_membership_of(&text, "hugetlb"))? else {
        return Ok(Vec::new());
    };
    let mut groups = Vec::new();
    let same = |hierarchy: &Hierarchy| hierarchy.version == member.version;
    let Some(hierarchy) = hierarchies(proc)?.into_iter().find(same) else {
        return Ok(groups);
    };
    let inside = Path::new(&member.path);
    for directory in inside.ancestors() {
        let below = directory.strip_prefix("/").unwrap_or(directory);
        groups.extend(of(&hierarchy, &hierarchy.root.join(below), &[size])?);
    }
    Ok(groups)
}

fn hierarchies(proc: &ProcRoot) -> Result<Vec<Hierarchy>, Error> {
    let version = |mount: &procfs::mountinfo::Mount| match mount.kind.as_str() {
        "cgroup2" => Some(Version::V2),
        "cgroup" if mount.has_option("hugetlb") => Some(Version::V1),
        _ => None,
    };
    let mounts = mounts::system(proc)?.into_iter();
    Ok(mounts
        .filter_map(|mount| {
            version(&mount).map(|version| Hierarchy {
                root: mount.at,
                version,
            })
        })
        .collect())
}

fn below(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()), // gone
        Err(error) => return Err(failed(error)),
    };
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

/// What one cgroup says, of each size; nothing where it has not the controller.
fn of(hierarchy: &Hierarchy, directory: &Path, sizes: &[PageSize]) -> Result<Vec<Group>, Error> {
    let path = directory.strip_prefix(&hierarchy.root).unwrap_or(directory);
    let path = format!("/{}", path.display());
    let mut groups = Vec::new();
    for &size in sizes {
        let names = Names::of(hierarchy.version);
        let file = |name: &str| directory.join(format!("hugetlb.{}.{name}", size.of_cgroups()));
        let Some(pages) = limit(&file(names.max), &file(names.current))? else {
            continue;
        };
        groups.push(Group {
            path: path.clone(),
            version: hierarchy.version,
            size,
            pages,
            reservations: limit(&file(names.reserved_max), &file(names.reserved_current))?,
            hits: hits(&file(names.hits))?,
        });
    }
    Ok(groups)
}

/// How the files are called.
struct Names {
    max: &'static str,
    current: &'static str,
    reserved_max: &'static str,
    reserved_current: &'static str,
    hits: &'static str,
}

impl Names {
    const fn of(version: Version) -> Self {
        match version {
            Version::V1 => Self {
                max: "limit_in_bytes",
                current: "usage_in_bytes",
                reserved_max: "rsvd.limit_in_bytes",
                reserved_current: "rsvd.usage_in_bytes",
                hits: "failcnt",
            },
            Version::V2 => Self {
                max: "max",
                current: "current",
                reserved_max: "rsvd.max",
                reserved_current: "rsvd.current",
                hits: "events",
            },
        }
    }
}

fn limit(max: &Path, current: &Path) -> Result<Option<Limit>, Error> {
    let (Some(most), Some(used)) = (procfs::read_if_there(max)?, procfs::read_if_there(current)?)
    else {
        return Ok(None);
    };
    let most = match most.trim_ascii() {
        b"max" => None,
        number => Some(procfs::understood(max, parse_counter(number))?),
    };
    Ok(Some(Limit {
        max: most.filter(|&most| most < UNLIMITED),
        current: procfs::understood(current, parse_counter(&used))?,
    }))
}

/// `max 3`, or a number alone; 0 on a kernel that does not count.
fn hits(path: &Path) -> Result<u64, Error> {
    let text = procfs::read_if_there(path)?;
    let word = text.as_deref().and_then(|text| {
        let mut words = text.trim_ascii().split(|byte| byte.is_ascii_whitespace());
        words.next_back()
    });
    Ok(word.and_then(decimal).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::size;
    use super::*;

    fn put(directory: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(directory).expect("a directory");
        for (name, text) in files {
            fs::write(directory.join(name), text).expect("a file");
        }
    }

    fn root(kind: &str, options: &str) -> (tempfile::TempDir, ProcRoot) {
        let root = tempfile::tempdir().expect("a directory");
        let at = root.path().join("fs");
        let mounts = format!("36 31 0:33 / {} rw - {kind} none {options}\n", at.display());
        put(&root.path().join("self"), &[("mountinfo", &mounts)]);
        let proc = ProcRoot::new(root.path());
        (root, proc)
    }

    #[test]
    fn limits_of_version_2() {
        let (root, proc) = root("cgroup2", "rw");
        let files = [
            ("hugetlb.2MB.max", "8388608\n"),
            ("hugetlb.2MB.current", "2097152\n"),
            ("hugetlb.2MB.rsvd.max", "max\n"),
            ("hugetlb.2MB.rsvd.current", "0\n"),
            ("hugetlb.2MB.events", "max 3\n"),
        ];
        put(&root.path().join("fs/a/b"), &files);
        put(&root.path().join("self"), &[("cgroup", "0::/a/b\n")]);
        let groups = all(&proc, &[size(Bytes::mib(2)), size(Bytes::gib(1))]).expect("one");
        assert_eq!(groups.list.len(), 1);
        let group = &groups.list[0];
        assert_eq!((group.path.as_str(), group.hits), ("/a/b", 3));
        assert_eq!(group.pages.left(), Some(Bytes::mib(6)));
        assert_eq!(group.reservations.and_then(Limit::left), None);
        assert_eq!(
            above(&proc, "self", size(Bytes::mib(2))).expect("one"),
            groups.list
        );
    }

    #[test]
    fn limits_of_version_1_and_those_that_are_none() {
        let (root, proc) = root("cgroup", "rw,hugetlb");
        let none = "9223372036852678656\n";
        let files = |limit| {
            [
                ("hugetlb.2MB.limit_in_bytes", limit),
                ("hugetlb.2MB.usage_in_bytes", "0\n"),
            ]
        };
        put(&root.path().join("fs"), &files(none));
        put(&root.path().join("fs/a"), &files("0\n"));
        put(
            &root.path().join("self"),
            &[("cgroup", "3:hugetlb:/a\n0::/\n")],
        );
        let groups = all(&proc, &[size(Bytes::mib(2))]).expect("one matters");
        assert_eq!(groups.list.len(), 1);
        assert_eq!(groups.list[0].pages.max, Some(Bytes::ZERO));
        let chain = above(&proc, "self", size(Bytes::mib(2))).expect("two");
        assert_eq!(
            chain
                .iter()
                .map(|group| group.pages.max)
                .collect::<Vec<_>>(),
            [Some(Bytes::ZERO), None]
        );
    }

    #[test]
    fn without_the_controller_there_is_nothing() {
        let (root, proc) = root("cgroup2", "rw");
        put(&root.path().join("fs/a"), &[]);
        put(&root.path().join("self"), &[("cgroup", "0::/a\n")]);
        assert_eq!(
            all(&proc, &[size(Bytes::mib(2))]).expect("none"),
            Groups::default()
        );
        assert!(
            above(&proc, "self", size(Bytes::mib(2)))
                .expect("none")
                .is_empty()
        );
    }
}
