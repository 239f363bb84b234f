//! One case in one guest, in a process of its own: this program's `vm run`, with what it prints kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::case::{Case, Mode};
use super::figures::{self, Figures};
use super::referee;
use super::script::Plan;
use super::size::Size;
use crate::vm;

/// Memory of a node: the workload's, all of which may be on one, the kernel's, the initramfs's.
const NODE_MIB: u32 = 448;
/// Of one that must have a free page of 1 GiB.
const NODE_GIGANTIC_MIB: u32 = 1664;
/// Lines of the rig's complaints that a failed case keeps.
const COMPLAINTS_KEPT: usize = 12;
/// The referee's caches, in KiB and ways: a node's last level holds a quarter of a slot, as memories here are small.
const CACHES: [&str; 3] = ["l1=16:8", "l2=128:8", "l3=512:16"];

/// What all cases have in common.
#[derive(Debug)]
pub struct Rig {
    /// hugepilot, linked statically.
    pub program: PathBuf,
    pub size: Size,
    /// A guest that runs longer is killed.
    pub limit: Duration,
    /// For files that are ours alone.
    pub scratch: PathBuf,
    /// Keep what guests said.
    pub keep: bool,
}

/// The nodes of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// So many, each with a CPU for the workload; the last has one more, the manager's.
    Alike(u32),
    /// The same, and one node has room for a page of 1 GiB.
    Gigantic(u32),
    /// One of `vm topologies`.
    Named(&'static str),
}

/// What is left of a guest.
#[derive(Debug)]
pub struct Booted {
    /// What its script said.
    pub said: String,
    /// What the referee wrote.
    pub windows: String,
}

impl Rig {
    /// Runs a case of the table.
    ///
    /// # Errors
    /// Why it has no figures.
    pub fn run(&self, case: &Case) -> Result<Figures> {
        let shape = if case.mode == Mode::Gigantic {
            Shape::Gigantic(case.nodes)
        } else {
            Shape::Alike(case.nodes)
        };
        let plan = Plan::of(case, &self.size);
        let booted = self.boot(&case.to_string(), &plan, shape, &case.kernel)?;
        let manager_cpu = plan.manager.map(|manager| manager.cpu);
        figures::read(
            &booted.said,
            &referee::windows(&booted.windows)?,
            manager_cpu,
        )
    }

    /// Boots a guest for a plan.
    ///
    /// # Errors
    /// If it did not come to its end.
    pub fn boot(&self, name: &str, plan: &Plan, shape: Shape, kernel: &str) -> Result<Booted> {
        fs::create_dir_all(&self.scratch)
            .with_context(|| format!("cannot make {}", self.scratch.display()))?;
        let [script, windows] = ["case", "windows"].map(|file| self.scratch.join(file));
        fs::write(&script, plan.script()).context("cannot write the guest's script")?;
        let output = self
            .command(shape, kernel, &script, &windows)?
            .output()
            .context("cannot start a guest")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if self.keep {
            self.keep_words(name, &said, &String::from_utf8_lossy(&output.stderr))?;
        }
        // What the guest itself says is nearer to the cause than an exit code.
        if !said.contains("exit: ") {
            match output.status.code() {
                Some(code) => bail!("exit code {code}: {}", tail(&output.stderr)),
                None => bail!("killed: {}", tail(&output.stderr)),
            }
        }
        let windows = fs::read_to_string(&windows).context("cannot read the referee's windows")?;
        Ok(Booted { said, windows })
    }

    fn command(
        &self,
        shape: Shape,
        kernel: &str,
        script: &Path,
        windows: &Path,
    ) -> Result<Command> {
        let mut command =
            Command::new(std::env::current_exe().context("cannot find this program")?);
        command
            .current_dir(vm::workspace_root()?)
            .args(["vm", "run", "--pmu", "--kernel", kernel])
            .args(["--timeout", &self.limit.as_secs().to_string()])
            .arg("--file")
            .arg(format!("{}:/bin/hugepilot", self.program.display()))
            .arg("--pmu-out")
            .arg(windows)
            .stdin(Stdio::null());
        for cache in CACHES {
            command.args(["--pmu-arg", cache]);
        }
        command.args(shape.arguments()).arg("--").arg(script);
        Ok(command)
    }

    fn keep_words(&self, name: &str, said: &str, complaints: &str) -> Result<()> {
        let path = self.scratch.join(name.replace(", ", "-").replace(' ', "-"));
        fs::write(&path, format!("{said}{complaints}"))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Shape {
    /// As `vm run` takes it.
    fn arguments(self) -> Vec<String> {
        let (nodes, node_mib) = match self {
            Self::Named(name) => return ["--topology", name].map(str::to_owned).to_vec(),
            Self::Alike(nodes) => (nodes, NODE_MIB),
            Self::Gigantic(nodes) => (nodes, NODE_GIGANTIC_MIB),
        };
        let mut arguments = vec![
            format!("--nodes={nodes}"),
            format!("--cpus={}", nodes + 1),
            format!("--memory={}M", node_mib * nodes),
        ];
        if matches!(self, Self::Gigantic(_)) {
            arguments.push("--append=hugepagesz=1G hugepages=1".to_owned());
        }
        arguments
    }
}

fn tail(complaints: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaints);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(COMPLAINTS_KEPT)..].join("; ")
}
