//! Mapped memory that holds no Rust object: it is reached only through volatile accesses.
//!
//! Every region lies at an address of the worker's own choice, aligned to 2 MiB and 2 MiB away from the next, so that the
//! kernel merges none with a neighbour and a test knows which slots are whose.

use crate::pattern;
use crate::sys::{self, Source};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A base page of the machines that the tests run on.
pub const PAGE: usize = 4096;
/// A slot of the machines that the tests run on.
pub const SLOT: usize = 2 << 20;
/// Where regions start: far from heap, stack and what the kernel places by itself.
const ARENA: usize = 0x1000_0000_0000;

static NEXT: AtomicUsize = AtomicUsize::new(ARENA);

/// Takes an aligned range of addresses that nothing else will use.
pub fn reserve(bytes: usize) -> usize {
    let taken = bytes.next_multiple_of(SLOT) + SLOT;
    NEXT.fetch_add(taken, Ordering::Relaxed)
}

/// What a region's memory is.
#[derive(Debug)]
pub enum Kind {
    Anonymous,
    Hugetlb,
    /// Pages of a file: a memfd of our own, or any other.
    Shared(File),
}

/// A mapping; dropping it unmaps it.
#[derive(Debug)]
pub struct Region {
    address: usize,
    bytes: usize,
    kind: Kind,
    /// The seed that its contents come from, once filled.
    seed: Option<u64>,
}

/// A file's identity: what its mappings show.
#[derive(Debug, Clone, Copy)]
pub struct Inode {
    pub device: u64,
    pub inode: u64,
}

impl Region {
    /// Maps `bytes` of `kind`.
    pub fn map(kind: Kind, bytes: usize) -> io::Result<Self> {
        let address = reserve(bytes);
        let source = match &kind {
            Kind::Anonymous => Source::Anonymous,
            Kind::Hugetlb => Source::Hugetlb,
            Kind::Shared(file) => Source::Shared(file.as_raw_fd()),
        };
        sys::map_at(address, bytes, source)?;
        Ok(Self {
            address,
            bytes,
            kind,
            seed: None,
        })
    }

    /// Maps `bytes` of a new memfd.
    pub fn map_memfd(name: &str, bytes: usize) -> io::Result<Self> {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        ftruncate(&file, u64::try_from(bytes).expect("usize is 64 bits"))?;
        Self::map(Kind::Shared(file), bytes)
    }

    pub const fn address(&self) -> usize {
        self.address
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind it and its identity, if there is one.
    pub fn file(&self) -> io::Result<Option<(i32, Inode)>> {
        match &self.kind {
            Kind::Anonymous | Kind::Hugetlb => Ok(None),
            Kind::Shared(file) => {
                let stat = fstat(file)?;
                Ok(Some((
                    file.as_raw_fd(),
                    Inode {
                        device: stat.st_dev,
                        inode: stat.st_ino,
                    },
                )))
            }
        }
    }

    /// The address of `offset`, if `length` bytes from there belong to the region.
    pub fn at(&self, offset: usize, length: usize) -> io::Result<usize> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(self.address + offset),
            Some(_) | None => Err(io::Error::other(format!(
                "{length} bytes from {offset} are not within {} bytes",
                self.bytes
            ))),
        }
    }

    /// Writes every word from `seed`.
    pub fn fill(&mut self, seed: u64) {
        self.seed = Some(seed);
        for offset in (0..self.bytes).step_by(PAGE) {
            fill_page(self.address + offset, seed, page_of(offset));
        }
    }

    /// Counts bytes that are not as [`Region::fill`] wrote them; `None` where nothing was filled.
    pub fn check(&self) -> Option<u64> {
        let seed = self.seed?;
        let pages = (0..self.bytes).step_by(PAGE);
        Some(
            pages
                .map(|offset| check_page(self.address + offset, seed, page_of(offset)))
                .sum(),
        )
    }

    /// The seed of its contents, once filled.
    pub const fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Moves it to a new address.
    pub fn relocate(&mut self) -> io::Result<()> {
        let to = reserve(self.bytes);
        sys::remap(self.address, self.bytes, to)?;
        self.address = to;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        sys::unmap(self.address, self.bytes).expect("unmapping a mapping of our own");
    }
}

/// The number of the base page at `offset`.
pub fn page_of(offset: usize) -> u64 {
    u64::try_from(offset / PAGE).expect("usize is 64 bits")
}

const WORDS_A_PAGE: u64 = 512;
const WORD: usize = size_of::<u64>();

fn words(address: usize, page: u64) -> impl Iterator<Item = (usize, u64)> {
    (address..address + PAGE)
        .step_by(WORD)
        .zip(page * WORDS_A_PAGE..)
}

/// Writes the page at `address` as page number `page` of what `seed` stands for.
pub fn fill_page(address: usize, seed: u64, page: u64) {
    for (at, place) in words(address, page) {
        sys::poke_word(at, pattern::word(seed, place));
    }
}

/// Wrong bytes of the page at `address`, which should be as [`fill_page`] wrote it.
pub fn check_page(address: usize, seed: u64, page: u64) -> u64 {
    words(address, page)
        .map(|(at, place)| pattern::wrong_bytes(pattern::word(seed, place), sys::peek_word(at)))
        .sum()
}

/// Bytes of the page at `address` that are not zero.
pub fn check_zero_page(address: usize) -> u64 {
    words(address, 0)
        .map(|(at, _)| pattern::wrong_bytes(0, sys::peek_word(at)))
        .sum()
}
