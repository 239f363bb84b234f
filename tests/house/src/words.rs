//! One word, one meaning: what the glossary says never to say, as far as it can be told without false alarms.

use crate::Violation;
use crate::files::File;
use crate::source::{Names, names};

/// A word that is not said, in two halves so that this file does not say it, and the word to use.
struct Never {
    halves: (&'static str, &'static str),
    say: &'static str,
}

/// In prose and in code.
const NEVER: [Never; 4] = [
    Never {
        halves: ("super", "page"),
        say: "huge page",
    },
    Never {
        halves: ("large ", "page"),
        say: "huge page",
    },
    Never {
        halves: ("small ", "page"),
        say: "base page",
    },
    Never {
        halves: ("normal ", "page"),
        say: "base page",
    },
];

/// What a type or a module is never called: it says nothing of what it does. A sensor reads, an actuator acts.
const EMPTY_NAMES: [&str; 4] = ["handler", "helper", "util", "utils"];
/// The same, where sensors and actuators live; elsewhere the manager is the program that is measured.
const EMPTY_NAME_OF_SENSORS: (&str, &str) = ("crates/linux/", "manager");

/// Words that prose may use and code may not: the actions are collapse and split.
const NOT_IN_CODE: [&str; 2] = ["promote", "demote"];

impl Never {
    fn spoken(&self) -> String {
        format!("{}{}", self.halves.0, self.halves.1)
    }

    /// As one identifier would have it, without case and underscores.
    fn squeezed(&self) -> String {
        self.spoken().replace(' ', "")
    }
}

/// Words of the glossary's last column.
#[must_use]
pub fn check(file: &File) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if ["rs", "md", "sh", "toml"]
        .iter()
        .any(|extension| file.is(extension))
    {
        wrong.extend(check_prose(file));
    }
    if file.is("rs") {
        match names(file) {
            Ok(names) => wrong.extend(check_names(&file.path, &names)),
            Err(unreadable) => wrong.push(unreadable),
        }
    }
    wrong
}

fn check_prose(file: &File) -> Vec<Violation> {
    let quotes: &[(char, char)] = if file.is("md") {
        &[('`', '`'), ('"', '"'), ('“', '”'), ('*', '*'), ('(', ')')]
    } else {
        &[('`', '`')]
    };
    let mut wrong = Vec::new();
    for (at, line) in file.lines() {
        let said = without_quotes(line, quotes)
            .to_lowercase()
            .replace('-', " ");
        for never in &NEVER {
            if said.contains(&never.spoken()) {
                let what = format!("“{}”: say {} (docs/glossary.md)", never.spoken(), never.say);
                wrong.push(Violation::at(&file.path, at, what));
            }
        }
    }
    wrong
}

/// A line without what it quotes: what others wrote is left as they wrote it.
fn without_quotes(line: &str, quotes: &[(char, char)]) -> String {
    let mut left = String::new();
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        let close = quotes
            .iter()
            .find(|(open, _)| *open == next)
            .map(|(_, close)| *close);
        match close {
            Some(close) if rest.as_str().contains(close) => {
                rest.by_ref().find(|found| *found == close);
            }
            Some(_) | None => left.push(next),
        }
    }
    left
}

fn check_names(path: &str, names: &Names) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (name, line) in &names.all {
        let squeezed = name.to_lowercase().replace('_', "");
        for never in NEVER
            .iter()
            .filter(|never| squeezed.contains(&never.squeezed()))
        {
            wrong.push(Violation::at(
                path,
                *line,
                format!("`{name}`: say {}", never.say),
            ));
        }
        let first = words_of(name).into_iter().next().unwrap_or_default();
        if NOT_IN_CODE.contains(&first.as_str()) {
            wrong.push(Violation::at(
                path,
                *line,
                format!("`{name}`: in code say collapse and split"),
            ));
        }
    }
    for (name, line) in &names.of_items {
        let last = words_of(name).pop().unwrap_or_default();
        let (place, of_sensors) = EMPTY_NAME_OF_SENSORS;
        let is_empty = last == of_sensors && path.starts_with(place);
        if is_empty || EMPTY_NAMES.contains(&last.as_str()) {
            let what = format!("`{name}` says nothing: what does it do?");
            wrong.push(Violation::at(path, *line, what));
        }
    }
    wrong
}

/// The words of an identifier, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            words.push(String::new());
        }
        if letter != '_' {
            words
                .last_mut()
                .expect("never empty")
                .extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(path: &str, text: &str) -> usize {
        check(&File {
            path: path.to_owned(),
            text: text.to_owned(),
        })
        .len()
    }

    #[test]
    fn words_that_are_never_said_are_found_in_prose() {
        for never in &NEVER {
            let said = never.spoken();
            assert_eq!(
                wrong("README.md", &format!("It uses {said}s.")),
                1,
                "{said}"
            );
            assert_eq!(wrong("a.rs", &format!("// {said}s are used")), 1, "{said}");
            let hyphened = said.replace(' ', "-");
            assert_eq!(
                wrong("a.md", &format!("A {hyphened} mode")),
                1,
                "{hyphened}"
            );
        }
    }

    #[test]
    fn quoting_is_allowed() {
        for never in &NEVER {
            let said = never.spoken();
            let text = format!("They say “{said}”, *Explicit {said}s* or `{said}`.");
            assert_eq!(wrong("README.md", &text), 0, "{said}");
        }
    }

    #[test]
    fn words_that_are_never_said_are_found_in_names() {
        let (large, page) = ("large", "page");
        assert_eq!(wrong("a.rs", &format!("fn {large}_{page}_count() {{}}")), 1);
        assert_eq!(wrong("a.rs", "struct LargePageCount;"), 1);
        assert_eq!(wrong("a.rs", "fn promote() {}"), 1);
        assert_eq!(wrong("a.rs", "enum E { DemoteSlot }"), 1);
        assert_eq!(wrong("a.rs", "enum E { Promotion } fn huge_page() {}"), 0);
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for text in [
            "struct SlotUtils;",
            "mod util {}",
            "trait Helper {}",
            "enum FaultHandler {}",
        ] {
            assert_eq!(wrong("a.rs", text), 1, "{text}");
        }
        assert_eq!(
            wrong("a.rs", "fn handler() {} struct Utility; struct Manager;"),
            0
        );
        assert_eq!(wrong("crates/linux/src/a.rs", "struct SlotManager;"), 1);
    }
}
