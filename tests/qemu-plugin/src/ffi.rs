// SPDX-License-Identifier: GPL-2.0-or-later

//! QEMU's side: what it calls, what it is called for, and all `unsafe` of this crate.
//!
//! QEMU ships no header in Debian; the functions are declared here as its documentation of the
//! plugin API has them. They are the same in API version 1 (QEMU 7) and in 2 to 4 (QEMU 9 and 10).

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use hugepilot_vpmu::{BYTES, Layout, Machine, WORDS};

use crate::arguments::Settings;
use crate::cpu::{self, Cpu, Mode, Seen};
use crate::plugin::Plugin;
use crate::topology::{Reports, Topology};
use crate::window::Cause;

/// What a callback may do with registers: nothing.
const NO_REGISTERS: c_int = 0;
/// Loads and stores.
const READS_AND_WRITES: c_int = 3;
/// QEMU's answer for a plugin that is at work.
const INSTALLED: c_int = 0;
const NOT_INSTALLED: c_int = 1;
/// From this version of the API on QEMU reports guest-physical addresses.
const VERSION_WITH_ADDRESSES: c_int = 2;

/// A block of instructions (opaque).
#[repr(C)]
struct Block {
    _opaque: [u8; 0],
}

/// An instruction (opaque).
#[repr(C)]
struct Instruction {
    _opaque: [u8; 0],
}

/// A physical address (opaque).
#[repr(C)]
struct HardwareAddress {
    _opaque: [u8; 0],
}

/// What QEMU says of itself.
#[repr(C)]
pub struct Information {
    target_name: *const c_char,
    version_min: c_int,
    version: c_int,
    system_emulation: bool,
    cpus: c_int,
    cpus_max: c_int,
}

type BlockTranslated = extern "C" fn(u64, *mut Block);
type BlockExecuted = extern "C" fn(c_uint, *mut c_void);
type MemoryAccessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
type Ending = extern "C" fn(u64, *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, call: BlockTranslated);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        call: BlockExecuted,
        registers: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        call: MemoryAccessed,
        registers: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(id: u64, call: Ending, data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_mem_is_store(access: u32) -> bool;
    fn qemu_plugin_get_hwaddr(access: u32, vaddr: u64) -> *mut HardwareAddress;
    fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const HardwareAddress) -> u64;
}

/// The version of the API that the plugin asks for. QEMU reads it before it calls anything.
#[unsafe(export_name = "qemu_plugin_version")]
static VERSION: AtomicI32 = AtomicI32::new(1);

/// QEMU 9 and later do not take version 1, QEMU 7 and 8 take no other. What the plugin uses is the
/// same in both, so it asks for what there is, before QEMU looks.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_ALL: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // SAFETY: the name is a C string, and the default handle looks in what is loaded already.
    let removed = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_n_vcpus".as_ptr()) };
    if removed.is_null() {
        VERSION.store(VERSION_WITH_ADDRESSES, Ordering::Relaxed);
    }
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

thread_local! {
    /// The CPU that this thread of QEMU executes.
    static CPU: RefCell<Option<(c_uint, Cpu)>> = const { RefCell::new(None) };
}

/// QEMU's call to begin.
///
/// # Safety
///
/// QEMU hands over its information and `count` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    information: *const Information,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU keeps its information as long as this call lasts.
    let information = unsafe { &*information };
    // SAFETY: QEMU says how many words there are.
    let words = unsafe { strings(count, words) };
    match install(information, &words) {
        Ok(()) => {
            register(id);
            INSTALLED
        }
        Err(error) => {
            eprintln!("virtual PMU: {error}");
            NOT_INSTALLED
        }
    }
}

/// # Safety
///
/// There are `count` C strings.
unsafe fn strings(count: c_int, words: *const *const c_char) -> Vec<String> {
    let string = |index: usize| {
        // SAFETY: the index is below the count.
        let word = unsafe { *words.add(index) };
        // SAFETY: each is a C string.
        let word = unsafe { CStr::from_ptr(word) };
        word.to_string_lossy().into_owned()
    };
    (0..usize::try_from(count).unwrap_or(0))
        .map(string)
        .collect()
}

fn install(information: &Information, words: &[String]) -> Result<(), Box<dyn Error>> {
    let settings = Settings::parse(words)?;
    let cpus = settings.cpu_nodes.len();
    if !information.system_emulation {
        return Err("it needs a whole machine, not one program".into());
    }
    if usize::try_from(information.cpus)? != cpus {
        let told = information.cpus;
        return Err(format!("cpu_nodes names {cpus} CPUs of a guest with {told}").into());
    }
    let bytes = settings.memory_mib.iter().map(|mib| mib << 20).collect();
    let topology = Topology::new(settings.cpu_nodes.clone(), bytes, reports(information));
    let machine = Machine {
        nodes: u16::try_from(topology.nodes())?,
        cpus: u16::try_from(cpus)?,
    };
    let layout = Layout::prepare(map(&settings.shared)?, machine, settings.ring)?;
    let plugin = Plugin::new(settings, topology, layout)?;
    PLUGIN
        .set(plugin)
        .map_err(|_second| "it was given to QEMU twice".into())
}

fn reports(information: &Information) -> Reports {
    if information.version >= VERSION_WITH_ADDRESSES {
        Reports::Addresses
    } else {
        Reports::Places
    }
}

/// Maps the file that is shared with the guest, until QEMU ends.
fn map(path: &Path) -> Result<&'static [AtomicU64], Box<dyn Error>> {
    let file = File::options().read(true).write(true).open(path)?;
    if file.metadata()?.len() < u64::try_from(BYTES)? {
        return Err(format!("{} is smaller than {BYTES} bytes", path.display()).into());
    }
    // SAFETY: a new mapping, of a file that is large enough.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: it is never unmapped, it is aligned to pages, and everybody uses it by atomic words.
    Ok(unsafe { slice::from_raw_parts(start.cast::<AtomicU64>(), WORDS) })
}

fn register(id: u64) {
    // SAFETY: the function stays, as the plugin is never unloaded.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    // SAFETY: as above.
    unsafe { qemu_plugin_register_atexit_cb(id, ending, ptr::null_mut()) };
}

/// Whether the kernel has begun to run in the upper half: what ran before it, the firmware and what
/// unpacks the kernel, lies in the lower half and is no program.
static KERNEL_RUNS: AtomicBool = AtomicBool::new(false);

fn mode(instruction: u64) -> Mode {
    match Mode::of(instruction) {
        Mode::Kernel => {
            KERNEL_RUNS.store(true, Ordering::Relaxed);
            Mode::Kernel
        }
        Mode::User if KERNEL_RUNS.load(Ordering::Relaxed) => Mode::User,
        Mode::User => Mode::Kernel,
    }
}

extern "C" fn translated(_id: u64, block: *mut Block) {
    // SAFETY: QEMU's block is valid as long as this call lasts.
    let start = unsafe { qemu_plugin_tb_vaddr(block) };
    // SAFETY: as above.
    let instructions = unsafe { qemu_plugin_tb_n_insns(block) };
    let mode = mode(start);
    let data = ptr::without_provenance_mut(packed(instructions, mode));
    // SAFETY: the function stays, and the data is a number.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, executed, NO_REGISTERS, data) };
    match mode {
        Mode::Kernel => {}
        Mode::User => (0..instructions).for_each(|index| watch(block, index)),
    }
}

fn watch(block: *mut Block, index: usize) {
    // SAFETY: the block is valid and has more instructions than that.
    let instruction = unsafe { qemu_plugin_tb_get_insn(block, index) };
    // SAFETY: the instruction is the block's, and the function stays.
    unsafe {
        qemu_plugin_register_vcpu_mem_cb(
            instruction,
            accessed,
            NO_REGISTERS,
            READS_AND_WRITES,
            ptr::null_mut(),
        );
    }
}

/// A block's number of instructions and its mode as one number.
fn packed(instructions: usize, mode: Mode) -> usize {
    match mode {
        Mode::User => instructions << 1,
        Mode::Kernel => instructions << 1 | 1,
    }
}

fn unpacked(data: usize) -> (u64, Mode) {
    let mode = if data & 1 == 0 {
        Mode::User
    } else {
        Mode::Kernel
    };
    (u64::try_from(data >> 1).expect("64 bits"), mode)
}

extern "C" fn executed(cpu: c_uint, data: *mut c_void) {
    let (instructions, mode) = unpacked(data.addr());
    with_cpu(cpu, |plugin, cpu| cpu.block(plugin, instructions, mode));
}

extern "C" fn accessed(cpu: c_uint, access: u32, vaddr: u64, _data: *mut c_void) {
    with_cpu(cpu, |plugin, cpu| {
        // SAFETY: a question about a number that QEMU gave.
        let store = unsafe { qemu_plugin_mem_is_store(access) };
        cpu.access(plugin, Seen { vaddr, store }, || reported(access, vaddr));
    });
}

/// What QEMU says of the physical address; nothing for a device.
fn reported(access: u32, vaddr: u64) -> Option<u64> {
    // SAFETY: both are of the access that QEMU is telling of.
    let address = unsafe { qemu_plugin_get_hwaddr(access, vaddr) };
    // SAFETY: it is valid as long as the call lasts, and tested for null.
    let memory = !address.is_null() && unsafe { !qemu_plugin_hwaddr_is_io(address) };
    // SAFETY: as above.
    memory.then(|| unsafe { qemu_plugin_hwaddr_phys_addr(address) })
}

fn with_cpu(index: c_uint, call: impl FnOnce(&Plugin, &mut Cpu)) {
    let plugin = PLUGIN.get().expect("QEMU calls after the installation");
    CPU.with_borrow_mut(|cpu| {
        let (number, cpu) = cpu.get_or_insert_with(|| (index, new_cpu(plugin, index)));
        assert_eq!(*number, index, "QEMU must have one thread a CPU");
        call(plugin, cpu);
    });
}

fn new_cpu(plugin: &Plugin, index: c_uint) -> Cpu {
    let known = usize::try_from(index)
        .ok()
        .and_then(|index| Cpu::new(plugin, index));
    known.expect("the installation has checked the number of CPUs")
}

extern "C" fn ending(_id: u64, _data: *mut c_void) {
    let Some(plugin) = PLUGIN.get() else {
        return;
    };
    if let Err(error) = cpu::close(plugin, Cause::End) {
        eprintln!("virtual PMU: the last window is not written: {error}");
    }
}
