//! A census and its verdicts as text. Pure.

use super::census::{BUCKETS, Census, Histogram, Makeup};
use super::opt_out;
use super::verdicts::Verdict;
use crate::numa::{self, View};
use hugepilot_core::geometry::{Geometry, Order};
use hugepilot_core::observation::MemoryKind;
use hugepilot_core::units::{BasePages, Bytes};
use std::fmt::Write;

/// Characters that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// Block characters.
    Unicode,
    /// `#` and `.`.
    Ascii,
}

impl Charset {
    /// What a locale's name says, the first of these that is set: `LC_ALL`, `LC_CTYPE`, `LANG`.
    pub fn of(locale: &str) -> Self {
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Self::Unicode
        } else {
            Self::Ascii
        }
    }
}

/// Width of the longest bar, in characters.
const BAR: u64 = 40;

/// A bar of `part` over `most`: eighths of a character where they can be drawn; never empty for something.
fn bar(part: u64, most: u64, charset: Charset) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part == 0 || most == 0 {
        return String::new();
    }
    let eighths = (u128::from(part) * u128::from(BAR) * 8 / u128::from(most)).max(1);
    let eighths = usize::try_from(eighths).expect("at most 320");
    match charset {
        Charset::Unicode => "█".repeat(eighths / 8) + EIGHTHS[eighths % 8],
        Charset::Ascii => "#".repeat(eighths.div_ceil(8)),
    }
}

/// The words for a kind of memory.
pub(super) fn kind_words(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Anonymous => "anonymous",
        MemoryKind::Shmem => "shmem",
        MemoryKind::File => "file",
        MemoryKind::Hugetlb => "hugetlb",
        MemoryKind::Special => "special",
    }
}

/// The census and the verdicts, for people; `regions_max` regions are listed.
pub fn text(
    census: &Census,
    verdicts: &[Verdict],
    numa: Option<&View>,
    (regions_max, charset): (usize, Charset),
) -> String {
    let mut text = String::new();
    let total = census.total();
    let mut put = |lines: Vec<String>| {
        lines
            .iter()
            .for_each(|line| writeln!(text, "{line}").expect("a string takes it"));
    };
    put(vec![format!("{} ({})", census.comm, census.process)]);
    put(opt_out::advice(&census.comm, census.thp)
        .into_iter()
        .collect());
    put(makeup_lines(&total, &census.geometry));
    put(vec![String::new(), "by kind".to_owned()]);
    put(census
        .by_kind()
        .iter()
        .filter(|(_, made)| holds(made))
        .map(|(kind, made)| {
            format!(
                "  {:<10} {}",
                kind_words(*kind),
                one_line(made, &census.geometry)
            )
        })
        .collect());
    put(cgroup_lines(census, &total));
    put(vec![
        String::new(),
        format!("slots of {} by present share", census.geometry.slot()),
    ]);
    put(histogram_lines(&total.slots, charset));
    put(region_lines(census, regions_max));
    put(vec![String::new()]);
    put(numa.map(|_| "placement".to_owned()).into_iter().collect());
    put(numa::lines(numa));
    put(vec![
        String::new(),
        "what each policy would do now".to_owned(),
    ]);
    put(verdicts.iter().flat_map(verdict_lines).collect());
    put(census
        .blind
        .iter()
        .map(|why| format!("not seen: {why}"))
        .collect());
    text
}

fn holds(made: &Makeup) -> bool {
    made.resident + made.hugetlb + made.swapped > Bytes::ZERO
}

/// The totals, one fact a line.
fn makeup_lines(made: &Makeup, geometry: &Geometry) -> Vec<String> {
    let mut lines = vec![
        format!("  resident   {} of {} mapped", made.resident, made.mapped),
        format!("  by order   {}", order_words(made, geometry)),
    ];
    let mut add = |name: &str, amount: Bytes, words: &str| {
        if amount > Bytes::ZERO {
            lines.push(format!("  {name:<10} {amount}{words}"));
        }
    };
    add("hugetlb", made.hugetlb, "");
    add("swapped", made.swapped, "");
    add("locked", made.locked, "");
    add(
        "shared",
        made.fork_shared,
        " of private memory, with another process since a fork",
    );
    add(
        "zero page",
        geometry.bytes(made.zero_mapped),
        " map the shared zero page and take no memory",
    );
    add(
        "advised",
        made.advised_against,
        " of address space against THP",
    );
    add("advised", made.advised_for, " of address space for THP");
    if let Some(partial) = made.partial.filter(|partial| partial.folios > 0) {
        lines.push(format!(
            "  partial    {} huge pages are mapped in part, and hold {} that nobody can reach",
            partial.folios,
            geometry.bytes(partial.unmapped)
        ));
    }
    lines.push(format!("  by node    {}", node_words(made)));
    lines
}

fn node_words(made: &Makeup) -> String {
    if made.nodes.is_empty() {
        return "unknown".to_owned();
    }
    let nodes: Vec<String> = made
        .nodes
        .iter()
        .map(|(node, bytes)| format!("{bytes} on node {}", node.0))
        .collect();
    nodes.join(", ")
}

/// The parts of some memory by order of page, largest pages first.
fn order_words(made: &Makeup, geometry: &Geometry) -> String {
    let mut parts: Vec<String> = made
        .orders
        .iter()
        .rev()
        .filter(|(_, pages)| **pages > BasePages::ZERO)
        .map(|(order, pages)| {
            format!(
                "{} in {}",
                geometry.bytes(*pages),
                page_words(*order, geometry)
            )
        })
        .collect();
    if made.huge_by_base > BasePages::ZERO {
        parts.push(format!(
            "{} of huge pages mapped by base entries",
            geometry.bytes(made.huge_by_base)
        ));
    }
    if made.order_unknown > BasePages::ZERO {
        parts.push(format!(
            "{} in smaller pages (order unknown)",
            geometry.bytes(made.order_unknown)
        ));
    }
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}

fn page_words(order: Order, geometry: &Geometry) -> String {
    if order == Order::BASE {
        "base pages".to_owned()
    } else {
        format!("{} pages", geometry.order_bytes(order))
    }
}

fn one_line(made: &Makeup, geometry: &Geometry) -> String {
    let hugetlb = if made.hugetlb > Bytes::ZERO {
        format!("{} hugetlb, ", made.hugetlb)
    } else {
        String::new()
    };
    format!(
        "{} resident: {hugetlb}{}",
        made.resident,
        order_words(made, geometry)
    )
}

fn cgroup_lines(census: &Census, total: &Makeup) -> Vec<String> {
    let Some(cgroup) = &census.cgroup else {
        return Vec::new();
    };
    let limit = cgroup
        .max
        .map_or("no limit".to_owned(), |max| format!("limit {max}"));
    let thp = cgroup
        .anon_thp
        .map_or(String::new(), |thp| format!(", {thp} in anonymous THPs"));
    let pressure = cgroup.pressure.map_or(String::new(), |share| {
        format!(", pressure {share} of the last 10 s")
    });
    vec![
        String::new(),
        format!("cgroup {}", cgroup.path),
        format!("  charged    {} ({limit}){thp}{pressure}", cgroup.current),
        format!(
            "  this process has {} resident",
            total.resident + total.hugetlb
        ),
    ]
}

fn histogram_lines(slots: &Histogram, charset: Charset) -> Vec<String> {
    let most = slots
        .base
        .iter()
        .copied()
        .chain([slots.huge])
        .max()
        .unwrap_or(0);
    if most == 0 {
        return vec!["  no whole slot holds anything".to_owned()];
    }
    let row = |label: String, count: u64| {
        format!("  {label:>10} {count:>8} {}", bar(count, most, charset))
    };
    let step = 100 / BUCKETS;
    let base = slots.base.iter().enumerate().map(|(bucket, count)| {
        row(
            format!("{:>2}-{} %", bucket * step, (bucket + 1) * step),
            *count,
        )
    });
    base.chain([row("huge".to_owned(), slots.huge)]).collect()
}

fn region_lines(census: &Census, regions_max: usize) -> Vec<String> {
    let mut lines = vec![String::new(), "largest regions".to_owned()];
    let held = census
        .regions
        .iter()
        .filter(|region| holds(&region.makeup))
        .count();
    for region in census.largest(regions_max.min(held)) {
        let name = if region.name.is_empty() {
            ""
        } else {
            &region.name
        };
        lines.push(format!(
            "  {:#x}-{:#x} {}{} {name}",
            region.start,
            region.end,
            kind_words(region.kind),
            if region.shared { ", shared" } else { "" },
        ));
        lines.push(format!(
            "    {}",
            one_line(&region.makeup, &census.geometry)
        ));
    }
    if let Some(more) = held.checked_sub(regions_max).filter(|more| *more > 0) {
        lines.push(format!(
            "  and {more} smaller ones (--regions {held} lists them)"
        ));
    }
    lines
}

fn verdict_lines(verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    let actions: Vec<String> = verdict
        .actions
        .iter()
        .map(|((action, rule), count)| format!("{count} × {action} ({})", rule.replace('_', " ")))
        .collect();
    let actions = if actions.is_empty() {
        "nothing".to_owned()
    } else {
        actions.join(", ")
    };
    lines.push(format!("  {:<7} {actions}", verdict.policy));
    lines.extend(
        verdict
            .notes
            .iter()
            .map(|note| format!("          note: {note}")),
    );
    lines.extend(
        verdict
            .examples
            .iter()
            .map(|example| format!("          e.g. {example}")),
    );
    if verdict.refused_total > 0 {
        let laws: Vec<String> = verdict
            .refused
            .iter()
            .map(|(law, count)| format!("{law}: {count}"))
            .collect();
        lines.push(format!(
            "          {} held back by a law ({})",
            verdict.refused_total,
            laws.join("; ")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(0, 10, Charset::Unicode), "");
        assert_eq!(bar(10, 10, Charset::Ascii), "#".repeat(40));
        assert_eq!(bar(1, 1_000_000, Charset::Ascii), "#");
        assert_eq!(bar(1, 1_000_000, Charset::Unicode), "▏");
        assert_eq!(bar(1, 2, Charset::Unicode).chars().count(), 20);
    }

    #[test]
    fn block_characters_need_utf_8() {
        assert_eq!(Charset::of("en_GB.UTF-8"), Charset::Unicode);
        assert_eq!(Charset::of("C.utf8"), Charset::Unicode);
        assert_eq!(Charset::of("C"), Charset::Ascii);
        assert_eq!(Charset::of(""), Charset::Ascii);
    }
}
