//! Whether a mapping of so many pages would succeed now: a judgement on what was read, without reading anything.
//!
//! A mapping that reserves (all but `MAP_NORESERVE`) is decided when it is made: by free pages that are promised to nobody, then by
//! surplus pages, which the kernel must find at once; by the nodes that the process may use, and by `rsvd` limits of its cgroups. The limits on
//! pages count at the fault, where they kill.

use super::cgroups::{Group, Limit};
use super::{NodePool, PageSize, Pool};
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::Bytes;

/// Room in a pool, in pages, for one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Of which size.
    pub size: PageSize,
    /// Free and promised to nobody.
    pub available: u64,
    /// What there may be on top, if the kernel finds the memory.
    pub surplus_left: u64,
    /// Free pages on the nodes that the process may use, where those are not all.
    pub free_on_allowed: Option<u64>,
    /// The lowest limit on reservations.
    pub reservations: Option<Lowest>,
    /// The lowest limit on pages.
    pub pages: Option<Lowest>,
}

/// The cgroup that leaves least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lowest {
    /// Which.
    pub path: String,
    /// Its limit.
    pub max: Bytes,
    /// Pages that it leaves.
    pub left: u64,
}

/// What becomes of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It succeeds, and its faults too.
    Succeeds,
    /// It succeeds if the kernel finds memory for so many surplus pages at once.
    Perhaps {
        /// How many.
        surplus: u64,
    },
    /// It is refused: the pool has not so many.
    RefusedByPool,
    /// It is refused: on the nodes that the process may use there are not so many.
    RefusedByNodes,
    /// It is refused: a cgroup does not let it reserve so many.
    RefusedByCgroup,
    /// It is made, and a fault beyond a cgroup's limit kills the process.
    KilledByCgroup,
}

impl Room {
    /// The room that a process has which may use `nodes` (`None`: all) and is in the last of `groups` and below the others.
    #[must_use]
    pub fn of(pool: &Pool, groups: &[Group], nodes: Option<&[NodeId]>) -> Self {
        let lowest = |limit: fn(&Group) -> Option<Limit>| lowest(pool.size, groups, limit);
        Self {
            size: pool.size,
            available: pool.available(),
            surplus_left: pool.overcommit.saturating_sub(pool.counters.surplus), // overcommit may be lowered under it
            free_on_allowed: nodes.and_then(|nodes| free_on(pool, nodes)),
            reservations: lowest(|group| group.reservations),
            pages: lowest(|group| Some(group.pages)),
        }
    }

    /// What becomes of a mapping of so many pages.
    #[must_use]
    pub fn answer(&self, pages: u64) -> Answer {
        let beyond = |lowest: &Option<Lowest>| lowest.as_ref().is_some_and(|low| low.left < pages);
        let surplus = pages.saturating_sub(self.available);
        if beyond(&self.reservations) {
            Answer::RefusedByCgroup
        } else if surplus > self.surplus_left {
            Answer::RefusedByPool
        } else if surplus == 0 && self.free_on_allowed.is_some_and(|free| free < pages) {
            Answer::RefusedByNodes
        } else if beyond(&self.pages) {
            Answer::KilledByCgroup
        } else if surplus > 0 {
            Answer::Perhaps { surplus }
        } else {
            Answer::Succeeds
        }
    }
}

/// Free pages on `nodes`; `None` where these are all that the pool has.
fn free_on(pool: &Pool, nodes: &[NodeId]) -> Option<u64> {
    let (allowed, others): (Vec<&NodePool>, Vec<&NodePool>) = pool
        .nodes
        .iter()
        .partition(|pool| nodes.contains(&pool.node));
    (!others.is_empty()).then(|| allowed.iter().map(|pool| pool.counters.free).sum())
}

fn lowest(size: PageSize, groups: &[Group], limit: fn(&Group) -> Option<Limit>) -> Option<Lowest> {
    let limits = groups.iter().filter(|group| group.size == size);
    let limits = limits.filter_map(|group| {
        let limit = limit(group)?;
        Some(Lowest {
            path: group.path.clone(),
            max: limit.max?,
            left: limit.left()?.0 / size.bytes().0,
        })
    });
    limits.min_by_key(|lowest| lowest.left)
}

#[cfg(test)]
mod tests {
    use super::super::Counters;
    use super::super::read::tests::size;
    use super::*;
    use crate::procfs::cgroup::Version;

    /// Of 8 pages on two nodes 5 are free and 1 is reserved; 3 surplus pages are allowed, 1 is there.
    fn pool() -> Pool {
        let counters = |total, free, surplus| Counters {
            total,
            free,
            surplus,
        };
        let node = |node, counters| NodePool {
            node: NodeId(node),
            counters,
        };
        Pool {
            size: size(Bytes::mib(2)),
            counters: counters(8, 5, 1),
            reserved: 1,
            overcommit: 3,
            divides_into: None,
            nodes: vec![node(0, counters(4, 4, 1)), node(1, counters(4, 1, 0))],
        }
    }

    fn group(path: &str, pages: Option<u64>, reservations: Option<u64>) -> Group {
        let limit = |max: Option<u64>| Limit {
            max: max.map(|pages| Bytes::mib(2 * pages)),
            current: Bytes::mib(2),
        };
        Group {
            path: path.to_owned(),
            version: Version::V2,
            size: size(Bytes::mib(2)),
            pages: limit(pages),
            reservations: Some(limit(reservations)),
            hits: 0,
        }
    }

    #[test]
    fn free_less_reserved_then_surplus() {
        let room = Room::of(&pool(), &[], None);
        assert_eq!((room.available, room.surplus_left), (4, 2));
        assert_eq!(room.answer(4), Answer::Succeeds);
        assert_eq!(room.answer(6), Answer::Perhaps { surplus: 2 });
        assert_eq!(room.answer(7), Answer::RefusedByPool);
    }

    #[test]
    fn the_lowest_limit_counts() {
        let groups = [
            group("/a/b", None, None),
            group("/a", Some(4), Some(5)),
            group("/", None, Some(9)),
        ];
        let room = Room::of(&pool(), &groups, None);
        let lowest = room.reservations.clone().expect("there are limits");
        assert_eq!((lowest.path.as_str(), lowest.left), ("/a", 4));
        assert_eq!(room.answer(3), Answer::Succeeds);
        assert_eq!(room.answer(4), Answer::KilledByCgroup);
        assert_eq!(room.answer(5), Answer::RefusedByCgroup);
    }

    #[test]
    fn nodes_count_where_they_are_not_all() {
        let one = Room::of(&pool(), &[], Some(&[NodeId(1)]));
        assert_eq!(
            (one.answer(1), one.answer(2)),
            (Answer::Succeeds, Answer::RefusedByNodes)
        );
        let all = Room::of(&pool(), &[], Some(&[NodeId(0), NodeId(1)]));
        assert_eq!(all.answer(4), Answer::Succeeds);
    }
}
