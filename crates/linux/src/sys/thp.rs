//! `PR_SET_THP_DISABLE` of `prctl(2)` on ourselves: inherited by what we start, also across exec.

use super::{Errno, checked};

/// `PR_THP_DISABLE_EXCEPT_ADVISED` of `linux/prctl.h`, Linux 6.18.
const EXCEPT_ADVISED: libc::c_ulong = 2;

/// May this process have THPs?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// As the system's switches say.
    Allowed,
    /// Only where advised, or by an explicit collapse.
    ExceptAdvised,
    /// No.
    Refused,
}

/// What holds for us now.
///
/// # Errors
/// The kernel's errno.
pub fn consent() -> Result<Consent, Errno> {
    let zero: libc::c_ulong = 0;
    // SAFETY: PR_GET_THP_DISABLE takes four integers, all of them zero, and touches no memory of ours.
    let mode = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, zero, zero, zero, zero) };
    Ok(match checked(mode.into())? {
        0 => Consent::Allowed,
        1 => Consent::Refused,
        _ => Consent::ExceptAdvised,
    })
}

/// Sets it for us and for what we start from now on.
///
/// # Errors
/// The kernel's errno; `EINVAL` where it does not know [`Consent::ExceptAdvised`].
pub fn set_consent(consent: Consent) -> Result<(), Errno> {
    let (disable, flags): (libc::c_ulong, libc::c_ulong) = match consent {
        Consent::Allowed => (0, 0),
        Consent::ExceptAdvised => (1, EXCEPT_ADVISED),
        Consent::Refused => (1, 0),
    };
    let zero: libc::c_ulong = 0;
    // SAFETY: PR_SET_THP_DISABLE takes four integers and touches no memory of ours.
    let returned = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, flags, zero, zero) };
    checked(returned.into()).map(|_zero| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_shown() {
        let before = consent().expect("PR_GET_THP_DISABLE is as old as THP");
        match set_consent(Consent::ExceptAdvised) {
            Ok(()) => assert_eq!(consent(), Ok(Consent::ExceptAdvised)),
            Err(errno) => assert_eq!(errno, Errno::INVAL),
        }
        set_consent(before).expect("what was there before can be set");
        assert_eq!(consent(), Ok(before));
    }
}
