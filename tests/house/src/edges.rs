//! Which crate may use which.
//!
//! Every member of the workspace has one entry in [`CRATES`]: all that it may use of ours, directly, in its library or
//! program and, apart from that, in its tests. What is not listed is forbidden, so a new crate or a new edge begins
//! with a line here. Edges that design forbids at any distance stand in [`NEVER`] as well: there the way is followed.

use crate::Violation;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a crate may use of ours.
pub struct Fence {
    /// The crate.
    pub name: &'static str,
    /// In its library or program.
    pub uses: &'static [&'static str],
    /// In its tests, beyond that.
    pub tests_use: &'static [&'static str],
}

const CORE: &str = "hugepilot-core";
const LINUX: &str = "hugepilot-linux";
const SIM: &str = "hugepilot-sim";
const TRACE: &str = "hugepilot-trace";
const HUGETLB: &str = "hugepilot-hugetlb";
const BENCH: &str = "hugepilot-bench";
const CONFORMANCE: &str = "hugepilot-conformance";
const WORKERS: &str = "hugepilot-workers";
const VPMU: &str = "hugepilot-vpmu";
const PLUGIN: &str = "qemu-plugin";
const CLI: &str = "hugepilot";

/// The fences of the house.
pub const CRATES: [Fence; 13] = [
    Fence {
        name: CORE,
        uses: &[],
        tests_use: &[],
    },
    Fence {
        name: LINUX,
        uses: &[CORE, VPMU],
        tests_use: &[CONFORMANCE, WORKERS],
    },
    Fence {
        name: SIM,
        uses: &[CORE],
        tests_use: &[CONFORMANCE],
    },
    Fence {
        name: TRACE,
        uses: &[CORE],
        tests_use: &[SIM],
    },
    Fence {
        name: HUGETLB,
        uses: &[],
        tests_use: &[],
    },
    Fence {
        name: BENCH,
        uses: &[CORE, VPMU],
        tests_use: &[],
    },
    Fence {
        name: CLI,
        uses: &[CORE, LINUX, SIM, TRACE, BENCH],
        tests_use: &[WORKERS],
    },
    Fence {
        name: CONFORMANCE,
        uses: &[CORE],
        tests_use: &[SIM, LINUX, WORKERS],
    },
    Fence {
        name: WORKERS,
        uses: &[VPMU],
        tests_use: &[],
    },
    Fence {
        name: VPMU,
        uses: &[],
        tests_use: &[],
    },
    // Under a licence of its own: it uses what both sides need, and nothing uses it.
    Fence {
        name: PLUGIN,
        uses: &[VPMU],
        tests_use: &[CORE],
    },
    Fence {
        name: "hugepilot-house",
        uses: &[CORE],
        tests_use: &[],
    },
    Fence {
        name: "xtask",
        uses: &[],
        tests_use: &[],
    },
];

/// Edges that must never be, at any distance: who, and whom it must not reach.
pub const NEVER: [(&str, &str); 10] = [
    (SIM, LINUX),
    (LINUX, SIM),
    (LINUX, TRACE),
    (LINUX, "hugepilot-view"),
    ("hugepilot-view", LINUX),
    (BENCH, LINUX),
    (CONFORMANCE, CLI),
    // It is a C library, built apart: a program uses it by its C interface.
    (CLI, HUGETLB),
    (LINUX, HUGETLB),
    (BENCH, HUGETLB),
];

/// The part of `cargo metadata` that is used here.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

impl Dependency {
    fn is_ours(&self) -> bool {
        self.path.is_some()
    }

    fn is_for_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

impl Metadata {
    /// Names of the crates that are not ours and that some crate of ours names.
    #[must_use]
    pub fn foreign(&self) -> BTreeSet<String> {
        self.packages
            .iter()
            .flat_map(|package| &package.dependencies)
            .filter(|dependency| !dependency.is_ours())
            .map(|dependency| dependency.name.clone())
            .collect()
    }

    /// Our crates, each with what it uses of ours.
    fn uses(&self, wanted: fn(&Dependency) -> bool) -> BTreeMap<&str, BTreeSet<&str>> {
        self.packages
            .iter()
            .map(|package| {
                let used = package
                    .dependencies
                    .iter()
                    .filter(|dependency| dependency.is_ours() && wanted(dependency))
                    .map(|dependency| dependency.name.as_str())
                    .collect();
                (package.name.as_str(), used)
            })
            .collect()
    }
}

/// Crates and edges that no fence allows.
#[must_use]
pub fn check(metadata: &Metadata) -> Vec<Violation> {
    let built = metadata.uses(|dependency| !dependency.is_for_tests());
    let tested = metadata.uses(Dependency::is_for_tests);
    let mut wrong = check_direct(&built, &tested);
    for (from, to) in NEVER {
        if reaches(&built, from, to) {
            let what = format!("must not reach {to}, at any distance");
            wrong.push(Violation::of(from, what));
        }
    }
    wrong
}

fn check_direct(
    built: &BTreeMap<&str, BTreeSet<&str>>,
    tested: &BTreeMap<&str, BTreeSet<&str>>,
) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (name, uses) in built {
        let Some(fence) = CRATES.iter().find(|fence| fence.name == *name) else {
            let what = "has no fence: say in tests/house/src/edges.rs what it may use";
            wrong.push(Violation::of(name, what));
            continue;
        };
        let allowed = |used: &&&str| fence.uses.contains(*used);
        for used in uses.iter().filter(|used| !allowed(used)) {
            wrong.push(Violation::of(name, format!("must not use {used}")));
        }
        for used in &tested[name] {
            if !allowed(&used) && !fence.tests_use.contains(used) {
                wrong.push(Violation::of(
                    name,
                    format!("must not use {used}, not even in tests"),
                ));
            }
        }
    }
    wrong
}

fn reaches(uses: &BTreeMap<&str, BTreeSet<&str>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        for used in uses.get(name).into_iter().flatten() {
            if *used == to {
                return true;
            }
            if seen.insert(*used) {
                next.push(used);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Metadata of a workspace in which each crate uses the named ones, `dev:` before a name marking a test's use.
    fn workspace(crates: &[(&str, &[&str])]) -> Metadata {
        let dependency = |name: &&str| -> Value {
            let (kind, name) = match name.strip_prefix("dev:") {
                Some(name) => (json!("dev"), name),
                None => (Value::Null, *name),
            };
            let ours = name.starts_with("hugepilot");
            let path = if ours {
                json!("/somewhere")
            } else {
                Value::Null
            };
            json!({"name": name, "kind": kind, "path": path})
        };
        let packages: Vec<Value> = crates
            .iter()
            .map(|(name, uses)| {
                let dependencies: Vec<Value> = uses.iter().map(dependency).collect();
                json!({"name": name, "dependencies": dependencies})
            })
            .collect();
        serde_json::from_value(json!({"packages": packages})).expect("metadata")
    }

    fn wrong(crates: &[(&str, &[&str])]) -> Vec<String> {
        check(&workspace(crates))
            .iter()
            .map(Violation::to_string)
            .collect()
    }

    #[test]
    fn what_the_fences_list_passes() {
        let ok = wrong(&[
            (CORE, &["serde"]),
            (LINUX, &[CORE, "dev:hugepilot-conformance"]),
            (CLI, &[CORE, LINUX, SIM]),
        ]);
        assert!(ok.is_empty(), "{ok:?}");
    }

    #[test]
    fn core_uses_nothing_of_ours() {
        assert_eq!(
            wrong(&[(CORE, &[SIM])]),
            ["hugepilot-core: must not use hugepilot-sim"]
        );
        assert_eq!(
            wrong(&[(CORE, &["dev:hugepilot-sim"])]),
            ["hugepilot-core: must not use hugepilot-sim, not even in tests"]
        );
    }

    #[test]
    fn nothing_uses_the_program() {
        for name in [LINUX, SIM, TRACE, BENCH, CONFORMANCE, WORKERS, "xtask"] {
            assert!(!wrong(&[(name, &[CLI])]).is_empty(), "{name}");
        }
    }

    #[test]
    fn the_way_round_is_found() {
        let found = wrong(&[(SIM, &[TRACE]), (TRACE, &[LINUX]), (LINUX, &[CORE])]);
        let far = "hugepilot-sim: must not reach hugepilot-linux, at any distance".to_owned();
        assert!(found.contains(&far), "{found:?}");
    }

    #[test]
    fn every_forbidden_pair_is_found() {
        for (from, to) in NEVER {
            let found = wrong(&[(from, &[to]), (to, &[])]);
            let far = format!("{from}: must not reach {to}, at any distance");
            assert!(found.contains(&far), "{from} → {to}: {found:?}");
        }
    }

    #[test]
    fn a_crate_without_a_fence_is_found() {
        assert_eq!(wrong(&[("hugepilot-new", &[])]).len(), 1);
    }

    #[test]
    fn foreign_crates_are_told_from_ours() {
        let metadata = workspace(&[(CORE, &["serde", "dev:insta"]), (LINUX, &[CORE])]);
        assert_eq!(
            metadata.foreign().into_iter().collect::<Vec<_>>(),
            ["insta", "serde"]
        );
    }
}
