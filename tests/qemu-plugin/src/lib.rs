// SPDX-License-Identifier: GPL-2.0-or-later

//! The virtual PMU: a TCG plugin of QEMU that counts and samples a guest's memory accesses.
//!
//! # Problem
//!
//! Whether a NUMA policy helped is a question about memory accesses: who made them, from which node,
//! to which. A virtual machine has no PMU that could tell, and what a program's own sensors say
//! cannot judge that program.
//!
//! # Approach
//!
//! QEMU calls a plugin for every block of instructions that it executes and for every memory access,
//! with CPU, virtual and physical address. Threads are known because they are pinned and publish
//! themselves ([`hugepilot_vpmu`]). From that:
//!
//! - [`cpu`] counts what one CPU does, with the thread's counters ([`watched`], [`pages`]), through
//!   the models of caches ([`cache`]) and TLBs ([`tlb`]);
//! - [`sampler`] picks accesses as IBS would; they go to the guest and to a file ([`samples`]);
//! - [`window`] closes a window: differences of the counters, [`metrics`] of them, one line of the
//!   [`report`];
//! - [`topology`] knows nodes, [`arguments`] the plugin's arguments, [`plugin`] is what all CPUs
//!   share, `ffi` is QEMU's side and holds all `unsafe`.
//!
//! # The models, stated
//!
//! - *Accesses* are those of instructions in the lower half of the address space to the range that
//!   the thread published. What the kernel does for the thread is not among them.
//! - *Caches*: physical lines of 64 bytes; a CPU's own L1 and L2, least recently used; an L3 that the
//!   CPUs of a node share, replaced at random. Loads and stores are alike. There is no coherence
//!   (what another CPU's cache would serve is no access to memory either), no prefetch, no
//!   instruction fetch, and the kernel's accesses leave no trace.
//! - *TLBs*: one level, base and huge pages apart. The plugin does not see page tables: an access
//!   whose virtual and physical address agree in their offset in 2 MiB is taken for one to a huge
//!   page; a base page does that by chance once in 512. A miss reads one entry of a page table
//!   through the L2. Switches of address spaces flush nothing.
//! - *Instructions* are counted per block when it begins: one that faults in the middle counts again
//!   when it goes on.
//!
//! # Bounds
//!
//! What is hot touches only the CPU's own counters: no lock, and no cache line that another CPU
//! writes but for the shared L3. A CPU in the middle of an access while a window closes may lose that
//! one. Pages beyond a thread's table are counted as lost and reported.

mod arguments;
mod cache;
mod cpu;
#[cfg(not(test))]
mod ffi;
mod metrics;
mod pages;
mod plugin;
mod report;
mod sampler;
mod samples;
mod tlb;
mod topology;
mod watched;
mod window;
