//! Whom to watch.
//!
//! By process id, short name, cgroup, or everybody; with their descendants where asked. `all` leaves out kernel
//! threads, ourselves, the first process, and those who opted out of THP.

use crate::procfs::stat::Stat;
use hugepilot_core::ids::Pid;

/// The kernel keeps so many bytes of a process's short name.
const COMM_BYTES: usize = 15;

/// Whom to watch: everybody that one of the fields names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// These processes.
    pub pids: Vec<Pid>,
    /// Processes of these short names; longer names are cut as the kernel cuts them.
    pub comms: Vec<String>,
    /// Processes of these cgroups and those below: paths from the hierarchy's root.
    pub cgroups: Vec<String>,
    /// Everybody that may be managed.
    pub all: Everybody,
    /// What descends from those above.
    pub descendants: Descendants,
    /// Processes of these short names are left alone, whatever names them.
    pub except_comms: Vec<String>,
}

/// Watch everybody that may be managed?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Everybody {
    /// Only whom the other fields name.
    #[default]
    No,
    /// Everybody but kernel threads, ourselves, the first process and those who opted out of THP.
    Yes,
}

/// Watch children too?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Descendants {
    /// Only who is named.
    #[default]
    Left,
    /// Whoever descends from a watched process, also after that one ended.
    Followed,
    /// The same, and whoever descends from ourselves: what we started, and the orphans that became ours.
    FollowedAndOurs,
}

impl Selection {
    /// One process.
    #[must_use]
    pub fn pid(pid: Pid) -> Self {
        Self {
            pids: vec![pid],
            ..Self::default()
        }
    }

    /// Everybody that may be managed.
    #[must_use]
    pub fn everybody() -> Self {
        Self {
            all: Everybody::Yes,
            ..Self::default()
        }
    }

    /// Must the cgroup of a process be known to decide?
    #[must_use]
    pub fn asks_for_cgroup(&self) -> bool {
        !self.cgroups.is_empty()
    }

    /// Do ids alone decide, so that nobody else need be looked at?
    #[must_use]
    pub fn names_ids_only(&self) -> bool {
        self.comms.is_empty() && self.cgroups.is_empty() && self.all == Everybody::No
    }

    /// Is this process named (descent aside)? `cgroup` is its memory cgroup's path, where asked for and known.
    #[must_use]
    pub fn names(&self, stat: &Stat, cgroup: Option<&str>, ourselves: Pid) -> bool {
        if self.pids.contains(&stat.pid) {
            return true;
        }
        if stat.kernel_thread || stat.pid == ourselves {
            return false;
        }
        let by_comm = self.comms.iter().any(|comm| cut(comm) == stat.comm);
        let by_cgroup =
            cgroup.is_some_and(|path| self.cgroups.iter().any(|above| below(path, above)));
        let by_all = self.all == Everybody::Yes && stat.pid != Pid(1);
        by_comm || by_cgroup || by_all
    }

    /// Is it left alone, whatever names it?
    #[must_use]
    pub fn spares(&self, stat: &Stat) -> bool {
        self.except_comms.iter().any(|comm| cut(comm) == stat.comm)
    }

    /// Is it named by `all` alone, which spares those who opted out of THP?
    #[must_use]
    pub fn by_all_alone(&self, stat: &Stat, cgroup: Option<&str>, ourselves: Pid) -> bool {
        let explicit = Self {
            all: Everybody::No,
            ..self.clone()
        };
        self.all == Everybody::Yes && !explicit.names(stat, cgroup, ourselves)
    }
}

/// A name as the kernel would have cut it; a name that is cut inside a character stays as it is.
fn cut(comm: &str) -> &str {
    comm.get(..COMM_BYTES).unwrap_or(comm)
}

/// Is `path` the cgroup `above` or one below it?
fn below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::stat::Layout;

    const OURSELVES: Pid = Pid(99);

    fn process(pid: u32, comm: &str) -> Stat {
        Stat {
            pid: Pid(pid),
            comm: comm.into(),
            state: b'S',
            parent: Pid(1),
            kernel_thread: false,
            minor_faults: 0,
            major_faults: 0,
            threads: 1,
            start_ticks: 1,
            address_space: 0,
            resident_pages: 0,
            layout: Layout::default(),
        }
    }

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them() {
        let by_name = Selection {
            comms: vec!["a-very-long-program-name".into()],
            ..Selection::default()
        };
        assert!(by_name.names(&process(5, "a-very-long-pro"), None, OURSELVES));
        assert!(!by_name.names(&process(5, "a-very"), None, OURSELVES));
    }

    #[test]
    fn all_spares_whom_it_must() {
        let all = Selection::everybody();
        assert!(all.names(&process(5, "redis"), None, OURSELVES));
        assert!(!all.names(&process(1, "init"), None, OURSELVES));
        assert!(!all.names(&process(99, "hugepilot"), None, OURSELVES));
        let thread = Stat {
            kernel_thread: true,
            ..process(5, "kswapd0")
        };
        assert!(!all.names(&thread, None, OURSELVES));
        assert!(all.by_all_alone(&process(5, "redis"), None, OURSELVES));
    }

    #[test]
    fn a_cgroup_is_itself_and_what_is_below() {
        let by_cgroup = Selection {
            cgroups: vec!["/db/".into()],
            ..Selection::default()
        };
        for (path, expected) in [
            ("/db", true),
            ("/db/a", true),
            ("/dbx", false),
            ("/", false),
        ] {
            let named = by_cgroup.names(&process(5, "x"), Some(path), OURSELVES);
            assert_eq!(named, expected, "{path}");
        }
    }
}
