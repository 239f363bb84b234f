//! Nodes: their memory, their free blocks, their processors and distances; and the machine's memory pressure.
//!
//! Processors and distances change only when hardware is plugged, and are read more seldom than memory.

use super::watched::Activity;
use crate::error::Error;
use crate::procfs::{
    ProcRoot, SysRoot, buddyinfo, meminfo, pressure, read, read_if_there, understood,
};
use hugepilot_core::ids::{CpuId, NodeId};
use hugepilot_core::observation::NodeObserved;
use hugepilot_core::units::{Instant, Ratio, Span};
use std::collections::BTreeMap;

/// Nodes are read so often; in between the last numbers are said again.
const PERIOD_ACTIVE: Span = Span::secs(1);
/// While nobody whom we watch does anything.
const PERIOD_QUIET: Span = Span::secs(4);

/// Processors and distances are read again after this long.
const TOPOLOGY_PERIOD: Span = Span::secs(30);

/// Which processors belong to which node, and how far nodes are from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    node_of: BTreeMap<CpuId, NodeId>,
    distances: BTreeMap<NodeId, Vec<(NodeId, u8)>>,
}

impl Topology {
    /// Reads it. A kernel without NUMA has all processors on node 0 and says no distances.
    ///
    /// # Errors
    /// If a file is not understood.
    pub fn read(sys: &SysRoot) -> Result<Self, Error> {
        let mut topology = Self::default();
        let path = sys.path("devices/system/node/online");
        let Some(text) = read_if_there(&path)? else {
            return Ok(topology);
        };
        let nodes = understood(&path, meminfo::parse_node_list(&text))?;
        for &node in &nodes {
            let file = |name: &str| sys.path(&format!("devices/system/node/node{}/{name}", node.0));
            let path = file("cpulist");
            let cpus = understood(&path, meminfo::parse_node_list(&read(&path)?))?;
            let cpus = cpus.into_iter().map(|cpu| (CpuId(u32::from(cpu.0)), node));
            topology.node_of.extend(cpus);
            let path = file("distance");
            let distances = understood(&path, meminfo::parse_distances(&read(&path)?))?;
            let distances = nodes.iter().copied().zip(distances).collect();
            topology.distances.insert(node, distances);
        }
        Ok(topology)
    }

    /// The node of a processor; where the kernel has no NUMA, node 0.
    #[must_use]
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        self.node_of.get(&cpu).copied().unwrap_or(NodeId(0))
    }

    /// All processors; where the kernel has no NUMA, none are told.
    #[must_use]
    pub fn cpus(&self) -> Vec<CpuId> {
        self.node_of.keys().copied().collect()
    }

    fn cpus_of(&self, node: NodeId) -> u32 {
        let count = self.node_of.values().filter(|of| **of == node).count();
        u32::try_from(count).expect("processors have numbers of 32 bits")
    }

    fn distances(&self, node: NodeId, with_memory: &[NodeId]) -> Vec<(NodeId, u8)> {
        let all = self.distances.get(&node).into_iter().flatten();
        all.filter(|(to, _)| with_memory.contains(to))
            .copied()
            .collect()
    }
}

/// What the nodes showed last.
#[derive(Debug, Default)]
pub struct Nodes {
    read_at: Option<Instant>,
    topology_at: Option<Instant>,
    /// Processors and distances.
    pub topology: Topology,
    /// All nodes with memory.
    pub observed: Vec<NodeObserved>,
    /// Share of the last 10 s in which some task waited for memory, where known.
    pub pressure: Option<Ratio>,
}

impl Nodes {
    /// Reads them, if they are due.
    ///
    /// # Errors
    /// If a file is missing or not understood; what was known stays.
    pub fn refresh(
        &mut self,
        proc: &ProcRoot,
        sys: &SysRoot,
        activity: Activity,
        now: Instant,
    ) -> Result<(), Error> {
        let period = match activity {
            Activity::Some => PERIOD_ACTIVE,
            Activity::None => PERIOD_QUIET,
        };
        if self.read_at.is_some_and(|at| now.since(at) < period) {
            return Ok(());
        }
        self.read_at = Some(now);
        if self
            .topology_at
            .is_none_or(|at| now.since(at) >= TOPOLOGY_PERIOD)
        {
            self.topology = Topology::read(sys)?;
            self.topology_at = Some(now);
        }
        self.observed = read_nodes(proc, sys, &self.topology)?;
        self.pressure = read_pressure(proc)?;
        Ok(())
    }
}

/// The ids of the nodes that have memory; a kernel without NUMA has node 0.
///
/// # Errors
/// If the list is not understood.
pub fn node_ids(sys: &SysRoot) -> Result<Vec<NodeId>, Error> {
    let path = sys.path("devices/system/node/has_memory");
    match read_if_there(&path)? {
        Some(text) => understood(&path, meminfo::parse_node_list(&text)),
        None => Ok(vec![NodeId(0)]),
    }
}

fn read_nodes(
    proc: &ProcRoot,
    sys: &SysRoot,
    topology: &Topology,
) -> Result<Vec<NodeObserved>, Error> {
    let path = proc.system("buddyinfo");
    let mut blocks = understood(&path, buddyinfo::parse(&read(&path)?))?;
    let mut nodes = Vec::new();
    let with_memory = node_ids(sys)?;
    for &node in &with_memory {
        let own = sys.path(&format!("devices/system/node/node{}/meminfo", node.0));
        let path = if own.exists() {
            own
        } else {
            proc.system("meminfo")
        };
        let memory = understood(&path, meminfo::parse(&read(&path)?))?;
        nodes.push(NodeObserved {
            node,
            total: memory.total,
            free: memory.free,
            free_blocks: blocks.remove(&node).unwrap_or_default(),
            controller_requests: None,
            cpus: topology.cpus_of(node),
            distances: topology.distances(node, &with_memory),
        });
    }
    Ok(nodes)
}

/// `None` where the kernel has no PSI or it is switched off.
fn read_pressure(proc: &ProcRoot) -> Result<Option<Ratio>, Error> {
    let path = proc.system("pressure/memory");
    match read_if_there(&path) {
        Ok(None) => Ok(None),
        Ok(Some(text)) => understood(&path, pressure::parse(&text)).map(Some),
        Err(Error::Read { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::units::Bytes;

    #[test]
    fn this_machine_has_a_node_with_memory() {
        let mut nodes = Nodes::default();
        let outcome = nodes.refresh(
            &ProcRoot::default(),
            &SysRoot::default(),
            Activity::Some,
            Instant(0),
        );
        outcome.expect("own machine");
        assert!(nodes.observed[0].total > Bytes::mib(64));
        assert!(nodes.observed[0].free_blocks.len() > 9);
        let cpus: u32 = nodes.observed.iter().map(|node| node.cpus).sum();
        assert!(cpus > 0);
        let own = nodes.observed[0].node;
        assert!(
            nodes.observed[0].distances.contains(&(own, 10)),
            "10 is local"
        );
    }

    #[test]
    fn a_node_without_memory_has_processors_and_no_distance_is_told_to_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = dir.path().join("devices/system/node").join(name);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        file("online", "0-1\n");
        file("node0/cpulist", "0-2\n");
        file("node0/distance", "10 21\n");
        file("node1/cpulist", "3\n");
        file("node1/distance", "21 10\n");
        let topology = Topology::read(&SysRoot::new(dir.path())).expect("understood");
        assert_eq!(topology.node_of(CpuId(3)), NodeId(1));
        assert_eq!(
            (topology.cpus_of(NodeId(0)), topology.cpus_of(NodeId(1))),
            (3, 1)
        );
        assert_eq!(
            topology.distances(NodeId(1), &[NodeId(0)]),
            [(NodeId(0), 21)]
        );
    }
}
