//! `bpf(2)`: hash maps, and tracing programs that use them.
//!
//! Programs are given as instructions; the kernel's verifier proves them harmless before it takes them. A map, a program
//! or a link is gone when its descriptor is closed.

use super::Errno;
use super::bpf::{Instruction, Site, create_map, load_tracing, look_up, number};
use std::os::fd::OwnedFd;

/// `BPF_MAP_TYPE_HASH`: refuses what does not fit.
const HASH: u32 = 1;
/// `BPF_MAP_TYPE_LRU_HASH`: forgets what was used longest ago.
const LRU_HASH: u32 = 9;

/// What a full map does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Takes no more.
    Refuses,
    /// Forgets what was used longest ago.
    Forgets,
}

/// A map of words by words.
#[derive(Debug)]
pub struct Map(OwnedFd);

impl Map {
    /// A map with room for so many.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn create(entries: u32, when_full: WhenFull) -> Result<Self, Errno> {
        let kind = match when_full {
            WhenFull::Refuses => HASH,
            WhenFull::Forgets => LRU_HASH,
        };
        create_map(kind, 8, entries).map(Self)
    }

    /// Its number, as instructions name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        number(&self.0)
    }

    /// What stands there, if anything does.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn get(&self, key: u64) -> Result<Option<u64>, Errno> {
        match look_up(&self.0, &key) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Loads a program for a kernel function and attaches it; until both descriptors are closed.
///
/// # Errors
/// The kernel's errno: `EPERM` without `CAP_BPF` and `CAP_PERFMON`, or under lockdown.
pub fn trace(program: &[Instruction], site: Site, btf_id: u32) -> Result<[OwnedFd; 2], Errno> {
    let encoded: Vec<[u8; 8]> = program.iter().map(|one| one.encoded()).collect();
    let program = load_tracing(&encoded, site, btf_id)?;
    let link = super::bpf::attach(&program)?;
    Ok([program, link])
}
