//! A directory of our own for the server's files, removed when dropped.

use anyhow::Context;
use std::path::{Path, PathBuf};

/// Names of our directories and cgroups: this, our process id, a dash and what it is for.
const PREFIX: &str = "hugepilot-demo-";

/// The name of something of ours.
pub fn name(what: &str) -> String {
    format!("{PREFIX}{}-{what}", std::process::id())
}

/// Was `name` given by a demo that is not running any more?
pub fn is_stale(name: &str) -> bool {
    let pid = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next());
    let Some(pid) = pid.filter(|pid| pid.parse::<u32>().is_ok()) else {
        return false;
    };
    !Path::new("/proc").join(pid).exists()
}

/// The entries of `dir` that dead demos left.
///
/// # Errors
/// If `dir` cannot be read.
pub fn stale_in(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let why = || format!("cannot read {}", dir.display());
    let mut stale = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(why)? {
        let entry = entry.with_context(why)?;
        if is_stale(&entry.file_name().to_string_lossy()) {
            stale.push(entry.path());
        }
    }
    Ok(stale)
}

/// Removes the directories that dead demos left.
///
/// # Errors
/// If one cannot be removed.
pub fn remove_stale() -> anyhow::Result<()> {
    for dir in stale_in(&std::env::temp_dir())? {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("cannot remove {}, which a dead demo left", dir.display()))?;
    }
    Ok(())
}

/// The directory.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it.
    ///
    /// # Errors
    /// If it exists or cannot be made.
    pub fn new(what: &str) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(name(what));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("hugepilot: cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_demo_named_is_stale() {
        assert!(!is_stale(&name("never")));
        assert!(is_stale("hugepilot-demo-4194999-never"));
        for other in [
            "redis",
            "hugepilot-demo-",
            "hugepilot-demo-x-never",
            "hugepilot-demo--1",
        ] {
            assert!(!is_stale(other), "{other}");
        }
    }

    #[test]
    fn a_directory_goes_with_its_files() {
        let scratch = Scratch::new("test-scratch").expect("a new directory");
        let dir = scratch.path().to_owned();
        std::fs::write(dir.join("dump.rdb"), "x").expect("a file in it");
        drop(scratch);
        assert!(!dir.exists());
    }
}
