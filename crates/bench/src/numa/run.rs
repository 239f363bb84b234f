//! A workload's life: pin, touch in rounds, work in intervals, compare.
//!
//! One thread more than the workload has directs it from between the intervals: it ends windows, asks where the memory is
//! and tells. It is not published, and sleeps while the others work.

use super::arena::{Arena, Found};
use super::event::{Event, Figures};
use super::pattern::{self, Pattern, Step, Tally, Who};
use super::random::Random;
use super::referee::Referee;
use super::spec::Spec;
use super::{cpus, placement};
use crate::BenchError;
use hugepilot_vpmu::{Kind, Slot};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

/// Everything that the threads share.
#[derive(Debug)]
struct Shared<'a> {
    spec: &'a Spec,
    pattern: Box<dyn Pattern>,
    arena: Arena,
    referee: Option<Referee>,
    barrier: Barrier,
    /// Accesses that finished intervals had.
    accesses: AtomicU64,
}

/// What a thread found in its whole life.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    tally: Tally,
    found: Found,
}

/// Runs a workload; `say` is told what happens, and may end the run by failing.
///
/// # Errors
/// If the orders mean nothing, a thread cannot be pinned, memory is not there, or `say` fails.
///
/// # Panics
/// If a thread of the workload does.
pub fn run<E: From<BenchError>>(
    spec: &Spec,
    mut say: impl FnMut(&Event) -> Result<(), E>,
) -> Result<Figures, E> {
    spec.check()?;
    let pattern = pattern::of(spec);
    let shared = Shared {
        arena: Arena::map(pattern.lines(), spec.seed, spec.backing)?,
        referee: Referee::find()?,
        barrier: Barrier::new(spec.cpus.len() + 1),
        accesses: AtomicU64::new(0),
        pattern,
        spec,
    };
    let addresses = shared.arena.addresses();
    say(&Event::Begins {
        pid: std::process::id(),
        spec: spec.clone(),
        addresses: [addresses.start, addresses.end].map(|address| format!("{address:#x}")),
        virtual_pmu: shared.referee.is_some(),
    })?;
    let lives = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..spec.threads())
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || shared.live(thread))
            })
            .collect();
        let told = shared.direct(&mut say);
        let lives = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the workload"))
            .collect::<Result<Vec<Life>, BenchError>>();
        told.and(lives.map_err(E::from))
    })?;
    let figures = figures(&lives);
    say(&Event::Done(figures))?;
    Ok(figures)
}

impl Shared<'_> {
    /// The directing thread's life. An error of `say` does not stop the others: they are waited for, untold.
    fn direct<E: From<BenchError>>(
        &self,
        say: &mut impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..self.pattern.rounds() {
            self.barrier.wait();
        }
        self.barrier.wait();
        let mut told = self.end_window(None).map(drop).map_err(E::from);
        for interval in 0..self.spec.intervals {
            self.barrier.wait();
            for _ in 0..self.pattern.stages() {
                self.barrier.wait();
            }
            told = told.and_then(|()| say(&self.ended(interval)?));
        }
        self.barrier.wait();
        told
    }

    fn ended(&self, interval: u32) -> Result<Event, BenchError> {
        Ok(Event::Interval {
            interval,
            window: self.end_window(Some(interval))?,
            accesses: self.accesses.swap(0, Ordering::Relaxed),
            placement: placement::read(&self.arena.addresses())?,
        })
    }

    /// Ends the window of an interval, or the one before the first.
    fn end_window(&self, interval: Option<u32>) -> Result<Option<u64>, BenchError> {
        let Some(referee) = &self.referee else {
            return Ok(None);
        };
        referee.label(interval.map_or(0, |interval| u64::from(interval) + 1));
        referee.next_window().map(Some)
    }

    /// A working thread's life. It waits with the others to the end even where it failed, or they would wait for it.
    fn live(&self, thread: u32) -> Result<Life, BenchError> {
        let who = Who {
            thread,
            threads: self.spec.threads(),
        };
        let pinned = cpus::pin(self.cpu(who));
        for round in 0..self.pattern.rounds() {
            for lines in self.pattern.touched(who, round) {
                self.arena.fill(lines);
            }
            self.barrier.wait();
        }
        let published = pinned.and_then(|()| self.publish(who));
        self.barrier.wait();
        let went = self.intervals(who, published.is_ok());
        if let (Some(referee), Ok(Some(slot))) = (&self.referee, &published) {
            referee.withdraw(*slot);
        }
        self.barrier.wait();
        published?;
        Ok(Life {
            tally: went?,
            found: self.compare(who),
        })
    }

    /// All intervals of a thread, or only the waiting in them.
    fn intervals(&self, who: Who, works: bool) -> Result<Tally, BenchError> {
        let mut went = Ok(Tally::default());
        for interval in 0..self.spec.intervals {
            self.barrier.wait();
            for stage in 0..self.pattern.stages() {
                if works {
                    went = went.and_then(|tally| self.work(who, interval, stage, tally));
                }
                self.barrier.wait();
            }
        }
        went
    }

    fn cpu(&self, who: Who) -> u32 {
        let index = usize::try_from(who.thread).expect("at most 63");
        self.spec.cpus[index].cpu
    }

    fn publish(&self, who: Who) -> Result<Option<Slot>, BenchError> {
        let publish = |referee: &Referee| {
            referee.publish(self.cpu(who), self.arena.addresses(), Kind::Workload)
        };
        self.referee.as_ref().map(publish).transpose()
    }

    /// One stage; what the thread has done so far.
    fn work(
        &self,
        who: Who,
        interval: u32,
        stage: u32,
        before: Tally,
    ) -> Result<Tally, BenchError> {
        let stream = u64::from(interval) << u32::BITS | u64::from(who.thread);
        let mut step = Step {
            arena: &self.arena,
            who,
            interval,
            stage,
            accesses: self.spec.accesses,
            random: Random::new(self.spec.seed, stream),
            tally: before,
        };
        self.pattern.work(&mut step)?;
        let accesses = step.tally.accesses - before.accesses;
        self.accesses.fetch_add(accesses, Ordering::Relaxed);
        Ok(step.tally)
    }

    fn compare(&self, who: Who) -> Found {
        let mut all = Found::default();
        for lines in self.pattern.kept(who) {
            let found = self.arena.verify(lines);
            all.updates = all.updates.wrapping_add(found.updates);
            all.wrong += found.wrong;
        }
        all
    }
}

fn figures(lives: &[Life]) -> Figures {
    let mut figures = Figures::default();
    let mut remembered = 0_u64;
    for Life { tally, found } in lives {
        figures.accesses += tally.accesses;
        figures.updates += tally.updates;
        figures.wrong += tally.wrong + found.wrong;
        figures.checksum = figures.checksum.wrapping_add(tally.checksum);
        remembered = remembered.wrapping_add(found.updates);
    }
    figures.updates_lost = figures.updates.abs_diff(remembered);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::cpus::Cpu;
    use crate::numa::name::Name;
    use crate::numa::spec::tests::spec;

    /// On as many CPUs as this machine lends us.
    fn here(name: Name) -> Spec {
        let mut cpus = cpus::allowed().expect("our own affinity");
        cpus.truncate(4);
        Spec { cpus, ..spec(name) }
    }

    fn events(spec: &Spec) -> (Vec<Event>, Figures) {
        let mut events = Vec::new();
        let figures = run(spec, |event| {
            events.push(event.clone());
            Ok::<(), BenchError>(())
        });
        (events, figures.expect("a small run"))
    }

    #[test]
    fn every_workload_is_right_and_does_the_same_twice() {
        for name in Name::ALL {
            let spec = here(name);
            let (events, figures) = events(&spec);
            assert!(figures.right(), "{name}: {figures:?}");
            let each = u64::from(spec.intervals) * u64::from(spec.threads()) * spec.accesses;
            assert!(figures.accesses >= each, "{name}: {figures:?}");
            assert_eq!(
                events.len(),
                2 + usize::try_from(spec.intervals).expect("few")
            );
            assert_eq!(self::events(&spec).1, figures, "{name}");
            let other = Spec { seed: 2, ..spec };
            assert_ne!(self::events(&other).1.checksum, figures.checksum, "{name}");
        }
    }

    #[test]
    fn an_interval_tells_its_accesses_and_where_the_memory_is() {
        let (events, figures) = events(&here(Name::HashTable));
        let mut accesses_all = 0;
        for event in &events {
            if let Event::Interval {
                accesses,
                placement,
                ..
            } = event
            {
                accesses_all += accesses;
                assert!(placement.present_bytes.0 >= 8 << 20, "{placement:?}");
            }
        }
        assert_eq!(accesses_all, figures.accesses);
    }

    #[test]
    fn a_thread_that_cannot_be_pinned_fails_the_run_and_holds_nobody_up() {
        let mut spec = here(Name::FalseSharing);
        spec.cpus[0] = Cpu {
            cpu: 1_000,
            node: 0,
        };
        run(&spec, |_| Ok::<(), BenchError>(())).expect_err("no such CPU");
    }

    #[test]
    fn who_does_not_want_to_hear_more_ends_the_run() {
        let gone = |_: &Event| Err(BenchError::Spec("nobody reads"));
        run(&here(Name::FirstTouch), gone).expect_err("told");
    }
}
