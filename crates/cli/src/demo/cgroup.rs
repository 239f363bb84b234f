//! A memory cgroup of our own, of either version: made, read, and removed with everything in it.

use super::scratch;
use anyhow::Context;
use hugepilot_core::units::Bytes;
use hugepilot_linux::procfs::cgroup::Version;
use hugepilot_linux::procfs::mountinfo::{self, Mount};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Killed processes leave a cgroup within this time.
const EMPTY_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Where memory cgroups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Root {
    version: Version,
    dir: PathBuf,
}

/// The cgroup. Dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    dir: PathBuf,
    /// Dropped after the cgroup is removed.
    _passed_on: Option<PassedOn>,
}

impl Cgroup {
    /// Makes an empty one.
    ///
    /// # Errors
    /// If this machine has no memory controller that we may use.
    pub fn new(what: &str) -> anyhow::Result<Self> {
        let root = root()?;
        let passed_on = match root.version {
            Version::V1 => None,
            Version::V2 => PassedOn::in_root(&root.dir)?,
        };
        let dir = root.dir.join(scratch::name(what));
        std::fs::create_dir(&dir)
            .with_context(|| format!("cannot make the memory cgroup {}", dir.display()))?;
        let cgroup = Self {
            version: root.version,
            dir,
            _passed_on: passed_on,
        };
        cgroup.charged()?;
        Ok(cgroup)
    }

    /// The file that a process enters by.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// What is charged to it, page cache apart: anonymous memory and what the kernel holds for it. Counts what a
    /// partially mapped huge page holds.
    ///
    /// # Errors
    /// If the kernel's files cannot be read.
    pub fn charged(&self) -> anyhow::Result<Bytes> {
        let (usage, cache) = match self.version {
            Version::V1 => ("memory.usage_in_bytes", "total_cache"),
            Version::V2 => ("memory.current", "file"),
        };
        let usage = self.read(usage)?;
        let usage: u64 = usage
            .trim()
            .parse()
            .context("the cgroup's counter is no number")?;
        let stat = self.read("memory.stat")?;
        let cache = field(&stat, cache)
            .with_context(|| format!("{}/memory.stat has no {cache}", self.dir.display()))?;
        Ok(Bytes(usage).growth_since(Bytes(cache)))
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.dir.join(file);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn remove(&self) -> anyhow::Result<()> {
        let until = Instant::now() + EMPTY_WITHIN;
        loop {
            kill_all(&self.procs())?;
            match std::fs::remove_dir(&self.dir) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= until => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", self.dir.display()));
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("hugepilot: {error:#}");
        }
    }
}

/// Removes the cgroups that dead demos left.
///
/// # Errors
/// If one cannot be removed.
pub fn remove_stale() -> anyhow::Result<()> {
    let root = root()?;
    for dir in scratch::stale_in(&root.dir)? {
        drop(Cgroup {
            version: root.version,
            dir,
            _passed_on: None,
        });
    }
    Ok(())
}

/// Only processes in our own cgroup are killed: nobody else enters it.
fn kill_all(procs: &Path) -> anyhow::Result<()> {
    let list = std::fs::read_to_string(procs)
        .with_context(|| format!("cannot read {}", procs.display()))?;
    for pid in list.lines().filter_map(|line| line.trim().parse().ok()) {
        match Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL)) {
            None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => (),
            Some(Err(error)) => return Err(error).with_context(|| format!("cannot kill {pid}")),
        }
    }
    Ok(())
}

fn root() -> anyhow::Result<Root> {
    let text = std::fs::read("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mounts = mountinfo::parse(&text)?;
    let of = |version, is: &dyn Fn(&Mount) -> bool| {
        let mount = mounts.iter().find(|mount| is(mount))?;
        let dir = mount.at.clone();
        Some(Root { version, dir })
    };
    of(Version::V1, &|mount| {
        mount.kind == "cgroup" && mount.has_option("memory")
    })
    .or_else(|| of(Version::V2, &|mount| mount.kind == "cgroup2"))
    .context("no memory cgroups: mount one (mount -t cgroup2 none /sys/fs/cgroup)")
}

/// The memory controller, passed on by the unified root to its children. systemd has it so; where it was not, it is
/// turned off again at the end.
#[derive(Debug)]
struct PassedOn(PathBuf);

impl PassedOn {
    /// Turns it on where it is off.
    fn in_root(root: &Path) -> anyhow::Result<Option<Self>> {
        let control = root.join("cgroup.subtree_control");
        let why = || {
            format!(
                "cannot turn on the memory controller in {}",
                control.display()
            )
        };
        let passed_on = std::fs::read_to_string(&control).with_context(why)?;
        if passed_on
            .split_whitespace()
            .any(|controller| controller == "memory")
        {
            return Ok(None);
        }
        std::fs::write(&control, "+memory").with_context(why)?;
        Ok(Some(Self(control)))
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.0, "-memory") {
            eprintln!(
                "hugepilot: cannot turn off the memory controller in {}: {error}",
                self.0.display()
            );
        }
    }
}

fn field(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_whole_names() {
        let stat = "cache 5\nfile_mapped 6\nfile 7\ntotal_cache 8\n";
        assert_eq!(field(stat, "file"), Some(7));
        assert_eq!(field(stat, "total_cache"), Some(8));
        assert_eq!(field(stat, "anon"), None);
    }
}
