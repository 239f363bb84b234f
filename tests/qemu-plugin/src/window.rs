// SPDX-License-Identifier: GPL-2.0-or-later

//! Closing a window: whichever CPU notices first does it, while the others go on counting into the
//! next one.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hugepilot_vpmu::{Kind, Published};

use crate::metrics::{Accesses, Metrics};
use crate::pages::Count;
use crate::plugin::Plugin;
use crate::report::{CpuReport, Report, ThreadReport};
use crate::watched::{NodeCount, Totals, Watched};

/// Why a window is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The guest asked for this many windows so far.
    Request(u64),
    /// Enough instructions.
    Instructions,
    /// QEMU ends.
    End,
}

/// What is needed between windows.
#[derive(Debug)]
pub struct Closer {
    output: File,
    threads: Vec<Known>,
    /// User and kernel instructions of each CPU at the last close.
    cpus_before: Vec<[u64; 2]>,
    samples_dropped_before: u64,
}

/// A thread that was published since the last close or before.
#[derive(Debug)]
struct Known {
    watched: Arc<Watched>,
    before: Totals,
}

/// A thread's part of a window.
struct Part {
    watched: Arc<Watched>,
    totals: Totals,
    pages: Vec<(u64, Count)>,
    pages_lost: u64,
}

impl Closer {
    pub fn new(output: File) -> Self {
        Self {
            output,
            threads: Vec::new(),
            cpus_before: Vec::new(),
            samples_dropped_before: 0,
        }
    }

    /// The counters of a thread: one set, whoever asks.
    pub fn watch(&mut self, published: &Published, make: impl FnOnce() -> Watched) -> Arc<Watched> {
        let same = |known: &&Known| known.watched.published == *published;
        if let Some(known) = self.threads.iter().find(same) {
            return Arc::clone(&known.watched);
        }
        let watched = Arc::new(make());
        self.threads.push(Known {
            watched: Arc::clone(&watched),
            before: Totals::default(),
        });
        watched
    }

    /// Closes the open window and writes its line.
    pub fn close(&mut self, plugin: &Plugin, cause: Cause) -> io::Result<()> {
        let window = plugin.window.fetch_add(1, Ordering::AcqRel);
        let samples = plugin.samples_in_window.swap(0, Ordering::AcqRel);
        let dropped = plugin.layout.dropped();
        let samples_dropped = dropped - self.samples_dropped_before;
        self.samples_dropped_before = dropped;
        let parts = self.take_parts(window);
        let metrics = |of: fn(&Count) -> u64, by: fn(&NodeCount) -> u64| {
            Metrics::of(&accesses(&parts, of, by), &with_memory(plugin))
        };
        let report = Report {
            window: window + 1,
            request: match cause {
                Cause::Request(number) => Some(number),
                Cause::Instructions | Cause::End => None,
            },
            label: plugin.layout.label(),
            last: cause == Cause::End,
            raw: metrics(|page| page.accesses, |node| node.accesses),
            dram: metrics(|page| page.dram, |node| node.dram),
            threads: parts.iter().map(thread_report).collect(),
            cpus: self.cpu_reports(plugin),
            samples: samples - samples_dropped.min(samples),
            samples_dropped,
            pages_lost: parts.iter().map(|part| part.pages_lost).sum(),
        };
        self.forget_ended(plugin);
        self.write(&report)
    }

    fn take_parts(&mut self, window: u64) -> Vec<Part> {
        let take = |known: &mut Known| {
            let now = known.watched.totals();
            let totals = now.since(&known.before);
            known.before = now;
            let (pages, pages_lost) = known.watched.pages(window).drain();
            Part {
                watched: Arc::clone(&known.watched),
                totals,
                pages,
                pages_lost,
            }
        };
        self.threads.iter_mut().map(take).collect()
    }

    fn cpu_reports(&mut self, plugin: &Plugin) -> Vec<CpuReport> {
        let read = |counters: &crate::plugin::CpuCounters| {
            [&counters.user, &counters.kernel].map(|counter| counter.load(Ordering::Relaxed))
        };
        let now: Vec<[u64; 2]> = plugin.cpus.iter().map(read).collect();
        let reports = now.iter().enumerate().map(|(cpu, [user, kernel])| {
            let [user_before, kernel_before] =
                self.cpus_before.get(cpu).copied().unwrap_or_default();
            CpuReport {
                cpu,
                node: plugin.topology.node_of_cpu(cpu).expect("one of the CPUs"),
                user_instructions: user - user_before,
                kernel_instructions: kernel - kernel_before,
            }
        });
        let reports = reports.collect();
        self.cpus_before = now;
        reports
    }

    /// Threads that were withdrawn have had their last window.
    fn forget_ended(&mut self, plugin: &Plugin) {
        let published = plugin.layout.threads();
        self.threads
            .retain(|known| published.contains(&known.watched.published));
    }

    fn write(&mut self, report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.output.write_all(&line)
    }
}

fn with_memory(plugin: &Plugin) -> Vec<bool> {
    let topology = &plugin.topology;
    (0..topology.nodes())
        .map(|node| topology.has_memory(node))
        .collect()
}

/// What counts for the metrics: workloads alone.
fn accesses(
    parts: &[Part],
    of_page: fn(&Count) -> u64,
    of_node: fn(&NodeCount) -> u64,
) -> Vec<Accesses> {
    let of_part = |part: &Part| Accesses {
        pid: part.watched.published.thread.pid,
        cpu_node: part.watched.cpu_node,
        by_node: part.totals.by_node.iter().map(of_node).collect(),
        pages: part
            .pages
            .iter()
            .map(|(page, count)| (*page, of_page(count)))
            .filter(|(_, accesses)| *accesses > 0)
            .collect(),
    };
    parts
        .iter()
        .filter(|part| part.watched.published.thread.kind == Kind::Workload)
        .map(of_part)
        .collect()
}

fn thread_report(part: &Part) -> ThreadReport {
    let thread = &part.watched.published.thread;
    let list = |of: fn(&NodeCount) -> u64| part.totals.by_node.iter().map(of).collect();
    ThreadReport {
        pid: thread.pid,
        tid: thread.tid,
        kind: match thread.kind {
            Kind::Workload => "workload",
            Kind::Manager => "manager",
        },
        cpu: thread.cpu,
        node: part.watched.cpu_node,
        raw_by_node: list(|node| node.accesses),
        stores_by_node: list(|node| node.stores),
        dram_by_node: list(|node| node.dram),
        l2_misses: part.totals.l2_misses,
        l2_misses_by_walks: part.totals.l2_misses_by_walks,
        samples: part.totals.samples,
        unplaced: part.totals.unplaced,
    }
}
