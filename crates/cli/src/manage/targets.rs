//! Whom to manage: the command line's words for it, checked against who is there.

use super::session::Targets;
use crate::failure::Usage;
use crate::text;
use hugepilot_core::ids::Pid;
use hugepilot_linux::sensors::selection::{Everybody, Selection};
use std::path::Path;

/// Whom to manage.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct TargetArgs {
    /// Processes by id
    #[arg(long, value_name = "PID", num_args = 1.., value_delimiter = ',', value_parser = text::pid)]
    pid: Vec<Pid>,
    /// Processes by their short name, also those that start later
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    comm: Vec<String>,
    /// Processes of a cgroup and of those below it, also those that start later
    #[arg(long, value_name = "PATH", num_args = 1..)]
    cgroup: Vec<String>,
    /// All processes but kernel threads, the first one, hugepilot itself and those that opted out of THP
    #[arg(long)]
    all: bool,
    /// Leave processes of this short name alone, whatever else was given
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    exclude_comm: Vec<String>,
}

impl TargetArgs {
    /// The selection.
    ///
    /// # Errors
    /// If a process or a cgroup does not exist.
    pub fn selection(&self) -> anyhow::Result<Selection> {
        if self.pid.is_empty() && self.kind() == Targets::Fixed {
            return Err(Usage::error(
                "say whom to manage: --pid, --comm, --cgroup or --all",
            ));
        }
        self.pid.iter().try_for_each(|pid| check_process(*pid))?;
        let cgroups = self
            .cgroup
            .iter()
            .map(|path| cgroup(path))
            .collect::<Result<_, _>>()?;
        Ok(Selection {
            pids: self.pid.clone(),
            comms: self.comm.clone(),
            cgroups,
            except_comms: self.exclude_comm.clone(),
            all: if self.all {
                Everybody::Yes
            } else {
                Everybody::No
            },
            ..Selection::default()
        })
    }

    /// Does the run end with its processes?
    pub fn kind(&self) -> Targets {
        if self.comm.is_empty() && self.cgroup.is_empty() && !self.all {
            Targets::Fixed
        } else {
            Targets::Open
        }
    }
}

fn check_process(pid: Pid) -> anyhow::Result<()> {
    if pid.0 == std::process::id() {
        anyhow::bail!("process {pid} is this hugepilot itself; name another one");
    }
    if Path::new("/proc").join(pid.to_string()).exists() {
        return Ok(());
    }
    anyhow::bail!("there is no process {pid}; `ps -e` lists those there are")
}

/// A cgroup's path from the root of its hierarchy, given so or as a directory.
fn cgroup(given: &str) -> anyhow::Result<String> {
    const ROOTS: [&str; 3] = [
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup",
    ];
    let path = ROOTS
        .iter()
        .find_map(|root| given.strip_prefix(root))
        .unwrap_or(given);
    let path = format!("/{}", path.trim_matches('/'));
    if ROOTS
        .iter()
        .any(|root| Path::new(&format!("{root}{path}")).is_dir())
    {
        return Ok(path);
    }
    anyhow::bail!(
        "there is no cgroup {path}; `systemd-cgls` or the directories below /sys/fs/cgroup show those there are"
    )
}
