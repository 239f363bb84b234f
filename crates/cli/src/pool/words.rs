//! What the pools' commands say in sentences. Pure.

use hugepilot_linux::pool::obstacles::{Memory, Obstacle};
use hugepilot_linux::pool::resize::{Compaction, End, Resized};
use hugepilot_linux::pool::{Counters, PageSize};

/// `1 page`, `5 pages`
pub fn pages(count: u64) -> String {
    format!("{count} page{}", if count == 1 { "" } else { "s" })
}

/// `8 pages of 2 MiB (16 MiB)`
pub fn pages_of(count: u64, size: PageSize) -> String {
    format!("{} of {size} ({})", pages(count), size.times(count))
}

/// What came of resizing: what there was, what there is.
pub fn resized(size: PageSize, wanted: u64, resized: &Resized) -> Vec<String> {
    let (before, after) = (resized.before, resized.after);
    let mut said = vec![format!(
        "pool of {size} pages: {} before, {} now{}",
        before.minimum(),
        after.minimum(),
        if resized.compactions > 0 {
            format!(
                ", after compacting {} time(s), in {:.1} s",
                resized.compactions,
                resized.took.as_secs_f64()
            )
        } else {
            String::new()
        }
    )];
    said.extend(lingering(before, after));
    said.extend(end(wanted, resized));
    said
}

/// Shrinking does not take pages from those who use them.
fn lingering(before: Counters, after: Counters) -> Option<String> {
    let more = after.surplus.checked_sub(before.surplus)?;
    (more > 0 && after.minimum() < before.minimum()).then(|| {
        format!(
            "{} of those taken out are in use or promised: they stay as surplus, and go when they are given back",
            pages(more)
        )
    })
}

fn end(wanted: u64, resized: &Resized) -> Option<String> {
    let missing = wanted.saturating_sub(resized.after.minimum()); // after shrinking there may be more than wanted
    let sentence = match resized.end {
        End::Reached => return None,
        End::OutOfTime => format!(
            "{} of {wanted} missing: the time was over, not the memory; repeat, or give it more with --within",
            pages(missing)
        ),
        End::OutOfMemory => {
            format!(
                "{} of {wanted} missing: the kernel finds no more memory for them",
                pages(missing)
            )
        }
        End::Otherwise => format!(
            "{} was written and {} is shown: somebody else may have changed the pool meanwhile",
            wanted,
            resized.after.minimum()
        ),
    };
    Some(sentence)
}

/// What blocks growing, and what would help.
pub fn blocked(
    size: PageSize,
    missing: u64,
    memory: &Memory,
    compaction: Option<Compaction>,
) -> Vec<String> {
    let mut said: Vec<String> = memory
        .obstacles(size, missing)
        .iter()
        .map(|one| obstacle(size, one))
        .collect();
    if let Some(memory_free) = free_blocks(memory) {
        said.push(memory_free);
    }
    said.extend(compaction.and_then(compacted).map(str::to_owned));
    said.push(advice(size));
    said
}

fn obstacle(size: PageSize, obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::TooLittle {
            free,
            available,
            needed,
        } => {
            let there = match available {
                Some(available) => format!("{available} could be had without swapping"),
                None => format!("{free} is free there"),
            };
            format!(
                "the missing pages take {needed}, and {there}: ask for less, or free memory first"
            )
        }
        Obstacle::Fragmented { free, whole } => format!(
            "{free} is free, but only {whole} of it in blocks of {size} and above: memory is fragmented"
        ),
        Obstacle::NeedsRange => format!(
            "{size} pages are larger than any free block that the kernel keeps: it must empty a whole aligned range, in which nothing may be that cannot be moved"
        ),
        Obstacle::Fixed { share } => format!(
            "{:.0} % of the page blocks hold memory of the kernel that cannot be moved; compaction does not empty them",
            share.get() * 100.0
        ),
    }
}

fn free_blocks(memory: &Memory) -> Option<String> {
    let blocks: Vec<String> = memory.blocks.iter().map(u64::to_string).collect();
    (!blocks.is_empty()).then(|| format!("free blocks by order, from 0: {}", blocks.join(" ")))
}

const fn compacted(compaction: Compaction) -> Option<&'static str> {
    match compaction {
        Compaction::Done => None,
        Compaction::Absent => Some("this kernel cannot compact (CONFIG_COMPACTION)"),
        Compaction::Refused => Some("the kernel did not let us compact: a container may forbid it"),
    }
}

fn advice(size: PageSize) -> String {
    format!(
        "what helps: end programs that hold memory, drop caches (`sync; echo 3 > /proc/sys/vm/drop_caches`), or reserve at boot, where memory is still whole: hugepagesz={0} hugepages=N",
        size.short()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::units::{Bytes, Ratio, Span};

    fn two() -> PageSize {
        PageSize::new(Bytes::mib(2)).expect("a power of two")
    }

    fn outcome(before: [u64; 2], after: [u64; 2], end: End) -> Resized {
        let counters = |[total, surplus]: [u64; 2]| Counters {
            total,
            free: 0,
            surplus,
        };
        Resized {
            before: counters(before),
            after: counters(after),
            end,
            compactions: 0,
            compaction: None,
            took: Span::ZERO,
        }
    }

    #[test]
    fn a_success_is_one_sentence() {
        let said = resized(two(), 8, &outcome([4, 0], [8, 0], End::Reached));
        assert_eq!(said, ["pool of 2 MiB pages: 4 before, 8 now"]);
    }

    #[test]
    fn pages_that_linger_are_told() {
        let said = resized(two(), 2, &outcome([8, 0], [5, 3], End::Reached));
        assert_eq!(said.len(), 2);
        assert!(
            said[1].starts_with("3 pages of those taken out are in use"),
            "{said:?}"
        );
    }

    #[test]
    fn a_shortfall_says_how_much_and_why() {
        let said = resized(two(), 8, &outcome([4, 0], [7, 0], End::OutOfMemory));
        assert!(said[1].starts_with("1 page of 8 missing"), "{said:?}");
        let late = resized(two(), 8, &outcome([4, 0], [7, 0], End::OutOfTime));
        assert!(late[1].contains("--within"), "{late:?}");
    }

    #[test]
    fn every_obstacle_has_its_sentence() {
        let memory = Memory {
            free: Bytes::mib(64),
            available: None,
            blocks: vec![16_384, 0, 0],
            page_blocks: None,
            base_page: Bytes::kib(4),
        };
        let said = blocked(two(), 64, &memory, Some(Compaction::Absent)).join("\n");
        for part in [
            "64 MiB is free there",
            "larger than any free block",
            "16384 0 0",
            "CONFIG_COMPACTION",
            "hugepagesz=2M",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        let fixed = obstacle(
            two(),
            &Obstacle::Fixed {
                share: Ratio::of(1, 4),
            },
        );
        assert!(fixed.starts_with("25 %"), "{fixed}");
    }
}
