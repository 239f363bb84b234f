//! Unusual nodes, unusual processes, sudden ends: the same guests as for the table, judged by what is left.
//!
//! Every case must end with every byte right, with all switches as they were, and with memory only where the process may
//! have it. The policy is `carrefour-lp`, which moves, interleaves, splits and sets switches.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::case::{Sampler, Thp};
use super::figures::{event, events, said, unchanged};
use super::guest::{Rig, Shape};
use super::script::{ManagerPlan, Plan, Twist};

const POLICY: &str = "carrefour-lp";
const WORKLOAD: &str = "--size 24MiB --intervals 10 --accesses 1000000";

/// A case.
struct Abuse {
    name: &'static str,
    /// The guest's nodes: a topology by name, or so many alike.
    shape: Shape,
    workload: &'static str,
    /// CPUs of the workload, and the manager's.
    cpus: u64,
    manager_cpu: u32,
    sampler: Sampler,
    twist: Twist,
    /// How the workload must end.
    ends: Ends,
    /// Nodes that its memory may be on in the end; none: wherever.
    nodes: Option<&'static [&'static str]>,
}

/// How a workload ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// By itself, with every byte right.
    Right,
    /// By a signal, in the middle.
    Killed,
}

const PLAIN: Twist = Twist {
    before: "",
    prefix: "",
    meanwhile: "",
    after: "",
};

/// Waits until the workload has told of so many intervals, or has ended.
macro_rules! after_intervals {
    ($count:literal, $then:literal) => {
        concat!(
            "while kill -0 $workload 2>/dev/null && [ $(grep -c '\"interval\",' /run/workload) -lt ",
            $count,
            " ]; do sleep 0.1; done\n",
            $then
        )
    };
}

const ALL: [Abuse; 7] = [
    Abuse {
        name: "a node without memory",
        shape: Shape::Named("no-memory"),
        workload: "first-touch",
        cpus: 0b0111,
        manager_cpu: 3,
        sampler: Sampler::Virtual,
        twist: PLAIN,
        ends: Ends::Right,
        nodes: Some(&["0", "1", "3"]),
    },
    Abuse {
        name: "a node without CPUs",
        shape: Shape::Named("no-cpus"),
        workload: "false-sharing",
        cpus: 0b0111,
        manager_cpu: 3,
        sampler: Sampler::Virtual,
        twist: PLAIN,
        ends: Ends::Right,
        nodes: None,
    },
    Abuse {
        name: "a full node",
        shape: Shape::Alike(4),
        workload: "first-touch",
        cpus: 0b1111,
        manager_cpu: 4,
        sampler: Sampler::Virtual,
        twist: Twist {
            // What is free on node 1 but a few MiB; the rest of it goes to other nodes.
            before: "free=$(awk '/MemFree/ {print int($4 / 2048)}' /sys/devices/system/node/node1/meminfo)\n\
                     taskset 2 hugepilot bench hold \"{\\\"bytes\\\":$(((free - 4) * 2097152)),\\\"pages_per_slot\\\":512,\\\"huge\\\":false,\\\"file\\\":null,\\\"fault_every\\\":0}\" >/run/held 2>&1 &\n\
                     until [ -s /run/held ]; do sleep 0.1; done",
            ..PLAIN
        },
        ends: Ends::Right,
        nodes: None,
    },
    Abuse {
        name: "a process bound by its cpuset",
        shape: Shape::Alike(4),
        workload: "first-touch",
        cpus: 0b1111,
        manager_cpu: 4,
        sampler: Sampler::Virtual,
        twist: Twist {
            before: "mkdir /sys/fs/cgroup/bound\n\
                     echo 0-1 >/sys/fs/cgroup/bound/cpuset.mems\n\
                     cat >/run/bound <<'END'\n\
                     #!/bin/sh\n\
                     echo $$ >/sys/fs/cgroup/bound/cgroup.procs\n\
                     exec \"$@\"\n\
                     END\n\
                     chmod +x /run/bound",
            prefix: "/run/bound",
            ..PLAIN
        },
        ends: Ends::Right,
        nodes: Some(&["0", "1"]),
    },
    Abuse {
        name: "a workload that ends in the middle",
        shape: Shape::Alike(4),
        workload: "false-sharing",
        cpus: 0b1111,
        manager_cpu: 4,
        sampler: Sampler::Virtual,
        twist: Twist {
            meanwhile: after_intervals!("3", "kill -9 $workload"),
            ..PLAIN
        },
        ends: Ends::Killed,
        nodes: None,
    },
    Abuse {
        name: "a manager that is killed",
        shape: Shape::Alike(4),
        workload: "false-sharing",
        cpus: 0b1111,
        manager_cpu: 4,
        sampler: Sampler::Hinting,
        twist: Twist {
            meanwhile: after_intervals!("3", "switches during; kill -9 $manager"),
            after: "hugepilot restore",
            ..PLAIN
        },
        ends: Ends::Right,
        nodes: None,
    },
    Abuse {
        name: "a manager that ends by itself, by hinting faults",
        shape: Shape::Alike(4),
        workload: "false-sharing",
        cpus: 0b1111,
        manager_cpu: 4,
        sampler: Sampler::Hinting,
        twist: PLAIN,
        ends: Ends::Right,
        nodes: None,
    },
];

/// Runs all; what is wrong, one line a case.
pub fn perform(rig: &Rig) -> Vec<(&'static str, Result<()>)> {
    ALL.iter()
        .map(|abuse| (abuse.name, abuse.run(rig)))
        .collect()
}

impl Abuse {
    fn run(&self, rig: &Rig) -> Result<()> {
        let plan = Plan {
            thp: Thp::Always,
            balancing: false,
            cpus: self.cpus,
            workload: format!("{} {WORKLOAD}", self.workload),
            manager: Some(ManagerPlan {
                cpu: self.manager_cpu,
                policy: POLICY,
                sampler: self.sampler,
            }),
            twist: self.twist,
        };
        let said = rig.boot(self.name, &plan, self.shape, KERNEL)?.said;
        self.judge(&said)
    }

    fn judge(&self, output: &str) -> Result<()> {
        unchanged(output)?;
        let exit: Vec<&str> = said(output, "exit").collect();
        let errors = || said(output, "error").collect::<Vec<_>>().join("; ");
        let wanted = match self.ends {
            Ends::Right => "workload 0",
            Ends::Killed => "workload 137",
        };
        ensure!(exit.contains(&wanted), "{exit:?}: {}", errors());
        if !self.twist.meanwhile.contains("$manager") {
            ensure!(exit.contains(&"manager 0"), "{exit:?}: {}", errors());
        }
        let workload = events(output, "workload")?;
        if self.ends == Ends::Right {
            event(&workload, "done").context("the workload did not finish")?;
        }
        self.judge_nodes(event(&workload, "interval").context("no interval was told")?)
    }

    /// Is memory only where it may be?
    fn judge_nodes(&self, interval: &Value) -> Result<()> {
        let Some(allowed) = self.nodes else {
            return Ok(());
        };
        let pages = interval["placement"]["pages"]
            .as_object()
            .context("no pages by node")?;
        for (node, pages) in pages {
            ensure!(
                allowed.contains(&node.as_str()),
                "{pages} pages are on node {node}"
            );
        }
        Ok(())
    }
}

/// The kernel that they run on.
const KERNEL: &str = "6.12";

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "before: /a 1\nafter: /a 1\nexit: manager 0\nexit: workload 0\n\
        workload: {\"event\":\"interval\",\"placement\":{\"pages\":{\"0\":3,\"1\":4}}}\n\
        workload: {\"event\":\"done\"}\n";

    fn bound() -> &'static Abuse {
        ALL.iter()
            .find(|abuse| abuse.twist.prefix == "/run/bound")
            .expect("there is one")
    }

    #[test]
    fn what_is_left_is_judged() {
        bound().judge(GOOD).unwrap();
        for (from, to) in [
            ("after: /a 1", "after: /a 2"),
            ("\"1\":4", "\"2\":4"),
            ("workload 0", "workload 1"),
            ("manager 0", "manager 1"),
            ("done", "interval"),
        ] {
            bound().judge(&GOOD.replace(from, to)).expect_err(to);
        }
    }
}
