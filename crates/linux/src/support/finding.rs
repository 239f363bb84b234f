//! What a probe found, and how an errno is read: the one place that turns it into a [`State`].

use crate::support::feature::Feature;
use rustix::io::Errno;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What is the matter with a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was tried, and it did what it should.
    Works,
    /// It works with a limit that the detail names.
    Partly,
    /// This kernel or this machine does not have it.
    Absent,
    /// It is there and we may not use it.
    Forbidden,
    /// It could not be tried.
    Unknown,
}

impl State {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Partly => "partly",
            Self::Absent => "absent",
            Self::Forbidden => "forbidden",
            Self::Unknown => "unknown",
        }
    }

    /// Can it be used, at least in part?
    #[must_use]
    pub const fn usable(self) -> bool {
        match self {
            Self::Works | Self::Partly => true,
            Self::Absent | Self::Forbidden | Self::Unknown => false,
        }
    }

    /// What a refusal means. What may pass by itself (no memory, busy) leaves the question open.
    #[must_use]
    pub fn of_errno(errno: Errno) -> Self {
        const MAY_NOT: [Errno; 3] = [Errno::PERM, Errno::ACCESS, Errno::ROFS];
        const CANNOT: [Errno; 10] = [
            Errno::NOSYS,
            Errno::INVAL,
            Errno::NOENT,
            Errno::NOTTY,
            Errno::OPNOTSUPP,
            Errno::NODEV,
            Errno::NXIO,
            Errno::NODATA,
            Errno::NOTDIR,
            Errno::ISDIR,
        ];
        if MAY_NOT.contains(&errno) {
            Self::Forbidden
        } else if CANNOT.contains(&errno) {
            Self::Absent
        } else {
            Self::Unknown
        }
    }
}

/// The kernel's own answer behind a finding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The errno's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// Values read or counted.
    #[serde(flatten)]
    pub values: BTreeMap<String, String>,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// About what.
    pub feature: Feature,
    /// In one word.
    pub state: State,
    /// In one sentence.
    pub detail: String,
    /// On what ground.
    pub evidence: Evidence,
    /// The command or the capability that would change it.
    pub fix: Option<String>,
}

impl Finding {
    /// A finding without evidence or fix.
    #[must_use]
    pub fn new(feature: Feature, state: State, detail: impl Into<String>) -> Self {
        Self {
            feature,
            state,
            detail: detail.into(),
            evidence: Evidence::default(),
            fix: None,
        }
    }

    /// It works.
    #[must_use]
    pub fn works(feature: Feature, detail: impl Into<String>) -> Self {
        Self::new(feature, State::Works, detail)
    }

    /// The kernel refused with `errno` while we tried `what`.
    #[must_use]
    pub fn refused(feature: Feature, what: &str, errno: Errno) -> Self {
        let name = errno_name(errno);
        let mut finding = Self::new(
            feature,
            State::of_errno(errno),
            format!("{what}: {name}, {}", meaning(errno)),
        );
        finding.evidence.errno = Some(name);
        finding
    }

    /// The same with a value as evidence.
    #[must_use]
    pub fn value(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.evidence
            .values
            .insert(name.to_owned(), value.to_string());
        self
    }

    /// The same with the line that would change it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same with a fix, where the kernel forbids.
    #[must_use]
    pub fn fix_if_forbidden(self, fix: impl Into<String>) -> Self {
        match self.state {
            State::Forbidden => self.fix(fix),
            State::Works | State::Partly | State::Absent | State::Unknown => self,
        }
    }
}

/// What an errno says in plain words.
fn meaning(errno: Errno) -> &'static str {
    const NOT_THERE: [Errno; 4] = [Errno::NOENT, Errno::NODEV, Errno::NXIO, Errno::NOTDIR];
    match State::of_errno(errno) {
        State::Forbidden => "not permitted",
        State::Absent if NOT_THERE.contains(&errno) => "not there",
        State::Absent => "this kernel does not know it",
        State::Works | State::Partly | State::Unknown => "may pass",
    }
}

/// The name of an errno; the number of one that no probe expects.
#[must_use]
pub fn errno_name(errno: Errno) -> String {
    const NAMES: [(Errno, &str); 22] = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::SRCH, "ESRCH"),
        (Errno::INTR, "EINTR"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::FAULT, "EFAULT"),
        (Errno::BUSY, "EBUSY"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::ROFS, "EROFS"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NODATA, "ENODATA"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::BADMSG, "EBADMSG"),
    ];
    NAMES.iter().find(|(known, _)| *known == errno).map_or_else(
        || format!("errno {}", errno.raw_os_error()),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_tell_may_not_from_cannot() {
        assert_eq!(State::of_errno(Errno::PERM), State::Forbidden);
        assert_eq!(State::of_errno(Errno::NOSYS), State::Absent);
        assert_eq!(State::of_errno(Errno::NOMEM), State::Unknown);
    }

    #[test]
    fn a_refusal_names_its_errno() {
        let finding = Finding::refused(Feature::RemoteCollapse, "collapse", Errno::PERM).fix("x");
        assert_eq!(finding.evidence.errno.as_deref(), Some("EPERM"));
        assert_eq!(errno_name(Errno::from_raw_os_error(4000)), "errno 4000");
    }
}
