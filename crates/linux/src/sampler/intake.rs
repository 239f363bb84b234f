//! What is taken in of one interval's samples: whose they are, how many, and at what price.
//!
//! **Problem.** A program may fault or be sampled a hundred thousand times in a second. Looking at all of that costs more
//! than it tells; looking at the first so many tells of whoever came first.
//!
//! **What.** A uniform choice without knowing the number beforehand (reservoir sampling): the n-th access replaces a random one
//! of the kept with probability kept/n. The random numbers come from a fixed seed, so that a test repeats itself.
//! Accesses of processes that nobody watches are passed over and not counted as lost.
//!
//! **Bounds.** `kept_max` accesses of 64 bytes; processor time up to the budget, asked every [`CLOCK_EVERY`] accesses.

use super::Access;
use crate::sys::time;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::Span;

/// The clock is read once for so many accesses: reading it costs some 200 ns, an access some 30 ns.
pub const CLOCK_EVERY: u32 = 64;

/// What was taken in of an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Taken {
    /// The choice, in no order.
    pub kept: Vec<Access>,
    /// Dropped: by the bound, for lack of processor time, or by the kernel.
    pub lost: u64,
    /// Accesses of watched processes that were looked at.
    pub seen: u64,
}

/// Takes accesses in.
pub struct Intake<'a> {
    watched: &'a dyn Fn(Pid) -> bool,
    kept_max: usize,
    until: Span,
    next_clock: u32,
    over: bool,
    random: u64,
    taken: Taken,
}

impl<'a> Intake<'a> {
    /// Takes in accesses of processes that are `watched`, keeps at most `kept_max`, and uses no more than `budget` of
    /// processor time from now on.
    #[must_use]
    pub fn new(watched: &'a dyn Fn(Pid) -> bool, kept_max: usize, budget: Span, seed: u64) -> Self {
        Self {
            watched,
            kept_max,
            until: time::thread_cpu() + budget,
            next_clock: 0,
            over: false,
            random: seed,
            taken: Taken::default(),
        }
    }

    /// One access.
    pub fn offer(&mut self, access: Access) {
        self.tick();
        if !(self.watched)(access.pid) {
            return;
        }
        self.taken.seen += 1;
        if self.taken.kept.len() < self.kept_max {
            self.taken.kept.push(access);
            return;
        }
        self.taken.lost += 1;
        let at = self.below(self.taken.seen);
        if let Some(place) = usize::try_from(at)
            .ok()
            .and_then(|at| self.taken.kept.get_mut(at))
        {
            *place = access;
        }
    }

    /// So many were lost before they came here.
    pub const fn lose(&mut self, count: u64) {
        self.taken.lost += count;
    }

    /// Is the processor time used up? Then whatever waits is to be thrown away.
    #[must_use]
    pub const fn over_budget(&self) -> bool {
        self.over
    }

    /// What was taken in.
    #[must_use]
    pub fn finish(self) -> Taken {
        self.taken
    }

    fn tick(&mut self) {
        if self.next_clock == 0 {
            self.next_clock = CLOCK_EVERY;
            self.over = time::thread_cpu() >= self.until;
        }
        self.next_clock -= 1;
    }

    /// A number below `bound`, from a fixed sequence (splitmix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{CpuId, Tid};
    use hugepilot_core::sample::ServedBy;

    fn access(pid: u32, address: u64) -> Access {
        Access {
            pid: Pid(pid),
            tid: Tid(pid),
            cpu: CpuId(0),
            address,
            page_node: None,
            served_by: ServedBy::Unknown,
            rate: None,
        }
    }

    fn take(kept_max: usize, budget: Span, pids: impl Iterator<Item = u32>) -> (Taken, bool) {
        let mut intake = Intake::new(&|pid| pid.0 < 10, kept_max, budget, 7);
        for (address, pid) in (0..).zip(pids) {
            intake.offer(access(pid, address));
        }
        let over = intake.over_budget();
        (intake.finish(), over)
    }

    #[test]
    fn others_are_passed_over_and_not_lost() {
        let (taken, _) = take(100, Span::secs(9), [1, 99, 2, 99].into_iter());
        let pids: Vec<u32> = taken.kept.iter().map(|access| access.pid.0).collect();
        assert_eq!((pids, taken.lost, taken.seen), (vec![1, 2], 0, 2));
    }

    #[test]
    fn the_choice_is_uniform_and_what_is_left_is_counted() {
        // The first half is one thread's, the second the other's.
        let (taken, _) = take(
            1000,
            Span::secs(99),
            (0..40_000).map(|n| u32::from(n >= 20_000)),
        );
        assert_eq!((taken.kept.len(), taken.lost), (1000, 39_000));
        let early = taken.kept.iter().filter(|access| access.pid.0 == 0).count();
        // Six standard deviations of 1000 throws of a coin.
        assert!((405..=595).contains(&early), "{early} of the first half");
    }

    #[test]
    fn without_a_budget_it_is_over_at_once() {
        assert!(take(10, Span::ZERO, 1..2).1);
        assert!(!take(10, Span::secs(99), 1..2).1);
    }
}
