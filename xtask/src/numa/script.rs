//! What a guest runs for a case: sets the switches, starts the manager on a CPU of its own, then the workload; tells all.
//!
//! Every line of its output begins with who says it, so that nothing needs to be told apart afterwards.

use super::case::{Case, Mode, Sampler, Thp, Workload};
use super::size::Size;

/// Seconds that a manager has until it says that it has started, in software emulation.
const START_SECONDS_MAX: u32 = 60;
/// Seconds that it has to restore everything after the workload's end.
const STOP_SECONDS_MAX: u32 = 120;
/// Accesses of a thread per sample of the virtual PMU: eight thousand samples in a million accesses of each of four
/// threads. Hardware gives about as many a second. A prime, so that it does not beat with loops.
const PERIOD: u32 = 499;
/// What the manager may spend on looking and sampling, of one core, and how long a collapse or a split may take: emulation
/// takes some fifty times as long for the same work as a processor does, so that a usual split would count as slow and
/// everything after it would wait. What the manager costs is counted in instructions, by the referee.
const BUDGETS: &str = "--set watch.cpu_max=0.5 --set watch.sample_cpu_max=0.5 \
     --set laws.slow_ms=10000 --set laws.stall_share_max=1 --set laws.stall_burst_ms=10000";
/// The switches that must be found as they were.
const SWITCHES: &str = "/sys/kernel/mm/transparent_hugepage/enabled \
     /sys/kernel/mm/transparent_hugepage/defrag \
     /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs \
     /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan \
     /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none \
     /proc/sys/kernel/numa_balancing";

/// What a guest runs: the workload, who manages it, and what else is done to both.
#[derive(Debug, Clone)]
pub struct Plan {
    pub thp: Thp,
    pub balancing: bool,
    /// The workload's CPUs, a bit each.
    pub cpus: u64,
    /// `NAME` and options of `hugepilot bench numa`.
    pub workload: String,
    pub manager: Option<ManagerPlan>,
    pub twist: Twist,
}

/// A manager.
#[derive(Debug, Clone)]
pub struct ManagerPlan {
    /// Its own.
    pub cpu: u32,
    pub policy: &'static str,
    pub sampler: Sampler,
}

/// Lines of shell that make a case unusual; none do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Twist {
    /// Before the workload starts.
    pub before: &'static str,
    /// What becomes the workload: a command that its words are appended to.
    pub prefix: &'static str,
    /// While it works.
    pub meanwhile: &'static str,
    /// After its end and the manager's.
    pub after: &'static str,
}

impl Plan {
    /// An ordinary case of the table.
    pub fn of(case: &Case, size: &Size) -> Self {
        let manager = case.mode.policy().zip(case.sampler);
        Self {
            thp: case.mode.thp(),
            balancing: case.mode.balancing(),
            cpus: (1 << case.nodes) - 1,
            workload: format!("{} {}", case.workload.name(), options(case, size)),
            manager: manager.map(|(policy, sampler)| ManagerPlan {
                cpu: case.nodes,
                policy,
                sampler,
            }),
            twist: Twist::default(),
        }
    }

    /// The whole script.
    pub fn script(&self) -> String {
        let thp = match self.thp {
            Thp::Never => "never",
            Thp::Always => "always",
        };
        let Twist {
            before,
            prefix,
            meanwhile,
            after,
        } = self.twist;
        let [start, stop] = match &self.manager {
            None => [String::new(), String::new()],
            Some(manager) => [manager.start(), stop()],
        };
        format!(
            "#!/bin/sh\n\
             tell() {{ sed \"s/^/$1: /\" \"$2\"; }}\n\
             switches() {{ for file in {SWITCHES}; do echo \"$1: $file $(cat $file)\"; done; }}\n\
             echo {thp} >/sys/kernel/mm/transparent_hugepage/enabled\n\
             echo {balancing} >/proc/sys/kernel/numa_balancing\n\
             switches before\n\
             migrated() {{ awk '/^pgmigrate_success/ {{print $2}}' /proc/vmstat; }}\n\
             migrated_before=$(migrated)\n\
             mkfifo /run/go\n\
             {before}\n\
             {prefix} taskset {cpus:x} hugepilot bench numa {workload} --json --wait </run/go >/run/workload 2>/run/workload-errors &\n\
             workload=$!\n\
             exec 3>/run/go\n\
             {start}\
             echo go >&3\n\
             exec 3>&-\n\
             {meanwhile}\n\
             wait $workload\n\
             code=$?\n\
             {stop}\
             {after}\n\
             switches after\n\
             echo \"migrated: $(($(migrated) - migrated_before))\"\n\
             tell workload /run/workload\n\
             tell error /run/workload-errors\n\
             echo \"exit: workload $code\"\n",
            balancing = u32::from(self.balancing),
            cpus = self.cpus,
            workload = self.workload,
        )
    }
}

fn options(case: &Case, size: &Size) -> String {
    let mut options = format!(
        "--size {}MiB --intervals {} --accesses {}",
        size.mebibytes(case.nodes),
        size.intervals,
        size.accesses
    );
    if case.workload == Workload::HotGigantic {
        let backing = if case.mode == Mode::Gigantic {
            "gigantic"
        } else {
            "ordinary"
        };
        options.push_str(" --backing ");
        options.push_str(backing);
    }
    options
}

impl ManagerPlan {
    /// Starts it and waits until it says that it manages.
    fn start(&self) -> String {
        let balancing = match self.sampler {
            Sampler::Virtual => "",
            Sampler::Hinting => " --numa-balancing",
        };
        format!(
            "hugepilot bench pinned --cpu {cpu} --period {PERIOD} -- hugepilot manage --pid $workload --policy {policy} \
             --sampler {sampler}{balancing} {BUDGETS} --json >/run/manager 2>/run/manager-errors &\n\
             manager=$!\n\
             left={tries}\n\
             until grep -q '\"start\"' /run/manager; do\n\
             left=$((left - 1))\n\
             if [ $left = 0 ] || ! kill -0 $manager 2>/dev/null; then\n\
             tell error /run/manager-errors; echo 'exit: manager did not start'; kill $workload; exit 1\n\
             fi\n\
             sleep 0.1\n\
             done\n",
            cpu = self.cpu,
            policy = self.policy,
            sampler = self.sampler.name(),
            tries = START_SECONDS_MAX * 10,
        )
    }
}

/// Waits for the manager, which ends with the workload, and tells what it did.
fn stop() -> String {
    format!(
        "left={tries}\n\
         while kill -0 $manager 2>/dev/null && [ $left != 0 ]; do left=$((left - 1)); sleep 0.1; done\n\
         if [ $left = 0 ]; then kill -9 $manager; fi\n\
         wait $manager\n\
         echo \"exit: manager $?\"\n\
         grep -e '\"summary\"' -e '\"start\"' -e '\"note\"' /run/manager | sed 's/^/manager: /'\n\
         grep '\"action\"' /run/manager | tail -n 3 | sed 's/^/manager: /'\n\
         tell error /run/manager-errors\n",
        tries = STOP_SECONDS_MAX * 10,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(mode: Mode, sampler: Option<Sampler>) -> Case {
        Case {
            workload: Workload::FalseSharing,
            nodes: 4,
            kernel: "6.12".to_owned(),
            mode,
            sampler,
        }
    }

    #[test]
    fn a_shell_understands_it() {
        for (mode, sampler) in [
            (Mode::Base, None),
            (Mode::CarrefourLp, Some(Sampler::Hinting)),
        ] {
            let script = Plan::of(&case(mode, sampler), &Size::default()).script();
            let checked = std::process::Command::new("sh")
                .args(["-n", "-c", &script])
                .status();
            assert!(checked.unwrap().success(), "{script}");
        }
    }

    #[test]
    fn only_policies_have_a_manager_and_only_hinting_balances() {
        let script = |mode, sampler| Plan::of(&case(mode, sampler), &Size::default()).script();
        assert!(!script(Mode::Thp, None).contains("manage"));
        let by_virtual = script(Mode::CarrefourLp, Some(Sampler::Virtual));
        assert!(by_virtual.contains("--policy carrefour-lp --sampler virtual --set"));
        assert!(by_virtual.contains("pinned --cpu 4"));
        assert!(
            script(Mode::CarrefourLp, Some(Sampler::Hinting))
                .contains("--sampler hinting --numa-balancing")
        );
        assert!(
            script(Mode::ThpBalancing, None).contains("echo 1 >/proc/sys/kernel/numa_balancing")
        );
    }
}
