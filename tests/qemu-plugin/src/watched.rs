// SPDX-License-Identifier: GPL-2.0-or-later

//! A published thread and what is counted for it.

use std::sync::atomic::{AtomicU64, Ordering};

use hugepilot_vpmu::{Counters, Published};

use crate::pages::{Pages, add};

/// What the models say of one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Of the memory.
    pub node: u16,
    /// Base page, by virtual address.
    pub page: u64,
    pub store: bool,
    /// No cache served it.
    pub dram: bool,
    /// Misses of the L2: of the access itself and of its page walk.
    pub l2_miss: bool,
    pub walk_missed_l2: bool,
}

/// To one node, since the thread was published.
#[derive(Debug, Default)]
struct NodeCounters {
    accesses: AtomicU64,
    stores: AtomicU64,
    dram: AtomicU64,
}

/// The same, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCount {
    pub accesses: u64,
    pub stores: u64,
    pub dram: u64,
}

/// All of a thread's counters, read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    pub by_node: Vec<NodeCount>,
    pub l2_misses: u64,
    pub l2_misses_by_walks: u64,
    pub samples: u64,
    pub unplaced: u64,
}

/// Only the CPU to which the thread is pinned counts; anybody may read.
#[derive(Debug)]
pub struct Watched {
    pub published: Published,
    /// The node of its CPU.
    pub cpu_node: u16,
    by_node: Box<[NodeCounters]>,
    l2_misses: AtomicU64,
    l2_misses_by_walks: AtomicU64,
    samples: AtomicU64,
    /// Accesses to what is no node's memory.
    unplaced: AtomicU64,
    /// Of windows with even and with odd numbers.
    pages: [Pages; 2],
}

impl Watched {
    pub fn new(published: Published, cpu_node: u16, nodes: usize, pages_max: u32) -> Self {
        Self {
            published,
            cpu_node,
            by_node: (0..nodes).map(|_| NodeCounters::default()).collect(),
            l2_misses: AtomicU64::new(0),
            l2_misses_by_walks: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            unplaced: AtomicU64::new(0),
            pages: [Pages::new(pages_max), Pages::new(pages_max)],
        }
    }

    /// Whether an access to this address counts for the thread.
    pub fn covers(&self, vaddr: u64) -> bool {
        let addresses = &self.published.thread.addresses;
        addresses.is_empty() || addresses.contains(&vaddr)
    }

    pub fn count(&self, window: u64, access: &Access) {
        let node = &self.by_node[usize::from(access.node)];
        add(&node.accesses, 1);
        if access.store {
            add(&node.stores, 1);
        }
        if access.dram {
            add(&node.dram, 1);
        }
        if access.l2_miss {
            add(&self.l2_misses, 1);
        }
        if access.walk_missed_l2 {
            add(&self.l2_misses, 1);
            add(&self.l2_misses_by_walks, 1);
        }
        self.pages(window).count(access.page, access.dram);
    }

    pub fn count_sample(&self) {
        add(&self.samples, 1);
    }

    pub fn count_unplaced(&self) {
        add(&self.unplaced, 1);
    }

    pub fn pages(&self, window: u64) -> &Pages {
        &self.pages[usize::from(window % 2 != 0)]
    }

    pub fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let by_node = self.by_node.iter().map(|node| NodeCount {
            accesses: read(&node.accesses),
            stores: read(&node.stores),
            dram: read(&node.dram),
        });
        Totals {
            by_node: by_node.collect(),
            l2_misses: read(&self.l2_misses),
            l2_misses_by_walks: read(&self.l2_misses_by_walks),
            samples: read(&self.samples),
            unplaced: read(&self.unplaced),
        }
    }
}

impl Totals {
    /// What came since then.
    pub fn since(&self, before: &Self) -> Self {
        let by_node = self.by_node.iter().enumerate().map(|(node, now)| {
            let then = before.by_node.get(node).copied().unwrap_or_default();
            NodeCount {
                accesses: now.accesses - then.accesses,
                stores: now.stores - then.stores,
                dram: now.dram - then.dram,
            }
        });
        Self {
            by_node: by_node.collect(),
            l2_misses: self.l2_misses - before.l2_misses,
            l2_misses_by_walks: self.l2_misses_by_walks - before.l2_misses_by_walks,
            samples: self.samples - before.samples,
            unplaced: self.unplaced - before.unplaced,
        }
    }

    pub fn accesses(&self) -> u64 {
        self.by_node.iter().map(|node| node.accesses).sum()
    }

    /// As the guest gets them.
    pub fn counters(&self) -> Counters {
        Counters {
            accesses: self.accesses(),
            dram: self.by_node.iter().map(|node| node.dram).sum(),
            l2_misses: self.l2_misses,
            l2_misses_by_walks: self.l2_misses_by_walks,
        }
    }
}
