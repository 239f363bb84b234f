//! How long the process's own `mmap` and `munmap` take: what a manager's lock on its address space costs it.

use crate::region::PAGE;
use crate::sys;
use crate::wire::Reply;
use std::io;
use std::time::Instant;

/// Times `count` pairs of `mmap` and `munmap` of one base page.
pub fn of_mmap(count: usize) -> io::Result<Reply> {
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let address = sys::map_anywhere(PAGE)?;
        sys::unmap(address, PAGE)?;
        spans.push(start.elapsed().as_nanos());
    }
    spans.sort_unstable();
    Ok(summary(&spans))
}

fn summary(sorted: &[u128]) -> Reply {
    let at = |per_mille: usize| {
        sorted
            .get(sorted.len() * per_mille / 1000)
            .or(sorted.last())
    };
    let shown = |value: Option<&u128>| value.copied().unwrap_or(0);
    Reply::ok()
        .with("count", sorted.len())
        .with("p50_ns", shown(at(500)))
        .with("p99_ns", shown(at(990)))
        .with("p999_ns", shown(at(999)))
        .with("max_ns", shown(sorted.last()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_ranks() {
        let sorted: Vec<u128> = (1..=1000).collect();
        let line = summary(&sorted);
        assert_eq!(
            line.line(),
            "ok count=1000 p50_ns=501 p99_ns=991 p999_ns=1000 max_ns=1000"
        );
    }

    #[test]
    fn nothing_timed_is_no_panic() {
        assert_eq!(
            summary(&[]).line(),
            "ok count=0 p50_ns=0 p99_ns=0 p999_ns=0 max_ns=0"
        );
    }
}
