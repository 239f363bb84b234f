//! The file of results: what is in it is not run again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::figures::Figures;

/// Of the file.
const VERSION: u32 = 1;

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    Done(Box<Figures>),
    /// Why it has no figures.
    Failed(String),
}

/// A case that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub case: Case,
    /// Of the host, the boot included.
    pub seconds: f64,
    pub became: Became,
}

/// All rows, in the order in which they were run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    version: u32,
    pub rows: Vec<Row>,
    #[serde(skip)]
    path: PathBuf,
}

impl Results {
    /// Reads the file, or begins a new one.
    pub fn open(path: &Path) -> Result<Self> {
        let new = || Self {
            version: VERSION,
            rows: Vec::new(),
            path: path.to_owned(),
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(new()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let mut results: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is no file of results", path.display()))?;
        ensure!(
            results.version == VERSION,
            "{} was written by another version of this program: remove it or name another file",
            path.display()
        );
        path.clone_into(&mut results.path);
        Ok(results)
    }

    /// The row of a case, if it was run.
    pub fn of(&self, case: &Case) -> Option<&Row> {
        self.rows.iter().find(|row| row.case == *case)
    }

    /// Does it have figures?
    pub fn has(&self, case: &Case) -> bool {
        self.of(case)
            .is_some_and(|row| matches!(row.became, Became::Done(_)))
    }

    /// Keeps a row, in the place of an older one of its case, in memory and on the disk.
    pub fn keep(&mut self, row: Row) -> Result<()> {
        self.rows.retain(|kept| kept.case != row.case);
        self.rows.push(row);
        let directory = self
            .path
            .parent()
            .context("a file of results has a directory")?;
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        // Who stops us in the middle finds the old file or the new one.
        let half = self.path.with_extension("new");
        fs::write(&half, serde_json::to_string_pretty(self)?)
            .and_then(|()| fs::rename(&half, &self.path))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::case::{Mode, Workload};

    fn row(mode: Mode, became: Became) -> Row {
        let case = Case {
            workload: Workload::HashTable,
            nodes: 4,
            kernel: "6.12".to_owned(),
            mode,
            sampler: None,
        };
        Row {
            case,
            seconds: 1.5,
            became,
        }
    }

    #[test]
    fn what_was_run_is_known_after_a_restart_and_failures_are_run_again() {
        let directory = std::env::temp_dir().join(format!("numa-results-{}", std::process::id()));
        let path = directory.join("results.json");
        let failed = row(Mode::Base, Became::Failed("no memory".to_owned()));
        let mut results = Results::open(&path).unwrap();
        results.keep(failed.clone()).unwrap();
        let mut again = Results::open(&path).unwrap();
        assert_eq!(again.of(&failed.case), Some(&failed));
        assert!(!again.has(&failed.case));
        again.keep(failed).unwrap();
        assert_eq!(Results::open(&path).unwrap().rows.len(), 1);
        fs::write(&path, "{\"version\":0,\"rows\":[]}").unwrap();
        assert!(
            Results::open(&path)
                .unwrap_err()
                .to_string()
                .contains("another version")
        );
        fs::remove_dir_all(directory).unwrap();
    }
}
