//! The rules, applied to the work tree.

use hugepilot_core::policy::Settings;
use hugepilot_house::edges::{self, Metadata};
use hugepilot_house::files::{self, File};
use hugepilot_house::{Violation, manual, parameters, source, text, words};
use std::fs;
use std::process::Command;

/// Set to 1, the generated tables are written instead of compared.
const BLESS: &str = "HUGEPILOT_BLESS";

fn work_tree() -> Vec<File> {
    let all = files::read_all(&files::root()).expect("the work tree can be read");
    assert!(
        all.iter().any(|file| file.path == "Cargo.toml"),
        "this is not the work tree"
    );
    all
}

fn rust(all: &[File]) -> impl Iterator<Item = &File> {
    all.iter().filter(|file| file.is("rs"))
}

fn metadata() -> Metadata {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(files::root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[track_caller]
fn none(wrong: impl IntoIterator<Item = Violation>) {
    let wrong: Vec<String> = wrong.into_iter().map(|wrong| wrong.to_string()).collect();
    assert!(
        wrong.is_empty(),
        "{} violations:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn no_crate_uses_what_it_must_not() {
    none(edges::check(&metadata()));
}

#[test]
fn core_has_no_world() {
    none(rust(&work_tree()).flat_map(source::check_worldless));
}

#[test]
fn unsafe_stands_where_it_belongs() {
    none(rust(&work_tree()).flat_map(source::check_unsafe));
}

#[test]
fn no_error_is_swallowed_and_no_test_ignored() {
    none(rust(&work_tree()).flat_map(source::check_honesty));
}

#[test]
fn the_rust_that_debian_has_understands_it() {
    none(rust(&work_tree()).flat_map(source::check_let_chains));
}

#[test]
fn words_are_those_of_the_glossary() {
    none(work_tree().iter().flat_map(words::check));
}

#[test]
fn no_file_is_too_long() {
    none(work_tree().iter().flat_map(text::check_length));
}

#[test]
fn nothing_is_tied_to_one_place() {
    let root = files::root();
    let checkout = root.to_str().expect("the path of the work tree is UTF-8");
    none(
        work_tree()
            .iter()
            .flat_map(|file| text::check_places(file, checkout)),
    );
}

#[test]
fn what_is_pointed_to_exists() {
    let root = files::root();
    none(
        work_tree()
            .iter()
            .flat_map(|file| manual::check_links(file, |target| root.join(target).exists())),
    );
}

#[test]
fn every_dependency_has_its_reason() {
    let all = work_tree();
    let page = all
        .iter()
        .find(|file| file.path == manual::DEPENDENCIES)
        .expect("the page exists");
    none(manual::check_dependencies(page, &metadata().foreign()));
}

#[test]
fn the_setup_asks_for_the_rust_that_the_manifest_names() {
    let read = |path: &str| fs::read_to_string(files::root().join(path)).expect("it exists");
    let value = |text: &str, key: &str| -> String {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = |letter: &char| letter.is_ascii_digit() || *letter == '.';
        let letters = line.expect("the key is there").chars();
        letters
            .skip_while(|letter| !number(letter))
            .take_while(number)
            .collect()
    };
    let setup = read("scripts/setup.sh");
    let asked = [
        value(&setup, "RUST_MIN_MAJOR="),
        value(&setup, "RUST_MIN_MINOR="),
    ]
    .join(".");
    assert_eq!(asked, value(&read("Cargo.toml"), "rust-version ="));
}

#[test]
fn every_parameter_is_documented_as_it_is() {
    let all = work_tree();
    let specs = Settings::specs();
    let pages: Vec<&File> = all
        .iter()
        .filter(|file| file.path.starts_with("docs/policies/") && file.is("md"))
        .collect();
    if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
        for page in pages {
            let renewed = parameters::renew(&page.text, &specs);
            if renewed != page.text {
                fs::write(files::root().join(&page.path), renewed)
                    .expect("the page can be written");
            }
        }
    } else {
        none(parameters::check(&pages, &specs));
    }
}
