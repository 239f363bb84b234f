//! What the kernel prints, read and understood.
//!
//! Each file here has a pure parser on bytes (it opens nothing and never panics, whatever the bytes) and, beside it, a
//! reader that takes a [`ProcRoot`] or [`SysRoot`], so that a test brings its own `/proc`. A parser's error names the
//! kind of file and the line.

pub mod buddyinfo;
pub mod cgroup;
pub mod kpageflags;
pub mod maps;
pub mod meminfo;
pub mod mountinfo;
pub mod numa_maps;
pub mod pagemap;
pub mod pagetypeinfo;
pub mod pressure;
pub mod smaps;
pub mod stat;
pub mod status;

use crate::error::Error;
use hugepilot_core::ids::Pid;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a text was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}")]
pub struct ParseError {
    /// The kind of file: `maps`, `stat`, ….
    pub file: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// What was expected there.
    pub what: &'static str,
}

impl ParseError {
    /// An error on line `line` (from 1) of a file of kind `file`.
    #[must_use]
    pub const fn new(file: &'static str, line: usize, what: &'static str) -> Self {
        Self { file, line, what }
    }
}

/// Where `/proc` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcRoot(PathBuf);

/// Where `/sys` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysRoot(PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        Self(PathBuf::from("/proc"))
    }
}

impl Default for SysRoot {
    fn default() -> Self {
        Self(PathBuf::from("/sys"))
    }
}

impl ProcRoot {
    /// Another place than `/proc`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// A file of the whole system.
    #[must_use]
    pub fn system(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// A file of one process.
    #[must_use]
    pub fn process(&self, pid: Pid, file: &str) -> PathBuf {
        self.0.join(pid.to_string()).join(file)
    }

    /// The ids of all processes, unsorted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn pids(&self) -> Result<Vec<Pid>, Error> {
        let failed = |source| Error::Read {
            path: self.0.clone(),
            source,
        };
        let mut pids = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            pids.extend(name.to_str().and_then(|name| name.parse().ok()).map(Pid));
        }
        Ok(pids)
    }
}

impl SysRoot {
    /// Another place than `/sys`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// A file or directory below it.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }
}

/// The whole of a file.
///
/// # Errors
/// With the path.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = File::open(path).and_then(|file| rest_of(&file));
    bytes.map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

/// The whole of a file, or `None` where it does not exist: for what only some kernels have.
///
/// # Errors
/// With the path.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match File::open(path).and_then(|file| rest_of(&file)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// All that is left to read of an open file. The kernel's files have no size, so nobody asks for it, and the first read
/// takes what one of them usually is; growing from nothing takes several reads, each of which makes the text anew.
///
/// # Errors
/// The kernel's.
pub fn rest_of(file: &File) -> io::Result<Vec<u8>> {
    /// What the kernel hands out in one read, mostly.
    const ONE_READ: usize = 4096;
    let mut bytes = Vec::with_capacity(ONE_READ);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts the path to a parser's verdict.
///
/// # Errors
/// The verdict, with the path.
pub fn understood<T>(path: &Path, parsed: Result<T, ParseError>) -> Result<T, Error> {
    parsed.map_err(|source| Error::Parse {
        path: path.to_owned(),
        source,
    })
}

/// The lines of a text, numbered from 1, without an empty last one.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let count = if body.is_empty() { 0 } else { usize::MAX };
    body.split(|&byte| byte == b'\n')
        .take(count)
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

/// The words of a line: what is between spaces and tabs.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty())
}

/// A decimal number; `None` if it is anything else or does not fit.
pub(crate) fn decimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A hexadecimal number without prefix; `None` if it is anything else or does not fit.
fn hexadecimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 16 {
        return None;
    }
    word.iter().try_fold(0_u64, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some((value << 4) | u64::from(digit))
    })
}

/// The key before the first colon of a `Key: value` line, and what follows it without leading blanks.
fn key_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// The bytes of a `123 kB` value.
fn kilobytes(value: &[u8]) -> Option<u64> {
    decimal(value.strip_suffix(b" kB")?.trim_ascii())?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers_and_nothing_else() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(decimal(b"-1"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(
            hexadecimal(b"ffffffffff600000"),
            Some(0xffff_ffff_ff60_0000)
        );
        assert_eq!(hexadecimal(b"10000000000000000"), None);
        assert_eq!(kilobytes(b"   12 kB"), Some(12 << 10));
        assert_eq!(kilobytes(b"12"), None);
    }

    #[test]
    fn an_empty_text_has_no_lines() {
        assert_eq!(lines(b"").count(), 0);
        assert_eq!(lines(b"\n").count(), 0);
        assert_eq!(lines(b"a\nb\n").count(), 2);
        assert_eq!(lines(b"a\n\nb").count(), 3);
    }
}
