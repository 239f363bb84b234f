//! `/proc/PID/stat`: who a process is, its counters, its layout.

use super::{ParseError, decimal, words};
use hugepilot_core::ids::Pid;

/// Where exec put things. A child of fork that did not exec has its parent's; two programs started apart do not, unless
/// address randomization is off. All zero where the kernel will not tell us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Layout {
    /// First address of the program's text.
    pub start_code: u64,
    /// Bottom of the stack.
    pub start_stack: u64,
    /// First address of the arguments.
    pub arg_start: u64,
    /// First address of the environment.
    pub env_start: u64,
}

/// What we use of a process's `stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The id in the file.
    pub pid: Pid,
    /// The short name. The kernel prints it raw: it may hold blanks, parentheses, newlines.
    pub comm: String,
    /// `R`, `S`, `Z`, …
    pub state: u8,
    /// The parent's id.
    pub parent: Pid,
    /// Is it a kernel thread (`PF_KTHREAD`)?
    pub kernel_thread: bool,
    /// Minor faults since it started, of all threads.
    pub minor_faults: u64,
    /// Major faults since it started, of all threads.
    pub major_faults: u64,
    /// Threads.
    pub threads: u64,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Bytes of address space.
    pub address_space: u64,
    /// Resident base pages, as the kernel's cheap counter has them.
    pub resident_pages: u64,
    /// Where exec put things.
    pub layout: Layout,
}

impl Stat {
    /// Does it still run? Zombies and the dead do not.
    #[must_use]
    pub const fn runs(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// All page faults since it started.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        self.minor_faults.saturating_add(self.major_faults)
    }
}

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The fields after the name, numbered as in proc(5) less 3.
mod field {
    pub const STATE: usize = 0;
    pub const PARENT: usize = 1;
    pub const FLAGS: usize = 6;
    pub const MINOR_FAULTS: usize = 7;
    pub const MAJOR_FAULTS: usize = 9;
    pub const THREADS: usize = 17;
    pub const START_TICKS: usize = 19;
    pub const ADDRESS_SPACE: usize = 20;
    pub const RESIDENT: usize = 21;
    pub const START_CODE: usize = 23;
    pub const START_STACK: usize = 25;
    pub const ARG_START: usize = 45;
    pub const ENV_START: usize = 47;
    pub const COUNT: usize = 48;
}

/// One `stat` file.
///
/// # Errors
/// With what is missing. The line is always 1, though a name may hold newlines.
pub fn parse(text: &[u8]) -> Result<Stat, ParseError> {
    let wrong = |what| ParseError::new("stat", 1, what);
    // The name ends at the *last* parenthesis: everything after it is numbers and one letter.
    let open = position(text, b'(').ok_or(wrong("expected a name in parentheses"))?;
    let close = text
        .iter()
        .rposition(|&byte| byte == b')')
        .filter(|&close| close > open)
        .ok_or(wrong("expected a name in parentheses"))?;
    let pid = pid(text[..open].trim_ascii()).ok_or(wrong("expected a process id"))?;
    let fields: Vec<&[u8]> = words(text[close + 1..].trim_ascii())
        .take(field::COUNT)
        .collect();
    if fields.len() < field::COUNT {
        return Err(wrong("expected at least 50 fields"));
    }
    let number = |at: usize| decimal(fields[at]).ok_or(wrong("expected a number"));
    Ok(Stat {
        pid,
        comm: String::from_utf8_lossy(&text[open + 1..close]).into_owned(),
        state: *fields[field::STATE]
            .first()
            .ok_or(wrong("expected a state"))?,
        parent: self::pid(fields[field::PARENT]).ok_or(wrong("expected a parent's id"))?,
        kernel_thread: number(field::FLAGS)? & PF_KTHREAD != 0,
        minor_faults: number(field::MINOR_FAULTS)?,
        major_faults: number(field::MAJOR_FAULTS)?,
        threads: number(field::THREADS)?,
        start_ticks: number(field::START_TICKS)?,
        address_space: number(field::ADDRESS_SPACE)?,
        resident_pages: number(field::RESIDENT)?,
        layout: Layout {
            start_code: number(field::START_CODE)?,
            start_stack: number(field::START_STACK)?,
            arg_start: number(field::ARG_START)?,
            env_start: number(field::ENV_START)?,
        },
    })
}

fn position(text: &[u8], wanted: u8) -> Option<usize> {
    text.iter().position(|&byte| byte == wanted)
}

fn pid(word: &[u8]) -> Option<Pid> {
    u32::try_from(decimal(word)?).ok().map(Pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = " S 7 1 1 0 -1 4194560 11 22 33 44 5 6 7 8 20 0 3 0 777 1048576 256 \
        18446744073709551615 1000 2000 3000 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 4000 4100 5000 5100 0\n";

    fn named(comm: &str) -> Stat {
        parse(format!("4711 ({comm}){REST}").as_bytes()).expect(comm)
    }

    #[test]
    fn fields_are_where_proc_5_has_them() {
        let stat = named("redis-server");
        assert_eq!((stat.pid, stat.parent), (Pid(4711), Pid(7)));
        assert_eq!(
            (stat.minor_faults, stat.major_faults, stat.faults()),
            (11, 33, 44)
        );
        assert_eq!((stat.threads, stat.start_ticks), (3, 777));
        assert_eq!((stat.address_space, stat.resident_pages), (1_048_576, 256));
        assert_eq!(
            stat.layout,
            Layout {
                start_code: 1000,
                start_stack: 3000,
                arg_start: 4000,
                env_start: 5000
            }
        );
        assert!(stat.runs() && !stat.kernel_thread);
    }

    #[test]
    fn a_name_may_hold_anything() {
        for comm in ["a b", ") S 1 (", "((", "x\ny", ""] {
            assert_eq!(named(comm).comm, comm);
        }
    }

    #[test]
    fn half_a_file_is_refused() {
        assert!(parse(b"4711 (x) S 7 1").is_err());
        assert!(parse(b"").is_err());
        assert!(parse(b")(").is_err());
    }
}
