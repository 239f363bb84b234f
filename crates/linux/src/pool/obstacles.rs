//! What stands in the way of growing a pool: facts on physical memory, and what follows from them.

use super::PageSize;
use crate::error::Error;
use crate::procfs::{self, ProcRoot, SysRoot, buddyinfo, meminfo, pagetypeinfo};
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::{Bytes, Ratio};
use std::collections::BTreeMap;
use std::io;

/// The migrate types whose page blocks compaction cannot empty, or seldom.
const FIXED: [&str; 2] = ["Unmovable", "Reclaimable"];

/// The share of free memory in blocks of a size below which memory is called fragmented for it; above, too little is free.
const FRAGMENTED: f64 = 0.5;

/// Physical memory of the machine, or of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Free.
    pub free: Bytes,
    /// What could be had without swapping; not known of a node.
    pub available: Option<Bytes>,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
    /// Page blocks by migrate type; `None` where that is hidden.
    pub page_blocks: Option<BTreeMap<String, u64>>,
    /// The size of a base page.
    pub base_page: Bytes,
}

/// What is in the way.
#[derive(Debug, Clone, PartialEq)]
pub enum Obstacle {
    /// There is less memory than the pages take.
    TooLittle {
        /// What is free.
        free: Bytes,
        /// What could be had without swapping; not known of a node.
        available: Option<Bytes>,
        /// What the missing pages take.
        needed: Bytes,
    },
    /// Memory is free, but not in pieces of this size.
    Fragmented {
        /// All that is free.
        free: Bytes,
        /// Of that, in blocks as large as a page of the pool.
        whole: Bytes,
    },
    /// Such pages are larger than what the kernel keeps free as one block: it must empty a whole range.
    NeedsRange,
    /// Page blocks that hold what cannot be moved.
    Fixed {
        /// Their share.
        share: Ratio,
    },
}

/// Reads it.
///
/// # Errors
/// If a file that every kernel has cannot be read, or one is not understood.
pub fn memory(
    proc: &ProcRoot,
    sys: &SysRoot,
    node: Option<NodeId>,
    base_page: Bytes,
) -> Result<Memory, Error> {
    let path = match node {
        Some(NodeId(node)) => sys.path(&format!("devices/system/node/node{node}/meminfo")),
        None => proc.system("meminfo"),
    };
    let text = procfs::read(&path)?;
    let meminfo = procfs::understood(&path, meminfo::parse(&text))?;
    Ok(Memory {
        free: meminfo.free,
        available: meminfo.available,
        blocks: blocks(proc, node)?,
        page_blocks: page_blocks(proc, node)?,
        base_page,
    })
}

fn blocks(proc: &ProcRoot, node: Option<NodeId>) -> Result<Vec<u64>, Error> {
    let path = proc.system("buddyinfo");
    let text = procfs::read(&path)?;
    let mut sums: Vec<u64> = Vec::new();
    for (at, blocks) in procfs::understood(&path, buddyinfo::parse(&text))? {
        if node.is_some_and(|node| node != at) {
            continue;
        }
        sums.resize(sums.len().max(blocks.len()), 0);
        sums.iter_mut()
            .zip(blocks)
            .for_each(|(sum, blocks)| *sum += blocks);
    }
    Ok(sums)
}

/// Only root may read it, and some kernels have it not.
fn page_blocks(
    proc: &ProcRoot,
    node: Option<NodeId>,
) -> Result<Option<BTreeMap<String, u64>>, Error> {
    let path = proc.system("pagetypeinfo");
    let text = match procfs::read_if_there(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut sums = BTreeMap::new();
    for (at, blocks) in procfs::understood(&path, pagetypeinfo::parse(&text))? {
        if node.is_none_or(|node| node == at) {
            blocks
                .into_iter()
                .for_each(|(name, count)| *sums.entry(name).or_default() += count);
        }
    }
    Ok(Some(sums))
}

impl Memory {
    /// Free memory in blocks of `order` and above.
    fn whole(&self, order: usize) -> Bytes {
        let blocks = self.blocks.iter().enumerate().skip(order);
        Bytes(
            blocks
                .map(|(order, count)| count * (self.base_page.0 << order))
                .sum(),
        )
    }

    /// The share of page blocks that hold what cannot be moved.
    #[must_use]
    pub fn fixed(&self) -> Option<Ratio> {
        let blocks = self.page_blocks.as_ref()?;
        let all: u64 = blocks.values().sum();
        let fixed: u64 = FIXED.iter().filter_map(|name| blocks.get(*name)).sum();
        (all > 0).then(|| Ratio::of(fixed, all))
    }

    /// What is in the way of `missing` more pages.
    #[must_use]
    pub fn obstacles(&self, size: PageSize, missing: u64) -> Vec<Obstacle> {
        let needed = size.times(missing);
        let available = self.available.unwrap_or(self.free).max(self.free);
        let order = (size.bytes().0 / self.base_page.0).trailing_zeros();
        let order = usize::try_from(order).expect("at most 64");
        let mut found = Vec::new();
        if available < needed {
            found.push(Obstacle::TooLittle {
                free: self.free,
                available: self.available,
                needed,
            });
        }
        if order >= self.blocks.len() {
            found.push(Obstacle::NeedsRange);
        } else if self.whole(order) < needed
            && self.whole(order) < self.free.share(Ratio::new(FRAGMENTED))
        {
            found.push(Obstacle::Fragmented {
                free: self.free,
                whole: self.whole(order),
            });
        }
        found.extend(self.fixed().map(|share| Obstacle::Fixed { share }));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::size;
    use super::*;
    use std::fs;

    fn fake() -> (tempfile::TempDir, ProcRoot, SysRoot) {
        let root = tempfile::tempdir().expect("a directory");
        let files = [
            (
                "meminfo",
                "MemTotal: 8388608 kB\nMemFree: 4194304 kB\nMemAvailable: 6291456 kB\n",
            ),
            (
                "buddyinfo",
                "Node 0, zone Normal 10 0 0 0 0 0 0 0 0 2 1\nNode 1, zone Normal 1 0 0 0 0 0 0 0 0 0 5\n",
            ),
            (
                "pagetypeinfo",
                "Number of blocks type Unmovable Movable Reclaimable\nNode 0, zone Normal 10 60 10\n",
            ),
        ];
        for (name, text) in files {
            fs::write(root.path().join(name), text).expect("a file");
        }
        let (proc, sys) = (ProcRoot::new(root.path()), SysRoot::new(root.path()));
        (root, proc, sys)
    }

    fn read(node: Option<NodeId>) -> Memory {
        let (_root, proc, sys) = fake();
        memory(&proc, &sys, node, Bytes::kib(4)).expect("readable")
    }

    #[test]
    fn memory_in_small_pieces_is_told_from_no_memory() {
        let memory = read(None);
        assert_eq!(memory.whole(9), Bytes::mib(2 * 2 + 6 * 4));
        let two = size(Bytes::mib(2));
        let fragmented = Obstacle::Fragmented {
            free: Bytes::gib(4),
            whole: Bytes::mib(28),
        };
        let fixed = Obstacle::Fixed {
            share: Ratio::of(1, 4),
        };
        assert_eq!(
            memory.obstacles(two, 100),
            [fragmented.clone(), fixed.clone()]
        );
        let too_little = Obstacle::TooLittle {
            free: Bytes::gib(4),
            available: Some(Bytes::gib(6)),
            needed: Bytes::gib(8),
        };
        assert_eq!(
            memory.obstacles(two, 4096),
            [too_little, fragmented, fixed.clone()]
        );
        assert_eq!(memory.obstacles(two, 3), std::slice::from_ref(&fixed));
        let one = size(Bytes::gib(1));
        assert_eq!(memory.obstacles(one, 1), [Obstacle::NeedsRange, fixed]);
    }

    #[test]
    fn the_rest_of_a_full_memory_is_not_called_fragmented() {
        let mut memory = read(None);
        memory.free = Bytes::mib(40);
        let found = memory.obstacles(size(Bytes::mib(2)), 100);
        let is_fragmented = |one: &Obstacle| matches!(one, Obstacle::Fragmented { .. });
        assert!(!found.iter().any(is_fragmented), "{found:?}");
    }

    #[test]
    fn what_is_hidden_is_not_claimed() {
        let (root, proc, sys) = fake();
        fs::remove_file(root.path().join("pagetypeinfo")).expect("it was there");
        let memory = memory(&proc, &sys, None, Bytes::kib(4)).expect("readable");
        assert_eq!((memory.page_blocks.clone(), memory.fixed()), (None, None));
        assert!(memory.obstacles(size(Bytes::mib(2)), 1).is_empty());
    }

    #[test]
    fn a_node_has_its_own() {
        let (root, proc, sys) = fake();
        let node = root.path().join("devices/system/node/node1");
        fs::create_dir_all(&node).expect("a directory");
        fs::write(
            node.join("meminfo"),
            "Node 1 MemTotal: 8 kB\nNode 1 MemFree: 4 kB\n",
        )
        .expect("a file");
        let memory = memory(&proc, &sys, Some(NodeId(1)), Bytes::kib(4)).expect("readable");
        assert_eq!(
            (memory.free, memory.whole(9)),
            (Bytes::kib(4), Bytes::mib(20))
        );
        assert_eq!(memory.fixed(), None);
    }
}
