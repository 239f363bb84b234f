// SPDX-License-Identifier: GPL-2.0-or-later

//! One CPU: what it counts, block by block and access by access.
//!
//! Everything here belongs to the thread of QEMU that executes the CPU.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};

use hugepilot_vpmu::{Kind, Record, Sampling};

use crate::cache::{Cache, LINE_SHIFT, Random};
use crate::pages::add;
use crate::plugin::Plugin;
use crate::sampler::Sampler;
use crate::tlb::{BASE_SHIFT, Grain, Tlb};
use crate::topology::Place;
use crate::watched::{Access, Watched};
use crate::window::Cause;

/// A CPU tells the others of its instructions when it has executed so many: seldom enough to disturb
/// nobody, often enough for windows of millions.
const INSTRUCTIONS_PER_TELLING: u64 = 1 << 16;
/// A CPU looks for requests when it has executed so many: a microsecond or so, and a guest waits for
/// its windows anyway.
const INSTRUCTIONS_PER_LOOK: u64 = 1 << 10;
/// Accesses of a thread between two renewals of what the guest sees of its counters.
const ACCESSES_PER_RENEWAL: u32 = 1 << 12;

/// Who executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    User,
    Kernel,
}

impl Mode {
    /// Linux has the upper half of the address space to itself.
    pub fn of(instruction: u64) -> Self {
        if instruction >> 63 == 0 {
            Self::User
        } else {
            Self::Kernel
        }
    }
}

/// An access as QEMU tells it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub vaddr: u64,
    pub store: bool,
}

/// A thread that is pinned to this CPU.
#[derive(Debug)]
struct Watching {
    watched: Arc<Watched>,
    sampler: Sampler,
    until_renewal: u32,
}

/// The caches of this CPU alone.
#[derive(Debug)]
struct Caches {
    l1: Cache,
    l2: Cache,
}

/// What the caches say of an access.
#[derive(Debug, Clone, Copy)]
struct Served {
    l2_miss: bool,
    walk_missed_l2: bool,
    dram: bool,
}

/// A CPU.
#[derive(Debug)]
pub struct Cpu {
    index: usize,
    node: u16,
    instructions: u64,
    /// Of `instructions`, those that the others know of.
    told: u64,
    /// After so many instructions the CPU looks around.
    next_look: u64,
    /// Of the table of threads that `watching` was made from.
    generation: u64,
    watching: Vec<Watching>,
    sampling: Sampling,
    caches: Option<Caches>,
    tlb: Tlb,
    random: Random,
}

impl Cpu {
    /// `None` for a CPU that the arguments do not know.
    pub fn new(plugin: &Plugin, index: usize) -> Option<Self> {
        let settings = &plugin.settings;
        Some(Self {
            index,
            node: plugin.topology.node_of_cpu(index)?,
            instructions: 0,
            told: 0,
            next_look: 0,
            generation: 0,
            watching: Vec::new(),
            sampling: Sampling::default(),
            caches: settings.caches.map(|shapes| Caches {
                l1: Cache::new(shapes.l1),
                l2: Cache::new(shapes.l2),
            }),
            tlb: Tlb::new(settings.tlb_base, settings.tlb_huge),
            random: Random::new(u64::try_from(index).ok()? + 1),
        })
    }

    /// A block of instructions begins.
    pub fn block(&mut self, plugin: &Plugin, instructions: u64, mode: Mode) {
        let counters = &plugin.cpus[self.index];
        match mode {
            Mode::User => add(&counters.user, instructions),
            Mode::Kernel => add(&counters.kernel, instructions),
        }
        self.instructions += instructions;
        if plugin.layout.threads_generation() != self.generation {
            self.look_who_is_published(plugin);
        }
        if self.instructions >= self.next_look {
            self.next_look = self.instructions + INSTRUCTIONS_PER_LOOK;
            self.look_around(plugin);
        }
    }

    /// What need not be known at once.
    fn look_around(&mut self, plugin: &Plugin) {
        let untold = self.instructions - self.told;
        if untold >= INSTRUCTIONS_PER_TELLING {
            plugin.instructions.fetch_add(untold, Ordering::Relaxed);
            self.told = self.instructions;
        }
        self.sampling = plugin.layout.sampling();
        if let Some(cause) = due(plugin) {
            close(plugin, cause).expect("the report can be written");
        }
    }

    /// An access of user space; `translate` gives what QEMU reports of its physical address.
    pub fn access(&mut self, plugin: &Plugin, seen: Seen, translate: impl FnOnce() -> Option<u64>) {
        let covers = |watching: &Watching| watching.watched.covers(seen.vaddr);
        let Some(who) = self.watching.iter().position(covers) else {
            return;
        };
        let Some(place) = translate().and_then(|reported| plugin.topology.place(reported)) else {
            self.watching[who].watched.count_unplaced();
            return;
        };
        let pid = self.watching[who].watched.published.thread.pid;
        let grain = Grain::of(seen.vaddr, place.paddr);
        let served = self.served(plugin, pid, seen, place, grain);
        let access = Access {
            node: place.node,
            page: seen.vaddr >> BASE_SHIFT,
            store: seen.store,
            dram: served.dram,
            l2_miss: served.l2_miss,
            walk_missed_l2: served.walk_missed_l2,
        };
        let watching = &mut self.watching[who];
        let window = plugin.window.load(Ordering::Relaxed);
        watching.watched.count(window, &access);
        watching.renew(plugin);
        if watching.takes(&self.sampling, self.instructions) {
            self.sample(plugin, who, seen, place, served.dram, grain);
        }
    }

    fn served(
        &mut self,
        plugin: &Plugin,
        pid: u32,
        seen: Seen,
        place: Place,
        grain: Grain,
    ) -> Served {
        let walk = self.tlb.miss(pid, seen.vaddr, grain);
        let Some(caches) = &mut self.caches else {
            return Served {
                l2_miss: true,
                walk_missed_l2: walk.is_some(),
                dram: true,
            };
        };
        let walk_missed_l2 = walk.is_some_and(|line| !caches.l2.touch(line));
        let line = place.paddr >> LINE_SHIFT;
        let l2_miss = !caches.l1.touch(line) && !caches.l2.touch(line);
        let l3 = &plugin.l3[usize::from(self.node)];
        Served {
            l2_miss,
            walk_missed_l2,
            dram: l2_miss && !l3.touch(line, &mut self.random),
        }
    }

    fn sample(
        &self,
        plugin: &Plugin,
        who: usize,
        seen: Seen,
        place: Place,
        dram: bool,
        grain: Grain,
    ) {
        let watched = &self.watching[who].watched;
        let record = Record {
            instructions: self.instructions,
            vaddr: seen.vaddr,
            paddr: place.paddr,
            pid: watched.published.thread.pid,
            tid: watched.published.thread.tid,
            cpu: u16::try_from(self.index).expect("few CPUs"),
            cpu_node: self.node,
            memory_node: place.node,
            store: seen.store,
            dram,
            huge: grain == Grain::Huge,
        };
        if plugin.sample(&record) {
            watched.count_sample();
        }
    }

    fn look_who_is_published(&mut self, plugin: &Plugin) {
        self.generation = plugin.layout.threads_generation();
        let mut closer = plugin.closer.lock().unwrap_or_else(PoisonError::into_inner);
        let here = plugin.layout.threads().into_iter().filter(|published| {
            usize::try_from(published.thread.cpu).is_ok_and(|cpu| cpu == self.index)
        });
        let before = std::mem::take(&mut self.watching);
        let mut before: Vec<Option<Watching>> = before.into_iter().map(Some).collect();
        for published in here {
            let same = |old: &&mut Option<Watching>| {
                old.as_ref()
                    .is_some_and(|old| old.watched.published == published)
            };
            let kept = before.iter_mut().find(same).and_then(Option::take);
            let watching = kept.unwrap_or_else(|| {
                let watched = closer.watch(&published, || {
                    let nodes = plugin.topology.nodes();
                    Watched::new(published.clone(), self.node, nodes, plugin.settings.pages)
                });
                Watching::new(watched)
            });
            self.watching.push(watching);
        }
    }
}

impl Watching {
    fn new(watched: Arc<Watched>) -> Self {
        Self {
            sampler: Sampler::new(watched.published.thread.tid.into()),
            watched,
            until_renewal: 0,
        }
    }

    fn takes(&mut self, sampling: &Sampling, instructions: u64) -> bool {
        match self.watched.published.thread.kind {
            Kind::Workload => self.sampler.takes(sampling, instructions),
            Kind::Manager => false,
        }
    }

    /// Lets the guest see the thread's counters, now and then.
    fn renew(&mut self, plugin: &Plugin) {
        if self.until_renewal == 0 {
            self.until_renewal = ACCESSES_PER_RENEWAL;
            let counters = self.watched.totals().counters();
            plugin
                .layout
                .set_counters(self.watched.published.slot, counters);
        }
        self.until_renewal -= 1;
    }
}

/// Whether the open window is to be closed.
fn due(plugin: &Plugin) -> Option<Cause> {
    let requested = plugin.layout.windows_requested();
    if requested > plugin.layout.windows_closed() {
        return Some(Cause::Request(requested));
    }
    let instructions = plugin.instructions.load(Ordering::Relaxed);
    (instructions >= plugin.window_end.load(Ordering::Relaxed)).then_some(Cause::Instructions)
}

/// Closes the open window, unless somebody is at it.
pub fn close(plugin: &Plugin, cause: Cause) -> io::Result<()> {
    let mut closer = match plugin.closer.try_lock() {
        Ok(closer) => closer,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(()),
    };
    // Somebody may have closed it since this CPU looked.
    if cause != Cause::End && due(plugin) != Some(cause) {
        return Ok(());
    }
    closer.close(plugin, cause)?;
    if plugin.settings.window_instructions > 0 {
        let instructions = plugin.instructions.load(Ordering::Relaxed);
        let end = instructions + plugin.settings.window_instructions;
        plugin.window_end.store(end, Ordering::Relaxed);
    }
    match cause {
        Cause::Request(number) => plugin.layout.set_windows_closed(number),
        Cause::Instructions | Cause::End => {}
    }
    plugin.flush();
    Ok(())
}

#[cfg(test)]
mod tests;
