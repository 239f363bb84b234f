//! Counters and pressure.

use super::Findings;
use super::env::{Answer, Env, TEXT_BYTES_MAX};
use super::feature::Feature;
use super::finding::{Finding, State};
use crate::procfs::cgroup::{self, Membership, Version};
use crate::procfs::mountinfo::{self, Mount};
use rustix::io::Errno;
use std::path::PathBuf;

/// Probes the group.
pub fn probe(env: &Env<'_>, findings: &mut Findings) {
    findings.add(cgroup_memory(env));
    findings.add(psi(env));
    findings.add(swap(env));
    findings.add(vmstat(env));
    findings.add(buddyinfo(env));
    findings.add(compaction(env));
    findings.add(memory_blocks(env));
}

/// Where a memory hierarchy is mounted, and our path in it.
struct Hierarchy {
    own: Membership,
    /// Below `/sys`; none where it is not mounted there.
    at: Vec<(PathBuf, String)>,
}

fn hierarchy(env: &Env<'_>) -> Answer<Hierarchy> {
    let text = |file| env.calls.read(&env.proc.join(file), 0, TEXT_BYTES_MAX);
    let (own, mounts) = (text("self/cgroup")?, text("self/mountinfo")?);
    let (Ok(own), Ok(mounts)) = (cgroup::parse_membership(&own), mountinfo::parse(&mounts)) else {
        return Err(Errno::BADMSG);
    };
    let own = own.ok_or(Errno::NOENT)?;
    let place = |mount: &Mount| {
        let at = env.sys.join(mount.at.strip_prefix("/sys").ok()?);
        Some((at, mount.root.clone()))
    };
    let at = mounts
        .iter()
        .filter(|mount| holds_memory(mount, own.version))
        .filter_map(place)
        .collect();
    Ok(Hierarchy { own, at })
}

fn holds_memory(mount: &Mount, version: Version) -> bool {
    match version {
        Version::V1 => mount.kind == "cgroup" && mount.has_option("memory"),
        Version::V2 => mount.kind == "cgroup2",
    }
}

impl Hierarchy {
    const fn version(&self) -> &'static str {
        match self.own.version {
            Version::V1 => "v1",
            Version::V2 => "v2",
        }
    }

    const fn counter(&self) -> &'static str {
        match self.own.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        }
    }

    /// The first of these files that can be read; `ENOENT` where there is none.
    fn first(env: &Env<'_>, files: impl Iterator<Item = PathBuf>) -> Answer<String> {
        let mut answer = Err(Errno::NOENT);
        for file in files {
            answer = env.text(&file);
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    /// Our own counter. Where our path is not visible (a container), that of the mount's root.
    fn current(&self, env: &Env<'_>) -> Answer<String> {
        let files = self.at.iter().flat_map(|(at, root)| {
            let path = self.own.path.as_str();
            let below = path.strip_prefix(root.as_str()).unwrap_or(path);
            let own = at.join(below.trim_start_matches('/'));
            [own.join(self.counter()), at.join(self.counter())]
        });
        Self::first(env, files)
    }

    /// What even the root has, which has no counter.
    fn root_stat(&self, env: &Env<'_>) -> Answer<String> {
        Self::first(env, self.at.iter().map(|(at, _)| at.join("memory.stat")))
    }
}

fn cgroup_memory(env: &Env<'_>) -> Finding {
    let feature = Feature::CgroupMemory;
    let hierarchy = match hierarchy(env) {
        Ok(hierarchy) => hierarchy,
        Err(errno) => return Finding::refused(feature, "reading /proc/self", errno),
    };
    let version = hierarchy.version();
    if hierarchy.at.is_empty() {
        return Finding::new(
            feature,
            State::Absent,
            "no memory hierarchy is mounted below /sys",
        )
        .fix("mount -t cgroup2 none /sys/fs/cgroup");
    }
    let finding = match (hierarchy.current(env), hierarchy.root_stat(env)) {
        (Ok(bytes), _) => {
            Finding::works(feature, format!("cgroup {version}")).value("current", bytes)
        }
        (Err(_), Ok(_)) => Finding::new(
            feature,
            State::Partly,
            format!(
                "cgroup {version}; we run in the root, which has no counter: those of targets elsewhere are read"
            ),
        ),
        (Err(errno), Err(_)) => Finding::refused(feature, "reading our cgroup's counter", errno)
            .fix("start it in a memory cgroup of its own: systemd-run --scope hugepilot …"),
    };
    finding.value("version", version)
}

fn psi(env: &Env<'_>) -> Finding {
    let feature = Feature::Psi;
    match env.text(&env.proc.join("pressure/memory")) {
        Ok(text) => {
            let some = text.lines().next().unwrap_or_default().to_owned();
            Finding::works(feature, some)
        }
        Err(errno) => Finding::refused(feature, "reading pressure/memory", errno)
            .fix("boot with psi=1, on a kernel with CONFIG_PSI=y"),
    }
}

fn swap(env: &Env<'_>) -> Finding {
    let feature = Feature::Swap;
    match env.text(&env.proc.join("swaps")) {
        Ok(text) => match text.lines().skip(1).count() {
            0 => Finding::new(feature, State::Absent, "none: no slot has swapped pages"),
            areas => Finding::works(feature, "slots with swapped pages are left alone")
                .value("areas", areas),
        },
        Err(errno) => Finding::refused(feature, "reading swaps", errno),
    }
}

fn vmstat(env: &Env<'_>) -> Finding {
    let feature = Feature::VmstatThp;
    match env.text(&env.proc.join("vmstat")) {
        Ok(text) => match text.lines().filter(|l| l.starts_with("thp_")).count() {
            0 => Finding::new(feature, State::Absent, "has no thp_ counters"),
            counters => {
                Finding::works(feature, format!("{counters} counters")).value("counters", counters)
            }
        },
        Err(errno) => Finding::refused(feature, "reading vmstat", errno),
    }
}

fn buddyinfo(env: &Env<'_>) -> Finding {
    let feature = Feature::Buddyinfo;
    match env.text(&env.proc.join("buddyinfo")) {
        Ok(text) if text.starts_with("Node") => Finding::works(feature, "readable"),
        Ok(_) => Finding::new(feature, State::Absent, "names no node"),
        Err(errno) => Finding::refused(feature, "reading buddyinfo", errno),
    }
}

fn compaction(env: &Env<'_>) -> Finding {
    let feature = Feature::Compaction;
    match env
        .calls
        .open_for_writing(&env.proc.join("sys/vm/compact_memory"))
    {
        Ok(()) => Finding::works(feature, "may be asked for"),
        Err(errno) => Finding::refused(feature, "opening compact_memory", errno)
            .fix_if_forbidden("run as root"),
    }
}

fn memory_blocks(env: &Env<'_>) -> Finding {
    let feature = Feature::MemoryBlocks;
    let directory = env.sys.join("devices/system/memory");
    let first = env.calls.list(&directory).and_then(|names| {
        names
            .into_iter()
            .find(|name| name.starts_with("memory") && name.ends_with(|c: char| c.is_ascii_digit()))
            .ok_or(Errno::NOENT)
    });
    let opened = first.and_then(|block| {
        let size = env.text(&directory.join("block_size_bytes"))?;
        env.calls
            .open_for_writing(&directory.join(block).join("state"))?;
        Ok(size)
    });
    match opened {
        Ok(size) => Finding::works(feature, "may be asked for").value("block_bytes_hex", size),
        Err(errno) => Finding::refused(feature, "opening a block's state", errno)
            .fix_if_forbidden("run as root"),
    }
}
