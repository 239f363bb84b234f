//! A process made for probing: a fork that obeys a few commands over a socket.
//!
//! It holds the memory that probes collapse and split, so that no process of anybody else is touched. It lives in a
//! session of its own, so that Ctrl-C does not reach it, and ends when the socket closes, however its maker ended; before,
//! it undoes what it was asked to undo. After the fork it makes system calls only: no allocation, no lock, no panic.

use super::{Errno, last_errno};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an answer may take: a probe child in an emulated guest is slow, a hung one must not hang us.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Bytes of a file's name and of a text to restore.
const FILE_BYTES: usize = 256;
const TEXT_BYTES: usize = 32;
/// Files that one child can restore.
const RESTORES_MAX: usize = 4;
const COMMAND_BYTES: usize = 8 * 4 + FILE_BYTES + TEXT_BYTES;

/// What the child can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Map `slots` aligned slots of `slot_bytes`: their address.
    Map {
        /// How many.
        slots: u64,
        /// Bytes of each.
        slot_bytes: u64,
    },
    /// Write to `pages` pages of `page_bytes` from `address` on, with THP off for the process meanwhile.
    Touch {
        /// The first.
        address: u64,
        /// How many.
        pages: u64,
        /// Bytes of each.
        page_bytes: u64,
    },
    /// Fork a process that shares all memory and sleeps: its id.
    ForkHold,
    /// End that process.
    Release,
    /// `PR_SET_THP_DISABLE` except advised, read back, and off again.
    ExceptAdvised,
    /// Forget what was to be restored.
    ForgetRestores,
}

impl Command {
    fn words(self) -> [u64; 4] {
        match self {
            Self::Map { slots, slot_bytes } => [1, slots, slot_bytes, 0],
            Self::Touch {
                address,
                pages,
                page_bytes,
            } => [2, address, pages, page_bytes],
            Self::ForkHold => [3, 0, 0, 0],
            Self::Release => [4, 0, 0, 0],
            Self::ExceptAdvised => [5, 0, 0, 0],
            Self::ForgetRestores => [6, 0, 0, 0],
        }
    }
}

const RESTORE_LATER: u64 = 7;

/// The maker's end of a probe child.
#[derive(Debug)]
pub struct ProbeChild {
    pid: libc::pid_t,
    socket: Option<UnixStream>,
}

impl ProbeChild {
    /// Forks one.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn spawn() -> Result<Self, Errno> {
        let pair = UnixStream::pair().and_then(|(ours, theirs)| {
            ours.set_read_timeout(Some(ANSWER_MAX))?;
            Ok((ours, theirs))
        });
        let (ours, theirs) = pair.map_err(|error| errno_of(&error))?;
        // SAFETY: the child runs `obey` alone, which makes nothing but system calls on its own stack and ends by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(last_errno()),
            0 => obey(theirs.as_raw_fd()),
            pid => Ok(Self {
                pid,
                socket: Some(ours),
            }),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        u32::try_from(self.pid).expect("fork returned it as a positive number")
    }

    /// Has it carry out a command: the command's value.
    ///
    /// # Errors
    /// The errno that the child met; `ETIMEDOUT` where it did not answer, `ESRCH` where it is gone.
    pub fn ask(&self, command: Command) -> Result<u64, Errno> {
        self.send(command.words(), &[], &[])
    }

    /// When its maker is gone, it will write `text` to `file`; several in the order given.
    ///
    /// # Errors
    /// `EINVAL` where the name or the text is too long or there are too many.
    pub fn restore_later(&self, file: &[u8], text: &[u8]) -> Result<(), Errno> {
        if file.len() >= FILE_BYTES || text.len() >= TEXT_BYTES {
            return Err(Errno::INVAL);
        }
        self.send([RESTORE_LATER, 0, 0, 0], file, text).map(drop)
    }

    fn send(&self, words: [u64; 4], file: &[u8], text: &[u8]) -> Result<u64, Errno> {
        let mut message = [0_u8; COMMAND_BYTES];
        for (at, word) in words.iter().enumerate() {
            message[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        message[32..32 + file.len()].copy_from_slice(file);
        message[32 + FILE_BYTES..32 + FILE_BYTES + text.len()].copy_from_slice(text);
        let Some(mut socket) = self.socket.as_ref() else {
            return Err(Errno::SRCH);
        };
        let mut answer = [0_u8; 8];
        socket
            .write_all(&message)
            .and_then(|()| socket.read_exact(&mut answer))
            .map_err(|error| errno_of(&error))?;
        match u64::try_from(i64::from_ne_bytes(answer)) {
            Ok(value) => Ok(value),
            Err(_negative) => Err(negated(i64::from_ne_bytes(answer))),
        }
    }
}

impl Drop for ProbeChild {
    /// Closes the socket, upon which the child ends by itself, and waits for that; kills it where it does not.
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            let closed = socket.shutdown(std::net::Shutdown::Write);
            debug_assert!(closed.is_ok() || self.pid > 0, "closing an own socket");
            // The child's end closes when it ends: read until then, or until the time is up.
            let ended = (&socket).read(&mut [0_u8; 8]);
            if ended.is_err() {
                // SAFETY: our own child, not waited for yet, so that the id is still its own.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
            }
        }
        let mut status = 0;
        // SAFETY: waits for our own child; the status is a local.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
    }
}

/// A timeout of the socket and its end, as errnos; everything else is one already.
fn errno_of(error: &std::io::Error) -> Errno {
    use std::io::ErrorKind::{BrokenPipe, TimedOut, UnexpectedEof, WouldBlock};
    let kind = error.kind();
    if [WouldBlock, TimedOut].contains(&kind) {
        Errno::TIMEDOUT
    } else if [UnexpectedEof, BrokenPipe].contains(&kind) {
        Errno::SRCH
    } else {
        Errno::from_io_error(error).unwrap_or(Errno::IO)
    }
}

fn negated(answer: i64) -> Errno {
    i32::try_from(-answer).map_or(Errno::IO, Errno::from_raw_os_error)
}

/// A file to write when the maker is gone.
#[derive(Clone, Copy)]
struct Restore {
    file: [u8; FILE_BYTES],
    text: [u8; TEXT_BYTES],
}

/// What the child remembers.
struct Remembered {
    fork: libc::pid_t,
    restores: [Option<Restore>; RESTORES_MAX],
}

/// The child's whole life.
fn obey(socket: RawFd) -> ! {
    settle(socket);
    let mut remembered = Remembered {
        fork: 0,
        restores: [None; RESTORES_MAX],
    };
    let mut message = [0_u8; COMMAND_BYTES];
    while read_whole(socket, &mut message) {
        let answer = carry_out(&message, &mut remembered).to_ne_bytes();
        // SAFETY: writes eight bytes of a local.
        if unsafe { libc::write(socket, answer.as_ptr().cast(), answer.len()) } < 0 {
            break;
        }
    }
    release(&mut remembered);
    remembered.restores.iter().flatten().for_each(write_back);
    // SAFETY: ends the process without running anything of the maker's.
    unsafe { libc::_exit(0) }
}

/// A session of its own, and no descriptor but the socket.
fn settle(socket: RawFd) {
    let socket = socket.unsigned_abs();
    // SAFETY: integers only; the descriptors closed are copies that nothing in this process uses any more.
    unsafe {
        libc::setsid();
        libc::syscall(libc::SYS_close_range, 3_u32, socket - 1, 0_u32);
        libc::syscall(libc::SYS_close_range, socket + 1, u32::MAX, 0_u32);
    }
}

fn read_whole(socket: RawFd, message: &mut [u8; COMMAND_BYTES]) -> bool {
    let mut filled = 0;
    while filled < COMMAND_BYTES {
        // SAFETY: reads into the rest of the message.
        let read = unsafe {
            libc::read(
                socket,
                message.as_mut_ptr().add(filled).cast(),
                COMMAND_BYTES - filled,
            )
        };
        match usize::try_from(read) {
            Ok(read) if read > 0 => filled += read,
            Ok(_) => return false,
            Err(_negative) if last_errno() == Errno::INTR => {}
            Err(_negative) => return false,
        }
    }
    true
}

/// The word at `index` of a message.
fn word(message: &[u8; COMMAND_BYTES], index: usize) -> usize {
    let mut bytes = [0_u8; 8];
    bytes.copy_from_slice(&message[index * 8..index * 8 + 8]);
    usize::from_ne_bytes(bytes)
}

fn carry_out(message: &[u8; COMMAND_BYTES], remembered: &mut Remembered) -> i64 {
    let (a, b, c) = (word(message, 1), word(message, 2), word(message, 3));
    match word(message, 0) {
        1 => map(a, b),
        2 => touch(a, b, c),
        3 => fork_hold(remembered),
        4 => release(remembered),
        5 => except_advised(),
        6 => {
            remembered.restores = [None; RESTORES_MAX];
            0
        }
        7 => remember(message, remembered),
        _ => refusal(libc::EINVAL),
    }
}

fn refusal(errno: libc::c_int) -> i64 {
    -i64::from(errno)
}

fn failed() -> i64 {
    refusal(last_errno().raw_os_error())
}

/// Reserves two slots more than wanted and opens the aligned ones inside, so that the region touches no other.
fn map(slots: usize, slot_bytes: usize) -> i64 {
    let Some(reserved) = slots
        .checked_add(2)
        .and_then(|all| all.checked_mul(slot_bytes))
    else {
        return refusal(libc::EINVAL);
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            reserved,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return failed();
    }
    let into = slot_bytes - base.addr() % slot_bytes;
    let start = base.wrapping_byte_add(into);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a range within the mapping just made: it starts at most one slot in and leaves at least one behind.
    if unsafe { libc::mprotect(start, slots * slot_bytes, access) } != 0 {
        return failed();
    }
    i64::try_from(start.addr()).unwrap_or(refusal(libc::EFAULT))
}

fn touch(address: usize, pages: usize, page_bytes: usize) -> i64 {
    if !thp_disable(1, 0) {
        return failed();
    }
    for page in 0..pages {
        let at = std::ptr::without_provenance_mut::<u8>(address + page * page_bytes);
        // SAFETY: the maker asks for addresses that `map` returned; a wrong one ends this process alone.
        unsafe { at.write_volatile(0xA5) };
    }
    if thp_disable(0, 0) { 0 } else { failed() }
}

fn thp_disable(on: libc::c_ulong, flags: libc::c_ulong) -> bool {
    let zero: libc::c_ulong = 0;
    // SAFETY: integers only.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, zero, zero) == 0 }
}

fn except_advised() -> i64 {
    const EXCEPT_ADVISED: libc::c_ulong = 2;
    if !thp_disable(1, EXCEPT_ADVISED) {
        return failed();
    }
    let zero: libc::c_ulong = 0;
    // SAFETY: integers only.
    let mode = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, zero, zero, zero, zero) };
    let off = thp_disable(0, 0);
    match (mode, off) {
        (3, true) => 0,
        (_, true) => refusal(libc::EOPNOTSUPP),
        (_, false) => failed(),
    }
}

fn fork_hold(remembered: &mut Remembered) -> i64 {
    if remembered.fork != 0 {
        return refusal(libc::EBUSY);
    }
    // SAFETY: the new process only sleeps, and is killed with us.
    match unsafe { libc::fork() } {
        -1 => failed(),
        0 => loop {
            // SAFETY: integers only.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
        },
        pid => {
            remembered.fork = pid;
            i64::from(pid)
        }
    }
}

fn release(remembered: &mut Remembered) -> i64 {
    if remembered.fork == 0 {
        return 0;
    }
    let mut status = 0;
    // SAFETY: our own child, not waited for yet; the status is a local.
    unsafe {
        libc::kill(remembered.fork, libc::SIGKILL);
        libc::waitpid(remembered.fork, &raw mut status, 0);
    }
    remembered.fork = 0;
    0
}

fn remember(message: &[u8; COMMAND_BYTES], remembered: &mut Remembered) -> i64 {
    let Some(free) = remembered.restores.iter_mut().find(|place| place.is_none()) else {
        return refusal(libc::EINVAL);
    };
    let mut restore = Restore {
        file: [0; FILE_BYTES],
        text: [0; TEXT_BYTES],
    };
    restore.file.copy_from_slice(&message[32..32 + FILE_BYTES]);
    restore.text.copy_from_slice(&message[32 + FILE_BYTES..]);
    *free = Some(restore);
    0
}

/// Writes one text back. That it fails means that the file is gone, and with it what was to be undone.
fn write_back(restore: &Restore) {
    let length = restore
        .text
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(TEXT_BYTES);
    // SAFETY: the name ends with a zero byte (it is shorter than its place), the text is `length` bytes long.
    unsafe {
        let file = libc::open(
            restore.file.as_ptr().cast(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if file >= 0 {
            libc::write(file, restore.text.as_ptr().cast(), length);
            libc::close(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_obeys_and_ends() {
        let child = ProbeChild::spawn().expect("fork");
        let address = child
            .ask(Command::Map {
                slots: 1,
                slot_bytes: 2 << 20,
            })
            .expect("mmap");
        assert_eq!(address % (2 << 20), 0);
        let touched = child.ask(Command::Touch {
            address,
            pages: 3,
            page_bytes: 4096,
        });
        assert_eq!(touched, Ok(0));
        assert!(child.ask(Command::ForkHold).expect("fork") > 0);
        assert_eq!(child.ask(Command::ForkHold), Err(Errno::BUSY));
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_restores_when_its_maker_is_gone() {
        let file = std::env::temp_dir().join(format!("hugepilot-restore-{}", std::process::id()));
        std::fs::write(&file, "changed").expect("temporary file");
        let child = ProbeChild::spawn().expect("fork");
        let name = file.to_str().expect("plain name").as_bytes();
        child.restore_later(name, b"before!").expect("room for one");
        drop(child);
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "before!");
        std::fs::remove_file(&file).expect("ours");
    }
}
