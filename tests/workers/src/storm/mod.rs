//! The abuse worker: memory whose every byte is known, in processes that do everything to it at random from a seed.
//!
//! ```text
//! hugepilot-worker storm --seconds N --seed S --bytes B [--threads T]
//! ```
//! *Holders* (two processes of T threads) keep B bytes mapped all the time, verify them without end, rewrite, zero and
//! free single pages: what a manager can collapse and split at a high rate. *Churners* (two processes) map, write, fork,
//! lock, pin, move, advise and unmap, collapse and split themselves, exec, and die; the dead are replaced. All count
//! into one page of shared memory, which outlives them.
//!
//! The first line says who they are: `{"root":PID,"holders":[…],"churners":[…]}`; later churners are children of the
//! root too. The last line has the counts. The exit code is 1 if a byte was wrong or a process died otherwise than it
//! meant to.

mod churner;
mod counters;
mod holder;
mod patch;

use crate::region::SLOT;
use crate::{Itself, session::die_with_parent};
use counters::{Counter, Counters};
use rustix::process::Signal;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const HOLDERS: usize = 2;
const CHURNERS: usize = 2;
/// How often the root looks after its children.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// Memory of one churner: enough for a few regions of several slots.
const CHURNER_BYTES: usize = 16 * SLOT;

#[derive(Debug)]
struct Options {
    seconds: u64,
    seed: u64,
    bytes: usize,
    threads: usize,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            seconds: 10,
            seed: 1,
            bytes: 64 << 20,
            threads: 2,
        };
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(format!("{} wants a number", pair.concat()));
            };
            let number = crate::wire::number(value)?;
            let wide = u64::try_from(number).expect("usize is 64 bits");
            match *name {
                "--seconds" => options.seconds = wide,
                "--seed" => options.seed = wide,
                "--bytes" => options.bytes = number,
                "--threads" => options.threads = number.max(1),
                other => return Err(format!("no such option: {other}\n{}", crate::USAGE)),
            }
        }
        Ok(options)
    }
}

/// The storm's root, or (by the names that it gives them) one of its processes.
pub fn run(itself: &Itself, words: &[&str]) -> Result<ExitCode, String> {
    match words {
        ["holder", counters, seed, bytes, threads] => {
            join(counters)?;
            holder::run(
                number(seed)?,
                crate::wire::number(bytes)?,
                crate::wire::number(threads)?,
            )
        }
        ["churner", counters, seed] => {
            join(counters)?;
            churner::run(itself, counters, number(seed)?, CHURNER_BYTES)
        }
        options => Storm::start(itself, &Options::parse(options)?)?.rage(),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse()
        .map_err(|error| format!("{word} is not a number: {error}"))
}

fn join(path: &str) -> Result<(), String> {
    die_with_parent().map_err(|error| format!("PR_SET_PDEATHSIG: {error}"))?;
    counters::join(path).map_err(|error| format!("{path}: {error}"))
}

struct Storm<'a> {
    itself: &'a Itself,
    counters_path: String,
    next_seed: u64,
    until: Instant,
    holders: Vec<Child>,
    churners: Vec<Child>,
    /// Children that were killed, by themselves or by somebody else.
    kills: u64,
    /// Children that ended as no program of ours ends by choice.
    crashes: u64,
}

impl<'a> Storm<'a> {
    fn start(itself: &'a Itself, options: &Options) -> Result<Self, String> {
        die_with_parent().map_err(|error| format!("PR_SET_PDEATHSIG: {error}"))?;
        let counters_path = counters::create().map_err(|error| format!("counters: {error}"))?;
        let mut storm = Self {
            itself,
            counters_path,
            next_seed: options.seed.wrapping_mul(1 << 20),
            until: Instant::now() + Duration::from_secs(options.seconds),
            holders: Vec::new(),
            churners: Vec::new(),
            kills: 0,
            crashes: 0,
        };
        let bytes = options.bytes.div_ceil(HOLDERS).next_multiple_of(SLOT);
        for _ in 0..HOLDERS {
            let numbers = [bytes, options.threads].map(|number| number.to_string());
            let child = storm.spawn("holder", &numbers)?;
            storm.holders.push(child);
        }
        for _ in 0..CHURNERS {
            let child = storm.spawn("churner", &[])?;
            storm.churners.push(child);
        }
        storm.introduce()?;
        Ok(storm)
    }

    fn spawn(&mut self, role: &str, rest: &[String]) -> Result<Child, String> {
        self.next_seed += 1;
        let seed = self.next_seed.to_string();
        let mut command = self.itself.command();
        command
            .args(["storm", role, &self.counters_path, &seed])
            .args(rest)
            .stdin(Stdio::null());
        command
            .spawn()
            .map_err(|error| format!("starting a {role}: {error}"))
    }

    fn introduce(&self) -> Result<(), String> {
        let ids = |children: &[Child]| {
            let ids: Vec<String> = children
                .iter()
                .map(|child| child.id().to_string())
                .collect();
            ids.join(",")
        };
        let (holders, churners) = (ids(&self.holders), ids(&self.churners));
        let root = std::process::id();
        say(&format!(
            "{{\"root\":{root},\"holders\":[{holders}],\"churners\":[{churners}]}}"
        ))
    }

    fn rage(mut self) -> Result<ExitCode, String> {
        while Instant::now() < self.until {
            std::thread::sleep(LOOK_AFTER);
            self.replace_the_dead()?;
        }
        counters::stop();
        let children: Vec<Child> = self
            .holders
            .drain(..)
            .chain(self.churners.drain(..))
            .collect();
        for mut child in children {
            let status = child.wait().map_err(|error| error.to_string())?;
            self.bury(status);
        }
        self.crashes += self.kills.abs_diff(Counters::get(Counter::OwnKills));
        self.conclude()
    }

    fn replace_the_dead(&mut self) -> Result<(), String> {
        for place in 0..self.churners.len() {
            let status = self.churners[place]
                .try_wait()
                .map_err(|error| error.to_string())?;
            if let Some(status) = status {
                self.bury(status);
                self.churners[place] = self.spawn("churner", &[])?;
            }
        }
        for holder in &mut self.holders {
            if let Some(status) = holder.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("a holder ended early: {status}"));
            }
        }
        Ok(())
    }

    fn bury(&mut self, status: ExitStatus) {
        match (status.code(), status.signal()) {
            (Some(0), _) => {}
            (None, Some(signal)) if signal == Signal::KILL.as_raw() => self.kills += 1,
            (_, _) => self.crashes += 1,
        }
    }

    fn conclude(self) -> Result<ExitCode, String> {
        let counted = Counter::ALL
            .map(|counter| format!("\"{}\":{}", counter.name(), Counters::get(counter)));
        say(&format!(
            "{{{},\"crashes\":{}}}",
            counted.join(","),
            self.crashes
        ))?;
        let clean = Counters::get(Counter::WrongBytes) == 0 && self.crashes == 0;
        Ok(if clean {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| format!("printing: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_numbers_by_name() {
        let options = Options::parse(&["--seed", "7", "--bytes", "0x200000"]).expect("well formed");
        assert_eq!((options.seed, options.bytes, options.threads), (7, SLOT, 2));
        assert!(Options::parse(&["--seed"]).is_err());
        assert!(Options::parse(&["--speed", "1"]).is_err());
    }
}
