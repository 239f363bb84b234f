//! The guest's CPUs and memory by NUMA node, as data. [`Topology::arguments`] says it in QEMU's
//! words.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};

/// Memory in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mebibytes(pub u64);

impl fmt::Display for Mebibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}

impl FromStr for Mebibytes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (digits, factor) = match text.split_at_checked(text.len().saturating_sub(1)) {
            Some((digits, "G" | "g")) => (digits, 1024),
            Some((digits, "M" | "m")) => (digits, 1),
            Some(_) | None => bail!("give the size with its unit, as in 512M or 2G"),
        };
        let count: u64 = digits.parse().context("give the size as in 512M or 2G")?;
        Ok(Self(
            count.checked_mul(factor).context("the size is too large")?,
        ))
    }
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// May be empty: a node of memory alone.
    pub cpus: Range<u32>,
    pub memory: Mebibytes,
}

/// All nodes and the distances between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    pub nodes: Vec<Node>,
    /// `distances[from][to]`, in the unit of the firmware's table, where the distance of a node to
    /// itself is 10.
    pub distances: Vec<Vec<u8>>,
}

pub const DISTANCE_LOCAL: u8 = 10;
/// What Linux itself takes for remote where the firmware says nothing (REMOTE_DISTANCE).
const DISTANCE_REMOTE: u8 = 20;
/// Below this a kernel of Debian with our initramfs does not boot.
const NODE_MEMORY_MIN: Mebibytes = Mebibytes(128);
/// The size of a huge page on x86-64: a node is a multiple of it, so that no huge page lies in two
/// nodes.
const HUGE_PAGE: Mebibytes = Mebibytes(2);

impl Topology {
    /// Nodes that share CPUs and memory evenly; the last one takes what is left over.
    pub fn even(nodes: u32, cpus: u32, memory: Mebibytes) -> Result<Self> {
        ensure!(nodes >= 1 && cpus >= 1, "a guest needs a node and a CPU");
        let share = memory.0 / u64::from(nodes) / HUGE_PAGE.0 * HUGE_PAGE.0;
        ensure!(
            share >= NODE_MEMORY_MIN.0,
            "each of the {nodes} node(s) needs {NODE_MEMORY_MIN}; raise --memory ({memory})"
        );
        let last = memory.0 - share * (u64::from(nodes) - 1);
        let list = (0..nodes).map(|node| Node {
            cpus: (node * cpus / nodes)..((node + 1) * cpus / nodes),
            memory: Mebibytes(if node + 1 == nodes { last } else { share }),
        });
        Ok(Self {
            nodes: list.collect(),
            distances: uniform_distances(nodes),
        })
    }

    /// Refuses what no kernel boots on.
    pub fn checked(self) -> Result<Self> {
        ensure!(self.cpus() >= 1, "a guest needs a CPU");
        ensure!(
            self.nodes[0].memory >= NODE_MEMORY_MIN,
            "the first node needs {NODE_MEMORY_MIN}: the kernel boots there"
        );
        for (id, Node { memory, .. }) in self.nodes.iter().enumerate() {
            let fits = memory.0 == 0 || *memory >= NODE_MEMORY_MIN;
            ensure!(
                fits && memory.0 % HUGE_PAGE.0 == 0,
                "node {id} needs {NODE_MEMORY_MIN} or more, in whole huge pages, or none: not {memory}"
            );
        }
        Ok(self)
    }

    /// The node of each CPU.
    pub fn cpu_nodes(&self) -> impl Iterator<Item = u64> {
        let cpus_of = |(id, node): (u64, &Node)| node.cpus.clone().map(move |_| id);
        (0..).zip(&self.nodes).flat_map(cpus_of)
    }

    /// The memory of each node.
    pub fn memory_mib(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().map(|node| node.memory.0)
    }

    pub fn memory(&self) -> Mebibytes {
        Mebibytes(self.nodes.iter().map(|node| node.memory.0).sum())
    }

    pub fn cpus(&self) -> u32 {
        self.nodes
            .iter()
            .map(|node| node.cpus.end)
            .max()
            .unwrap_or(0)
    }

    /// CPUs of one socket share a cache, so Linux objects to a socket that spans nodes: a socket a
    /// node where every node has as many CPUs, else a socket a CPU.
    fn sockets(&self) -> u32 {
        let cpus_per_node = |node: &Node| node.cpus.end - node.cpus.start;
        match self.nodes.first().map(cpus_per_node) {
            Some(count)
                if count > 0 && self.nodes.iter().all(|node| cpus_per_node(node) == count) =>
            {
                self.cpus() / count
            }
            Some(_) | None => self.cpus(),
        }
    }

    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let (cpus, sockets) = (self.cpus(), self.sockets());
        let mut arguments = vec![
            "-smp".to_owned(),
            format!(
                "cpus={cpus},sockets={sockets},cores={},threads=1",
                cpus / sockets
            ),
            "-m".to_owned(),
            format!("{}M", self.memory().0),
        ];
        for (id, node) in self.nodes.iter().enumerate() {
            arguments.extend(node_arguments(id, node));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                arguments.extend([
                    "-numa".to_owned(),
                    format!("dist,src={from},dst={to},val={distance}"),
                ]);
            }
        }
        arguments
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {} node(s), {} CPU(s)",
            self.memory(),
            self.nodes.len(),
            self.cpus()
        )
    }
}

pub fn uniform_distances(nodes: u32) -> Vec<Vec<u8>> {
    let distance = |from, to| {
        if from == to {
            DISTANCE_LOCAL
        } else {
            DISTANCE_REMOTE
        }
    };
    (0..nodes)
        .map(|from| (0..nodes).map(|to| distance(from, to)).collect())
        .collect()
}

fn node_arguments(id: usize, node: &Node) -> Vec<String> {
    let cpus = match node.cpus.end.checked_sub(node.cpus.start) {
        None | Some(0) => String::new(),
        Some(1) => format!(",cpus={}", node.cpus.start),
        Some(_) => format!(",cpus={}-{}", node.cpus.start, node.cpus.end - 1),
    };
    if node.memory.0 == 0 {
        return vec!["-numa".to_owned(), format!("node,nodeid={id}{cpus}")];
    }
    vec![
        "-object".to_owned(),
        format!("memory-backend-ram,id=memory{id},size={}M", node.memory.0),
        "-numa".to_owned(),
        format!("node,nodeid={id},memdev=memory{id}{cpus}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!("2G".parse::<Mebibytes>().unwrap(), Mebibytes(2048));
        assert_eq!("512M".parse::<Mebibytes>().unwrap(), Mebibytes(512));
        for bad in [
            "",
            "2",
            "G",
            "-1G",
            "2T",
            "2 G",
            "é",
            "99999999999999999999G",
            "18446744073709551615G",
        ] {
            assert!(bad.parse::<Mebibytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_is_lost_in_sharing() {
        for (nodes, cpus, memory) in [
            (1, 1, 128),
            (2, 3, 1001),
            (3, 2, 2048),
            (4, 4, 4096),
            (7, 16, 5000),
        ] {
            let topology = Topology::even(nodes, cpus, Mebibytes(memory)).unwrap();
            assert_eq!(
                (topology.memory(), topology.cpus()),
                (Mebibytes(memory), cpus)
            );
            let owned: Vec<u32> = topology
                .nodes
                .iter()
                .flat_map(|node| node.cpus.clone())
                .collect();
            assert_eq!(owned, (0..cpus).collect::<Vec<_>>());
        }
    }

    #[test]
    fn too_little_memory_is_refused() {
        assert!(Topology::even(4, 4, Mebibytes(256)).is_err());
    }

    #[test]
    fn qemu_is_told_every_node_and_pair() {
        let arguments = Topology::even(2, 3, Mebibytes(1024))
            .unwrap()
            .arguments()
            .join(" ");
        assert_eq!(
            arguments,
            "-smp cpus=3,sockets=3,cores=1,threads=1 -m 1024M \
             -object memory-backend-ram,id=memory0,size=512M \
             -numa node,nodeid=0,memdev=memory0,cpus=0 \
             -object memory-backend-ram,id=memory1,size=512M \
             -numa node,nodeid=1,memdev=memory1,cpus=1-2 \
             -numa dist,src=0,dst=0,val=10 -numa dist,src=0,dst=1,val=20 \
             -numa dist,src=1,dst=0,val=20 -numa dist,src=1,dst=1,val=10"
        );
    }

    #[test]
    fn a_node_may_have_no_cpu() {
        let arguments = Topology::even(3, 2, Mebibytes(1024)).unwrap().arguments();
        assert!(arguments.contains(&"node,nodeid=0,memdev=memory0".to_owned()));
    }

    #[test]
    fn no_socket_spans_nodes() {
        for (nodes, cpus, sockets) in [(1, 2, 1), (2, 4, 2), (2, 3, 3), (4, 2, 2), (3, 3, 3)] {
            assert_eq!(
                Topology::even(nodes, cpus, Mebibytes(1024))
                    .unwrap()
                    .sockets(),
                sockets,
                "{nodes} {cpus}"
            );
        }
    }
}
