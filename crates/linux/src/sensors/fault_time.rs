//! Time that processes spend in page faults, by processor: two small BPF programs at the entry and the exit of
//! `handle_mm_fault`.
//!
//! **Problem.** No counter of the kernel tells how long faults take. The function that serves every fault can be traced.
//!
//! **What.** At entry the time is noted for the thread; at exit the difference is added to a sum for the process and
//! processor. A fault that sleeps (for a page that is read) counts with its sleep; waiting for the `mmap` lock before
//! the function does not count. A fault that ends on another processor than it began counts where it ended.
//!
//! **Price.** Some hundred nanoseconds a fault, of every process of the system: so it is traced only where somebody decides
//! by it.
//!
//! **Bounds.** Sums of [`SUMS`] pairs of process and processor, those used longest ago forgotten; at most [`LOOKUPS_MAX`]
//! of them are read at a time, which is some 500 µs. Processes beyond that are unknown.

use crate::procfs::SysRoot;
use crate::support::btf;
use crate::sys::Errno;
use crate::sys::bpf::{Instruction, Site};
use crate::sys::bpf_map::{Map, WhenFull, trace};
use hugepilot_core::ids::{CpuId, Pid};
use hugepilot_core::units::{Instant, Ratio, Span};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// The kernel function that serves every fault.
const TRACED: &str = "handle_mm_fault";
/// Threads that may be in a fault at a time.
const STARTS: u32 = 32_768;
/// Pairs of process and processor.
const SUMS: u32 = 16_384;
/// Sums read at a time, at the most.
pub const LOOKUPS_MAX: usize = 1024;
/// Sums are read so often.
const PERIOD: Span = Span::secs(1);

/// Why time in faults cannot be measured, each with what would change it.
#[derive(Debug, thiserror::Error)]
pub enum FaultTimeUnavailable {
    /// The kernel does not say where its functions are.
    #[error(
        "time in page faults is not known: {path} cannot be read ({source}); it takes a kernel with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel has no such function.
    #[error(
        "time in page faults is not known: the kernel's BTF has no {TRACED}; please report the kernel"
    )]
    NoFunction,
    /// The kernel does not take the programs.
    #[error(
        "time in page faults is not known: bpf refuses ({source}); it needs CAP_BPF and CAP_PERFMON, and a kernel that is not locked down"
    )]
    Refused {
        /// Why.
        source: Errno,
    },
}

/// Measures it.
#[derive(Debug)]
pub struct FaultTime {
    sums: Map,
    _starts: Map,
    _programs: [[OwnedFd; 2]; 2],
    cpus: Vec<CpuId>,
    before: BTreeMap<(Pid, CpuId), u64>,
    read_at: Option<Instant>,
    shares: BTreeMap<Pid, Ratio>,
}

impl FaultTime {
    /// Begins to measure, on these processors.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn start(sys: &SysRoot, cpus: Vec<CpuId>) -> Result<Self, FaultTimeUnavailable> {
        let path = sys.path("kernel/btf/vmlinux");
        let blob = std::fs::read(&path).map_err(|source| FaultTimeUnavailable::NoBtf {
            path: path.display().to_string(),
            source,
        })?;
        let function = btf::function_id(&blob, TRACED).ok_or(FaultTimeUnavailable::NoFunction)?;
        Self::attach(function, cpus).map_err(|source| FaultTimeUnavailable::Refused { source })
    }

    fn attach(function: u32, cpus: Vec<CpuId>) -> Result<Self, Errno> {
        let starts = Map::create(STARTS, WhenFull::Refuses)?;
        let sums = Map::create(SUMS, WhenFull::Forgets)?;
        // The exit first: an exit without an entry is passed over, an entry without an exit would stay.
        let exit = trace(
            &at_exit(starts.number(), sums.number()),
            Site::Exit,
            function,
        )?;
        let entry = trace(&at_entry(starts.number()), Site::Entry, function)?;
        Ok(Self {
            sums,
            _starts: starts,
            _programs: [entry, exit],
            cpus,
            before: BTreeMap::new(),
            read_at: None,
            shares: BTreeMap::new(),
        })
    }

    /// The worst share of a processor's time that each of `processes` spent in faults, over the last period; the same
    /// again until the next one. The first reading tells nothing.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn read(
        &mut self,
        processes: &[Pid],
        now: Instant,
    ) -> Result<&BTreeMap<Pid, Ratio>, Errno> {
        let over = self.read_at.map(|at| now.since(at));
        if over.is_some_and(|over| over < PERIOD) {
            return Ok(&self.shares);
        }
        self.read_at = Some(now);
        let most = LOOKUPS_MAX / self.cpus.len().max(1);
        let mut sums = BTreeMap::new();
        let mut shares = BTreeMap::new();
        for &pid in processes.iter().take(most) {
            let mut worst = Span::ZERO;
            for &cpu in &self.cpus {
                let sum = self.sums.get(key(pid, cpu))?.unwrap_or(0);
                // A process that was not read before began to be watched since: nothing is told of it yet.
                let before = self.before.get(&(pid, cpu)).copied().unwrap_or(sum);
                worst = worst.max(Span(sum.saturating_sub(before)));
                sums.insert((pid, cpu), sum);
            }
            let known = self
                .cpus
                .first()
                .is_some_and(|cpu| self.before.contains_key(&(pid, *cpu)));
            if let (true, Some(over)) = (known, over) {
                shares.insert(pid, Ratio::of(worst.0.min(over.0), over.0));
            }
        }
        (self.before, self.shares) = (sums, shares);
        Ok(&self.shares)
    }
}

/// The key of a sum: process in the lower half, processor in the upper.
fn key(pid: Pid, cpu: CpuId) -> u64 {
    u64::from(pid.0) | (u64::from(cpu.0) << 32)
}

// Registers, and the numbers of helpers that the programs call.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const KEPT: u8 = 6;
const FRAME: u8 = 10;
const LOOK_UP: u32 = 1;
const UPDATE: u32 = 2;
const DELETE: u32 = 3;
const TIME: u32 = 5;
const PROCESSOR: u32 = 8;
const PROCESS_AND_THREAD: u32 = 14;
/// Where on the stack the thread, the key of the sum, and a value lie.
const THREAD_AT: i16 = -8;
const KEY_AT: i16 = -16;
const VALUE_AT: i16 = -24;

fn call(helper: u32) -> Instruction {
    Instruction(0x85, 0, 0, 0, helper)
}

/// `to = map`: two slots.
fn map(to: u8, number: u32) -> [Instruction; 2] {
    const MAP_FD: u8 = 1;
    [
        Instruction(0x18, to, MAP_FD, 0, number),
        Instruction(0, 0, 0, 0, 0),
    ]
}

/// `to = address of stack[at]`.
fn stack(to: u8, at: i16) -> [Instruction; 2] {
    let back = u32::from_ne_bytes(i32::from(at).to_ne_bytes());
    [
        Instruction(0xbf, to, FRAME, 0, 0),
        Instruction(0x07, to, 0, 0, back),
    ]
}

fn store(at: i16, from: u8) -> Instruction {
    Instruction(0x7b, FRAME, from, at, 0)
}

fn set(to: u8, value: u32) -> Instruction {
    Instruction(0xb7, to, 0, 0, value)
}

const RETURN: Instruction = Instruction(0x95, 0, 0, 0, 0);

/// `starts[thread] = now`.
fn at_entry(starts: u32) -> Vec<Instruction> {
    let mut program = vec![
        call(PROCESS_AND_THREAD),
        store(THREAD_AT, R0),
        call(TIME),
        store(VALUE_AT, R0),
    ];
    program.extend(map(R1, starts));
    program.extend(stack(R2, THREAD_AT));
    program.extend(stack(R3, VALUE_AT));
    program.extend([set(R4, 0), call(UPDATE), set(R0, 0), RETURN]);
    program
}

/// `sums[process, processor] += now - starts[thread]`, if it began.
fn at_exit(starts: u32, sums: u32) -> Vec<Instruction> {
    let mut program = vec![call(PROCESS_AND_THREAD), store(THREAD_AT, R0)];
    program.extend(map(R1, starts));
    program.extend(stack(R2, THREAD_AT));
    program.push(call(LOOK_UP));
    let took = took(starts);
    let add = add(sums);
    let skip = i16::try_from(took.len() + add.len()).expect("some thirty");
    // Not begun: past all the rest, to `r0 = 0`.
    program.push(Instruction(0x15, R0, 0, skip, 0));
    program.extend(took);
    program.extend(add);
    program.extend([set(R0, 0), RETURN]);
    program
}

/// `kept = now - *r0`, and the start is forgotten.
fn took(starts: u32) -> Vec<Instruction> {
    let mut program = vec![Instruction(0x79, KEPT, R0, 0, 0)];
    program.extend(map(R1, starts));
    program.extend(stack(R2, THREAD_AT));
    program.extend([
        call(DELETE),
        call(TIME),
        Instruction(0x1f, R0, KEPT, 0, 0), // r0 -= kept
        Instruction(0xbf, KEPT, R0, 0, 0), // kept = r0
    ]);
    program
}

/// `sums[key] += kept`, or a new sum.
fn add(sums: u32) -> Vec<Instruction> {
    let mut program = vec![
        call(PROCESSOR),
        Instruction(0x67, R0, 0, 0, 32),            // r0 <<= 32
        Instruction(0x79, R1, FRAME, THREAD_AT, 0), // r1 = process and thread
        Instruction(0x77, R1, 0, 0, 32),            // r1 >>= 32: the process
        Instruction(0x4f, R0, R1, 0, 0),            // r0 |= r1
        store(KEY_AT, R0),
    ];
    program.extend(map(R1, sums));
    program.extend(stack(R2, KEY_AT));
    program.push(call(LOOK_UP));
    let mut new = vec![store(VALUE_AT, KEPT)];
    new.extend(map(R1, sums));
    new.extend(stack(R2, KEY_AT));
    new.extend(stack(R3, VALUE_AT));
    new.extend([set(R4, 0), call(UPDATE)]);
    let past = i16::try_from(new.len()).expect("ten");
    program.extend([
        Instruction(0x15, R0, 0, 2, 0),    // none yet: past the next two
        Instruction(0xdb, R0, KEPT, 0, 0), // lock *r0 += kept
        Instruction(0x05, 0, 0, past, 0),  // past the new one
    ]);
    program.extend(new);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every jump lands on an instruction, none in the middle of a two-slot one.
    fn check(program: &[Instruction]) {
        for (at, instruction) in program.iter().enumerate() {
            let Instruction(operation, _, _, offset, _) = *instruction;
            if matches!(operation, 0x05 | 0x15) {
                let target = at + 1 + usize::try_from(offset).expect("forward");
                assert!(target < program.len(), "{at} jumps past the end");
                assert_ne!(program[target].0, 0, "{at} jumps into the middle");
            }
        }
        assert_eq!(program.last().map(|last| last.0), Some(0x95));
    }

    #[test]
    fn jumps_land_where_they_should() {
        check(&at_entry(3));
        let exit = at_exit(3, 4);
        check(&exit);
        // The first jump goes to the end: nothing is added for a fault whose beginning was not seen.
        let jump = exit.iter().position(|one| one.0 == 0x15).expect("a jump");
        let target = jump + 1 + usize::try_from(exit[jump].3).expect("forward");
        assert_eq!(target, exit.len() - 2);
    }

    #[test]
    fn a_key_is_as_the_program_makes_it() {
        assert_eq!(key(Pid(7), CpuId(3)), 0x3_0000_0007);
    }
}
