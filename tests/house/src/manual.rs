//! Rules on the documentation: what it points to exists, and what must be documented is.

use crate::Violation;
use crate::files::File;
use std::collections::{BTreeMap, BTreeSet};

/// The page on what we depend on.
pub const DEPENDENCIES: &str = "docs/dependencies.md";

/// Pages that are pointed to and do not exist: links of Markdown files, and `docs/….md` named anywhere.
#[must_use]
pub fn check_links(file: &File, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (at, line) in file.lines() {
        let mut targets = pages_named(line);
        if file.is("md") {
            targets.extend(
                links(line)
                    .into_iter()
                    .map(|link| resolve(&file.path, link)),
            );
        }
        for target in targets.iter().filter(|target| !exists(target)) {
            wrong.push(Violation::at(
                &file.path,
                at,
                format!("points to {target}, which does not exist"),
            ));
        }
    }
    wrong
}

/// Targets of Markdown links into the repository, without their anchors.
fn links(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

/// A link's target from the root, for a link in the file `from`.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Pages under `docs/` that a line names by their path from the root.
fn pages_named(line: &str) -> BTreeSet<String> {
    let is_path = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
    line.split(|letter: char| !is_path(letter))
        .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
        .map(str::to_owned)
        .collect()
}

/// Dependencies without a reason on the page, and reasons for what is no dependency any more.
#[must_use]
pub fn check_dependencies(page: &File, used: &BTreeSet<String>) -> Vec<Violation> {
    let reasons = reasons(page);
    let missing = used.iter().filter(|name| {
        reasons
            .get(name.as_str())
            .is_none_or(|reason| reason.is_empty())
    });
    let stale = reasons.keys().filter(|name| !used.contains(**name));
    missing
        .map(|name| Violation::of(&page.path, format!("has no reason for {name}")))
        .chain(
            stale.map(|name| {
                Violation::of(&page.path, format!("speaks of {name}, which nothing uses"))
            }),
        )
        .collect()
}

/// The rows of the page's tables: ``| `name` | reason | … |``.
fn reasons(page: &File) -> BTreeMap<&str, &str> {
    page.lines()
        .filter_map(|(_, line)| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, rest)| (name, rest.split('|').nth(1).unwrap_or_default().trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn dead_links_are_found() {
        let page = file(
            "manual/policies/here.md",
            "See [a](../glossary.md#lar), [b](gone.md), [c](https://example.org/).",
        );
        let wrong = check_links(&page, |target| target == "manual/glossary.md");
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].what.contains("policies/gone.md"), "{wrong:?}");
    }

    #[test]
    fn pages_that_source_names_are_looked_for() {
        let source = file(
            "crates/core/src/a.rs",
            concat!("//! docs", "/gone.md says so."),
        );
        assert_eq!(check_links(&source, |_| false).len(), 1);
        assert!(check_links(&source, |_| true).is_empty());
    }

    #[test]
    fn dependencies_without_a_reason_and_reasons_without_one_are_found() {
        let page = file(
            DEPENDENCIES,
            "| Crate | Reason |\n| --- | --- |\n| `serde` | JSON |\n| `old` | was |\n| `libc` | |\n",
        );
        let used = ["serde", "libc", "clap"].map(str::to_owned).into();
        let wrong: Vec<String> = check_dependencies(&page, &used)
            .into_iter()
            .map(|wrong| wrong.what)
            .collect();
        assert_eq!(
            wrong,
            [
                "has no reason for clap",
                "has no reason for libc",
                "speaks of old, which nothing uses"
            ]
        );
    }
}
