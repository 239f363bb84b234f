//! Setting how many pages a pool keeps.
//!
//! The kernel grows a pool as far as it finds memory, and stops without a word. So: ask, read back; where pages are missing,
//! compact, and ask again until nothing comes any more or the time is over. It is asked for a step at a time, since one write takes as
//! long as it takes and only between writes is the clock looked at; whatever a step got stays.
//!
//! Shrinking is one write. Pages that are in use or promised stay: the kernel makes them surplus, and they go when they are
//! given back. That is said, not hidden.

use super::read::{counters, directory, write};
use super::{Counters, PageSize};
use crate::error::Error;
use crate::procfs::{ProcRoot, SysRoot};
use crate::sys::time::monotonic;
use hugepilot_core::ids::NodeId;
use hugepilot_core::units::{Bytes, Instant, Span};
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// Asked for at a time: one page at least, and no more memory than takes the kernel about a second to gather.
const STEP: Bytes = Bytes::gib(1);
/// Compactions at the most: each walks all memory, and the third seldom finds what two did not.
pub const COMPACTIONS_MAX: u32 = 4;
/// The wait after a compaction that brought nothing, in which others may free memory; it doubles each time.
const PAUSE_FIRST: Span = Span::millis(100);

/// What is to be changed: a pool or its part on a node, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Which pool.
    pub size: PageSize,
    /// Pages that are to stay.
    pub minimum: u64,
    /// How long growing may take.
    pub within: Span,
}

/// What came of asking the kernel to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// It did.
    Done,
    /// It cannot: a kernel without compaction.
    Absent,
    /// It may not be asked by us.
    Refused,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The pool keeps as many pages as asked for.
    Reached,
    /// Every step was granted, but the time was over.
    OutOfTime,
    /// The kernel finds no more memory for such pages.
    OutOfMemory,
    /// After shrinking another number is shown than was written: somebody else changed it meanwhile, or the kernel would not.
    Otherwise,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resized {
    /// Before.
    pub before: Counters,
    /// After, as read back.
    pub after: Counters,
    /// Why it ended.
    pub end: End,
    /// Compactions asked for.
    pub compactions: u32,
    /// What came of the last one, if there was any.
    pub compaction: Option<Compaction>,
    /// How long it took.
    pub took: Span,
}

/// The pool that is resized, and the time that passes meanwhile.
pub trait Ground {
    /// What there is now.
    ///
    /// # Errors
    /// If that cannot be seen.
    fn counters(&mut self) -> Result<Counters, Error>;
    /// Asks the kernel to keep so many pages.
    ///
    /// # Errors
    /// If it cannot be asked. That it finds fewer is no error.
    fn ask(&mut self, minimum: u64) -> Result<(), Error>;
    /// Asks the kernel to compact memory.
    fn compact(&mut self) -> Compaction;
    /// Time since the start.
    fn elapsed(&mut self) -> Span;
    /// Lets time pass.
    fn pause(&mut self, time: Span);
}

/// Carries it out.
///
/// # Errors
/// If the pool cannot be read or written. What was gained by then stays.
pub fn resize(ground: &mut impl Ground, goal: Goal) -> Result<Resized, Error> {
    let before = ground.counters()?;
    let mut course = Course {
        ground,
        goal,
        after: before,
        compactions: 0,
        compaction: None,
        pause: PAUSE_FIRST,
    };
    let end = if goal.minimum > before.minimum() {
        course.grow()?
    } else {
        course.step(goal.minimum)?;
        if course.after.minimum() == goal.minimum {
            End::Reached
        } else {
            End::Otherwise
        }
    };
    Ok(Resized {
        before,
        after: course.after,
        end,
        compactions: course.compactions,
        compaction: course.compaction,
        took: course.ground.elapsed(),
    })
}

/// Growing, under way.
struct Course<'a, G> {
    ground: &'a mut G,
    goal: Goal,
    after: Counters,
    compactions: u32,
    compaction: Option<Compaction>,
    pause: Span,
}

impl<G: Ground> Course<'_, G> {
    fn grow(&mut self) -> Result<End, Error> {
        let step = (STEP.0 / self.goal.size.bytes().0).max(1);
        loop {
            let had = self.after.minimum();
            let target = self.goal.minimum.min(had.saturating_add(step));
            self.step(target)?;
            let has = self.after.minimum();
            if has >= self.goal.minimum {
                return Ok(End::Reached);
            }
            if has < target && !self.make_room(has > had) {
                return Ok(End::OutOfMemory);
            }
            if self.ground.elapsed() >= self.goal.within {
                return Ok(if has < target {
                    End::OutOfMemory
                } else {
                    End::OutOfTime
                });
            }
        }
    }

    fn step(&mut self, minimum: u64) -> Result<(), Error> {
        self.ground.ask(minimum)?;
        self.after = self.ground.counters()?;
        Ok(())
    }

    /// Compacts, after a while where the last time brought nothing. Says whether asking again makes sense.
    fn make_room(&mut self, gained: bool) -> bool {
        let left = self.goal.within.growth_since(self.ground.elapsed());
        if left == Span::ZERO || self.compactions == COMPACTIONS_MAX {
            return false;
        }
        if self.compactions > 0 && !gained {
            self.ground.pause(self.pause.min(left));
            self.pause = self.pause + self.pause;
        }
        let came = self.ground.compact();
        self.compactions += 1;
        self.compaction = Some(came);
        came == Compaction::Done
    }
}

/// The pool of the running kernel.
#[derive(Debug)]
pub struct Live {
    directory: PathBuf,
    compaction: PathBuf,
    began: Instant,
}

impl Live {
    /// The whole pool, or its part on a node.
    #[must_use]
    pub fn new(sys: &SysRoot, proc: &ProcRoot, size: PageSize, node: Option<NodeId>) -> Self {
        let compaction = match node {
            Some(NodeId(node)) => sys.path(&format!("devices/system/node/node{node}/compact")),
            None => proc.system("sys/vm/compact_memory"),
        };
        Self {
            directory: directory(sys, size, node),
            compaction,
            began: monotonic(),
        }
    }
}

impl Ground for Live {
    fn counters(&mut self) -> Result<Counters, Error> {
        counters(&self.directory)
    }

    fn ask(&mut self, minimum: u64) -> Result<(), Error> {
        write(&self.directory.join("nr_hugepages"), minimum)
    }

    fn compact(&mut self) -> Compaction {
        match write(&self.compaction, 1) {
            Ok(()) => Compaction::Done,
            Err(Error::Write { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Compaction::Absent
            }
            Err(_refused) => Compaction::Refused,
        }
    }

    fn elapsed(&mut self) -> Span {
        monotonic().since(self.began)
    }

    fn pause(&mut self, time: Span) {
        sleep(Duration::from_nanos(time.0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{fake, size};
    use super::*;

    /// A machine with memory for so many pages now, and some more after each compaction.
    struct Machine {
        counters: Counters,
        room: u64,
        by_compaction: Vec<u64>,
        compaction: Compaction,
        now: Span,
        a_write_takes: Span,
    }

    impl Machine {
        fn with(room: u64, by_compaction: &[u64]) -> Self {
            Self {
                counters: Counters::default(),
                room,
                by_compaction: by_compaction.to_vec(),
                compaction: Compaction::Done,
                now: Span::ZERO,
                a_write_takes: Span::millis(1),
            }
        }
    }

    impl Ground for Machine {
        fn counters(&mut self) -> Result<Counters, Error> {
            Ok(self.counters)
        }
        fn ask(&mut self, minimum: u64) -> Result<(), Error> {
            self.now += self.a_write_takes;
            let total = minimum.min(self.room).max(self.counters.in_use());
            let used = self.counters.in_use();
            self.counters = Counters {
                total,
                free: total - used,
                surplus: total.saturating_sub(minimum),
            };
            Ok(())
        }
        fn compact(&mut self) -> Compaction {
            if !self.by_compaction.is_empty() {
                self.room += self.by_compaction.remove(0);
            }
            self.compaction
        }
        fn elapsed(&mut self) -> Span {
            self.now
        }
        fn pause(&mut self, time: Span) {
            self.now += time;
        }
    }

    fn to(minimum: u64) -> Goal {
        Goal {
            size: size(Bytes::mib(2)),
            minimum,
            within: Span::secs(10),
        }
    }

    #[test]
    fn where_there_is_memory_nothing_is_compacted() {
        let mut machine = Machine::with(5000, &[]);
        let resized = resize(&mut machine, to(1300)).expect("grown");
        assert_eq!((resized.end, resized.after.minimum()), (End::Reached, 1300));
        assert_eq!(resized.compactions, 0);
        assert_eq!(resized.took, Span::millis(3), "three steps of 512 pages");
    }

    #[test]
    fn compaction_helps_and_is_repeated() {
        let mut machine = Machine::with(3, &[2, 0, 4]);
        let resized = resize(&mut machine, to(8)).expect("grown");
        assert_eq!((resized.end, resized.after.minimum()), (End::Reached, 8));
        assert_eq!(resized.compactions, 3);
    }

    #[test]
    fn it_gives_up_in_bounds_and_keeps_what_it_got() {
        let mut machine = Machine::with(3, &[]);
        let resized = resize(&mut machine, to(8)).expect("grown in part");
        assert_eq!(
            (resized.end, resized.after.minimum()),
            (End::OutOfMemory, 3)
        );
        assert_eq!(resized.compactions, COMPACTIONS_MAX);
        assert!(resized.took < Span::secs(10));
    }

    #[test]
    fn the_time_is_a_bound() {
        let mut machine = Machine::with(1 << 20, &[]);
        machine.a_write_takes = Span::secs(4);
        let resized = resize(&mut machine, to(1 << 20)).expect("grown in part");
        assert_eq!(resized.end, End::OutOfTime);
        assert_eq!(
            (resized.after.minimum(), resized.took),
            (3 * 512, Span::secs(12))
        );
    }

    #[test]
    fn without_compaction_it_is_asked_once() {
        let mut machine = Machine::with(3, &[9, 9]);
        machine.compaction = Compaction::Absent;
        let resized = resize(&mut machine, to(8)).expect("grown in part");
        assert_eq!(resized.compaction, Some(Compaction::Absent));
        assert_eq!((resized.end, resized.compactions), (End::OutOfMemory, 1));
    }

    #[test]
    fn what_is_in_use_becomes_surplus() {
        let mut machine = Machine::with(8, &[]);
        machine.counters = Counters {
            total: 8,
            free: 3,
            surplus: 0,
        };
        let resized = resize(&mut machine, to(2)).expect("shrunk");
        assert_eq!((resized.end, resized.after.minimum()), (End::Reached, 2));
        assert_eq!((resized.after.total, resized.after.surplus), (5, 3));
    }

    #[test]
    fn the_files_are_those_of_the_pool_or_of_its_node() {
        let (root, sys) = fake();
        let proc = ProcRoot::new(root.path());
        let two = size(Bytes::mib(2));
        let mut live = Live::new(&sys, &proc, two, Some(NodeId(1)));
        live.ask(7).expect("written");
        assert_eq!(live.counters().expect("read").total, 7);
        assert_eq!(live.compact(), Compaction::Absent);
        let pool = super::super::read::pool(&sys, two).expect("read");
        assert_eq!((pool.counters.total, pool.nodes[1].counters.total), (8, 7));
    }
}
