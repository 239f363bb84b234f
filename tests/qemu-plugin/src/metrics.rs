// SPDX-License-Identifier: GPL-2.0-or-later

//! The metrics of Carrefour-LP, computed from all accesses of a window.
//!
//! Written apart from the metrics of the program under test, which estimates them from samples: this
//! is the referee. Shares are from 0 to 1, and none where there was no access.

use std::collections::HashMap;

use serde::Serialize;

use crate::tlb::{BASE_SHIFT, HUGE_SHIFT};

/// A page is hot with more than this share of all accesses.
const HOT_SHARE: f64 = 0.06;

/// One thread's accesses in a window, of one kind (all, or those to memory).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accesses {
    pub pid: u32,
    pub cpu_node: u16,
    pub by_node: Vec<u64>,
    /// Base pages by virtual address.
    pub pages: Vec<(u64, u64)>,
}

/// All threads together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    pub accesses: u64,
    /// From a row's node to a column's.
    pub matrix: Vec<Vec<u64>>,
    /// Local access ratio: share of the accesses to the accessing CPU's own node.
    pub lar: Option<f64>,
    /// Standard deviation over mean of the accesses to each node that has memory.
    pub imbalance: Option<f64>,
    pub base_pages: PageMetrics,
    pub huge_pages: PageMetrics,
}

/// At one grain: pages by virtual address, whatever maps them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PageMetrics {
    pub pages: u64,
    /// Share of the accesses to the page with the most.
    pub pamup: Option<f64>,
    /// Pages with more than 6 % of the accesses.
    pub nhp: u64,
    /// Share of the accesses to pages that two threads or more accessed.
    pub psp_threads: Option<f64>,
    /// Share of the accesses to pages that were accessed from two nodes or more.
    pub psp_nodes: Option<f64>,
}

/// How a page was used.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    accesses: u64,
    threads: u32,
    /// One bit a node.
    nodes: u64,
}

impl Metrics {
    /// `with_memory` says of each node whether it has memory.
    pub fn of(threads: &[Accesses], with_memory: &[bool]) -> Self {
        let matrix = matrix(threads, with_memory.len());
        let accesses = matrix.iter().flatten().sum();
        let local: u64 = (0..matrix.len()).map(|node| matrix[node][node]).sum();
        Self {
            accesses,
            lar: share(local, accesses),
            imbalance: imbalance(&matrix, with_memory),
            base_pages: PageMetrics::of(threads, 0),
            huge_pages: PageMetrics::of(threads, HUGE_SHIFT - BASE_SHIFT),
            matrix,
        }
    }
}

fn matrix(threads: &[Accesses], nodes: usize) -> Vec<Vec<u64>> {
    let mut matrix = vec![vec![0; nodes]; nodes];
    for thread in threads {
        let row = &mut matrix[usize::from(thread.cpu_node)];
        for (cell, accesses) in row.iter_mut().zip(&thread.by_node) {
            *cell += accesses;
        }
    }
    matrix
}

fn imbalance(matrix: &[Vec<u64>], with_memory: &[bool]) -> Option<f64> {
    let column = |node: usize| matrix.iter().map(|row| row[node]).sum::<u64>();
    let loads: Vec<f64> = (0..matrix.len())
        .filter(|&node| with_memory[node])
        .map(|node| float(column(node)))
        .collect();
    let count = float(u64::try_from(loads.len()).expect("few nodes"));
    let mean = loads.iter().sum::<f64>() / count;
    let variance = loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

impl PageMetrics {
    /// At the grain of base pages shifted by so much.
    fn of(threads: &[Accesses], shift: u32) -> Self {
        let pages = uses(threads, shift);
        let total: u64 = pages.values().map(|page| page.accesses).sum();
        let most = pages.values().map(|page| page.accesses).max().unwrap_or(0);
        let shared = |is_shared: fn(&Use) -> bool| {
            let shared = pages.values().filter(|page| is_shared(page));
            shared.map(|page| page.accesses).sum()
        };
        let hot = pages
            .values()
            .filter(|page| float(page.accesses) > HOT_SHARE * float(total))
            .count();
        Self {
            pages: u64::try_from(pages.len()).expect("64 bits"),
            pamup: share(most, total),
            nhp: u64::try_from(hot).expect("64 bits"),
            psp_threads: share(shared(|page| page.threads > 1), total),
            psp_nodes: share(shared(|page| page.nodes.count_ones() > 1), total),
        }
    }
}

fn uses(threads: &[Accesses], shift: u32) -> HashMap<(u32, u64), Use> {
    let mut pages: HashMap<(u32, u64), Use> = HashMap::new();
    for thread in threads {
        let mut own: HashMap<u64, u64> = HashMap::new();
        for (page, accesses) in &thread.pages {
            *own.entry(page >> shift).or_default() += accesses;
        }
        for (page, accesses) in own {
            let page = pages.entry((thread.pid, page)).or_default();
            page.accesses += accesses;
            page.threads += 1;
            page.nodes |= 1 << (u32::from(thread.cpu_node) % u64::BITS);
        }
    }
    pages
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of accesses stay far below 2^53"
)]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(cpu_node: u16, by_node: &[u64], pages: &[(u64, u64)]) -> Accesses {
        Accesses {
            pid: 1,
            cpu_node,
            by_node: by_node.to_vec(),
            pages: pages.to_vec(),
        }
    }

    #[track_caller]
    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("a value");
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn local_accesses_are_those_to_the_own_node() {
        let threads = [
            thread(0, &[90, 10], &[(1, 100)]),
            thread(1, &[60, 40], &[(2, 100)]),
        ];
        let metrics = Metrics::of(&threads, &[true, true]);
        close(metrics.lar, 0.65);
        assert_eq!(metrics.matrix, [[90, 10], [60, 40]]);
        assert_eq!(metrics.accesses, 200);
    }

    #[test]
    fn imbalance_is_deviation_over_mean() {
        let all_on_one = [thread(0, &[400, 0, 0, 0], &[])];
        close(Metrics::of(&all_on_one, &[true; 4]).imbalance, 3_f64.sqrt());
        let even = [thread(0, &[50, 50, 50, 50], &[])];
        close(Metrics::of(&even, &[true; 4]).imbalance, 0.0);
        let uneven = [thread(0, &[100, 50, 50, 0], &[])];
        close(Metrics::of(&uneven, &[true; 4]).imbalance, 0.5_f64.sqrt());
    }

    #[test]
    fn a_node_without_memory_balances_nothing() {
        let threads = [thread(2, &[50, 50, 0], &[])];
        close(Metrics::of(&threads, &[true, true, false]).imbalance, 0.0);
    }

    #[test]
    fn the_most_used_page_and_the_hot_ones() {
        let pages = [(1, 7), (2, 6), (3, 80), (600, 7)];
        let metrics = Metrics::of(&[thread(0, &[100], &pages)], &[true]);
        close(metrics.base_pages.pamup, 0.8);
        // Exactly 6 % is not more than 6 %.
        assert_eq!(metrics.base_pages.nhp, 3);
        close(metrics.huge_pages.pamup, 0.93);
        assert_eq!((metrics.huge_pages.nhp, metrics.huge_pages.pages), (2, 2));
    }

    #[test]
    fn false_sharing_shows_at_the_larger_grain_alone() {
        let even = thread(0, &[50, 0], &[(0, 20), (2, 30)]);
        let odd = thread(1, &[50, 0], &[(1, 20), (3, 30)]);
        let metrics = Metrics::of(&[even, odd], &[true, true]);
        close(metrics.base_pages.psp_threads, 0.0);
        close(metrics.huge_pages.psp_threads, 1.0);
        close(metrics.huge_pages.psp_nodes, 1.0);
    }

    #[test]
    fn threads_of_one_node_share_but_nodes_do_not() {
        let one = thread(0, &[30, 0], &[(0, 10), (1, 20)]);
        let other = thread(0, &[10, 0], &[(0, 10)]);
        let metrics = Metrics::of(&[one, other], &[true, true]);
        close(metrics.base_pages.psp_threads, 0.5);
        close(metrics.base_pages.psp_nodes, 0.0);
    }

    #[test]
    fn processes_do_not_share_by_having_the_same_address() {
        let mut other = thread(1, &[10, 0], &[(5, 10)]);
        other.pid = 2;
        let metrics = Metrics::of(&[thread(0, &[10, 0], &[(5, 10)]), other], &[true, true]);
        close(metrics.base_pages.psp_threads, 0.0);
        assert_eq!(metrics.base_pages.pages, 2);
    }

    #[test]
    fn without_accesses_nothing_is_said() {
        let metrics = Metrics::of(&[], &[true, true]);
        assert_eq!((metrics.lar, metrics.imbalance), (None, None));
        assert_eq!(metrics.base_pages.pamup, None);
    }
}
