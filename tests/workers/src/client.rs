//! The other end of a worker: starts one, asks, and ends it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// Why a worker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The program is not where the tests look for it.
    #[error("{} is missing: run `cargo build -p hugepilot-workers`", .0.display())]
    Missing(PathBuf),
    /// It could not be started or talked to.
    #[error("worker: {0}")]
    Io(#[from] io::Error),
    /// It ended.
    #[error("the worker ended instead of answering `{0}`")]
    Ended(String),
    /// It said no.
    #[error("`{command}`: {message}")]
    Refused {
        /// What was asked.
        command: String,
        /// What it said.
        message: String,
    },
    /// It said something else than the protocol allows.
    #[error("`{command}` was answered by `{reply}`")]
    Garbled {
        /// What was asked.
        command: String,
        /// What it said.
        reply: String,
    },
}

/// A reply: its numbers by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    command: String,
    values: BTreeMap<String, u64>,
}

impl Reply {
    fn parse(command: &str, line: &str) -> Result<Self, WorkerError> {
        let garbled = || WorkerError::Garbled {
            command: command.to_owned(),
            reply: line.to_owned(),
        };
        if let Some(message) = line.strip_prefix("err ") {
            let (command, message) = (command.to_owned(), message.to_owned());
            return Err(WorkerError::Refused { command, message });
        }
        let mut words = line.split_whitespace();
        if words.next() != Some("ok") {
            return Err(garbled());
        }
        let values = words.map(pair).collect::<Option<_>>().ok_or_else(garbled)?;
        Ok(Self {
            command: command.to_owned(),
            values,
        })
    }

    /// The number called `key`.
    ///
    /// # Errors
    /// If the reply has none.
    pub fn number(&self, key: &str) -> Result<u64, WorkerError> {
        self.values
            .get(key)
            .copied()
            .ok_or_else(|| WorkerError::Garbled {
                command: self.command.clone(),
                reply: format!("{:?} without {key}", self.values),
            })
    }
}

fn pair(word: &str) -> Option<(String, u64)> {
    let (key, value) = word.split_once('=')?;
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => value.parse().ok()?,
    };
    Some((key.to_owned(), number))
}

/// What kind of memory to map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Private anonymous memory.
    Anonymous,
    /// A new memfd.
    Shmem,
    /// hugetlb pages of the default size.
    Hugetlb,
    /// A file, shared.
    File(PathBuf),
}

impl Kind {
    fn words(&self) -> String {
        match self {
            Self::Anonymous => "anon".to_owned(),
            Self::Shmem => "shmem".to_owned(),
            Self::Hugetlb => "hugetlb".to_owned(),
            Self::File(path) => format!("file {}", path.display()),
        }
    }
}

/// Memory that a worker mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// Its name in the worker.
    pub name: String,
    /// First virtual address, aligned to 2 MiB.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// The file behind it: path through the worker's descriptor, device and inode as `stat` gives them.
    pub file: Option<SharedFile>,
}

/// The file behind a shared mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFile {
    /// By which any other process may open it while the worker lives.
    pub path: PathBuf,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// A running worker; it is killed when this is dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the worker program `file`.
    ///
    /// # Errors
    /// If it is missing or does not greet.
    pub fn start(file: &Path) -> Result<Self, WorkerError> {
        Self::start_behind(file, [] as [&str; 0])
    }

    /// Starts a program that is a worker behind the arguments `prefix`.
    ///
    /// # Errors
    /// If it is missing or does not greet.
    pub fn start_behind<S: AsRef<OsStr>>(
        file: &Path,
        prefix: impl IntoIterator<Item = S>,
    ) -> Result<Self, WorkerError> {
        if !file.exists() {
            return Err(WorkerError::Missing(file.to_owned()));
        }
        let mut command = Command::new(file);
        command.args(prefix).arg("serve");
        Self::start_command(command)
    }

    /// Starts a prepared command (other credentials, say) that runs `hugepilot-worker serve`.
    ///
    /// # Errors
    /// If it does not start or does not greet.
    pub fn start_command(mut command: Command) -> Result<Self, WorkerError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut worker = Self {
            child,
            input,
            output,
        };
        worker.answer("start")?;
        Ok(worker)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// If it refuses, ends or talks nonsense.
    pub fn ask(&mut self, command: &str) -> Result<Reply, WorkerError> {
        writeln!(self.input, "{command}")?;
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> Result<Reply, WorkerError> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(WorkerError::Ended(command.to_owned()));
        }
        Reply::parse(command, line.trim_end())
    }

    /// Maps `bytes` of `kind` as `name`.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub fn map(&mut self, name: &str, bytes: u64, kind: &Kind) -> Result<Mapped, WorkerError> {
        let reply = self.ask(&format!("map {name} {bytes} {}", kind.words()))?;
        let file = match kind {
            Kind::Anonymous | Kind::Hugetlb => None,
            Kind::Shmem | Kind::File(_) => Some(SharedFile {
                path: format!("/proc/{}/fd/{}", self.pid(), reply.number("fd")?).into(),
                device: reply.number("device")?,
                inode: reply.number("inode")?,
            }),
        };
        let (address, bytes) = (reply.number("address")?, reply.number("bytes")?);
        Ok(Mapped {
            name: name.to_owned(),
            address,
            bytes,
            file,
        })
    }

    /// Writes one byte to each base page of `length` bytes from `offset`.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub fn touch(&mut self, name: &str, offset: u64, length: u64) -> Result<(), WorkerError> {
        self.ask(&format!("touch {name} {offset} {length}"))
            .map(drop)
    }

    /// Compares every byte with the last `fill`; the number of wrong ones.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub fn check(&mut self, name: &str) -> Result<u64, WorkerError> {
        self.ask(&format!("check {name}"))?.number("wrong")
    }

    /// Kills it and waits until it is gone.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(&mut self) -> Result<ExitStatus, WorkerError> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A worker that has ended is what is wanted; one that cannot be killed dies with this process.
        let _ended_already = self.kill();
    }
}

/// Where cargo puts the worker: beside the test programs' directory.
///
/// # Errors
/// With a sentence that says what to run, if it is not there.
pub fn binary() -> Result<PathBuf, WorkerError> {
    let own = std::env::current_exe()?;
    let places = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("hugepilot-worker"));
    let candidates: Vec<PathBuf> = places.collect();
    match candidates.iter().find(|file| file.exists()) {
        Some(file) => Ok(file.clone()),
        None => Err(WorkerError::Missing(
            candidates.last().unwrap_or(&own).clone(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_numbers_by_name() {
        let reply = Reply::parse("x", "ok address=0x200000 bytes=7").expect("well formed");
        assert_eq!(reply.number("address").expect("there"), 2 << 20);
        assert!(reply.number("inode").is_err());
    }

    #[test]
    fn a_refusal_is_an_error_with_its_words() {
        let refused = Reply::parse("check a", "err a was never filled").expect_err("refused");
        assert_eq!(refused.to_string(), "`check a`: a was never filled");
    }

    #[test]
    fn nonsense_is_told_from_numbers() {
        assert!(Reply::parse("x", "ok address").is_err());
        assert!(Reply::parse("x", "segfault").is_err());
    }
}
