//! A churner: one thread that does to its address space whatever a program may do, and knows every byte at all times.

use super::counters::{Counter, Counters};
use super::patch::Patch;
use crate::Itself;
use crate::pattern::Random;
use crate::pin::{Pipe, hold};
use crate::region::{PAGE, SLOT, reserve};
use crate::session::die_with;
use crate::sys::{self, Advice};
use rustix::process::{Pid, Signal, WaitOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// Slots of the largest patch.
const PATCH_SLOTS: usize = 4;
/// Pages that a churner holds at the same time.
const PINS_MAX: usize = 8;

struct Churner<'a> {
    itself: &'a Itself,
    counters: &'a str,
    random: Random,
    bytes_max: usize,
    patches: Vec<Patch>,
    pins: Vec<Pipe>,
}

/// Churns until the storm stops, or it chooses to die.
pub fn run(
    itself: &Itself,
    counters: &str,
    seed: u64,
    bytes_max: usize,
) -> Result<ExitCode, String> {
    let random = Random::new(seed);
    let (patches, pins) = (Vec::new(), Vec::new());
    let mut churner = Churner {
        itself,
        counters,
        random,
        bytes_max,
        patches,
        pins,
    };
    while !Counters::stopped() {
        if churner
            .step()
            .map_err(|error| format!("churning with seed {seed}: {error}"))?
            == Then::End
        {
            break;
        }
    }
    churner.verify();
    Ok(ExitCode::SUCCESS)
}

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    End,
}

impl Churner<'_> {
    /// One thing at random; of a thousand, one is an exec and one or two are deaths.
    fn step(&mut self) -> io::Result<Then> {
        if self.patches.is_empty() {
            return self.map();
        }
        match self.random.below(1000) {
            0 => self.exec(),
            1 => self.kill_itself(),
            2 => self.end(),
            3..30 => self.fork(),
            30..130 => self.map(),
            130..400 => self.write(),
            400..500 => self.free(),
            500..560 => self.lock(),
            560..600 => self.unlock(),
            600..680 => self.relocate(),
            680..740 => self.unmap_part(),
            740..770 => self.unmap_all(),
            770..800 => self.pin(),
            800..900 => self.act_on_itself(),
            900..920 => self.advise(),
            _ => {
                self.verify();
                Ok(Then::GoOn)
            }
        }
    }

    fn any(&mut self) -> &mut Patch {
        let number = self.random.below(self.patches.len());
        &mut self.patches[number]
    }

    /// A patch and a random run of it.
    fn any_run(&mut self) -> (usize, std::ops::Range<usize>) {
        let number = self.random.below(self.patches.len());
        let run = self.patches[number].any_run(&mut self.random);
        (number, run)
    }

    fn verify(&self) {
        self.patches.iter().for_each(Patch::verify);
    }

    fn map(&mut self) -> io::Result<Then> {
        let held: usize = self.patches.iter().map(Patch::bytes).sum();
        let slots = 1 + self.random.below(PATCH_SLOTS);
        if held + slots * SLOT > self.bytes_max {
            return self.unmap_all();
        }
        self.patches
            .push(Patch::map(reserve(slots * SLOT), slots * SLOT / PAGE)?);
        Ok(Then::GoOn)
    }

    fn write(&mut self) -> io::Result<Then> {
        let (number, run) = self.any_run();
        self.patches[number].write(run, &mut self.random);
        Ok(Then::GoOn)
    }

    fn free(&mut self) -> io::Result<Then> {
        let (number, run) = self.any_run();
        self.patches[number].free(run)?;
        Ok(Then::GoOn)
    }

    fn lock(&mut self) -> io::Result<Then> {
        let patch = self.any();
        if patch.is_whole()
            && !patch.locked
            && sys::lock_on_fault(patch.address, patch.bytes()).is_ok()
        {
            patch.locked = true;
            Counters::add(Counter::Mlocks, 1);
        }
        Ok(Then::GoOn)
    }

    fn unlock(&mut self) -> io::Result<Then> {
        self.any().unlock()?;
        Ok(Then::GoOn)
    }

    /// Moves a patch, in half of the cases out of its alignment.
    fn relocate(&mut self) -> io::Result<Then> {
        let shift = if self.random.below(2) == 0 {
            0
        } else {
            PAGE * self.random.below(SLOT / PAGE)
        };
        let patch = self.any();
        if patch.is_whole() {
            let to = reserve(patch.bytes() + SLOT) + shift;
            sys::remap(patch.address, patch.bytes(), to)?;
            patch.address = to;
            Counters::add(Counter::Mremaps, 1);
        }
        Ok(Then::GoOn)
    }

    fn unmap_part(&mut self) -> io::Result<Then> {
        let (number, run) = self.any_run();
        let patch = &mut self.patches[number];
        patch.unlock()?;
        if !patch.locked {
            patch.unmap(run)?;
        }
        Ok(Then::GoOn)
    }

    fn unmap_all(&mut self) -> io::Result<Then> {
        let number = self.random.below(self.patches.len());
        let mut patch = self.patches.swap_remove(number);
        patch.verify();
        let all = 0..patch.pages.len();
        patch.unmap(all)?;
        Ok(Then::GoOn)
    }

    fn pin(&mut self) -> io::Result<Then> {
        if self.pins.len() == PINS_MAX {
            self.pins.clear();
        }
        let (number, run) = self.any_run();
        let patch = &self.patches[number];
        if patch.is_whole() {
            self.pins.push(hold(patch.at(run.start))?);
            Counters::add(Counter::Pins, 1);
        }
        Ok(Then::GoOn)
    }

    /// Collapses or splits a slot itself, against whoever does so from outside. That it fails is as good.
    fn act_on_itself(&mut self) -> io::Result<Then> {
        let (number, run) = self.any_run();
        let at = self.patches[number].at(run.start);
        let tried = match self.random.below(2) {
            0 => sys::advise(at.next_multiple_of(SLOT), SLOT, Advice::Collapse),
            _ => sys::advise(at, PAGE, Advice::Cold),
        };
        Counters::add(Counter::OwnActions, u64::from(tried.is_ok()));
        Ok(Then::GoOn)
    }

    fn advise(&mut self) -> io::Result<Then> {
        let advice = if self.random.below(2) == 0 {
            Advice::Huge
        } else {
            Advice::NoHuge
        };
        let patch = self.any();
        if patch.is_whole() {
            sys::advise(patch.address, patch.bytes(), advice)?;
        }
        Ok(Then::GoOn)
    }

    /// Parent and child both write and verify what they share copy-on-write.
    fn fork(&mut self) -> io::Result<Then> {
        Counters::add(Counter::Forks, 1);
        let parent = std::process::id();
        let Some(child) = sys::fork()? else {
            self.live_as_child(parent);
        };
        self.scribble();
        let pid = Pid::from_raw(child).ok_or_else(|| io::Error::other("fork returned no pid"))?;
        let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
        match status.and_then(|(_, status)| status.exit_status()) {
            Some(0) => Ok(Then::GoOn),
            code => Err(io::Error::other(format!(
                "a forked child ended with {code:?}"
            ))),
        }
    }

    fn live_as_child(&mut self, parent: u32) -> ! {
        if die_with(parent).is_err() {
            sys::exit_now(1);
        }
        self.random = Random::new(self.random.next());
        self.scribble();
        sys::exit_now(0)
    }

    fn scribble(&mut self) {
        self.verify();
        for _ in 0..4 {
            let (number, run) = self.any_run();
            self.patches[number].write(run, &mut self.random);
        }
        self.verify();
    }

    fn exec(&mut self) -> io::Result<Then> {
        self.verify();
        Counters::add(Counter::Execs, 1);
        let seed = self.random.next().to_string();
        Err(self
            .itself
            .command()
            .args(["storm", "churner", self.counters, &seed])
            .exec())
    }

    fn kill_itself(&mut self) -> io::Result<Then> {
        self.verify();
        Counters::add(Counter::Deaths, 1);
        Counters::add(Counter::OwnKills, 1);
        rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
        sys::pause_for_ever()
    }

    fn end(&mut self) -> io::Result<Then> {
        Counters::add(Counter::Deaths, 1);
        Ok(Then::End)
    }
}
