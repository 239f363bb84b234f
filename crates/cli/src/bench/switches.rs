//! The system's THP switches: set for a baseline, asserted unchanged for everything else.
//!
//! Whatever is set goes through the journal, so it is restored at the end, at an error, and by the next start or by
//! `hugepilot restore` after a `kill -9`.

use anyhow::{Context, bail};
use hugepilot_bench::schedule::Mode;
use hugepilot_linux::journal::{DEFAULT_DIR, Journal, value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/kernel/mm/transparent_hugepage";
/// Counters among the switches: they change by themselves.
const COUNTERS: [&str; 3] = ["stats", "full_scans", "pages_collapsed"];

/// Every switch with its text.
pub type Snapshot = BTreeMap<PathBuf, String>;

/// The switches of this system.
#[derive(Debug)]
pub struct Switches {
    journal: Journal,
    enabled: PathBuf,
}

/// A switch that is set until this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    switches: &'a Switches,
    before: String,
}

impl Switches {
    /// Opens the journal, having undone what dead instances left.
    ///
    /// # Errors
    /// If the journal's directory cannot be written.
    pub fn open() -> anyhow::Result<Self> {
        let dir = Path::new(DEFAULT_DIR);
        Journal::recover(dir)?;
        let journal = Journal::open(dir)?;
        let enabled = Path::new(ROOT).join("enabled");
        Ok(Self { journal, enabled })
    }

    /// Makes sure that faults get base pages where nobody asks for more, as `mega` and `ingens` want it: where the
    /// system says `always`, it says `madvise` for this run. Gives what then holds, in words.
    ///
    /// # Errors
    /// If the switch cannot be read or set.
    pub fn settle_base(&self) -> anyhow::Result<String> {
        let found = self.read("enabled")?;
        let defrag = self.read("defrag")?;
        if found != "always" {
            return Ok(format!("enabled={found}, defrag={defrag}"));
        }
        self.journal.set(&self.enabled, "madvise")?;
        Ok(format!(
            "enabled=madvise (the system's always, set for this run), defrag={defrag}"
        ))
    }

    /// Sets what a mode needs: nothing for the managed ones.
    ///
    /// # Errors
    /// If the switch cannot be set.
    pub fn hold(&self, mode: Mode) -> anyhow::Result<Option<Held<'_>>> {
        let value = match mode {
            Mode::Never => "never",
            Mode::Always => "always",
            Mode::Mega | Mode::Ingens => return Ok(None),
        };
        let before = self.read("enabled")?;
        self.journal.set(&self.enabled, value)?;
        Ok(Some(Held {
            switches: self,
            before,
        }))
    }

    /// All switches as they are.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let mut found = Snapshot::new();
        collect(Path::new(ROOT), &mut found)?;
        Ok(found)
    }

    /// Fails if a switch is not as in `before`.
    ///
    /// # Errors
    /// Names the first switch that differs.
    pub fn assert_same(&self, before: &Snapshot, when: &str) -> anyhow::Result<()> {
        match first_difference(before, &self.snapshot()?) {
            None => Ok(()),
            Some(difference) => bail!("a THP switch changed {when}: {difference}"),
        }
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = Path::new(ROOT).join(name);
        let why = || format!("cannot read {}: has this kernel THP?", path.display());
        value::read(&path).with_context(why)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Err(error) = self
            .switches
            .journal
            .set(&self.switches.enabled, &self.before)
        {
            eprintln!("hugepilot: {error}; `hugepilot restore` puts it back");
        }
    }
}

fn collect(dir: &Path, found: &mut Snapshot) -> anyhow::Result<()> {
    let why = || format!("cannot read {}", dir.display());
    for entry in std::fs::read_dir(dir).with_context(why)? {
        let entry = entry.with_context(why)?;
        if COUNTERS.iter().any(|counter| entry.file_name() == *counter) {
            continue;
        }
        let path = entry.path();
        if entry.file_type().with_context(why)?.is_dir() {
            collect(&path, found)?;
        } else {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            found.insert(path, text.trim().to_owned());
        }
    }
    Ok(())
}

fn first_difference(before: &Snapshot, after: &Snapshot) -> Option<String> {
    let show = |text: Option<&String>| text.map_or("nothing", |text| text.as_str()).to_owned();
    before.keys().chain(after.keys()).find_map(|path| {
        let (was, is) = (before.get(path), after.get(path));
        (was != is).then(|| format!("{}: {} became {}", path.display(), show(was), show(is)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(entries: &[(&str, &str)]) -> Snapshot {
        let entry = |(path, text): &(&str, &str)| (PathBuf::from(path), (*text).to_owned());
        entries.iter().map(entry).collect()
    }

    #[test]
    fn a_changed_a_new_and_a_lost_switch_are_named() {
        let before = snapshot(&[("/t/enabled", "[never]"), ("/t/defrag", "[madvise]")]);
        assert_eq!(first_difference(&before, &before), None);
        let changed = snapshot(&[("/t/enabled", "[always]"), ("/t/defrag", "[madvise]")]);
        let difference = first_difference(&before, &changed).expect("one differs");
        assert_eq!(difference, "/t/enabled: [never] became [always]");
        let lost = snapshot(&[("/t/enabled", "[never]")]);
        assert!(
            first_difference(&before, &lost)
                .expect("lost")
                .contains("became nothing")
        );
        assert!(
            first_difference(&lost, &before)
                .expect("new")
                .contains("nothing became")
        );
    }
}
