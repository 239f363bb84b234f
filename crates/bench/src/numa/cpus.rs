//! Which CPUs there are on which nodes, and which of them threads are pinned to.
//!
//! Threads take turns by node, so that the first threads are as far apart as they can be. A CPU whose node nobody
//! tells (a kernel without NUMA) counts as node 0's.

use crate::BenchError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A CPU and its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The CPU's number.
    pub cpu: u32,
    /// Its node's.
    pub node: u32,
}

/// Bits of the kernel's affinity mask as rustix holds it.
#[expect(clippy::cast_possible_truncation, reason = "1,024")]
const CPUS_MAX: u32 = rustix::thread::CpuSet::MAX_CPU as u32;

/// The CPUs that this thread may run on, taking turns by node.
///
/// # Errors
/// If the affinity or a node's list of CPUs cannot be read.
pub fn allowed() -> Result<Vec<Cpu>, BenchError> {
    let mask = rustix::thread::sched_getaffinity(None).map_err(|error| BenchError::Io {
        what: "reading the affinity",
        source: error.into(),
    })?;
    let nodes = nodes(Path::new("/sys/devices/system/node"))?;
    let cpus = (0..CPUS_MAX).filter(|cpu| mask.is_set(place(*cpu)));
    let cpus = cpus.map(|cpu| Cpu {
        cpu,
        node: nodes.get(&cpu).copied().unwrap_or(0),
    });
    Ok(in_turn(cpus.collect()))
}

/// Pins the calling thread.
///
/// # Errors
/// If the CPU is offline or forbidden.
pub fn pin(cpu: u32) -> Result<(), BenchError> {
    let mut mask = rustix::thread::CpuSet::new();
    mask.set(place(cpu));
    rustix::thread::sched_setaffinity(None, &mask).map_err(|error| BenchError::Io {
        what: "pinning a thread to its CPU",
        source: error.into(),
    })
}

/// The `threads` first of `cpus` in turn by node.
#[must_use]
fn in_turn(mut cpus: Vec<Cpu>) -> Vec<Cpu> {
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut turns: Vec<usize> = Vec::new();
    for cpu in &cpus {
        let count = seen.entry(cpu.node).or_insert(0);
        turns.push(*count);
        *count += 1;
    }
    let mut order: Vec<(usize, Cpu)> = turns.into_iter().zip(cpus.drain(..)).collect();
    order.sort_by_key(|(turn, cpu)| (*turn, cpu.node, cpu.cpu));
    order.into_iter().map(|(_, cpu)| cpu).collect()
}

/// Node by CPU. Empty where the kernel knows no nodes.
fn nodes(root: &Path) -> Result<BTreeMap<u32, u32>, BenchError> {
    let mut nodes = BTreeMap::new();
    let failed = |source| BenchError::Read {
        path: root.display().to_string(),
        source,
    };
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(nodes),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(node) = number.and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        let text = std::fs::read_to_string(root.join(&name).join("cpulist")).map_err(failed)?;
        nodes.extend(list(text.trim())?.into_iter().map(|cpu| (cpu, node)));
    }
    Ok(nodes)
}

/// Reads a list as the kernel writes it: `0-3,8`.
///
/// # Errors
/// If it is none.
pub fn list(text: &str) -> Result<Vec<u32>, BenchError> {
    let wrong = || BenchError::Spec("a list of CPUs looks like 0-3,8");
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.trim()
                .parse::<u32>()
                .ok()
                .filter(|cpu| *cpu < CPUS_MAX)
        };
        let (first, last) = (
            number(first).ok_or_else(wrong)?,
            number(last).ok_or_else(wrong)?,
        );
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

fn place(cpu: u32) -> usize {
    usize::try_from(cpu).expect("a 64-bit machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cpu(cpu: u32, node: u32) -> Cpu {
        Cpu { cpu, node }
    }

    #[test]
    fn the_first_threads_are_on_different_nodes() {
        let cpus = vec![cpu(0, 0), cpu(1, 0), cpu(2, 1), cpu(3, 1), cpu(4, 2)];
        let turns: Vec<u32> = in_turn(cpus).iter().map(|cpu| cpu.cpu).collect();
        assert_eq!(turns, [0, 2, 4, 1, 3]);
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-2,5").expect("a list"), [0, 1, 2, 5]);
        assert!(list("").expect("a node without CPUs").is_empty());
        for bad in ["a", "1-", "0-4294967295", "-1"] {
            assert!(list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_kernel_without_nodes_has_none() {
        assert!(
            nodes(Path::new("/nowhere"))
                .expect("nothing there")
                .is_empty()
        );
    }

    #[test]
    fn this_thread_may_run_somewhere_and_can_be_pinned_there() {
        let first = allowed().expect("our own affinity")[0];
        std::thread::spawn(move || pin(first.cpu).expect("an allowed CPU"))
            .join()
            .expect("pinned");
    }
}
