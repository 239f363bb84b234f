//! Tests on other kernels: the test programs of this repository, linked statically, run inside guests.
//!
//! What is tested there is what this machine's kernel lacks or does otherwise: DAMON on virtual addresses, BPF,
//! writable debugfs, kernels without `PAGEMAP_SCAN`. One boot a kernel runs all of its programs. Their output passes
//! through, `test result` lines included, so that whoever counts tests counts these too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{numa, pmu_proof, vm};

/// A test program and the kernels it runs on.
struct GuestTest {
    target: &'static str,
    program: Program,
    kernels: &'static [&'static str],
    /// Processors of its guest.
    cpus: u32,
    /// Nodes of its guest.
    nodes: u32,
}

/// What kind of program it is.
enum Program {
    /// A test target of cargo's: it prints its own results.
    Tests,
    /// An example that is run once for each of these argument lists; every run counts as one test.
    Runs(&'static [&'static str]),
}

impl Program {
    /// Cargo's flag that names such a target.
    const fn flag(&self) -> &'static str {
        match self {
            Self::Tests => "--test",
            Self::Runs(_) => "--example",
        }
    }
}

/// The package that all of them are of.
const PACKAGE: &str = "hugepilot-linux";
/// As `--test` calls the NUMA workloads.
const NUMA: &str = "numa";
const EVERY_KERNEL: &[&str] = &["6.1", "6.12", "newest"];
/// Kernels that have DAMON on virtual addresses, as Debian builds them.
const WITH_DAMON: &[&str] = &["6.12", "newest"];

/// All of them.
const TESTS: &[GuestTest] = &[
    GuestTest {
        target: "conformance",
        program: Program::Tests,
        kernels: EVERY_KERNEL,
        cpus: 2,
        nodes: 1,
    },
    GuestTest {
        target: "live",
        program: Program::Tests,
        kernels: EVERY_KERNEL,
        cpus: 2,
        nodes: 1,
    },
    GuestTest {
        target: "support",
        program: Program::Tests,
        kernels: EVERY_KERNEL,
        // BPF on a kernel function: see `numa_live` below.
        cpus: 1,
        nodes: 1,
    },
    GuestTest {
        target: "tracker_live",
        program: Program::Runs(&[
            "check virtual --take-damon",
            "check physical --take-damon",
            "crash",
        ]),
        kernels: WITH_DAMON,
        // DAMON clears accessed bits and leaves TLBs alone: with a processor to itself, a program's hottest pages
        // can read as idle.
        cpus: 1,
        nodes: 1,
    },
    GuestTest {
        target: "numa_live",
        program: Program::Runs(&["hinting base", "hinting huge", "crash"]),
        kernels: EVERY_KERNEL,
        cpus: 4,
        nodes: 4,
    },
    GuestTest {
        target: "numa_live",
        program: Program::Runs(&["faults"]),
        kernels: EVERY_KERNEL,
        // It attaches BPF to the page fault handler, which the kernel does by changing its own code. Emulated
        // processors may go on with the code of a moment ago, and then the kernel dies of a breakpoint that is gone.
        cpus: 1,
        nodes: 1,
    },
];
/// A guest that runs longer is hung: the programs take a minute or two in software emulation.
const TIMEOUT: Duration = Duration::from_secs(900);
const MEMORY: &str = "3G";

#[derive(Args)]
pub struct Arguments {
    /// Only this kernel (as `vm run` takes it). May be repeated.
    #[arg(long = "kernel", value_name = "VERSION")]
    kernels: Vec<String>,
    /// Only this test program. May be repeated.
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// Show the kernels' consoles.
    #[arg(long)]
    verbose: bool,
}

pub fn perform(arguments: &Arguments) -> Result<ExitCode> {
    let programs = perform_programs(arguments)?;
    let numa = if arguments.names_numa() {
        numa::tests_in_guests::perform()?
    } else {
        ExitCode::SUCCESS
    };
    let proof = prove_pmu(arguments)?;
    let failed = [programs, numa, proof].contains(&ExitCode::FAILURE);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The virtual PMU is a referee only once it is proved, in a guest of its own.
fn prove_pmu(arguments: &Arguments) -> Result<ExitCode> {
    let named = |name: &String| name == pmu_proof::NAME;
    if !arguments.tests.is_empty() && !arguments.tests.iter().any(named) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut proof = ExitCode::SUCCESS;
    for kernel in chosen(&arguments.kernels, pmu_proof::KERNELS) {
        if pmu_proof::perform(&kernel, arguments.verbose)? == ExitCode::FAILURE {
            proof = ExitCode::FAILURE;
        }
    }
    Ok(proof)
}

impl Arguments {
    /// The NUMA workloads have guests of their own, and run where they are named.
    fn names_numa(&self) -> bool {
        self.tests.iter().any(|name| name == NUMA)
    }
}

fn perform_programs(arguments: &Arguments) -> Result<ExitCode> {
    let apart = |name: &String| [NUMA, pmu_proof::NAME].contains(&name.as_str());
    if !arguments.tests.is_empty() && arguments.tests.iter().all(apart) {
        return Ok(ExitCode::SUCCESS);
    }
    let kernels = chosen(&arguments.kernels, EVERY_KERNEL);
    let worker = built_binary("hugepilot-worker")?;
    let programs = build_tests()?;
    let mut failed = Vec::new();
    for kernel in kernels {
        let tests: Vec<&GuestTest> = TESTS
            .iter()
            .filter(|test| test.kernels.contains(&kernel.as_str()) || !arguments.kernels.is_empty())
            .filter(|test| {
                arguments.tests.is_empty() || arguments.tests.iter().any(|name| name == test.target)
            })
            .collect();
        ensure!(
            !tests.is_empty(),
            "no test program of that name runs on {kernel}"
        );
        let sizes: BTreeSet<(u32, u32)> =
            tests.iter().map(|test| (test.cpus, test.nodes)).collect();
        for size in sizes {
            let tests: Vec<&GuestTest> = tests
                .iter()
                .copied()
                .filter(|test| (test.cpus, test.nodes) == size)
                .collect();
            if !passes(&kernel, size, &tests, &programs, &worker, arguments.verbose)? {
                let (cpus, nodes) = size;
                failed.push(format!("{kernel} ({cpus} CPUs on {nodes} nodes)"));
            }
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("xtask: tests failed on kernel {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn chosen(named: &[String], usual: &[&str]) -> Vec<String> {
    if named.is_empty() {
        usual.iter().map(|name| (*name).to_owned()).collect()
    } else {
        named.to_vec()
    }
}

/// Boots one kernel with so many processors on so many nodes and runs the tests in it, one program after the other.
fn passes(
    kernel: &str,
    (cpus, nodes): (u32, u32),
    tests: &[&GuestTest],
    programs: &BTreeMap<String, PathBuf>,
    worker: &Path,
    verbose: bool,
) -> Result<bool> {
    let mut files = vec![format!("{}:/hugepilot-worker", worker.display())];
    for test in tests {
        let program = programs
            .get(test.target)
            .with_context(|| format!("cargo built no test program called {}", test.target))?;
        files.push(format!("{}:/tests/{}", program.display(), test.target));
    }
    let script = write_script(tests)?;
    let outcome = vm::boot(&vm::Boot {
        kernel,
        memory: MEMORY,
        cpus,
        nodes,
        pmu: None,
        files: &files,
        program: &[script.display().to_string()],
        timeout: TIMEOUT,
        verbose,
    })?;
    Ok(outcome == 0)
}

/// What the guest runs: every program, also after one failed.
fn write_script(tests: &[&GuestTest]) -> Result<PathBuf> {
    let mut script = String::from("#!/bin/sh\nfailed=0\n");
    for test in tests {
        script.push_str(&steps(test));
    }
    script.push_str("exit $failed\n");
    let path = vm::workspace_root()?.join("target/guest/run-tests");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The lines of the script that run one program.
fn steps(test: &GuestTest) -> String {
    let name = test.target;
    match test.program {
        Program::Tests => format!(
            "echo \"     Running {name} on $(uname -r)\"\n\
             RUST_BACKTRACE=1 /tests/{name} --test-threads=1 || failed=1\n"
        ),
        Program::Runs(runs) => runs
            .iter()
            .map(|run| {
                format!(
                    "echo \"     Running {name} {run} on $(uname -r)\"\n\
                     if /tests/{name} {run}; then\n\
                     echo 'test result: ok. 1 passed; 0 failed;'\n\
                     else failed=1; echo 'test result: FAILED. 0 passed; 1 failed;'; fi\n"
                )
            })
            .collect(),
    }
}

/// The path of one of the static binaries.
fn built_binary(name: &str) -> Result<PathBuf> {
    let binaries = vm::build::guest_binaries(false)?;
    binaries
        .into_iter()
        .find(|path| path.file_name().is_some_and(|file| file == name))
        .with_context(|| format!("{name} is not among the guests' binaries"))
}

/// Builds all test programs; their paths by target. Examples are built apart: `cargo test` would give them a harness.
fn build_tests() -> Result<BTreeMap<String, PathBuf>> {
    let mut programs = BTreeMap::new();
    for (verb, flag) in [("test", "--test"), ("build", "--example")] {
        let mut build = vm::build::static_cargo(verb)?;
        if verb == "test" {
            build.arg("--no-run");
        }
        build.args(["--message-format=json", "--package", PACKAGE]);
        let targets: BTreeSet<&str> = TESTS
            .iter()
            .filter(|test| test.program.flag() == flag)
            .map(|test| test.target)
            .collect();
        for target in targets {
            build.args([flag, target]);
        }
        let output = build
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("the guests' test programs do not build");
        }
        let messages = String::from_utf8(output.stdout)
            .context("cargo printed something that is not UTF-8")?;
        for program in messages.lines().filter_map(executable) {
            let (name, path) = program?;
            programs.insert(name, path);
        }
    }
    Ok(programs)
}

/// The test program that a line of cargo's JSON tells of, if it does.
fn executable(line: &str) -> Option<Result<(String, PathBuf)>> {
    let message: serde_json::Value = match serde_json::from_str(line) {
        Ok(message) => message,
        Err(error) => return Some(Err(error).context("cargo printed something that is not JSON")),
    };
    let wanted = message["profile"]["test"] == true || message["target"]["kind"][0] == "example";
    let path = message["executable"].as_str().filter(|_| wanted)?;
    let target = message["target"]["name"].as_str()?;
    Some(Ok((target.to_owned(), PathBuf::from(path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_of_an_example_counts_as_one_test() {
        let test = GuestTest {
            target: "t",
            program: Program::Runs(&["a b", "c"]),
            kernels: EVERY_KERNEL,
            cpus: 1,
            nodes: 1,
        };
        assert_eq!(steps(&test).matches("1 passed").count(), 2);
        assert_eq!(steps(&test).matches("failed=1").count(), 2);
    }

    #[test]
    fn test_programs_are_told_from_other_artifacts() {
        let test = r#"{"reason":"compiler-artifact","target":{"name":"guest"},"profile":{"test":true},"executable":"/t/guest-1"}"#;
        let (name, path) = executable(test).expect("a test").expect("well formed");
        assert_eq!(
            (name.as_str(), path.as_path()),
            ("guest", Path::new("/t/guest-1"))
        );
        let example = r#"{"reason":"compiler-artifact","target":{"name":"t","kind":["example"]},"profile":{"test":false},"executable":"/t/t"}"#;
        assert!(executable(example).is_some());
        let library = r#"{"reason":"compiler-artifact","target":{"name":"core"},"profile":{"test":false},"executable":null}"#;
        assert!(executable(library).is_none());
        assert!(executable("warning: no JSON").expect("something").is_err());
    }
}
