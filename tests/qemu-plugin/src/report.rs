// SPDX-License-Identifier: GPL-2.0-or-later

//! What is written of a closed window: one line of JSON. README.md says what each key means, and a
//! test that it says so of every key.

use serde::Serialize;

use crate::metrics::Metrics;

/// A window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub window: u64,
    pub request: Option<u64>,
    pub label: u64,
    pub last: bool,
    pub raw: Metrics,
    pub dram: Metrics,
    pub threads: Vec<ThreadReport>,
    pub cpus: Vec<CpuReport>,
    pub samples: u64,
    pub samples_dropped: u64,
    pub pages_lost: u64,
}

/// A thread in a window. Lists have one number a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadReport {
    pub pid: u32,
    pub tid: u32,
    pub kind: &'static str,
    pub cpu: u32,
    pub node: u16,
    pub raw_by_node: Vec<u64>,
    pub stores_by_node: Vec<u64>,
    pub dram_by_node: Vec<u64>,
    pub l2_misses: u64,
    pub l2_misses_by_walks: u64,
    pub samples: u64,
    pub unplaced: u64,
}

/// A CPU in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuReport {
    pub cpu: usize,
    pub node: u16,
    pub user_instructions: u64,
    pub kernel_instructions: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn example() -> Report {
        let metrics = Metrics::of(&[], &[true]);
        Report {
            window: 1,
            request: Some(1),
            label: 0,
            last: false,
            raw: metrics.clone(),
            dram: metrics,
            threads: vec![ThreadReport {
                pid: 1,
                tid: 1,
                kind: "workload",
                cpu: 0,
                node: 0,
                raw_by_node: vec![1],
                stores_by_node: vec![1],
                dram_by_node: vec![1],
                l2_misses: 0,
                l2_misses_by_walks: 0,
                samples: 0,
                unplaced: 0,
            }],
            cpus: vec![CpuReport {
                cpu: 0,
                node: 0,
                user_instructions: 0,
                kernel_instructions: 0,
            }],
            samples: 0,
            samples_dropped: 0,
            pages_lost: 0,
        }
    }

    fn keys(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    found.push(key.clone());
                    keys(member, found);
                }
            }
            Value::Array(members) => members.iter().for_each(|member| keys(member, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../README.md");
        let mut found = Vec::new();
        keys(&serde_json::to_value(example()).unwrap(), &mut found);
        assert!(found.len() > 20);
        for key in found {
            assert!(page.contains(&format!("| `{key}` |")), "{key}");
        }
    }
}
