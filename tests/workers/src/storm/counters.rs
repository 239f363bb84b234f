//! What the storm's processes count, in one page of shared memory; and the word by which they are told to stop.

use crate::region::{Kind, PAGE, Region};
use crate::sys;
use std::fs::File;
use std::io;
use std::sync::OnceLock;

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub enum Counter {
    WrongBytes,
    Forks,
    Mremaps,
    Mlocks,
    Unmaps,
    Execs,
    /// Churners that ended because they chose to.
    Deaths,
    /// Those of them that were by SIGKILL.
    OwnKills,
    Pins,
    /// Collapses and splits by the processes themselves.
    OwnActions,
    VerifiedBytes,
}

impl Counter {
    pub const ALL: [Self; 11] = [
        Self::WrongBytes,
        Self::Forks,
        Self::Mremaps,
        Self::Mlocks,
        Self::Unmaps,
        Self::Execs,
        Self::Deaths,
        Self::OwnKills,
        Self::Pins,
        Self::OwnActions,
        Self::VerifiedBytes,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::WrongBytes => "wrong_bytes",
            Self::Forks => "forks",
            Self::Mremaps => "mremaps",
            Self::Mlocks => "mlocks",
            Self::Unmaps => "unmaps",
            Self::Execs => "execs",
            Self::Deaths => "deaths",
            Self::OwnKills => "own_kills",
            Self::Pins => "pins",
            Self::OwnActions => "own_actions",
            Self::VerifiedBytes => "verified_bytes",
        }
    }

    /// Its word in the page; word 0 says stop.
    const fn place(self) -> usize {
        match self {
            Self::WrongBytes => 1,
            Self::Forks => 2,
            Self::Mremaps => 3,
            Self::Mlocks => 4,
            Self::Unmaps => 5,
            Self::Execs => 6,
            Self::Deaths => 7,
            Self::Pins => 8,
            Self::OwnActions => 9,
            Self::VerifiedBytes => 10,
            Self::OwnKills => 11,
        }
    }
}

/// The page, once it is mapped; it stays so until the process ends.
static PAGE_OF_COUNTERS: OnceLock<Region> = OnceLock::new();

/// The counters of the storm that this process is part of.
#[derive(Debug)]
pub struct Counters;

impl Counters {
    pub fn add(counter: Counter, count: u64) {
        sys::add_word(word(counter.place()), count);
    }

    pub fn get(counter: Counter) -> u64 {
        sys::peek_word(word(counter.place()))
    }

    /// Was the storm told to stop?
    pub fn stopped() -> bool {
        sys::peek_word(word(0)) != 0
    }
}

fn word(place: usize) -> usize {
    let page = PAGE_OF_COUNTERS
        .get()
        .expect("created or joined at the start");
    page.address() + place * size_of::<u64>()
}

/// Makes the page; the path by which others join.
pub fn create() -> io::Result<String> {
    let page = Region::map_memfd("counters", PAGE)?;
    let (fd, _) = page.file()?.expect("a memfd");
    keep(page)?;
    Ok(format!("/proc/{}/fd/{fd}", std::process::id()))
}

/// Maps the page that the root made.
pub fn join(path: &str) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    keep(Region::map(Kind::Shared(file), PAGE)?)
}

fn keep(page: Region) -> io::Result<()> {
    PAGE_OF_COUNTERS
        .set(page)
        .map_err(|_second| io::Error::other("counters are mapped already"))
}

/// Tells all processes to stop.
pub fn stop() {
    sys::add_word(word(0), 1);
}
