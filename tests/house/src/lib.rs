//! The rules of this repository that the compiler does not check, as functions from text to violations.
//!
//! A rule that `cargo test` does not check is a wish. Each module is one family of rules: it takes what was read (a
//! dependency graph, a file's text, a table of parameters) and returns what is wrong with it. None of them reads
//! anything itself but [`files`], so that each rule is tested on a seeded violation beside it. `tests/house.rs` applies
//! them to the work tree.

pub mod edges;
pub mod files;
pub mod manual;
pub mod parameters;
pub mod source;
pub mod text;
pub mod words;

use std::fmt;

/// Something that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// File, file and line, or crate.
    pub place: String,
    /// What is wrong and, where it is not plain, what to do.
    pub what: String,
}

impl Violation {
    /// A violation in a line of a file.
    #[must_use]
    pub fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            place: format!("{path}:{line}"),
            what: what.into(),
        }
    }

    /// A violation of a whole file or crate.
    #[must_use]
    pub fn of(place: &str, what: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}
