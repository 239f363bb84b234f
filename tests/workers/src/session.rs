//! The worker's commands.
//!
//! ```text
//! map NAME BYTES [anon|shmem|hugetlb]   new memory, aligned to 2 MiB -> address bytes [fd device inode]
//! map NAME BYTES file PATH              shared mapping of a file, also /proc/PID/fd/N of another worker's shmem
//! touch NAME OFFSET LENGTH [STEP]       write one nonzero byte every STEP (4096) -> touched
//! read NAME OFFSET LENGTH [STEP]        read one byte every STEP -> read nonzero
//! zero NAME OFFSET LENGTH               write zeros all over
//! fill NAME [SEED]                      write every byte from a seed
//! check NAME                            compare every byte with the last fill -> wrong
//! free NAME OFFSET LENGTH               MADV_DONTNEED
//! advise NAME hugepage|nohugepage
//! mlock NAME, munlock NAME              locked as far as it is present and when it gets so (MLOCK_ONFAULT)
//! pin NAME OFFSET, unpin NAME OFFSET    hold one base page in a pipe (vmsplice)
//! collapse NAME OFFSET                  MADV_COLLAPSE on itself, one slot
//! split NAME OFFSET                     MADV_COLD on itself, one base page
//! mremap NAME                           move it to a new address -> address
//! unmap NAME
//! punch NAME OFFSET LENGTH              unmap a part of it
//! fork                                  a child that shares all memory and waits -> pid
//! unfork                                kill all such children
//! base-pages                            from now on map, touch, read, zero, fill and advise leave base pages,
//!                                       whatever the system's switches say
//! thp-disable on|advised|off            prctl(PR_SET_THP_DISABLE)
//! threads NAME COUNT                    threads that verify and rewrite NAME without end
//! join                                  stop them -> touches wrong
//! mmap-latency COUNT                    time COUNT mmap/munmap pairs -> p50_ns p99_ns p999_ns max_ns
//! resident                              -> bytes
//! exec                                  become a fresh worker -> as at start
//! exit [CODE]
//! ```
//! At its start it says `ok pid=N`. Lengths and offsets are bytes, decimal or `0x…`.

use crate::Itself;
use crate::latency;
use crate::pin::{Pipe, hold};
use crate::region::{Kind, PAGE, Region, SLOT};
use crate::sys::{self, Advice};
use crate::toil::{Toil, toil};
use crate::wire::{Reply, number};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

struct Session<'a> {
    itself: &'a Itself,
    regions: HashMap<String, Region>,
    pins: HashMap<(String, usize), Pipe>,
    first_touch: FirstTouch,
    children: Vec<i32>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Toil>>,
}

/// By what a slot's first touch is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstTouch {
    AsTheSystemSays,
    BasePages,
}

/// What comes after a command.
enum Next {
    Say(Reply),
    Exit(u8),
}

/// Answers commands until standard input ends.
pub fn serve(itself: &Itself) -> Result<ExitCode, String> {
    die_with_parent().map_err(|error| format!("PR_SET_PDEATHSIG: {error}"))?;
    let mut session = Session {
        itself,
        regions: HashMap::new(),
        pins: HashMap::new(),
        first_touch: FirstTouch::AsTheSystemSays,
        children: Vec::new(),
        stop: Arc::default(),
        threads: Vec::new(),
    };
    say(Reply::ok().with("pid", std::process::id()).line())?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("reading a command: {error}"))?;
        match session.obey(&line) {
            Ok(Next::Say(reply)) => say(reply.line())?,
            Ok(Next::Exit(code)) => {
                session.end_children().map_err(|error| error.to_string())?;
                return Ok(ExitCode::from(code));
            }
            Err(message) => say(&format!("err {}", message.replace('\n', " ")))?,
        }
    }
    session.end_children().map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the kernel to kill this process with the thread that started it.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// The same for a forked child of `parent`, which may have died before the kernel was asked.
pub fn die_with(parent: u32) -> io::Result<()> {
    die_with_parent()?;
    let wanted = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if rustix::process::getppid() == wanted {
        Ok(())
    } else {
        Err(io::Error::other("the parent is gone"))
    }
}

fn say(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| format!("replying: {error}"))
}

type Done = Result<Next, String>;

fn done(result: io::Result<()>) -> Done {
    result
        .map(|()| Next::Say(Reply::ok()))
        .map_err(|error| error.to_string())
}

impl Session<'_> {
    fn obey(&mut self, line: &str) -> Done {
        let words: Vec<&str> = line.split_whitespace().collect();
        let touches = matches!(
            words.first(),
            Some(&("map" | "touch" | "read" | "zero" | "fill" | "advise"))
        );
        match (self.first_touch, touches) {
            (FirstTouch::BasePages, true) => self.obey_without_thp(&words),
            (FirstTouch::BasePages, false) | (FirstTouch::AsTheSystemSays, _) => {
                self.obey_words(&words)
            }
        }
    }

    /// Obeys while the process refuses THP: neither does a fault make a huge page, nor does the kernel put the process on
    /// khugepaged's list, which it does where it sees that a region may have one.
    fn obey_without_thp(&mut self, words: &[&str]) -> Done {
        let text = |error: io::Error| error.to_string();
        if sys::refuses_thp().map_err(text)? {
            return self.obey_words(words);
        }
        sys::set_thp_disable(true, 0).map_err(text)?;
        let done = self.obey_words(words);
        sys::set_thp_disable(false, 0).map_err(text)?;
        done
    }

    fn obey_words(&mut self, words: &[&str]) -> Done {
        match words {
            ["map", name, bytes, how @ ..] => self.map(name, number(bytes)?, how),
            ["unmap", name] => self.unmap(name),
            ["punch", name, offset, length] => self.punch(name, number(offset)?, number(length)?),
            ["mremap", name] => self.relocate(name),
            ["touch", name, range @ ..] => self.touch(name, range),
            ["read", name, range @ ..] => self.read(name, range),
            ["zero", name, offset, length] => self.zero(name, number(offset)?, number(length)?),
            ["fill", name] => self.fill(name, 1),
            ["fill", name, seed] => self.fill(name, number(seed)?),
            ["check", name] => self.check(name),
            ["free", name, offset, length] => {
                self.advise(name, number(offset)?, number(length)?, Advice::DontNeed)
            }
            ["advise", name, "hugepage"] => self.advise_all(name, Advice::Huge),
            ["advise", name, "nohugepage"] => self.advise_all(name, Advice::NoHuge),
            ["collapse", name, offset] => {
                self.advise(name, number(offset)?, SLOT, Advice::Collapse)
            }
            ["split", name, offset] => self.advise(name, number(offset)?, PAGE, Advice::Cold),
            ["mlock", name] => {
                let region = self.region(name)?;
                done(sys::lock_on_fault(region.address(), region.bytes()))
            }
            ["munlock", name] => {
                let region = self.region(name)?;
                done(sys::unlock(region.address(), region.bytes()))
            }
            ["pin", name, offset] => self.pin(name, number(offset)?),
            ["unpin", name, offset] => self.unpin(name, number(offset)?),
            ["threads", name, count] => self.start_threads(name, number(count)?),
            ["join"] => self.join_threads(),
            _ => self.obey_about_process(words),
        }
    }

    fn obey_about_process(&mut self, words: &[&str]) -> Done {
        match words {
            ["fork"] => self.fork(),
            ["unfork"] => done(self.end_children()),
            ["base-pages"] => {
                self.first_touch = FirstTouch::BasePages;
                Ok(Next::Say(Reply::ok()))
            }
            ["thp-disable", "on"] => done(sys::set_thp_disable(true, 0)),
            ["thp-disable", "advised"] => done(sys::set_thp_disable(true, 2)),
            ["thp-disable", "off"] => done(sys::set_thp_disable(false, 0)),
            ["mmap-latency", count] => latency::of_mmap(number(count)?)
                .map(Next::Say)
                .map_err(|error| error.to_string()),
            ["resident"] => resident(),
            ["exec"] => self.exec(),
            ["exit"] => Ok(Next::Exit(0)),
            ["exit", code] => u8::try_from(number(code)?)
                .map(Next::Exit)
                .map_err(|error| format!("exit code {code}: {error}")),
            _ => Err(format!("no such command: {}", words.join(" "))),
        }
    }

    fn region(&self, name: &str) -> Result<&Region, String> {
        self.regions
            .get(name)
            .ok_or_else(|| format!("no region is called {name}"))
    }

    fn range(&self, name: &str, words: &[&str]) -> Result<(usize, usize, usize), String> {
        let (offset, length, step) = match words {
            [offset, length] => (number(offset)?, number(length)?, PAGE),
            [offset, length, step] => (number(offset)?, number(length)?, number(step)?),
            _ => return Err("wanted: NAME OFFSET LENGTH [STEP]".to_owned()),
        };
        if step == 0 {
            return Err("a step of nothing never ends".to_owned());
        }
        let address = self
            .region(name)?
            .at(offset, length)
            .map_err(|error| error.to_string())?;
        Ok((address, length, step))
    }

    fn map(&mut self, name: &str, bytes: usize, how: &[&str]) -> Done {
        if self.regions.contains_key(name) {
            return Err(format!("{name} is mapped already"));
        }
        let region = match how {
            [] | ["anon"] => Region::map(Kind::Anonymous, bytes),
            ["hugetlb"] => Region::map(Kind::Hugetlb, bytes),
            ["shmem"] => Region::map_memfd(name, bytes),
            ["file", path] => File::options()
                .read(true)
                .write(true)
                .open(path)
                .and_then(|file| Region::map(Kind::Shared(file), bytes)),
            _ => return Err(format!("no such kind of memory: {}", how.join(" "))),
        }
        .map_err(|error| error.to_string())?;
        let mut reply = Reply::ok()
            .with("address", format_args!("{:#x}", region.address()))
            .with("bytes", region.bytes());
        if let Some((fd, id)) = region.file().map_err(|error| error.to_string())? {
            reply = reply
                .with("fd", fd)
                .with("device", id.device)
                .with("inode", id.inode);
        }
        self.regions.insert(name.to_owned(), region);
        Ok(Next::Say(reply))
    }

    fn unmap(&mut self, name: &str) -> Done {
        self.no_threads()?;
        self.region(name)?;
        self.regions.remove(name);
        Ok(Next::Say(Reply::ok()))
    }

    fn punch(&self, name: &str, offset: usize, length: usize) -> Done {
        self.no_threads()?;
        let range = self.region(name)?.at(offset, length);
        done(range.and_then(|address| sys::unmap(address, length)))
    }

    fn relocate(&mut self, name: &str) -> Done {
        self.no_threads()?;
        let region = self
            .regions
            .get_mut(name)
            .ok_or_else(|| format!("no region is called {name}"))?;
        region.relocate().map_err(|error| error.to_string())?;
        Ok(Next::Say(
            Reply::ok().with("address", format_args!("{:#x}", region.address())),
        ))
    }

    fn touch(&self, name: &str, range: &[&str]) -> Done {
        let (address, length, step) = self.range(name, range)?;
        let places = (address..address + length).step_by(step);
        let touched = places.len();
        places.for_each(|at| sys::poke(at, 1));
        Ok(Next::Say(Reply::ok().with("touched", touched)))
    }

    fn read(&self, name: &str, range: &[&str]) -> Done {
        let (address, length, step) = self.range(name, range)?;
        let places = (address..address + length).step_by(step);
        let read = places.len();
        let nonzero = places.filter(|at| sys::peek(*at) != 0).count();
        Ok(Next::Say(
            Reply::ok().with("read", read).with("nonzero", nonzero),
        ))
    }

    fn zero(&self, name: &str, offset: usize, length: usize) -> Done {
        let address = self
            .region(name)?
            .at(offset, length)
            .map_err(|error| error.to_string())?;
        (address..address + length).for_each(|at| sys::poke(at, 0));
        Ok(Next::Say(Reply::ok()))
    }

    fn fill(&mut self, name: &str, seed: usize) -> Done {
        let region = self
            .regions
            .get_mut(name)
            .ok_or_else(|| format!("no region is called {name}"))?;
        region.fill(u64::try_from(seed).expect("usize is 64 bits"));
        Ok(Next::Say(Reply::ok()))
    }

    fn check(&self, name: &str) -> Done {
        let wrong = self
            .region(name)?
            .check()
            .ok_or_else(|| format!("{name} was never filled"))?;
        Ok(Next::Say(Reply::ok().with("wrong", wrong)))
    }

    fn advise(&self, name: &str, offset: usize, length: usize, advice: Advice) -> Done {
        let address = self
            .region(name)?
            .at(offset, length)
            .map_err(|error| error.to_string())?;
        done(sys::advise(address, length, advice))
    }

    fn advise_all(&self, name: &str, advice: Advice) -> Done {
        let bytes = self.region(name)?.bytes();
        self.advise(name, 0, bytes, advice)
    }

    fn pin(&mut self, name: &str, offset: usize) -> Done {
        let address = self
            .region(name)?
            .at(offset, PAGE)
            .map_err(|error| error.to_string())?;
        let held = hold(address).map_err(|error| error.to_string())?;
        self.pins.insert((name.to_owned(), offset), held);
        Ok(Next::Say(Reply::ok()))
    }

    fn unpin(&mut self, name: &str, offset: usize) -> Done {
        let held = self.pins.remove(&(name.to_owned(), offset));
        held.map(|_pipe| Next::Say(Reply::ok()))
            .ok_or_else(|| "nothing is pinned there".to_owned())
    }

    fn fork(&mut self) -> Done {
        let parent = std::process::id();
        match sys::fork().map_err(|error| error.to_string())? {
            Some(pid) => {
                self.children.push(pid);
                Ok(Next::Say(Reply::ok().with("pid", pid)))
            }
            None => match die_with(parent) {
                Ok(()) => sys::pause_for_ever(),
                Err(_no_use_without) => sys::exit_now(1),
            },
        }
    }

    fn end_children(&mut self) -> io::Result<()> {
        for child in self.children.drain(..) {
            let pid = Pid::from_raw(child).expect("fork returned it");
            rustix::process::kill_process(pid, Signal::KILL)?;
            rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
        }
        Ok(())
    }

    fn exec(&mut self) -> Done {
        self.no_threads()?;
        self.end_children().map_err(|error| error.to_string())?;
        let error = self.itself.command().arg("serve").exec();
        Err(format!("exec: {error}"))
    }

    fn no_threads(&self) -> Result<(), String> {
        if self.threads.is_empty() {
            Ok(())
        } else {
            Err("threads are using memory".to_owned())
        }
    }

    fn start_threads(&mut self, name: &str, count: usize) -> Done {
        let region = self.region(name)?;
        let (address, bytes, seed) = (region.address(), region.bytes(), region.seed());
        let seed = seed.ok_or_else(|| format!("{name} was never filled"))?;
        for index in 0..count {
            let stop = Arc::clone(&self.stop);
            let stripe = move || toil(&stop, address, seed, (index..bytes / PAGE).step_by(count));
            self.threads.push(std::thread::spawn(stripe));
        }
        Ok(Next::Say(Reply::ok()))
    }

    fn join_threads(&mut self) -> Done {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Toil::default();
        for thread in self.threads.drain(..) {
            let one = thread
                .join()
                .map_err(|_panic| "a thread panicked".to_owned())?;
            sum.touches += one.touches;
            sum.wrong += one.wrong;
        }
        self.stop.store(false, Ordering::Relaxed);
        Ok(Next::Say(
            Reply::ok()
                .with("touches", sum.touches)
                .with("wrong", sum.wrong),
        ))
    }
}

fn resident() -> Done {
    let text = std::fs::read_to_string("/proc/self/statm").map_err(|error| error.to_string())?;
    let pages = text
        .split_whitespace()
        .nth(1)
        .ok_or("statm has no second field")?;
    Ok(Next::Say(Reply::ok().with("bytes", number(pages)? * PAGE)))
}
