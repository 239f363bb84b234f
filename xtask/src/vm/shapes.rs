//! Topologies as data: those of `topology.toml` by name, and files of the same form.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::topology::{DISTANCE_LOCAL, Mebibytes, Node, Topology, uniform_distances};

const NAMED: &str = include_str!("topology.toml");
/// Linux on x86-64 as Debian builds it has room for more, QEMU has not.
const NODES_MAX: usize = 64;
/// As Linux has it: 255 means "cannot be reached", and 10 a node to itself.
const DISTANCES: std::ops::RangeInclusive<u8> = 10..=254;

/// A topology as it is written down.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    about: Option<String>,
    nodes: Vec<WrittenNode>,
    distances: Option<Vec<Vec<u8>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNode {
    cpus: u32,
    memory: Option<String>,
}

/// A topology by its name, or from a file.
pub fn find(name_or_file: &str) -> Result<Topology> {
    let mut named = named()?;
    if let Some(written) = named.remove(name_or_file) {
        return understand(&written).with_context(|| format!("topology {name_or_file}"));
    }
    let path = Path::new(name_or_file);
    if !path.is_file() {
        let names: Vec<String> = named.into_keys().collect();
        bail!(
            "{name_or_file} is neither a file nor one of: {}",
            names.join(", ")
        );
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name_or_file}"))?;
    let written = toml::from_str(&text).with_context(|| format!("cannot read {name_or_file}"))?;
    understand(&written).with_context(|| name_or_file.to_owned())
}

/// Names, and what each is.
pub fn list() -> Result<Vec<(String, String)>> {
    let about = |(name, written): (String, Written)| (name, written.about.unwrap_or_default());
    Ok(named()?.into_iter().map(about).collect())
}

fn named() -> Result<BTreeMap<String, Written>> {
    toml::from_str(NAMED).context("topology.toml")
}

fn understand(written: &Written) -> Result<Topology> {
    let count = written.nodes.len();
    ensure!((1..=NODES_MAX).contains(&count), "1 to {NODES_MAX} nodes");
    let mut next_cpu = 0;
    let mut nodes = Vec::with_capacity(count);
    for node in &written.nodes {
        let cpus = next_cpu..next_cpu + node.cpus;
        next_cpu = cpus.end;
        let memory = match &node.memory {
            Some(size) => size.parse()?,
            None => Mebibytes(0),
        };
        nodes.push(Node { cpus, memory });
    }
    let few = u32::try_from(count).context("too many nodes")?;
    let distances = written
        .distances
        .clone()
        .unwrap_or_else(|| uniform_distances(few));
    check_distances(&distances, count)?;
    Topology { nodes, distances }.checked()
}

fn check_distances(distances: &[Vec<u8>], nodes: usize) -> Result<()> {
    let square = distances.len() == nodes && distances.iter().all(|row| row.len() == nodes);
    ensure!(square, "distances needs {nodes} rows of {nodes}");
    for (from, row) in distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            ensure!(
                DISTANCES.contains(distance) && (*distance == DISTANCE_LOCAL) == (from == to),
                "the distance from node {from} to {to} cannot be {distance}: \
                 a node is at 10 of itself, others are at 11 to 254"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Topology> {
        understand(&toml::from_str(text)?)
    }

    #[test]
    fn every_named_topology_is_sound() {
        let named = list().unwrap();
        assert!(named.len() >= 8);
        for (name, about) in named {
            find(&name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(!about.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_papers_machines_have_their_shape() {
        let shape = |name: &str| {
            let topology = find(name).unwrap();
            (topology.nodes.len(), topology.cpus())
        };
        assert_eq!(shape("machine-a"), (4, 24));
        assert_eq!(shape("machine-b"), (8, 64));
    }

    #[test]
    fn nodes_may_lack_memory_or_cpus() {
        let topology = find("no-memory").unwrap();
        assert_eq!(topology.nodes[2].memory, Mebibytes(0));
        let arguments = topology.arguments().join(" ");
        assert!(arguments.contains("node,nodeid=2,cpus=2 "), "{arguments}");
        let arguments = find("no-cpus").unwrap().arguments().join(" ");
        assert!(
            arguments.contains("node,nodeid=3,memdev=memory3 "),
            "{arguments}"
        );
    }

    #[test]
    fn distances_are_given_for_every_pair() {
        let arguments = find("no-cpus").unwrap().arguments();
        assert!(arguments.contains(&"dist,src=3,dst=0,val=40".to_owned()));
        let pairs = arguments.iter().filter(|word| word.starts_with("dist,"));
        assert_eq!(pairs.count(), 16);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "nodes = []",
            "nodes = [{ cpus = 0, memory = \"512M\" }]",
            "nodes = [{ cpus = 1 }]",
            "nodes = [{ cpus = 1, memory = \"513M\" }]",
            "nodes = [{ cpus = 1, memory = \"64M\" }]",
            "nodes = [{ cpus = 1, memory = \"512M\", disks = 1 }]",
            "nodes = [{ cpus = 1, memory = \"512M\" }]\ndistances = [[20]]",
            "nodes = [{ cpus = 1, memory = \"512M\" }]\ndistances = [[10, 20]]",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(
            find("no-such-machine")
                .unwrap_err()
                .to_string()
                .contains("machine-a")
        );
    }
}
