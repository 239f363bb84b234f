//! NUMA: nodes, where a page lies, moving it, and the kernel's hinting faults.

use super::Findings;
use super::env::{Answer, Child, Env};
use super::feature::Feature;
use super::finding::{Finding, State};
use super::privileges::setcap;
use rustix::io::Errno;

/// Probes the group.
pub fn probe(env: &Env<'_>, child: &dyn Child, findings: &mut Findings) {
    let nodes = nodes_with_memory(env);
    findings.add(nodes_finding(&nodes));
    findings.add(query(env, child));
    // Without a list of nodes a page is moved to where it is.
    findings.add(moving(env, child, nodes.as_deref().unwrap_or(&[])));
    findings.add(numa_balancing(env));
    findings.add(weighted_interleave(env));
}

/// The nodes that have memory.
fn nodes_with_memory(env: &Env<'_>) -> Answer<Vec<u16>> {
    env.text(&env.sys.join("devices/system/node/has_memory"))
        .map(|list| parse_list(&list))
}

/// `0-2,5` as numbers; what is no number is left out.
fn parse_list(list: &str) -> Vec<u16> {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        })
        .flatten()
        .collect()
}

fn nodes_finding(nodes: &Answer<Vec<u16>>) -> Finding {
    let feature = Feature::Nodes;
    match nodes {
        Ok(nodes) if nodes.len() > 1 => {
            Finding::works(feature, format!("{} nodes", nodes.len())).value("nodes", nodes.len())
        }
        Ok(nodes) => Finding::new(feature, State::Absent, "one node: nothing to place")
            .value("nodes", nodes.len()),
        Err(errno) => Finding::refused(feature, "reading has_memory", *errno),
    }
}

fn query(env: &Env<'_>, child: &dyn Child) -> Finding {
    let feature = Feature::MovePagesQuery;
    match touched_page(child).and_then(|page| env.calls.move_page(child.pid(), page, None)) {
        Ok(node) => {
            Finding::works(feature, "told where a page of another process lies").value("node", node)
        }
        Err(errno) => Finding::refused(feature, "move_pages", errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    }
}

fn touched_page(child: &dyn Child) -> Answer<u64> {
    let slot = child.map(1)?;
    child.touch(slot.start, 1)?;
    Ok(slot.start)
}

/// Moves a page to a node where it is not; on one node, to where it is.
fn moving(env: &Env<'_>, child: &dyn Child, nodes: &[u16]) -> Finding {
    let feature = Feature::MovePages;
    let moved = touched_page(child).and_then(|page| {
        let from = env.calls.move_page(child.pid(), page, None)?;
        let to = nodes.iter().copied().find(|node| *node != from);
        env.calls
            .move_page(child.pid(), page, Some(to.unwrap_or(from)))?;
        let now = env.calls.move_page(child.pid(), page, None)?;
        Ok((to, now))
    });
    match moved {
        Ok((Some(to), now)) if to == now => {
            Finding::works(feature, "moved a page of another process").value("node", now)
        }
        Ok((Some(to), now)) => Finding::new(feature, State::Absent, "the page stays where it is")
            .value("wanted", to)
            .value("node", now),
        Ok((None, now)) => Finding::works(
            feature,
            "the call works; with one node there is nowhere to move to",
        )
        .value("node", now),
        Err(errno) => Finding::refused(feature, "move_pages", errno)
            .fix_if_forbidden(setcap("cap_sys_ptrace")),
    }
}

/// Reads the switch and writes its own value back.
fn numa_balancing(env: &Env<'_>) -> Finding {
    let feature = Feature::NumaBalancing;
    let file = env.proc.join("sys/kernel/numa_balancing");
    let value = match env.text(&file) {
        Ok(value) => value,
        Err(errno) => return Finding::refused(feature, "reading numa_balancing", errno),
    };
    let finding = match env.set(&file, &value) {
        Ok(()) => Finding::works(feature, format!("now {value}; may be switched")),
        Err(errno) => Finding::refused(feature, "writing numa_balancing", errno).fix("run as root"),
    };
    finding.value("numa_balancing", value)
}

fn weighted_interleave(env: &Env<'_>) -> Finding {
    let feature = Feature::WeightedInterleave;
    let directory = env.sys.join("kernel/mm/mempolicy/weighted_interleave");
    match env.calls.list(&directory) {
        Ok(names) if names.iter().any(|name| name.starts_with("node")) => {
            Finding::works(feature, "weights can be set")
        }
        Ok(_) => Finding::refused(feature, "listing nodes", Errno::NOENT),
        Err(errno) => Finding::refused(feature, "listing nodes", errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_ranges_and_numbers() {
        assert_eq!(parse_list("0"), [0]);
        assert_eq!(parse_list("0-2,5"), [0, 1, 2, 5]);
        assert!(parse_list("").is_empty());
    }
}
