//! A [`View`] as text and as JSON. Pure; the keys are documented in `docs/json.md`.

use super::{Hot, Shared, View};
use hugepilot_core::ids::NodeId;
use hugepilot_core::metrics::Estimate;
use hugepilot_core::sample::Sampler;
use hugepilot_linux::sampler::choice::words;
use serde_json::{Value, json};

/// For people; without a view there is one node alone.
pub fn lines(view: Option<&View>) -> Vec<String> {
    let Some(view) = view else {
        return vec!["one NUMA node: there is nothing to place".to_owned()];
    };
    let Some(sampler) = view.sampler else {
        return vec![format!(
            "  {} NUMA nodes; nobody sampled accesses",
            view.nodes.len()
        )];
    };
    let mut lines = vec![format!("  {}", sampling_words(view, sampler))];
    if view.samples.0 == 0 {
        return lines;
    }
    lines.extend(matrix_lines(view));
    let known = |name: &str, estimate: Option<Estimate>, otherwise: &str| match estimate {
        Some(estimate) => format!("  {name:<10} {estimate}"),
        None => format!("  {name:<10} unknown: {otherwise}"),
    };
    lines.push(known(
        "LAR",
        view.lar,
        "it is not known where the pages lie",
    ));
    lines.push(known(
        "imbalance",
        view.imbalance,
        "the samples tell who, not how often",
    ));
    lines.push(known("if placed", view.if_placed, "too few samples"));
    lines.push(known("if split", view.if_split, "too few samples"));
    lines.extend(view.hot.iter().map(hot_line));
    lines.extend(view.shared.iter().map(shared_line));
    lines
}

fn sampling_words(view: &View, sampler: Sampler) -> String {
    let (samples, lost, first) = view.samples;
    let coverage = view.coverage.map_or(String::new(), |share| {
        format!("; {share} of the memory could be sampled")
    });
    format!(
        "{}: {samples} lately, {lost} lost, {first} first touches{coverage}",
        words(sampler)
    )
}

/// Rows: who accesses; columns: where the memory lies; in percent of all.
fn matrix_lines(view: &View) -> Vec<String> {
    let all: f64 = view.matrix.values().sum();
    let percent = |from: NodeId, to: NodeId| {
        let part = view.matrix.get(&(from, to)).copied().unwrap_or(0.0);
        if all > 0.0 { 100.0 * part / all } else { 0.0 }
    };
    let mut from: Vec<NodeId> = view.matrix.keys().map(|(from, _)| *from).collect();
    from.extend(&view.nodes);
    from.sort_unstable();
    from.dedup();
    let head: String = view
        .nodes
        .iter()
        .map(|node| format!("{:>8}", format!("node {}", node.0)))
        .collect();
    let mut lines = vec![format!(
        "  accesses   {head}   (%, rows: from, columns: to memory of)"
    )];
    lines.extend(from.iter().map(|&row| {
        let cells: String = view
            .nodes
            .iter()
            .map(|&to| format!("{:>8.1}", percent(row, to)))
            .collect();
        format!("  {:<10} {cells}", format!("node {}", row.0))
    }));
    lines
}

fn hot_line(hot: &Hot) -> String {
    let parts: Vec<String> = hot
        .parts
        .iter()
        .map(|(page, share)| format!("page {} {:.0} %", page.0, share * 100.0))
        .collect();
    format!(
        "  hot        {:#x}: {} of all accesses ({}); would be split and interleaved",
        hot.address,
        hot.share,
        parts.join(", ")
    )
}

fn shared_line(shared: &Shared) -> String {
    let threads: Vec<String> = shared
        .threads
        .iter()
        .map(|((_, tid), pages)| format!("thread {} on {pages} pages", tid.0))
        .collect();
    format!(
        "  shared     {:#x}: falsely, by {}; {:.0} % local at best as a huge page, {:.0} % split and placed",
        shared.address,
        threads.join(", "),
        shared.placed * 100.0,
        shared.split * 100.0
    )
}

/// For programs; null on a machine with one node.
pub fn json(view: Option<&View>) -> Value {
    let Some(view) = view else {
        return Value::Null;
    };
    let (samples, lost, first_touches) = view.samples;
    json!({
        "sampler": view.sampler,
        "samples": samples,
        "samples_lost": lost,
        "first_touches": first_touches,
        "coverage": view.coverage,
        "nodes": view.nodes,
        "matrix": view.matrix.iter().map(|((from, to), accesses)| json!({
            "from": from, "to": to, "accesses": accesses,
        })).collect::<Vec<_>>(),
        "lar": view.lar,
        "imbalance": view.imbalance,
        "lar_if_placed": view.if_placed,
        "lar_if_split": view.if_split,
        "hot": view.hot.iter().map(|hot| json!({
            "address": format!("{:#x}", hot.address),
            "share": hot.share,
            "base_pages": hot.parts.iter().map(|(page, share)| json!({
                "page": page, "share": share,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "falsely_shared": view.shared.iter().map(|shared| json!({
            "address": format!("{:#x}", shared.address),
            "local_if_placed": shared.placed,
            "local_if_split": shared.split,
            "threads": shared.threads.iter().map(|((process, tid), pages)| json!({
                "pid": process.pid, "tid": tid, "base_pages": pages,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}
