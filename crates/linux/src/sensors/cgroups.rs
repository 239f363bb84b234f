//! Memory cgroups of watched processes, of either version.
//!
//! A cgroup is known by the inode of its directory. Where the unified hierarchy does not control memory at a process's
//! own level, its nearest ancestor that does is meant, since that is where the memory is charged.

use crate::error::Error;
use crate::procfs::cgroup::{
    Membership, MemoryStat, Version, parse_counter, parse_limit, parse_limit_v1, parse_membership,
    parse_stat,
};
use crate::procfs::mountinfo::{self, Mount};
use crate::procfs::{ProcRoot, pressure, read, read_if_there, understood};
use hugepilot_core::ids::{CgroupId, Pid};
use hugepilot_core::observation::CgroupObserved;
use hugepilot_core::units::{Bytes, Instant, Span};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The charge of a cgroup is read so often: the laws of headroom rest on it.
const CURRENT_PERIOD: Span = Span::millis(500);
/// `memory.stat` and limits are read so seldom: reading the former makes the kernel sum up all CPUs.
const STAT_PERIOD: Span = Span::secs(4);
/// Ancestors that are asked for their limit, at the most.
const DEPTH_MAX: usize = 32;

/// One memory cgroup.
#[derive(Debug)]
struct Cgroup {
    version: Version,
    path: String,
    directory: PathBuf,
    /// The hierarchy's mount point, where asking ancestors ends.
    top: PathBuf,
    processes: u32,
    current_at: Option<Instant>,
    stat_at: Option<Instant>,
    slow: Slow,
}

/// Numbers that are read seldom.
#[derive(Debug, Clone, Copy, Default)]
struct Slow {
    high: Option<Bytes>,
    max: Option<Bytes>,
    anon_thp: Option<Bytes>,
}

/// The memory cgroups of watched processes.
#[derive(Debug)]
pub struct Cgroups {
    mounts: Vec<(Version, Mount)>,
    table: BTreeMap<CgroupId, Cgroup>,
}

impl Cgroups {
    /// Finds where the hierarchies are mounted.
    ///
    /// # Errors
    /// If our own mounts cannot be read.
    pub fn detect(root: &ProcRoot) -> Result<Self, Error> {
        let path = root.process(Pid(std::process::id()), "mountinfo");
        let mounts = understood(&path, mountinfo::parse(&read(&path)?))?;
        let hierarchy = |mount: Mount| match mount.kind.as_str() {
            "cgroup" if mount.has_option("memory") => Some((Version::V1, mount)),
            "cgroup2" => Some((Version::V2, mount)),
            _ => None,
        };
        Ok(Self {
            mounts: mounts.into_iter().filter_map(hierarchy).collect(),
            table: BTreeMap::new(),
        })
    }

    /// The memory cgroup that `pid` is in now; `None` where it is in none that we can see.
    ///
    /// # Errors
    /// If its membership cannot be read; see [`Error::is_gone`].
    pub fn of(&mut self, root: &ProcRoot, pid: Pid) -> Result<Option<CgroupId>, Error> {
        let path = root.process(pid, "cgroup");
        let membership = understood(&path, parse_membership(&read(&path)?))?;
        let Some(cgroup) = membership.and_then(|membership| self.locate(&membership)) else {
            return Ok(None);
        };
        let Ok(metadata) = cgroup.directory.metadata() else {
            return Ok(None); // Removed while the process was leaving it.
        };
        let id = CgroupId(metadata.ino());
        self.table.entry(id).or_insert(cgroup);
        Ok(Some(id))
    }

    fn locate(&self, membership: &Membership) -> Option<Cgroup> {
        let (version, mount) = self
            .mounts
            .iter()
            .find(|(version, _)| *version == membership.version)?;
        let below = membership
            .path
            .strip_prefix(mount.root.trim_end_matches('/'))?;
        let directory = mount.at.join(below.trim_start_matches('/'));
        let counter = current_file(*version);
        let directory = directory
            .ancestors()
            .take(DEPTH_MAX)
            .take_while(|directory| directory.starts_with(&mount.at))
            .find(|directory| directory.join(counter).exists())?
            .to_owned();
        let path = directory.strip_prefix(&mount.at).ok()?;
        Some(Cgroup {
            version: *version,
            path: format!("/{}", path.display()),
            directory,
            top: mount.at.clone(),
            processes: 0,
            current_at: None,
            stat_at: None,
            slow: Slow::default(),
        })
    }

    /// Where the files of `cgroup` are.
    #[must_use]
    pub fn directory(&self, cgroup: CgroupId) -> Option<&Path> {
        self.table
            .get(&cgroup)
            .map(|cgroup| cgroup.directory.as_path())
    }

    /// Only these cgroups still have a watched process.
    pub fn keep(&mut self, used: impl Iterator<Item = CgroupId>) {
        self.table
            .values_mut()
            .for_each(|cgroup| cgroup.processes = 0);
        for id in used {
            if let Some(cgroup) = self.table.get_mut(&id) {
                cgroup.processes += 1;
            }
        }
        self.table.retain(|_, cgroup| cgroup.processes > 0);
    }

    /// Is any of them due?
    #[must_use]
    pub fn due(&self, now: Instant) -> bool {
        self.table.values().any(|cgroup| cgroup.due(now))
    }

    /// The numbers of those that are due. A cgroup that was removed meanwhile is left out.
    ///
    /// # Errors
    /// The first error that is not that a cgroup is gone; the others are read all the same.
    pub fn observe(&mut self, now: Instant, said: &mut Vec<CgroupObserved>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (id, cgroup) in &mut self.table {
            if cgroup
                .current_at
                .is_some_and(|at| now.since(at) < CURRENT_PERIOD)
            {
                continue;
            }
            match cgroup.observe(*id, now) {
                Ok(observed) => said.push(observed),
                Err(error) if is_gone(&error) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}

/// A cgroup's files vanish with it (`ENOENT`), or answer `ENODEV`.
fn is_gone(error: &Error) -> bool {
    let removed = matches!(error, Error::Read { source, .. }
        if source.raw_os_error() == Some(libc::ENODEV));
    removed || error.is_gone()
}

const fn current_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.usage_in_bytes",
        Version::V2 => "memory.current",
    }
}

impl Cgroup {
    fn due(&self, now: Instant) -> bool {
        self.current_at
            .is_none_or(|at| now.since(at) >= CURRENT_PERIOD)
    }

    fn observe(&mut self, id: CgroupId, now: Instant) -> Result<CgroupObserved, Error> {
        let path = self.directory.join(current_file(self.version));
        let current = understood(&path, parse_counter(&read(&path)?))?;
        if self.stat_at.is_none_or(|at| now.since(at) >= STAT_PERIOD) {
            self.slow = self.read_slow()?;
            self.stat_at = Some(now);
        }
        self.current_at = Some(now);
        Ok(CgroupObserved {
            cgroup: id,
            path: self.path.clone(),
            current,
            high: self.slow.high,
            max: self.slow.max,
            anon_thp: self.slow.anon_thp,
            pressure: self.pressure()?,
        })
    }

    fn read_slow(&self) -> Result<Slow, Error> {
        let path = self.directory.join("memory.stat");
        let stat: MemoryStat = understood(&path, parse_stat(&read(&path)?))?;
        let (high, max) = match self.version {
            Version::V1 => (None, self.limit_v1(&stat)?),
            Version::V2 => (self.lowest("memory.high")?, self.lowest("memory.max")?),
        };
        Ok(Slow {
            high,
            max,
            anon_thp: stat.anon_thp,
        })
    }

    /// Version 1 says the lowest limit of all levels itself, where it counts hierarchically.
    fn limit_v1(&self, stat: &MemoryStat) -> Result<Option<Bytes>, Error> {
        let path = self.directory.join("memory.limit_in_bytes");
        let own = understood(&path, parse_limit_v1(&read(&path)?))?;
        Ok(own.into_iter().chain(stat.hierarchical_limit).min())
    }

    /// The lowest limit of this cgroup and its ancestors; the top one has no limit file.
    fn lowest(&self, file: &str) -> Result<Option<Bytes>, Error> {
        let mut lowest: Option<Bytes> = None;
        let levels = self.directory.ancestors().take(DEPTH_MAX);
        for directory in levels.take_while(|directory| directory.starts_with(&self.top)) {
            let path = directory.join(file);
            if let Some(text) = read_if_there(&path)? {
                let limit = understood(&path, parse_limit(&text))?;
                lowest = lowest.into_iter().chain(limit).min();
            }
        }
        Ok(lowest)
    }

    fn pressure(&self) -> Result<Option<hugepilot_core::units::Ratio>, Error> {
        let path = self.directory.join("memory.pressure");
        match self.version {
            Version::V1 => Ok(None),
            Version::V2 => match read_if_there(&path) {
                Ok(Some(text)) => understood(&path, pressure::parse(&text)).map(Some),
                // PSI may be compiled in and switched off: then the file is there and answers EOPNOTSUPP.
                Ok(None) => Ok(None),
                Err(Error::Read { source, .. })
                    if source.raw_os_error() == Some(libc::EOPNOTSUPP) =>
                {
                    Ok(None)
                }
                Err(error) => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A fake /proc of one process in cgroup `/a/b`, with hierarchies mounted under a directory of its own.
    fn fake(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let place = tempfile::tempdir().expect("a temporary directory");
        let top = place.path().join("cg");
        let (mount, line) = match version {
            Version::V1 => ("cgroup cgroup rw,memory", "4:memory:/a/b\n"),
            Version::V2 => ("cgroup2 cgroup2 rw", "0::/a/b\n"),
        };
        let mountinfo = format!("30 1 0:30 / {} rw - {mount}\n", top.display());
        let process = place
            .path()
            .join("proc")
            .join(std::process::id().to_string());
        fs::create_dir_all(&process).expect("directories");
        fs::write(process.join("mountinfo"), mountinfo).expect("mountinfo");
        fs::write(process.join("cgroup"), line).expect("cgroup");
        for (file, text) in files {
            let path = top.join(file);
            fs::create_dir_all(path.parent().expect("below the top")).expect("directories");
            fs::write(path, text).expect("a cgroup's file");
        }
        let root = ProcRoot::new(place.path().join("proc"));
        (place, root)
    }

    fn observe(root: &ProcRoot) -> CgroupObserved {
        let mut cgroups = Cgroups::detect(root).expect("mounts");
        let id = cgroups
            .of(root, Pid(std::process::id()))
            .expect("membership");
        let mut said = Vec::new();
        cgroups.observe(Instant(0), &mut said).expect("numbers");
        assert_eq!(Some(said[0].cgroup), id);
        said.remove(0)
    }

    #[test]
    fn version_two_takes_the_lowest_limit_of_all_levels() {
        let (_place, root) = fake(
            Version::V2,
            &[
                ("a/b/memory.current", "7\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/memory.high", "max\n"),
                ("a/b/memory.stat", "anon 5\nanon_thp 3\n"),
                ("a/memory.current", "9\n"),
                ("a/memory.max", "1000\n"),
            ],
        );
        let observed = observe(&root);
        assert_eq!(
            (observed.current, observed.max),
            (Bytes(7), Some(Bytes(1000)))
        );
        assert_eq!((observed.high, observed.anon_thp), (None, Some(Bytes(3))));
        assert_eq!((observed.path.as_str(), observed.pressure), ("/a/b", None));
    }

    #[test]
    fn a_level_without_the_memory_controller_is_charged_above() {
        let (_place, root) = fake(
            Version::V2,
            &[
                ("a/memory.current", "9\n"),
                ("a/memory.stat", ""),
                ("a/b/cgroup.procs", ""),
            ],
        );
        assert_eq!(observe(&root).path, "/a");
    }

    #[test]
    fn version_one_says_the_lowest_limit_itself() {
        let (_place, root) = fake(
            Version::V1,
            &[
                ("a/b/memory.usage_in_bytes", "7\n"),
                ("a/b/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "a/b/memory.stat",
                    "hierarchical_memory_limit 500\ntotal_rss_huge 4\n",
                ),
            ],
        );
        let observed = observe(&root);
        assert_eq!(
            (observed.max, observed.anon_thp),
            (Some(Bytes(500)), Some(Bytes(4)))
        );
    }
}
