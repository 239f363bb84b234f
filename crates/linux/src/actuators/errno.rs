//! What an errno means for an action: the one place where errno becomes an outcome.

use super::Verdict;
use crate::sys::Errno;
use hugepilot_core::outcome::{Cause, OutcomeClass};

/// Which call said it: some numbers mean different things to different calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `process_madvise(MADV_COLLAPSE)`.
    Collapse,
    /// `process_madvise(MADV_COLD)`.
    Cold,
    /// `move_pages`, for the whole call.
    Move,
    /// `move_pages`, for one page.
    MovedPage,
    /// Reading page tables or regions.
    Look,
    /// Reading or writing a setting of the system.
    Setting,
}

/// What it means that `call` failed with `errno`.
#[must_use]
pub fn verdict_of(call: Call, errno: Errno) -> Verdict {
    let (class, cause) = match errno {
        Errno::SRCH => (OutcomeClass::Gone, Some(Cause::ProcessGone)),
        // A page of another process's memory too: only who has CAP_SYS_NICE may move it.
        Errno::ACCESS if call == Call::MovedPage => {
            (OutcomeClass::Ineligible, Some(Cause::ForkShared))
        }
        // A setting that is not there is a kernel that does not have it.
        Errno::NOENT if call == Call::Setting => (OutcomeClass::Unsupported, None),
        Errno::PERM | Errno::ACCESS => (OutcomeClass::Denied, Some(Cause::Capability)),
        Errno::NOENT | Errno::FAULT => (OutcomeClass::Gone, None),
        Errno::NOMEM => (OutcomeClass::NoMemory, None),
        // A collapse is busy where its cgroup cannot be charged; a page where somebody holds it.
        Errno::BUSY => match call {
            Call::Collapse => (OutcomeClass::NoMemory, None),
            Call::Cold | Call::Move | Call::MovedPage | Call::Look | Call::Setting => {
                (OutcomeClass::Busy, None)
            }
        },
        Errno::AGAIN | Errno::INTR => (OutcomeClass::Busy, None),
        Errno::INVAL | Errno::NODEV | Errno::NXIO => (OutcomeClass::Ineligible, None),
        Errno::NOSYS | Errno::NOTTY | Errno::OPNOTSUPP => (OutcomeClass::Unsupported, None),
        // No other number is documented for these calls; do not try again what we do not understand.
        _ => (OutcomeClass::Ineligible, None),
    };
    Verdict { class, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(call: Call, errno: Errno, class: OutcomeClass) {
        assert_eq!(verdict_of(call, errno).class, class, "{call:?} {errno:?}");
    }

    #[test]
    fn each_errno_has_its_class() {
        check(Call::Collapse, Errno::SRCH, OutcomeClass::Gone);
        check(Call::Collapse, Errno::PERM, OutcomeClass::Denied);
        check(Call::Collapse, Errno::ACCESS, OutcomeClass::Denied);
        check(Call::Collapse, Errno::NOMEM, OutcomeClass::NoMemory);
        check(Call::Collapse, Errno::BUSY, OutcomeClass::NoMemory);
        check(Call::Cold, Errno::BUSY, OutcomeClass::Busy);
        check(Call::Collapse, Errno::AGAIN, OutcomeClass::Busy);
        check(Call::Collapse, Errno::INVAL, OutcomeClass::Ineligible);
        check(Call::Collapse, Errno::NOSYS, OutcomeClass::Unsupported);
        check(Call::MovedPage, Errno::ACCESS, OutcomeClass::Ineligible);
        check(Call::Look, Errno::NOENT, OutcomeClass::Gone);
        check(Call::Setting, Errno::NOENT, OutcomeClass::Unsupported);
    }
}
