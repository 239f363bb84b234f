//! Who runs: the table of all processes, from which the selection picks, and in which fork sharing shows.
//!
//! Listing `/proc` is cheap, reading each process's `stat` is not. So a process is read when it is new, again soon after
//! (it may have been between fork and exec), and then ever less often.
//!
//! A process shares its parent's memory copy-on-write from fork until one of them execs. There is no flag for that; but
//! exec gives new random addresses to text, stack, arguments and environment, so two processes of one line of descent
//! with the same four have the same exec behind them. (Where address randomization is off, a program that starts itself
//! looks the same: then it is spared without need.) Processes made with `CLONE_VM` share not copies but the address
//! space itself: `kcmp` tells them apart.

use super::selection::{Descendants, Selection};
use crate::error::Error;
use crate::procfs::cgroup::parse_membership;
use crate::procfs::stat::{self, Layout, Stat};
use crate::procfs::{ProcRoot, read, understood};
use crate::sys::process::same_memory;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::{Instant, Span};
use std::collections::{BTreeMap, BTreeSet};

/// A new process is read again after this long, then after ever twice as long.
const RECHECK_MIN: Span = Span::secs(1);
/// A known process is read so seldom.
const RECHECK_MAX: Span = Span::secs(32);
/// One that shares memory after a fork is read at least so often: an exec ends that.
const RECHECK_SHARING: Span = Span::secs(4);
/// Known processes that are read again in one go, at the most.
const RECHECKS_MAX: usize = 64;
/// Generations of descent that are followed, at the most: a torn table may have a cycle.
const GENERATIONS_MAX: usize = 64;

/// One process of the table.
#[derive(Debug, Clone)]
struct Known {
    stat: Stat,
    cgroup: Option<String>,
    /// It has its parent's address space itself.
    memory_of_parent: bool,
    /// Once followed as a descendant, always.
    followed: bool,
    read_at: Instant,
    read_after: Span,
}

/// All processes, as far as looked at.
#[derive(Debug)]
pub struct ProcessTable {
    known: BTreeMap<Pid, Known>,
    ourselves: Pid,
}

/// How a process is related to others of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinship {
    /// Living descendants that share its memory copy-on-write.
    pub forked_children: u32,
    /// The first process that has the same address space, if it is another one.
    pub memory_of: Option<Pid>,
}

impl Default for ProcessTable {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            ourselves: Pid(std::process::id()),
        }
    }
}

impl ProcessTable {
    /// Lists the processes and reads those that are new or due.
    ///
    /// # Errors
    /// If `/proc` cannot be listed.
    pub fn refresh(
        &mut self,
        root: &ProcRoot,
        selection: &Selection,
        now: Instant,
    ) -> Result<(), Error> {
        let listed: BTreeSet<Pid> = root.pids()?.into_iter().collect();
        self.known.retain(|pid, _| listed.contains(pid));
        let mut rechecks = 0;
        for &pid in &listed {
            let due = match self.known.get(&pid) {
                None => true,
                Some(known) if now.since(known.read_at) < known.read_after => false,
                Some(_) => {
                    rechecks += 1;
                    rechecks <= RECHECKS_MAX
                }
            };
            if due {
                self.look_at(root, selection, pid, now);
            }
        }
        self.follow(selection);
        Ok(())
    }

    /// Reads one process. One that vanished meanwhile, or that we may not read, is not in the table.
    fn look_at(&mut self, root: &ProcRoot, selection: &Selection, pid: Pid, now: Instant) {
        let path = root.process(pid, "stat");
        let Ok(stat) = read(&path).and_then(|text| understood(&path, stat::parse(&text))) else {
            self.known.remove(&pid);
            return;
        };
        let before = self
            .known
            .remove(&pid)
            .filter(|before| before.stat.start_ticks == stat.start_ticks);
        let sharing = self.shares_with_parent(&stat);
        let read_after = match &before {
            None => RECHECK_MIN,
            Some(before) => {
                let most = if sharing {
                    RECHECK_SHARING
                } else {
                    RECHECK_MAX
                };
                Span((before.read_after.0 * 2).min(most.0))
            }
        };
        let cgroup = selection
            .asks_for_cgroup()
            .then(|| membership(root, pid))
            .flatten();
        self.known.insert(
            pid,
            Known {
                memory_of_parent: sharing && same_memory(pid, stat.parent).unwrap_or(false),
                cgroup,
                followed: before.is_some_and(|before| before.followed),
                stat,
                read_at: now,
                read_after,
            },
        );
    }

    fn shares_with_parent(&self, stat: &Stat) -> bool {
        self.known
            .get(&stat.parent)
            .is_some_and(|parent| same_program(&parent.stat, stat))
    }

    fn follow(&mut self, selection: &Selection) {
        let ours = match selection.descendants {
            Descendants::Left => return,
            Descendants::Followed => None,
            Descendants::FollowedAndOurs => Some(self.ourselves),
        };
        let followed: Vec<Pid> = self
            .known
            .keys()
            .copied()
            .filter(|&pid| {
                self.ancestors(pid).any(|known| {
                    known.followed || Some(known.stat.pid) == ours || self.named(known, selection)
                })
            })
            .collect();
        for pid in followed {
            if let Some(known) = self.known.get_mut(&pid) {
                known.followed = known.stat.pid != self.ourselves;
            }
        }
    }

    fn named(&self, known: &Known, selection: &Selection) -> bool {
        selection.names(&known.stat, known.cgroup.as_deref(), self.ourselves)
    }

    /// The parents of `pid`, the nearest first.
    fn ancestors(&self, pid: Pid) -> impl Iterator<Item = &Known> {
        let parent = |known: &Known| self.known.get(&known.stat.parent);
        std::iter::successors(self.known.get(&pid).and_then(parent), move |known| {
            parent(known)
        })
        .take(GENERATIONS_MAX)
    }

    /// Whom to watch, sorted.
    #[must_use]
    pub fn selected(&self, selection: &Selection) -> Vec<Pid> {
        self.known
            .values()
            .filter(|known| known.stat.runs())
            .filter(|known| known.followed || self.named(known, selection))
            .map(|known| known.stat.pid)
            .collect()
    }

    /// Is it selected by `all` alone, which spares those who opted out of THP?
    #[must_use]
    pub fn by_all_alone(&self, pid: Pid, selection: &Selection) -> bool {
        self.known.get(&pid).is_some_and(|known| {
            !known.followed
                && selection.by_all_alone(&known.stat, known.cgroup.as_deref(), self.ourselves)
        })
    }

    /// How each process is related to others. Processes that are related to nobody are left out.
    #[must_use]
    pub fn kinship(&self) -> BTreeMap<Pid, Kinship> {
        let mut kin: BTreeMap<Pid, Kinship> = BTreeMap::new();
        for child in self.known.values().filter(|known| known.stat.runs()) {
            let mut same_memory = child.memory_of_parent;
            let line = self
                .ancestors(child.stat.pid)
                .take_while(|above| same_program(&above.stat, &child.stat));
            for above in line {
                if same_memory {
                    kin.entry(child.stat.pid).or_default().memory_of = Some(above.stat.pid);
                    same_memory = above.memory_of_parent;
                } else {
                    kin.entry(above.stat.pid).or_default().forked_children += 1;
                }
            }
        }
        kin
    }
}

/// Is the same exec behind both?
fn same_program(one: &Stat, other: &Stat) -> bool {
    one.layout == other.layout
        && (one.layout != Layout::default() || one.comm == other.comm)
        && !one.kernel_thread
}

/// The memory cgroup's path; unknown where the process vanished.
fn membership(root: &ProcRoot, pid: Pid) -> Option<String> {
    let path = root.process(pid, "cgroup");
    let text = read(&path).ok()?;
    let membership = understood(&path, parse_membership(&text)).ok()??;
    Some(membership.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        start_code: 1,
        start_stack: 2,
        arg_start: 3,
        env_start: 4,
    };
    const OTHER: Layout = Layout {
        start_code: 9,
        ..LAYOUT
    };

    /// A table of (pid, parent, layout, has its parent's address space).
    fn table(rows: &[(u32, u32, Layout, bool)]) -> ProcessTable {
        let mut table = ProcessTable::default();
        for &(pid, parent, layout, memory_of_parent) in rows {
            let stat = Stat {
                pid: Pid(pid),
                comm: format!("p{pid}"),
                state: b'S',
                parent: Pid(parent),
                kernel_thread: false,
                minor_faults: 0,
                major_faults: 0,
                threads: 1,
                start_ticks: 1,
                address_space: 0,
                resident_pages: 0,
                layout,
            };
            let known = Known {
                stat,
                cgroup: None,
                memory_of_parent,
                followed: false,
                read_at: Instant(0),
                read_after: RECHECK_MIN,
            };
            table.known.insert(Pid(pid), known);
        }
        table
    }

    fn children_of(rows: &[(u32, u32, Layout, bool)], pid: u32) -> u32 {
        table(rows)
            .kinship()
            .get(&Pid(pid))
            .map_or(0, |kin| kin.forked_children)
    }

    #[test]
    fn a_child_that_did_not_exec_shares() {
        let rows = [
            (10, 1, LAYOUT, false),
            (11, 10, LAYOUT, false),
            (12, 11, LAYOUT, false),
        ];
        assert_eq!(children_of(&rows, 10), 2);
        assert_eq!(children_of(&rows, 11), 1);
    }

    #[test]
    fn a_child_that_did_exec_does_not() {
        let rows = [
            (10, 1, LAYOUT, false),
            (11, 10, OTHER, false),
            (12, 11, LAYOUT, false),
        ];
        assert_eq!(children_of(&rows, 10), 0);
        assert_eq!(children_of(&rows, 11), 0);
    }

    #[test]
    fn one_address_space_is_not_two() {
        let rows = [
            (10, 1, LAYOUT, false),
            (11, 10, LAYOUT, true),
            (12, 11, LAYOUT, true),
        ];
        let kin = table(&rows).kinship();
        assert_eq!(kin[&Pid(12)].memory_of, Some(Pid(10)));
        assert_eq!(children_of(&rows, 10), 0);
    }

    #[test]
    fn a_cycle_of_parents_ends() {
        let rows = [(10, 11, LAYOUT, false), (11, 10, LAYOUT, false)];
        assert!(children_of(&rows, 10) > 0);
    }

    #[test]
    fn descendants_are_followed_after_their_parent_ended() {
        let selection = Selection {
            descendants: Descendants::Followed,
            ..Selection::pid(Pid(10))
        };
        let mut table = table(&[(10, 1, LAYOUT, false), (11, 10, OTHER, false)]);
        table.follow(&selection);
        assert_eq!(table.selected(&selection), [Pid(10), Pid(11)]);
        table.known.remove(&Pid(10));
        table.follow(&selection);
        assert_eq!(table.selected(&selection), [Pid(11)]);
    }
}
