//! What a case came to, from what its guest said and what the referee wrote. Pure.
//!
//! LAR and imbalance are the referee's alone. The last quarter of the intervals is what a case *settled* to; the
//! accesses of its windows are added before anything is divided. The workload's own words count for its checksum and its
//! share of huge pages, the manager's for what it did.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::referee::{Window, instructions, settled};

/// The last so many of the intervals, by division, are settled.
const SETTLED_PART: usize = 4;

/// A finished case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Accesses to memory that were local, once settled.
    pub lar: f64,
    /// Deviation over mean of the nodes' loads, once settled.
    pub imbalance: f64,
    /// The same of all accesses, without the referee's model of caches.
    pub lar_raw: f64,
    pub imbalance_raw: f64,
    /// Share of the most used page, and of pages that several threads use, at the grain of huge pages, in the last window.
    pub pamup_huge: Option<f64>,
    pub nhp_huge: u64,
    pub psp_huge: Option<f64>,
    /// By interval.
    pub lar_series: Vec<f64>,
    pub imbalance_series: Vec<f64>,
    /// Of the workload's memory at the end.
    pub huge_share: f64,
    /// Of everything that the workload read.
    pub checksum: u64,
    /// Instructions of the workload's CPUs, the kernel's included.
    pub instructions: u64,
    /// Base pages that the kernel migrated from the workload's start on, whoever asked for it.
    pub migrated: u64,
    /// None where nobody manages.
    pub manager: Option<Manager>,
}

/// What a manager did, and what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manager {
    /// Actions that were done and verified, by name.
    pub done: Vec<(String, u64)>,
    /// Instructions of its CPU, the kernel's included, over the workload's.
    pub overhead: f64,
}

/// Reads a case.
///
/// # Errors
/// Why it does not count: the first thing that went wrong.
pub fn read(output: &str, windows: &[Window], manager_cpu: Option<u32>) -> Result<Figures> {
    let exit = said(output, "exit")
        .next_back()
        .context("the guest ended without a word")?;
    let failed = said(output, "exit").find(|exit| !exit.ends_with(" 0"));
    if let Some(exit) = failed {
        let errors: Vec<&str> = said(output, "error").collect();
        bail!("{exit}: {}", errors.join("; "));
    }
    ensure!(exit == "workload 0", "the guest ended after {exit:?}");
    unchanged(output)?;
    let workload = events(output, "workload")?;
    let done = event(&workload, "done").context("the workload did not finish")?;
    let intervals: Vec<&Window> = windows
        .iter()
        .filter(|window| window.label > 0 && !window.last)
        .collect();
    ensure!(!intervals.is_empty(), "the referee saw no interval");
    let tail = &intervals[intervals.len() - intervals.len().div_ceil(SETTLED_PART)..];
    let last = intervals[intervals.len() - 1];
    let huge = &last.dram.huge_pages;
    let (lar, imbalance) = settled(tail, |window| &window.dram)?;
    let (lar_raw, imbalance_raw) = settled(tail, |window| &window.raw)?;
    let instructions = instructions(&intervals, manager_cpu);
    Ok(Figures {
        lar,
        imbalance,
        lar_raw,
        imbalance_raw,
        pamup_huge: huge.pamup,
        nhp_huge: huge.nhp,
        psp_huge: huge.psp_threads,
        lar_series: intervals
            .iter()
            .filter_map(|window| window.dram.lar)
            .collect(),
        imbalance_series: intervals
            .iter()
            .filter_map(|window| window.dram.imbalance)
            .collect(),
        huge_share: huge_share(&workload)?,
        checksum: number(done, "checksum")?,
        instructions: instructions.workload,
        migrated: said(output, "migrated")
            .next_back()
            .and_then(|pages| pages.parse().ok())
            .context("the guest did not say how many pages were migrated")?,
        manager: manager_cpu
            .map(|_| manager(output, instructions.overhead()))
            .transpose()?,
    })
}

/// What somebody said, line by line.
pub fn said<'a>(output: &'a str, who: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
    output
        .lines()
        .filter_map(move |line| line.trim_end().strip_prefix(who)?.strip_prefix(": "))
}

pub fn events(output: &str, who: &str) -> Result<Vec<Value>> {
    said(output, who)
        .map(|line| serde_json::from_str(line).with_context(|| format!("{who} said {line:?}")))
        .collect()
}

pub fn event<'a>(events: &'a [Value], name: &str) -> Option<&'a Value> {
    events.iter().rev().find(|event| event["event"] == name)
}

fn number(value: &Value, key: &str) -> Result<u64> {
    value[key]
        .as_u64()
        .with_context(|| format!("no number {key} in {value}"))
}

/// Are all switches as they were?
///
/// # Errors
/// Which is not.
pub fn unchanged(output: &str) -> Result<()> {
    let before: Vec<&str> = said(output, "before").collect();
    let after: Vec<&str> = said(output, "after").collect();
    ensure!(
        !before.is_empty(),
        "the guest did not say how its switches were"
    );
    for (before, after) in before.iter().zip(&after) {
        ensure!(before == after, "left changed: {before:?} is {after:?}");
    }
    ensure!(
        before.len() == after.len(),
        "the guest ended before it told its switches"
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a guest")]
fn huge_share(workload: &[Value]) -> Result<f64> {
    let placement = &event(workload, "interval").context("no interval was told")?["placement"];
    let huge = number(placement, "huge_bytes")? as f64;
    Ok(huge / number(placement, "present_bytes")?.max(1) as f64)
}

fn manager(output: &str, overhead: f64) -> Result<Manager> {
    let said = events(output, "manager")?;
    let summary = said.iter().rev().find_map(|line| line.get("summary"));
    let actions = summary.context("the manager gave no summary")?["actions"].clone();
    let actions = actions.as_object().context("the summary has no actions")?;
    let done: Vec<(String, u64)> = actions
        .iter()
        .map(|(name, outcomes)| (name.clone(), outcomes["done"].as_u64().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .collect();
    Ok(Manager { done, overhead })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::referee::tests::window;

    const GOOD: &str = "before: /a 1\nafter: /a 1\nmigrated: 12\n\
        workload: {\"event\":\"interval\",\"placement\":{\"huge_bytes\":3,\"present_bytes\":4}}\n\
        workload: {\"event\":\"done\",\"checksum\":7}\n\
        exit: workload 0\n";

    fn figures(output: &str, manager_cpu: Option<u32>) -> Result<Figures> {
        let windows = [window(0, 0, 0), window(1, 90, 10), window(2, 60, 40)];
        read(output, &windows, manager_cpu)
    }

    #[test]
    fn the_referee_says_what_a_case_came_to() {
        let figures = figures(GOOD, None).unwrap();
        assert!((figures.lar - 0.6).abs() < 1e-9);
        assert_eq!(figures.lar_series, [0.9, 0.6]);
        assert!((figures.huge_share - 0.75).abs() < 1e-9);
        assert_eq!((figures.checksum, figures.migrated), (7, 12));
    }

    #[test]
    fn what_went_wrong_is_told_instead_of_a_figure() {
        let cases = [
            (
                GOOD.replace("exit: workload 0", "error: wrong byte\nexit: workload 1"),
                "wrong byte",
            ),
            (GOOD.replace("after: /a 1", "after: /a 0"), "left changed"),
            (GOOD.replace("before: /a 1\nafter: /a 1\n", ""), "switches"),
            (GOOD.replace("\"done\"", "\"begins\""), "did not finish"),
            (String::new(), "without a word"),
        ];
        for (output, expected) in cases {
            let error = figures(&output, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_manager_is_judged_by_what_it_verified_and_what_it_cost() {
        let summary = "manager: {\"summary\":{\"actions\":{\"move_slot\":{\"done\":5,\"busy\":1},\"interleave\":{\"done\":2},\"split\":{\"done\":9}}}}\n";
        let output = format!("{summary}{GOOD}");
        let manager = figures(&output, Some(1)).unwrap().manager.unwrap();
        assert_eq!(manager.done.iter().map(|(_, count)| count).sum::<u64>(), 16);
        // CPU 1 executes a tenth of what CPU 0 does.
        assert!((manager.overhead - 0.1).abs() < 1e-9, "{manager:?}");
        assert!(
            figures(GOOD, Some(1))
                .unwrap_err()
                .to_string()
                .contains("no summary")
        );
    }
}
