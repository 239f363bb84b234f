//! A census and its verdicts as JSON. Pure; the keys are documented in `docs/json.md`.

use super::census::{Census, Makeup, Region};
use super::opt_out;
use super::render::kind_words;
use super::verdicts::Verdict;
use crate::numa::{self, View};
use hugepilot_core::geometry::Geometry;
use serde_json::{Map, Value, json};

/// The census and the verdicts, for programs; `regions_max` regions are listed, the largest first.
pub fn json(
    census: &Census,
    verdicts: &[Verdict],
    numa: Option<&View>,
    regions_max: usize,
) -> Value {
    let g = &census.geometry;
    json!({
        "pid": census.process.pid.0,
        "start_ticks": census.process.start_ticks,
        "comm": census.comm,
        "thp": census.thp,
        "advice": opt_out::advice(&census.comm, census.thp),
        "geometry": {"base_page_bytes": g.base_page().0, "slot_bytes": g.slot().0},
        "total": makeup_json(&census.total(), g),
        "by_kind": census.by_kind().iter()
            .map(|(kind, made)| (kind_words(*kind).to_owned(), makeup_json(made, g)))
            .collect::<Map<_, _>>(),
        "regions": census.largest(regions_max).into_iter().map(|region| region_json(region, g)).collect::<Vec<_>>(),
        "regions_total": census.regions.len(),
        "cgroup": census.cgroup.as_ref().map(|cgroup| json!({
            "path": cgroup.path,
            "current_bytes": cgroup.current.0,
            "high_bytes": cgroup.high.map(|bytes| bytes.0),
            "max_bytes": cgroup.max.map(|bytes| bytes.0),
            "anon_thp_bytes": cgroup.anon_thp.map(|bytes| bytes.0),
            "pressure_share": cgroup.pressure,
        })),
        "numa": numa::json(numa),
        "policies": verdicts.iter().map(verdict_json).collect::<Vec<_>>(),
        "not_seen": census.blind,
    })
}

fn region_json(region: &Region, g: &Geometry) -> Value {
    json!({
        "start": format!("{:#x}", region.start),
        "end": format!("{:#x}", region.end),
        "name": region.name,
        "kind": kind_words(region.kind),
        "shared": region.shared,
        "memory": makeup_json(&region.makeup, g),
    })
}

fn makeup_json(made: &Makeup, g: &Geometry) -> Value {
    json!({
        "mapped_bytes": made.mapped.0,
        "resident_bytes": made.resident.0,
        "orders": made.orders.iter().map(|(order, pages)| json!({
            "order": order,
            "page_bytes": g.order_bytes(*order).0,
            "bytes": g.bytes(*pages).0,
        })).collect::<Vec<_>>(),
        "huge_bytes": made.huge(g).0,
        "huge_by_base_bytes": g.bytes(made.huge_by_base).0,
        "order_unknown_bytes": g.bytes(made.order_unknown).0,
        "zero_mapped_bytes": g.bytes(made.zero_mapped).0,
        "swapped_bytes": made.swapped.0,
        "locked_bytes": made.locked.0,
        "fork_shared_bytes": made.fork_shared.0,
        "hugetlb_bytes": made.hugetlb.0,
        "advised_against_bytes": made.advised_against.0,
        "advised_for_bytes": made.advised_for.0,
        "nodes": made.nodes.iter()
            .map(|(node, bytes)| (node.0.to_string(), json!(bytes.0)))
            .collect::<Map<_, _>>(),
        "slots": {
            "huge": made.slots.huge,
            "by_present_tenths": made.slots.base,
        },
        "partially_mapped": made.partial.map(|partial| json!({
            "huge_pages": partial.folios,
            "unmapped_bytes": g.bytes(partial.unmapped).0,
        })),
    })
}

fn verdict_json(verdict: &Verdict) -> Value {
    json!({
        "policy": verdict.policy,
        "notes": verdict.notes,
        "actions": verdict.actions.iter().map(|((action, rule), count)| json!({
            "action": action, "rule": rule, "count": count,
        })).collect::<Vec<_>>(),
        "examples": verdict.examples,
        "refused": {
            "total": verdict.refused_total,
            "by_law": verdict.refused.iter().map(|(law, count)| {
                (serde_json::to_value(law).ok().and_then(|law| law.as_str().map(str::to_owned)).unwrap_or_default(), json!(count))
            }).collect::<Map<_, _>>(),
        },
    })
}
