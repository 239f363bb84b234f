//! Explicit huge pages for C programs: the interface of libhugetlbfs, under the same names, versions and semantics.
//!
//! *Problem*: a program that wants huge pages for certain should get them reserved when it maps them, so that no later
//! fault can fail, without knowing page sizes, mounts and kernel versions. libhugetlbfs gave that; programs are linked
//! against `libhugetlbfs.so.0`. This library takes its place: same soname, same symbol versions.
//!
//! *What*: memory by [`regions`], page sizes by [`sizes`], hugetlbfs mounts and unlinked files by [`mounts`], `shmget` by
//! [`shm`], settings from the environment by [`options`]. [`abi`] exports them, [`sys`] calls the C library.
//!
//! *Why no `std`*: the library lives in other people's processes, before `main` and between their `fork` and `exec`.
//! There it must not panic, take a lock that a forked child inherits taken, print through buffers that are not its own,
//! or touch `errno` when all went well. So:
//!
//! - no index, slice, `unwrap` or checked arithmetic that could panic: the built library refers to no panicking code at
//!   all, which `tests/symbols.rs` checks on the library itself;
//! - no lock: what is shared is atomic, published once, and never freed ([`table`], [`mounts`]);
//! - text is put together in arrays on the stack, and written by one call ([`say`]);
//! - [`abi`] saves `errno` and gives it back, but on failure.
//!
//! *How it is built*: cargo makes an archive (profile `hugetlb`, panic = abort, which alone has the panic handler), and
//! `link.sh` makes the installable libraries of it, with the soname and the symbol versions, exporting exactly the
//! interface. Ordinary builds of the workspace have it as a Rust library, for its unit tests.
//!
//! *Bounds*: 16 page sizes; paths of 4096 bytes; lines of `/proc/mounts` of any length; regions without bound, 24 bytes
//! each, the first 1024 of them in the library itself.

#![cfg_attr(not(test), no_std)]

mod abi;
mod mounts;
mod options;
mod regions;
mod say;
mod shm;
mod sizes;
mod sys;
mod table;
mod text;
