//! Tests on other kernels: the test programs of this repository, linked statically, run inside guests.
//!
//! What is tested there is what this machine's kernel lacks or does otherwise: DAMON on virtual addresses, BPF,
//! writable debugfs, kernels without `PAGEMAP_SCAN`. One boot a kernel runs all of its programs. Their output passes
//! through, `test result` lines included, so that whoever counts tests counts these too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::vm;

/// A test program and the kernels it runs on.
struct GuestTest {
    package: &'static str,
    target: &'static str,
    kernels: &'static [&'static str],
}

const EVERY_KERNEL: &[&str] = &["6.1", "6.12", "newest"];

/// All of them.
const TESTS: &[GuestTest] = &[
    GuestTest {
        package: "hugepilot-linux",
        target: "conformance",
        kernels: EVERY_KERNEL,
    },
    GuestTest {
        package: "hugepilot-linux",
        target: "guest",
        kernels: EVERY_KERNEL,
    },
    GuestTest {
        package: "hugepilot-linux",
        target: "live",
        kernels: EVERY_KERNEL,
    },
    GuestTest {
        package: "hugepilot-linux",
        target: "support",
        kernels: EVERY_KERNEL,
    },
];

/// A guest that runs longer is hung: the programs take a minute or two in software emulation.
const TIMEOUT: Duration = Duration::from_secs(900);
const MEMORY: &str = "3G";
const CPUS: u32 = 2;

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
        if !passes(&kernel, &tests, &programs, &worker, arguments.verbose)? {
            failed.push(kernel);
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

/// Boots one kernel and runs the tests in it, one program after the other.
fn passes(
    kernel: &str,
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
        cpus: CPUS,
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
        writeln!(
            script,
            "echo \"     Running {0} on $(uname -r)\"\nRUST_BACKTRACE=1 /tests/{0} --test-threads=1 || failed=1",
            test.target
        )?;
    }
    script.push_str("exit $failed\n");
    let path = vm::workspace_root()?.join("target/guest/run-tests");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The path of one of the static binaries.
fn built_binary(name: &str) -> Result<PathBuf> {
    let binaries = vm::build::guest_binaries(false)?;
    binaries
        .into_iter()
        .find(|path| path.file_name().is_some_and(|file| file == name))
        .with_context(|| format!("{name} is not among the guests' binaries"))
}

/// Builds all test programs; their paths by target.
fn build_tests() -> Result<BTreeMap<String, PathBuf>> {
    let mut build = vm::build::static_cargo("test")?;
    build.args(["--no-run", "--message-format=json"]);
    for package in TESTS
        .iter()
        .map(|test| test.package)
        .collect::<std::collections::BTreeSet<_>>()
    {
        build.args(["--package", package]);
    }
    for test in TESTS {
        build.args(["--test", test.target]);
    }
    let output = build
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the guests' test programs do not build");
    }
    String::from_utf8(output.stdout)
        .context("cargo printed something that is not UTF-8")?
        .lines()
        .filter_map(executable)
        .collect()
}

/// The test program that a line of cargo's JSON tells of, if it does.
fn executable(line: &str) -> Option<Result<(String, PathBuf)>> {
    let message: serde_json::Value = match serde_json::from_str(line) {
        Ok(message) => message,
        Err(error) => return Some(Err(error).context("cargo printed something that is not JSON")),
    };
    let path = message["executable"]
        .as_str()
        .filter(|_| message["profile"]["test"] == true)?;
    let target = message["target"]["name"].as_str()?;
    Some(Ok((target.to_owned(), PathBuf::from(path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_told_from_other_artifacts() {
        let test = r#"{"reason":"compiler-artifact","target":{"name":"guest"},"profile":{"test":true},"executable":"/t/guest-1"}"#;
        let (name, path) = executable(test).expect("a test").expect("well formed");
        assert_eq!(
            (name.as_str(), path.as_path()),
            ("guest", Path::new("/t/guest-1"))
        );
        let library = r#"{"reason":"compiler-artifact","target":{"name":"core"},"profile":{"test":false},"executable":null}"#;
        assert!(executable(library).is_none());
        assert!(executable("warning: no JSON").expect("something").is_err());
    }
}
