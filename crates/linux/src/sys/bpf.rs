//! `bpf(2)`: maps, small tracing programs, and one of them that counts calls of a kernel function.
//!
//! The counting one has six instruction slots, written by hand: take the address of the map's only value, add one to it,
//! return. A program, its map and its link are gone when their descriptors are closed.

use super::{Errno, checked};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_FENTRY: u32 = 24;
const TRACE_FEXIT: u32 = 25;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapLookup {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The part of `union bpf_attr` for `BPF_PROG_LOAD` up to the target's BTF id.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

const _: () = assert!(size_of::<ProgLoad>() == 112);

/// One instruction: operation, destination register, source register, offset, immediate.
#[derive(Debug, Clone, Copy)]
pub struct Instruction(pub u8, pub u8, pub u8, pub i16, pub u32);

impl Instruction {
    /// As the kernel takes it.
    #[must_use]
    pub fn encoded(self) -> [u8; 8] {
        let Self(op, to, from, offset, immediate) = self;
        let (offset, immediate) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
        let registers = to | (from << 4);
        [
            op,
            registers,
            offset[0],
            offset[1],
            immediate[0],
            immediate[1],
            immediate[2],
            immediate[3],
        ]
    }
}

/// `value += 1; return 0`, where `value` is the first of the array map behind `map_fd`.
fn counting(map_fd: u32) -> [[u8; 8]; 6] {
    const MAP_VALUE: u8 = 2;
    [
        Instruction(0x18, 1, MAP_VALUE, 0, map_fd), // r1 = &value, first half
        Instruction(0x00, 0, 0, 0, 0),              // second half: offset 0
        Instruction(0xb7, 2, 0, 0, 1),              // r2 = 1
        Instruction(0xdb, 1, 2, 0, 0),              // lock *(u64 *)r1 += r2
        Instruction(0xb7, 0, 0, 0, 0),              // r0 = 0
        Instruction(0x95, 0, 0, 0, 0),              // return
    ]
    .map(Instruction::encoded)
}

/// `bpf(2)` with the attribute that belongs to `command`.
///
/// # Safety
/// `attribute` must be the structure that the command takes, and addresses in it must point to memory that lives until
/// the call returns and is as large as the command reads or writes.
unsafe fn bpf<T>(command: libc::c_int, attribute: &mut T) -> Result<usize, Errno> {
    // SAFETY: the caller vouches for the structure; its size goes with it.
    checked(unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size_of::<T>()) })
}

fn owned(fd: usize) -> Result<OwnedFd, Errno> {
    let Ok(fd) = i32::try_from(fd) else {
        return Err(Errno::BADF);
    };
    // SAFETY: bpf(2) just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn number(fd: &OwnedFd) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("a descriptor is not negative")
}

/// The address of something of ours, as the kernel takes it.
fn address<T: ?Sized>(of: *const T) -> u64 {
    u64::try_from(of.addr()).expect("addresses have at most 64 bits")
}

/// A map with one counter.
///
/// # Errors
/// The kernel's errno.
pub fn counter() -> Result<OwnedFd, Errno> {
    create_map(MAP_TYPE_ARRAY, 4, 1)
}

/// A map of words by keys of `key_size` bytes.
pub(super) fn create_map(map_type: u32, key_size: u32, max_entries: u32) -> Result<OwnedFd, Errno> {
    let mut attribute = MapCreate {
        map_type,
        key_size,
        value_size: 8,
        max_entries,
    };
    // SAFETY: the attribute is the one of this command and holds no address.
    owned(unsafe { bpf(MAP_CREATE, &mut attribute) }?)
}

/// The program that counts calls of the kernel function `btf_id` in `counter`.
///
/// # Errors
/// The kernel's errno: `EPERM` without `CAP_BPF` and `CAP_PERFMON`, or under lockdown.
pub fn load_fentry(btf_id: u32, counter: &OwnedFd) -> Result<OwnedFd, Errno> {
    load_tracing(&counting(number(counter)), Site::Entry, btf_id)
}

/// Where in a function a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// When it is entered.
    Entry,
    /// When it returns.
    Exit,
}

/// A program for the kernel function `btf_id`.
pub(super) fn load_tracing(program: &[[u8; 8]], site: Site, btf_id: u32) -> Result<OwnedFd, Errno> {
    let license = c"Dual MIT/GPL";
    let Ok(insn_cnt) = u32::try_from(program.len()) else {
        return Err(Errno::TOOBIG);
    };
    let mut attribute = ProgLoad {
        prog_type: PROG_TYPE_TRACING,
        insn_cnt,
        insns: address(program.as_ptr()),
        license: address(license.as_ptr()),
        expected_attach_type: match site {
            Site::Entry => TRACE_FENTRY,
            Site::Exit => TRACE_FEXIT,
        },
        attach_btf_id: btf_id,
        ..ProgLoad::default()
    };
    // SAFETY: `program` holds `insn_cnt` instructions and `license` ends with a zero byte; both outlive the call.
    owned(unsafe { bpf(PROG_LOAD, &mut attribute) }?)
}

/// Attaches the program to its function, until the link is closed.
///
/// # Errors
/// The kernel's errno.
pub fn attach(program: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut attribute = RawTracepointOpen {
        name: 0,
        prog_fd: number(program),
        padding: 0,
    };
    // SAFETY: the attribute is the one of this command; a null name is what a tracing program takes.
    owned(unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut attribute) }?)
}

/// What the counter says.
///
/// # Errors
/// The kernel's errno.
pub fn count(counter: &OwnedFd) -> Result<u64, Errno> {
    look_up(counter, &0_u32)
}

/// The word that stands in a map under `key`, which must be of the type that the map was made for.
pub(super) fn look_up<K: Copy>(map: &OwnedFd, key: &K) -> Result<u64, Errno> {
    let mut value = 0_u64;
    let mut attribute = MapLookup {
        map_fd: number(map),
        padding: 0,
        key: address(std::ptr::from_ref(key)),
        value: address(&raw mut value),
        flags: 0,
    };
    // SAFETY: the key has as many bytes and the value the eight bytes that the map was made with.
    unsafe { bpf(MAP_LOOKUP_ELEM, &mut attribute) }?;
    Ok(value)
}
