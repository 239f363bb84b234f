//! The memory that a guest and the virtual PMU share: its layout, and both sides of it.
//!
//! # Problem
//!
//! A QEMU plugin sees every memory access of a guest, but not which thread makes it; a guest knows
//! its threads, but has no PMU that could sample their accesses. They meet in 4 MiB of memory.
//!
//! # Approach
//!
//! The memory is BAR 2 of QEMU's `ivshmem-plain`. On the host it is a shared file that the plugin
//! maps. A guest finds the PCI device by [`PCI_VENDOR`] and [`PCI_DEVICE`] in
//! `/sys/bus/pci/devices/*/{vendor,device}` and maps its [`RESOURCE`]. Whoever maps it makes a
//! `&[AtomicU64]` of it; from there on all is safe code, and that is all that this crate has: it
//! maps nothing, it waits for nothing, it knows no clock.
//!
//! | words | what | written by |
//! | --- | --- | --- |
//! | 0, 1 | magic, version of the layout | plugin |
//! | 2 | capacity of the ring in records, a power of two | plugin |
//! | 3 | head of the ring: records ever begun | plugin |
//! | 4 | samples dropped by the cap | plugin |
//! | 5 | accesses of one thread per sample; 0: no sampling | guest |
//! | 6, 7 | windows requested, windows closed | guest, plugin |
//! | 8, 9 | nodes, CPUs | plugin |
//! | 10 | skid in instructions | guest |
//! | 11 | samples a window at most; 0: no cap | guest |
//! | 12 | generation of the table of threads | guest |
//! | 13 | label of the window that is requested next | guest |
//! | 64.. | [`THREADS_MAX`] published threads of 8 words | guest |
//! | 1024.. | as many counters of 8 words | plugin |
//! | 8192.. | the ring: records of 6 words | plugin |
//!
//! # Properties
//!
//! - A thread or a record that is being written is never read half: each has a generation or a
//!   sequence number around it, and readers look twice.
//! - A reader of the ring is never waited for. What it was too slow for counts as lost.
//! - Several processes of a guest may publish at a time. One that dies while it writes an entry
//!   leaves that one entry unusable until the next boot.
//!
//! # Bounds
//!
//! [`BYTES`], [`THREADS_MAX`] and [`RECORDS_MAX`]; node and CPU numbers below 65536.

#![forbid(unsafe_code)]

mod counters;
mod ring;
mod threads;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use counters::Counters;
pub use ring::{Reader, Record, Taken, Writer};
pub use threads::{Kind, Published, Slot, THREADS_MAX, TableFull, Thread};

/// Size of the memory. PCI wants a power of two; this one holds [`RECORDS_MAX`].
pub const BYTES: usize = 4 << 20;
/// The same in words.
pub const WORDS: usize = BYTES / size_of::<u64>();
/// Records of the ring at most: the largest power of two for which there is room.
pub const RECORDS_MAX: u64 = 65_536;
/// Of the PCI device: Red Hat's.
pub const PCI_VENDOR: u16 = 0x1af4;
/// Of the PCI device: inter-VM shared memory.
pub const PCI_DEVICE: u16 = 0x1110;
/// The file beside `vendor` and `device` that is to be mapped, from its start, for reading and
/// writing.
pub const RESOURCE: &str = "resource2";

/// "hugepmu" and a zero.
const MAGIC: u64 = u64::from_le_bytes(*b"hugepmu\0");
/// Of this layout.
const VERSION: u64 = 1;

/// Places of single words.
mod word {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const CAPACITY: usize = 2;
    pub const HEAD: usize = 3;
    pub const DROPPED: usize = 4;
    pub const PERIOD: usize = 5;
    pub const REQUESTED: usize = 6;
    pub const CLOSED: usize = 7;
    pub const NODES: usize = 8;
    pub const CPUS: usize = 9;
    pub const SKID: usize = 10;
    pub const CAP: usize = 11;
    pub const GENERATION: usize = 12;
    pub const LABEL: usize = 13;
    pub const THREADS: usize = 64;
    pub const COUNTERS: usize = 1024;
    pub const RING: usize = 8192;
}

/// What the guest's machine is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// NUMA nodes.
    pub nodes: u16,
    /// CPUs, over all nodes.
    pub cpus: u16,
}

/// How accesses are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampling {
    /// Accesses of one thread per sample, on average; 0: no sampling.
    pub period_accesses: u64,
    /// A sample is taken so many instructions after the access that made it due.
    pub skid_instructions: u64,
    /// Samples in a window at most, over all threads; 0: as many as come.
    pub window_samples_max: u64,
}

/// Why memory is not that of a virtual PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotThere {
    /// Too small: so many words.
    Size(usize),
    /// No virtual PMU has prepared it. Without the plugin a guest sees zeros.
    Magic(u64),
    /// Prepared by another version of this crate.
    Version(u64),
    /// The ring does not fit, or its capacity is no power of two.
    Capacity(u64),
    /// The numbers of nodes and CPUs are not sensible.
    Machine(u64, u64),
}

impl fmt::Display for NotThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(words) => write!(f, "{words} words are less than {WORDS}"),
            Self::Magic(found) => write!(
                f,
                "no virtual PMU is at work there (its mark is missing: {found:#x})"
            ),
            Self::Version(found) => write!(
                f,
                "its layout has version {found}, this program knows {VERSION}: build both anew"
            ),
            Self::Capacity(found) => write!(f, "a ring of {found} records cannot be"),
            Self::Machine(nodes, cpus) => {
                write!(f, "a machine of {nodes} nodes and {cpus} CPUs cannot be")
            }
        }
    }
}

impl std::error::Error for NotThere {}

/// The memory, prepared by the plugin.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    words: &'a [AtomicU64],
    capacity: u64,
    machine: Machine,
}

impl<'a> Layout<'a> {
    /// The guest's way in: checks that a plugin has prepared the memory.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn over(words: &'a [AtomicU64]) -> Result<Self, NotThere> {
        if words.len() < WORDS {
            return Err(NotThere::Size(words.len()));
        }
        let read = |place: usize| words[place].load(Ordering::Acquire);
        if read(word::MAGIC) != MAGIC {
            return Err(NotThere::Magic(read(word::MAGIC)));
        }
        if read(word::VERSION) != VERSION {
            return Err(NotThere::Version(read(word::VERSION)));
        }
        let capacity = read(word::CAPACITY);
        if !capacity.is_power_of_two() || capacity > RECORDS_MAX {
            return Err(NotThere::Capacity(capacity));
        }
        let (nodes, cpus) = (read(word::NODES), read(word::CPUS));
        let (Ok(few_nodes @ 1..), Ok(few_cpus @ 1..)) = (u16::try_from(nodes), u16::try_from(cpus))
        else {
            return Err(NotThere::Machine(nodes, cpus));
        };
        Ok(Self {
            words,
            capacity,
            machine: Machine {
                nodes: few_nodes,
                cpus: few_cpus,
            },
        })
    }

    /// The plugin's way in: wipes the memory and prepares it.
    ///
    /// # Errors
    ///
    /// The memory or the numbers are not fit.
    pub fn prepare(
        words: &'a [AtomicU64],
        machine: Machine,
        capacity: u64,
    ) -> Result<Self, NotThere> {
        if words.len() < WORDS {
            return Err(NotThere::Size(words.len()));
        }
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        let write = |place: usize, value: u64| words[place].store(value, Ordering::Release);
        write(word::VERSION, VERSION);
        write(word::CAPACITY, capacity);
        write(word::NODES, u64::from(machine.nodes));
        write(word::CPUS, u64::from(machine.cpus));
        // The mark comes last: who sees it sees the rest.
        write(word::MAGIC, MAGIC);
        Self::over(words)
    }

    /// The guest's machine.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// How accesses are sampled from now on (guest).
    pub fn set_sampling(&self, sampling: Sampling) {
        self.write(word::SKID, sampling.skid_instructions);
        self.write(word::CAP, sampling.window_samples_max);
        self.write(word::PERIOD, sampling.period_accesses);
    }

    /// Only the period; 0 stops the sampling (guest).
    pub fn set_period(&self, accesses: u64) {
        self.write(word::PERIOD, accesses);
    }

    /// How accesses are sampled.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        Sampling {
            period_accesses: self.read(word::PERIOD),
            skid_instructions: self.read(word::SKID),
            window_samples_max: self.read(word::CAP),
        }
    }

    /// Asks the plugin to close the window and to begin the next one; the number of the window that
    /// will be closed, counted from 1. It is closed once [`Self::windows_closed`] says so, which
    /// takes the plugin as long as some CPU executes a few instructions (guest).
    pub fn next_window(&self) -> u64 {
        self.words[word::REQUESTED].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A number that the plugin writes beside each window that it closes from now on (guest).
    pub fn set_label(&self, label: u64) {
        self.write(word::LABEL, label);
    }

    /// The number that stands beside windows.
    #[must_use]
    pub fn label(&self) -> u64 {
        self.read(word::LABEL)
    }

    /// Windows asked for so far.
    #[must_use]
    pub fn windows_requested(&self) -> u64 {
        self.read(word::REQUESTED)
    }

    /// Windows closed so far.
    #[must_use]
    pub fn windows_closed(&self) -> u64 {
        self.read(word::CLOSED)
    }

    /// Says that so many windows asked for are closed now (plugin).
    pub fn set_windows_closed(&self, windows: u64) {
        self.write(word::CLOSED, windows);
    }

    /// Samples that the cap dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.read(word::DROPPED)
    }

    fn read(&self, place: usize) -> u64 {
        self.words[place].load(Ordering::Acquire)
    }

    fn write(&self, place: usize, value: u64) {
        self.words[place].store(value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const MACHINE: Machine = Machine { nodes: 4, cpus: 8 };

    /// Memory as a guest without a plugin finds it.
    pub fn blank() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_the_plugin_prepared_the_guest_finds() {
        let words = blank();
        Layout::prepare(&words, MACHINE, 1024).unwrap();
        let guest = Layout::over(&words).unwrap();
        assert_eq!(guest.machine(), MACHINE);
        assert_eq!(guest.sampling(), Sampling::default());
        assert_eq!(guest.windows_closed(), 0);
    }

    #[test]
    fn a_guest_without_a_plugin_is_told_so() {
        let words = blank();
        assert_eq!(Layout::over(&words).unwrap_err(), NotThere::Magic(0));
        assert_eq!(
            Layout::over(&words[..100]).unwrap_err(),
            NotThere::Size(100)
        );
    }

    #[test]
    fn senseless_memory_is_refused() {
        let words = blank();
        for capacity in [0, 3, RECORDS_MAX * 2] {
            let refused = Layout::prepare(&words, MACHINE, capacity).unwrap_err();
            assert_eq!(refused, NotThere::Capacity(capacity));
        }
        Layout::prepare(&words, MACHINE, 2).unwrap();
        words[word::CPUS].store(0, Ordering::Relaxed);
        assert_eq!(Layout::over(&words).unwrap_err(), NotThere::Machine(4, 0));
        words[word::VERSION].store(2, Ordering::Relaxed);
        assert_eq!(Layout::over(&words).unwrap_err(), NotThere::Version(2));
    }

    #[test]
    fn the_largest_ring_fits() {
        let records = usize::try_from(RECORDS_MAX).unwrap();
        assert!(word::RING + records * ring::RECORD_WORDS <= WORDS);
        assert!(word::RING + 2 * records * ring::RECORD_WORDS > WORDS);
    }

    #[test]
    fn windows_are_numbered_by_who_asks() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        layout.set_label(7);
        assert_eq!((layout.next_window(), layout.next_window()), (1, 2));
        layout.set_windows_closed(layout.windows_requested());
        assert_eq!((layout.windows_closed(), layout.label()), (2, 7));
    }

    #[test]
    fn sampling_is_told_and_stopped() {
        let words = blank();
        let layout = Layout::prepare(&words, MACHINE, 2).unwrap();
        let wanted = Sampling {
            period_accesses: 1000,
            skid_instructions: 72,
            window_samples_max: 500,
        };
        layout.set_sampling(wanted);
        assert_eq!(layout.sampling(), wanted);
        layout.set_period(0);
        assert_eq!(
            layout.sampling(),
            Sampling {
                period_accesses: 0,
                ..wanted
            }
        );
    }
}
