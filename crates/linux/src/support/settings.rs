//! What the kernel does by itself: its switches are read, and opened for writing, never changed.

use super::Findings;
use super::env::{Answer, Env};
use super::feature::Feature;
use super::finding::{Finding, State};
use rustix::io::Errno;
use std::path::Path;

const THP: &str = "kernel/mm/transparent_hugepage";

/// Probes the group.
pub fn probe(env: &Env<'_>, findings: &mut Findings) {
    for (feature, file) in [
        (Feature::ThpEnabled, "enabled"),
        (Feature::ThpDefrag, "defrag"),
        (Feature::ThpShmem, "shmem_enabled"),
        (Feature::UseZeroPage, "use_zero_page"),
        (Feature::ShrinkUnderused, "shrink_underused"),
    ] {
        findings.add(switch(env, feature, &env.sys.join(THP).join(file)));
    }
    findings.add(khugepaged_quiet(env));
    findings.add(mthp(env));
    findings.add(hugetlb(env));
}

/// Of `always [madvise] never` the chosen word; of a number, the number.
fn chosen(text: &str) -> &str {
    let bracketed = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text, |(word, _)| word)
}

fn switch(env: &Env<'_>, feature: Feature, file: &Path) -> Finding {
    let text = match env.text(file) {
        Ok(text) => text,
        Err(errno) => return Finding::refused(feature, "reading it", errno),
    };
    let value = chosen(&text).to_owned();
    let finding = match env.calls.open_for_writing(file) {
        Ok(()) => Finding::works(feature, format!("now {value}; may be set")),
        Err(errno) => {
            let mut finding = Finding::refused(feature, "opening it for writing", errno)
                .fix("run as root, with /sys writable");
            finding.state = State::Partly;
            finding.detail = format!("now {value}; may not be set");
            finding
        }
    };
    finding.value("value", value)
}

/// Would khugepaged collapse again what we split?
fn khugepaged_quiet(env: &Env<'_>) -> Finding {
    let feature = Feature::KhugepagedQuiet;
    let thp = env.sys.join(THP);
    let read = |file: &str| env.text(&thp.join(file));
    let (enabled, holes) = match (read("enabled"), read("khugepaged/max_ptes_none")) {
        (Ok(enabled), Ok(holes)) => (chosen(&enabled).to_owned(), holes),
        (Err(errno), _) | (_, Err(errno)) => {
            return Finding::refused(feature, "reading its switches", errno);
        }
    };
    let fills_any = holes.parse() == Ok(env.geometry.slot_pages().0 - 1);
    let fix = format!("echo 0 > /sys/{THP}/khugepaged/max_ptes_none");
    let finding = match (enabled.as_str(), fills_any) {
        ("never", _) => Finding::works(feature, "khugepaged is off"),
        (_, false) if holes == "0" => {
            Finding::works(feature, "khugepaged collapses full slots only")
        }
        ("madvise", _) => Finding::new(
            feature,
            State::Partly,
            "khugepaged may collapse again what was split in regions advised MADV_HUGEPAGE",
        )
        .fix(fix),
        (_, true) => Finding::new(
            feature,
            State::Absent,
            "khugepaged collapses again what was split",
        )
        .fix(fix),
        (_, false) => Finding::new(
            feature,
            State::Partly,
            format!("khugepaged collapses slots with up to {holes} holes"),
        )
        .fix(fix),
    };
    finding
        .value("enabled", enabled)
        .value("max_ptes_none", holes)
}

/// The directories `hugepages-NkB` of a directory, by rising size.
fn sizes(env: &Env<'_>, directory: &Path) -> Answer<Vec<u64>> {
    let mut sizes: Vec<u64> = env
        .calls
        .list(directory)?
        .iter()
        .filter_map(|name| {
            name.strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()
        })
        .collect();
    sizes.sort_unstable();
    Ok(sizes)
}

fn mthp(env: &Env<'_>) -> Finding {
    let feature = Feature::Mthp;
    let thp = env.sys.join(THP);
    let settings = sizes(env, &thp).and_then(|sizes| {
        let of = |size: u64| match env.text(&thp.join(format!("hugepages-{size}kB/enabled"))) {
            Ok(text) => Some(Ok(format!("{size} kB {}", chosen(&text)))),
            // A size for shared memory alone has no such switch.
            Err(Errno::NOENT) => None,
            Err(errno) => Some(Err(errno)),
        };
        sizes.into_iter().filter_map(of).collect::<Answer<Vec<_>>>()
    });
    match settings {
        Ok(settings) if settings.len() > 1 => Finding::works(feature, settings.join(", ")),
        Ok(_) => Finding::new(feature, State::Absent, "no sizes below the slot"),
        Err(errno) => Finding::refused(feature, "reading the sizes", errno),
    }
}

fn hugetlb(env: &Env<'_>) -> Finding {
    let feature = Feature::Hugetlb;
    let directory = env.sys.join("kernel/mm/hugepages");
    let pools = sizes(env, &directory).and_then(|sizes| {
        let of = |size: u64| pool(env, &directory, size);
        sizes.into_iter().map(of).collect::<Answer<Vec<_>>>()
    });
    match pools {
        Ok(pools) if pools.is_empty() => Finding::refused(feature, "listing pools", Errno::NOENT),
        Ok(pools) => Finding::works(feature, pools.join(", ")),
        Err(errno) => Finding::refused(feature, "reading the pools", errno),
    }
}

fn pool(env: &Env<'_>, directory: &Path, size: u64) -> Answer<String> {
    let pool = directory.join(format!("hugepages-{size}kB"));
    let read = |file: &str| env.text(&pool.join(file));
    Ok(format!(
        "{size} kB: {} free of {}, {} reserved, {} surplus",
        read("free_hugepages")?,
        read("nr_hugepages")?,
        read("resv_hugepages")?,
        read("surplus_hugepages")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("511"), "511");
    }
}
