//! Bad input: an exit code, one sentence that says what to do, and nothing changed.

mod common;

use common::{Worker, huge, run, stderr, stdout};
use std::io::Write;

/// Runs it; checks the code, that one line was said, and that it contains `parts`.
fn check(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = run(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(
        said.lines().count(),
        1,
        "{arguments:?} should say one line, not {said:?}"
    );
    assert!(said.starts_with("hugepilot: "), "{said}");
    for part in parts {
        assert!(
            said.contains(part),
            "{arguments:?}: {said:?} should contain {part:?}"
        );
    }
    assert_eq!(stdout(&output), "", "{arguments:?} should print nothing");
}

fn file(contents: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(contents.as_bytes())
        .expect("a temporary file");
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("temporary names are plain")
}

#[test]
fn wrong_usage_is_told_with_code_2() {
    check(&["manage"], 2, &["--pid", "--all"]);
    check(
        &["manage", "--pid", "1", "--policy", "magic"],
        2,
        &["magic", "mega, ingens, linux"],
    );
    check(&["manage", "--pid", "x"], 2, &["process id", "number"]);
    check(&["manage", "--pid", "0"], 2, &["from 1 to"]);
    check(&["manage", "--all", "--for", "soon"], 2, &["soon", "30s"]);
    check(
        &["manage", "--all", "--record-max", "much"],
        2,
        &["much", "100M"],
    );
    check(&["inspect"], 2, &["PID"]);
    check(&["run"], 2, &["CMD"]);
    check(&["no-such-command"], 2, &["no-such-command"]);
    check(
        &["replay", "x", "--policy", "magic"],
        2,
        &["mega, ingens, linux"],
    );
    check(
        &["config", "--schema", "--defaults"],
        2,
        &["cannot be used with"],
    );
}

#[test]
fn a_parameter_that_does_not_fit_is_told_with_code_2() {
    let set = |what: &'static str, parts: &[&str]| {
        check(&["manage", "--pid", "1", "--set", what], 2, parts);
        check(&["config", "--set", what], 2, parts);
        check(&["run", "--set", what, "--", "true"], 2, parts);
    };
    set("mega.present_min=1.5", &["mega.present_min", "from 0 to 1"]);
    set("mega.present_min=nan", &["from 0 to 1"]);
    set("mega.present_min=high", &["from 0 to 1"]);
    set("mega.nothing=1", &["mega.nothing", "present_min"]);
    set("nothing.present_min=1", &["nothing", "mega"]);
    set("mega.present_min", &["section.field=value"]);
    set(
        "linux.mode=sometimes",
        &["never, madvise, always or khugepaged"],
    );
}

#[test]
fn a_configuration_that_is_wrong_is_told_with_its_line() {
    let config = |contents: &str, parts: &[&str]| {
        let file = file(contents);
        check(&["manage", "--pid", "1", "--config", path(&file)], 2, parts);
        check(&["config", "--config", path(&file)], 2, parts);
    };
    config("[mega]\npresent_min = = 3\n", &["line 2"]);
    config("[mega\n", &["line 1"]);
    config("[mega]\npresent_min = 7\n", &["line 2", "from 0 to 1"]);
    config("\n\n[magic]\nx = 1\n", &["line 4", "magic"]);
    check(
        &["manage", "--pid", "1", "--config", "/nonexistent/file.toml"],
        2,
        &["/nonexistent/file.toml"],
    );
}

#[test]
fn what_is_not_there_is_told_with_code_1() {
    check(
        &["manage", "--pid", "4194304"],
        1,
        &["no process 4194304", "ps -e"],
    );
    check(&["inspect", "4194304"], 1, &["no process 4194304", "ps -e"]);
    check(
        &["manage", "--cgroup", "/no/such/cgroup"],
        1,
        &["no cgroup /no/such/cgroup"],
    );
    check(
        &["replay", "/nonexistent/run.trace"],
        1,
        &["/nonexistent/run.trace", "--record"],
    );
    let text = file("no recording\n");
    check(&["replay", path(&text)], 1, &["no recording of hugepilot"]);
    let newer = file("{\"hugepilot_trace\":99}\n");
    check(&["replay", path(&newer)], 1, &["newer hugepilot"]);
}

#[test]
fn a_recording_that_cannot_be_written_stops_everything_before_it_began() {
    let worker = Worker::start(16);
    let pid = worker.pid().to_string();
    let before = huge(worker.pid());
    check(
        &[
            "manage",
            "--pid",
            &pid,
            "--for",
            "3s",
            "--record",
            "/nonexistent/x",
        ],
        1,
        &["/nonexistent/x"],
    );
    let full = file("something\n");
    check(
        &[
            "manage",
            "--pid",
            &pid,
            "--for",
            "3s",
            "--record",
            path(&full),
        ],
        1,
        &["exists already"],
    );
    assert_eq!(
        std::fs::read_to_string(full.path()).expect("it is there"),
        "something\n"
    );
    assert_eq!(huge(worker.pid()), before);
    worker.kill();
    check(
        &[
            "run",
            "--record",
            "/nonexistent/x",
            "--",
            "touch",
            "/nonexistent/y",
        ],
        1,
        &["/nonexistent/x"],
    );
}
