//! The proof of the virtual PMU: a program whose accesses are known by construction, in a guest of 4 nodes, against what
//! the virtual PMU counted. Everything must agree within [`TOLERANCE`].
//!
//! [`phases`] says what the program does and what the metrics must be, worked out by hand from their definitions.

mod phases;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::vm;
use phases::{Item, PHASES, Pages, Phase};

/// Of counts relatively, of shares in their unit.
const TOLERANCE: f64 = 0.01;
/// Loads of each thread in a phase: whole rounds through all pages of every phase.
const LOADS: u64 = 1 << 20;
/// Of the program's loop.
const INSTRUCTIONS_PER_LOAD: u64 = 5;
const NODES: u32 = 4;
/// Two a node: the threads' own, and one for everybody else.
const CPUS: u32 = 8;
const MEMORY: &str = "2G";
/// The kernels of the proof, where none is named: what is proved is QEMU and the plugin.
pub const KERNELS: &[&str] = &["6.12"];
/// As `test-guests --test` calls it.
pub const NAME: &str = "pmu";
/// A guest that runs longer is hung: this takes less than a minute.
const TIMEOUT: Duration = Duration::from_secs(600);
/// So small that a phase either fits or does not.
const CACHES: [&str; 3] = ["l1=16:8", "l2=32:8", "l3=64:16"];

/// Runs it. Its result looks like that of a test program, so that whoever counts tests counts this one too.
pub fn perform(kernel: &str, verbose: bool) -> Result<ExitCode> {
    println!("     Running {NAME} on {kernel}");
    let wrong = run(kernel, verbose)?;
    for line in &wrong {
        println!("{NAME}: {line}");
    }
    let (passed, failed) = if wrong.is_empty() { (1, 0) } else { (0, 1) };
    let word = if wrong.is_empty() { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed;");
    Ok(if wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What does not agree.
fn run(kernel: &str, verbose: bool) -> Result<Vec<String>> {
    let directory = vm::workspace_root()?.join("target/guest");
    let (windows, samples) = (directory.join("pmu-windows"), directory.join("pmu-samples"));
    let binaries = vm::build::guest_binaries(false)?;
    let program = binaries
        .iter()
        .find(|path| path.file_name().is_some_and(|file| file == "guest-pmu"))
        .context("guest-pmu is not among the guests' binaries")?;
    let mut words = vec![program.display().to_string()];
    words.extend(PHASES.iter().map(|phase| as_argument(&phase.threads)));
    let code = vm::boot(&vm::Boot {
        kernel,
        memory: MEMORY,
        cpus: CPUS,
        nodes: NODES,
        pmu: Some(&vm::Wanted {
            out: Some(windows.clone()),
            samples: Some(samples.clone()),
            arguments: CACHES.map(str::to_owned).to_vec(),
        }),
        files: &[],
        program: &words,
        timeout: TIMEOUT,
        verbose,
    })?;
    if code != 0 {
        return Ok(vec![format!("the program ended with {code}")]);
    }
    let windows = read_windows(&windows)?;
    let samples = fs::read_to_string(&samples).context("cannot read the samples")?;
    Ok(judge(&windows, samples.lines().count()))
}

/// As the program takes it.
fn as_argument(threads: &[&[Item]]) -> String {
    let items = threads.iter().enumerate().flat_map(|(thread, items)| {
        items.iter().map(move |(node, first, pages, eighths)| {
            format!("{thread}/{node}/{first}/{pages}/{}", eighths * LOADS / 8)
        })
    });
    items.collect::<Vec<_>>().join("+")
}

fn read_windows(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).context("cannot read the windows")?;
    let read = |line: &str| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"));
    let windows: Vec<Value> = text.lines().map(read).collect::<Result<_>>()?;
    ensure!(!windows.is_empty(), "the virtual PMU wrote no window");
    Ok(windows)
}

/// Everything that is wrong with what was written.
fn judge(windows: &[Value], samples: usize) -> Vec<String> {
    let mut judge = Judge::default();
    for (number, phase) in (1_u64..).zip(&PHASES) {
        let of_phase = |window: &&Value| window["label"] == number && window["last"] == false;
        let found: Vec<&Value> = windows.iter().filter(of_phase).collect();
        judge.place = phase.name;
        match found[..] {
            [window] => judge.phase(window, phase),
            _ => judge.say(format!("{} windows", found.len())),
        }
    }
    judge.place = "samples";
    let reported: u64 = windows
        .iter()
        .filter_map(|window| window["samples"].as_u64())
        .sum();
    let in_file = u64::try_from(samples).expect("64 bits");
    if reported == 0 || reported != in_file {
        judge.say(format!(
            "{reported} were reported, {in_file} are in the file"
        ));
    }
    judge.wrong
}

/// Gathers what is wrong.
#[derive(Default)]
struct Judge {
    place: &'static str,
    wrong: Vec<String>,
}

impl Judge {
    fn say(&mut self, what: String) {
        self.wrong.push(format!("{}: {what}", self.place));
    }

    fn phase(&mut self, window: &Value, phase: &Phase) {
        self.counts(window, phase);
        let raw = &window["raw"];
        self.share("lar", &raw["lar"], phase.lar);
        self.share("imbalance", &raw["imbalance"], phase.imbalance);
        self.pages("base_pages", &raw["base_pages"], &phase.base_pages);
        self.pages("huge_pages", &raw["huge_pages"], &phase.huge_pages);
        if let Some(share) = phase.dram {
            let all = LOADS * u64::from(NODES);
            self.count(
                "dram",
                &window["dram"]["accesses"],
                share * float(all),
                float(all),
            );
        }
        if window["pages_lost"] != 0 {
            self.say(format!("{} accesses to pages lost", window["pages_lost"]));
        }
    }

    /// Accesses by thread and node, and each thread's instructions.
    fn counts(&mut self, window: &Value, phase: &Phase) {
        for (thread, items) in phase.threads.iter().enumerate() {
            for node in 0..phase.threads.len() {
                let eighths: u64 = items
                    .iter()
                    .filter(|item| item.0 == node)
                    .map(|item| item.3)
                    .sum();
                let expected = float(eighths * LOADS / 8);
                let scale = if eighths == 0 { float(LOADS) } else { expected };
                let what = format!("thread {thread} to node {node}");
                self.count(
                    &what,
                    &window["raw"]["matrix"][thread][node],
                    expected,
                    scale,
                );
            }
            let expected = float(LOADS * INSTRUCTIONS_PER_LOAD);
            let what = format!("instructions of thread {thread}");
            let cpu = &window["threads"]
                .as_array()
                .and_then(|threads| threads.iter().find(|found| found["node"] == thread))
                .map_or(Value::Null, |found| found["cpu"].clone());
            let instructions = cpu
                .as_u64()
                .and_then(|cpu| usize::try_from(cpu).ok())
                .map_or(
                    &Value::Null,
                    |cpu| &window["cpus"][cpu]["user_instructions"],
                );
            self.count(&what, instructions, expected, expected);
        }
    }

    fn pages(&mut self, grain: &str, found: &Value, expected: &Pages) {
        self.share(&format!("{grain}.pamup"), &found["pamup"], expected.pamup);
        self.share(
            &format!("{grain}.psp_threads"),
            &found["psp_threads"],
            expected.psp_threads,
        );
        for (key, expected) in [("pages", expected.count), ("nhp", expected.nhp)] {
            if found[key] != expected {
                self.say(format!("{grain}.{key} is {}, not {expected}", found[key]));
            }
        }
    }

    fn share(&mut self, what: &str, found: &Value, expected: f64) {
        self.count(what, found, expected, 1.0);
    }

    fn count(&mut self, what: &str, found: &Value, expected: f64, scale: f64) {
        let close = |found: f64| (found - expected).abs() <= TOLERANCE * scale;
        if !found.as_f64().is_some_and(close) {
            self.say(format!("{what} is {found}, not {expected}"));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pages(pages: &Pages) -> Value {
        json!({"pages": pages.count, "nhp": pages.nhp, "pamup": pages.pamup, "psp_threads": pages.psp_threads})
    }

    /// What a perfect virtual PMU would write.
    fn perfect() -> Vec<Value> {
        let window = |(number, phase): (u64, &Phase)| {
            let row = |items: &&[Item]| -> Vec<u64> {
                let to = |node| {
                    items
                        .iter()
                        .filter(|item| item.0 == node)
                        .map(|item| item.3)
                        .sum::<u64>()
                };
                (0..4).map(|node| to(node) * LOADS / 8).collect()
            };
            let matrix: Vec<Vec<u64>> = phase.threads.iter().map(row).collect();
            let threads: Vec<Value> = (0..4)
                .map(|node| json!({"node": node, "cpu": node * 2}))
                .collect();
            let cpus: Vec<Value> = (0..8)
                .map(|_| json!({"user_instructions": 5 * LOADS}))
                .collect();
            json!({
                "label": number, "last": false, "samples": 10, "pages_lost": 0, "threads": threads, "cpus": cpus,
                "dram": {"accesses": phase.dram.unwrap_or(0.0) * 4.0 * float(LOADS)},
                "raw": {
                    "matrix": matrix, "lar": phase.lar, "imbalance": phase.imbalance,
                    "base_pages": pages(&phase.base_pages), "huge_pages": pages(&phase.huge_pages),
                },
            })
        };
        (1..).zip(&PHASES).map(window).collect()
    }

    #[test]
    fn a_perfect_virtual_pmu_passes() {
        assert_eq!(judge(&perfect(), 60), Vec::<String>::new());
    }

    #[test]
    fn two_percent_too_many_are_noticed_everywhere() {
        for path in [
            "/raw/matrix/0/0",
            "/raw/matrix/0/3",
            "/raw/lar",
            "/raw/imbalance",
            "/raw/base_pages/pamup",
            "/raw/base_pages/nhp",
            "/raw/huge_pages/psp_threads",
            "/raw/huge_pages/pages",
            "/cpus/0/user_instructions",
        ] {
            let mut windows = perfect();
            let value = windows[0].pointer_mut(path).unwrap();
            let unit = if value.as_f64().unwrap() > 100.0 || path.contains("matrix") {
                float(5 * LOADS)
            } else {
                1.0
            };
            let more = value.as_f64().unwrap() + 0.02 * unit;
            *value = if path.contains("nhp") || path.ends_with("pages") {
                json!(9)
            } else {
                json!(more)
            };
            assert_eq!(judge(&windows, 60).len(), 1, "{path}");
        }
    }

    #[test]
    fn a_phase_without_its_window_is_noticed() {
        let mut windows = perfect();
        windows.remove(2);
        assert!(judge(&windows, 50)[0].contains("0 windows"));
        assert!(!judge(&perfect(), 59).is_empty());
    }

    #[test]
    fn phases_are_told_to_the_program() {
        let text = as_argument(&PHASES[3].threads);
        assert!(
            text.starts_with("0/1/0/1/524288+0/0/1024/128/524288+1/1/0/1/"),
            "{text}"
        );
    }
}
