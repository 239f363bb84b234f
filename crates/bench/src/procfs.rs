//! The two numbers that a benchmark reads of a process: huge bytes, and whether THP is allowed.
//!
//! `smaps_rollup` walks all page tables under the process's mmap lock (about 4 ms a GiB in base pages), so a worker reads
//! it a few times a second and throws away its own mmap latencies that overlap.

use crate::error::BenchError;
use hugepilot_core::units::Bytes;

/// Huge and all anonymous memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnonMemory {
    /// Mapped by PMD-sized pages.
    pub huge: Bytes,
    /// All of it.
    pub all: Bytes,
}

/// Reads it for `pid`, or for the own process (`"self"`).
///
/// # Errors
/// If the process is gone, or belongs to somebody else.
pub fn anon_memory(pid: &str) -> Result<AnonMemory, BenchError> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = read(&path)?;
    Ok(AnonMemory {
        huge: Bytes::kib(field(&text, &path, "AnonHugePages:")?),
        all: Bytes::kib(field(&text, &path, "Anonymous:")?),
    })
}

/// The line `THP_enabled` of a process's status: may it have huge pages at all?
///
/// # Errors
/// If the process is gone.
pub fn thp_enabled(pid: &str) -> Result<bool, BenchError> {
    let path = format!("/proc/{pid}/status");
    Ok(field(&read(&path)?, &path, "THP_enabled:")? == 1)
}

fn read(path: &str) -> Result<String, BenchError> {
    std::fs::read_to_string(path).map_err(|source| BenchError::Read {
        path: path.to_owned(),
        source,
    })
}

fn field(text: &str, path: &str, field: &'static str) -> Result<u64, BenchError> {
    text.lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| BenchError::Field {
            path: path.to_owned(),
            field,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLLUP: &str = "55d0-7ffc ---p 00000000 00:00 0    [rollup]\nRss:   1508 kB\nAnonymous:    108 kB\n\
                          AnonHugePages:     2048 kB\n";

    #[test]
    fn numbers_are_found_by_the_start_of_their_line() {
        assert_eq!(
            field(ROLLUP, "f", "AnonHugePages:").expect("is there"),
            2048
        );
        assert_eq!(field(ROLLUP, "f", "Anonymous:").expect("is there"), 108);
    }

    #[test]
    fn a_missing_field_names_file_and_field() {
        let error = field(ROLLUP, "/proc/7/x", "Swap:").expect_err("is not there");
        let shown = error.to_string();
        assert!(shown.contains("/proc/7/x") && shown.contains("Swap:"));
    }

    #[test]
    fn the_own_process_can_be_read() {
        let memory = anon_memory("self").expect("our own");
        assert!(memory.all > Bytes::ZERO);
        assert!(memory.huge <= memory.all);
    }
}
