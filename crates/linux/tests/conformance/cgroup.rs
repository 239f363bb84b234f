//! A memory cgroup for one worker, of either version, gone with its last process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A killed process leaves its cgroup within this time, or something is wrong.
const EMPTY_AFTER_MAX: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(5);

/// The names of one version's files.
#[derive(Debug, Clone, Copy)]
struct Files {
    usage: &'static str,
    limit: &'static str,
}

const V1: Files = Files {
    usage: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
};
const V2: Files = Files {
    usage: "memory.current",
    limit: "memory.max",
};

/// A cgroup of our own.
#[derive(Debug)]
pub struct Confinement {
    dir: PathBuf,
    files: Files,
    /// The file in which the memory controller was switched on, to switch it off again.
    switched_on: Option<PathBuf>,
}

impl Confinement {
    /// Puts `pid` into a new memory cgroup.
    pub fn of(pid: u32) -> Result<Self, String> {
        let (root, files) = hierarchy()?;
        let switched_on = switch_on(&root, files)?;
        let dir = root.join(format!("hugepilot-conformance-{pid}"));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let confined = Self {
            dir,
            files,
            switched_on,
        };
        confined.write("cgroup.procs", pid.into())?;
        Ok(confined)
    }

    /// Limits it to what it holds now and `room` bytes more.
    pub fn leave_room(&self, room: u64) -> Result<(), String> {
        let path = self.dir.join(self.files.usage);
        let usage =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let usage: u64 = usage
            .trim()
            .parse()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        self.write(self.files.limit, usage + room)
    }

    fn write(&self, file: &str, value: u64) -> Result<(), String> {
        let path = self.dir.join(file);
        fs::write(&path, value.to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        let until = Instant::now() + EMPTY_AFTER_MAX;
        while let Err(error) = fs::remove_dir(&self.dir) {
            assert!(Instant::now() < until, "{}: {error}", self.dir.display());
            std::thread::sleep(MOMENT);
        }
        if let Some(control) = &self.switched_on {
            fs::write(control, "-memory").expect("what was switched on can be switched off");
        }
    }
}

/// Where memory cgroups are: the first version's hierarchy if it is mounted, else the second's.
fn hierarchy() -> Result<(PathBuf, Files), String> {
    let mounts = fs::read_to_string("/proc/self/mounts")
        .map_err(|error| format!("/proc/self/mounts: {error}"))?;
    let mounts = || {
        mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<&str>>())
    };
    let first = mounts().find_map(|mount| match mount.as_slice() {
        [_, at, "cgroup", options, ..] if options.split(',').any(|option| option == "memory") => {
            Some((PathBuf::from(at), V1))
        }
        _ => None,
    });
    let second = || {
        mounts().find_map(|mount| match mount.as_slice() {
            [_, at, "cgroup2", ..] if has_memory(Path::new(at), "cgroup.controllers") => {
                Some((PathBuf::from(at), V2))
            }
            _ => None,
        })
    };
    first
        .or_else(second)
        .ok_or_else(|| "no memory cgroups are mounted".to_owned())
}

fn has_memory(root: &Path, file: &str) -> bool {
    fs::read_to_string(root.join(file))
        .is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"))
}

/// Switches the memory controller on for children of the second version's root, if it is off.
fn switch_on(root: &Path, files: Files) -> Result<Option<PathBuf>, String> {
    if files.limit == V1.limit || has_memory(root, "cgroup.subtree_control") {
        return Ok(None);
    }
    let control = root.join("cgroup.subtree_control");
    fs::write(&control, "+memory").map_err(|error| format!("{}: {error}", control.display()))?;
    Ok(Some(control))
}
