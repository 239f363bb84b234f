//! One kdamond of ours in DAMON's sysfs interface.
//!
//! The interface is one for the whole machine: writing `nr_kdamonds` destroys whatever anybody configured. So we take
//! it only when there is none, enter that in the journal first, mark the context as ours (see
//! [`crate::journal::DamonUndo`]), and keep it until we end. Whether DAMON can be switched on is tried, with a region
//! of this very process, never guessed: DAMON_STAT, `damon_reclaim` and `damon_lru_sort` exclude us with `EBUSY`.

use super::layout::Layout;
use crate::journal::value;
use crate::journal::{DamonUndo, Journal, JournalError, Undo};
use crate::procfs::SysRoot;
use hugepilot_core::ids::Pid;
use hugepilot_core::units::Span;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// What DAMON samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Fixed ranges of processes' virtual addresses (`fvaddr`).
    Virtual,
    /// Physical addresses (`paddr`).
    Physical,
}

impl Space {
    /// The kernel's name of it.
    #[must_use]
    pub const fn operations(self) -> &'static str {
        match self {
            Self::Virtual => "fvaddr",
            Self::Physical => "paddr",
        }
    }
}

/// Why DAMON is not ours to use, each with what would change it.
#[derive(Debug, thiserror::Error)]
pub enum DamonUnavailable {
    /// No sysfs interface.
    #[error("this kernel has no DAMON ({path} is missing); one with CONFIG_DAMON_SYSFS has", path = path.display())]
    Absent {
        /// What was looked for.
        path: PathBuf,
    },
    /// Somebody else configured kdamonds.
    #[error(
        "DAMON's sysfs interface is in use by somebody else ({count} kdamond(s)); we do not touch theirs: \
         end what uses it, or write 0 to {path} yourself", path = path.display()
    )]
    InUse {
        /// How many there are.
        count: String,
        /// The file that says so.
        path: PathBuf,
    },
    /// The kernel's own users of DAMON run.
    #[error(
        "DAMON cannot be switched on because {modules} runs, which excludes all others; \
         say that it may be turned off for the time being (take_damon), or turn it off"
    )]
    Excluded {
        /// Which.
        modules: String,
    },
    /// No such operations.
    #[error("this kernel's DAMON cannot sample {operations}: it offers {offered}")]
    Operations {
        /// Wanted.
        operations: &'static str,
        /// Offered.
        offered: String,
    },
    /// The journal does not allow it.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file of the interface failed.
    #[error("DAMON's {path} cannot be used: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The kernel's own users of DAMON, each with its switch, a boolean module parameter.
const MODULES: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

/// The one that may be turned off where the user says so: it only gathers statistics.
const STATISTICS: &str = "damon_stat";

/// May we turn off DAMON_STAT while we need DAMON?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TakeDamon {
    /// No: say that it is in the way.
    #[default]
    No,
    /// Yes, through the journal.
    FromStatistics,
}

/// Our kdamond, until it is dropped.
#[derive(Debug)]
pub struct Kdamond {
    /// The directory `kdamonds`.
    all: PathBuf,
    /// The switch of DAMON_STAT.
    statistics: PathBuf,
    journal: Journal,
    space: Space,
}

impl Kdamond {
    /// Takes DAMON's interface, which must be free, and tries that it can be switched on.
    ///
    /// # Errors
    /// Why not. Everything is as it was then.
    pub fn take(
        sys: &SysRoot,
        journal: &Journal,
        space: Space,
        take: TakeDamon,
    ) -> Result<Self, DamonUnavailable> {
        let all = sys.path("kernel/mm/damon/admin/kdamonds");
        check_free(&all)?;
        let kdamond = Self {
            all,
            statistics: module_switch(sys, STATISTICS),
            journal: journal.clone(),
            space,
        };
        // Entered first, undone last: statistics cannot come back while our kdamond runs.
        kdamond.free_from_modules(sys, take)?;
        journal.note(Undo::Damon(DamonUndo {
            kdamonds: kdamond.all.clone(),
            count: 1,
        }))?;
        kdamond.create()?;
        Ok(kdamond)
    }

    /// What it samples.
    #[must_use]
    pub const fn space(&self) -> Space {
        self.space
    }

    /// Finds the kernel's own users of DAMON that run, and turns off the one that we may.
    fn free_from_modules(&self, sys: &SysRoot, take: TakeDamon) -> Result<(), DamonUnavailable> {
        let mut running = running_modules(sys)?;
        if take == TakeDamon::FromStatistics && running.contains(&STATISTICS) {
            self.journal.set(&self.statistics, "N")?;
            running.retain(|module| *module != STATISTICS);
        }
        if running.is_empty() {
            return Ok(());
        }
        let modules = running.join(", ");
        Err(DamonUnavailable::Excluded { modules })
    }

    fn create(&self) -> Result<(), DamonUnavailable> {
        write(&self.all.join("nr_kdamonds"), 1)?;
        write(&self.all.join("0/contexts/nr_contexts"), 1)?;
        let mark = DamonUndo::mark_us(self.journal.owner().pid);
        write(&self.context("monitoring_attrs/intervals/update_us"), mark)?;
        self.choose_operations()
    }

    fn choose_operations(&self) -> Result<(), DamonUnavailable> {
        let operations = self.space.operations();
        let available = self.context("avail_operations");
        let offered = read(&available)?;
        if !offered
            .split_ascii_whitespace()
            .any(|one| one == operations)
        {
            return Err(DamonUnavailable::Operations {
                operations,
                offered: offered
                    .split_ascii_whitespace()
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        }
        write(&self.context("operations"), operations)
    }

    /// Follows `layout` from now on: one sample a region and `period`, counted once a `period`.
    ///
    /// # Errors
    /// With the file that the kernel refused. The kdamond is off then.
    pub fn start(&self, layout: &Layout, period: Span) -> Result<(), DamonUnavailable> {
        self.stop()?;
        let sample_us = period.as_micros().max(1);
        write(
            &self.context("monitoring_attrs/intervals/sample_us"),
            sample_us,
        )?;
        write(
            &self.context("monitoring_attrs/intervals/aggr_us"),
            sample_us,
        )?;
        // As many as there are, so that none is merged or split; the kernel wants room for three.
        let regions = layout.regions().max(REGIONS_MIN);
        write(&self.context("monitoring_attrs/nr_regions/min"), regions)?;
        write(&self.context("monitoring_attrs/nr_regions/max"), regions)?;
        self.write_targets(layout)?;
        write(&self.all.join("0/state"), "on")
    }

    fn write_targets(&self, layout: &Layout) -> Result<(), DamonUnavailable> {
        let targets = self.context("targets");
        write(&targets.join("nr_targets"), layout.targets().len())?;
        for (index, target) in layout.targets().iter().enumerate() {
            let dir = targets.join(index.to_string());
            if let Some(process) = target.process {
                write(&dir.join("pid_target"), process.pid)?;
            }
            let regions = dir.join("regions");
            write(
                &regions.join("nr_regions"),
                layout.regions_of(target).count(),
            )?;
            for (index, (start, end)) in layout.regions_of(target).enumerate() {
                let region = regions.join(index.to_string());
                write(&region.join("start"), start)?;
                write(&region.join("end"), end)?;
            }
        }
        Ok(())
    }

    /// Switches it off, if it is on.
    ///
    /// # Errors
    /// With the file that the kernel refused.
    pub fn stop(&self) -> Result<(), DamonUnavailable> {
        if self.is_on()? {
            write(&self.all.join("0/state"), "off")?;
        }
        Ok(())
    }

    /// Does it run? It ends by itself when all its processes have.
    ///
    /// # Errors
    /// With the file that could not be read.
    pub fn is_on(&self) -> Result<bool, DamonUnavailable> {
        Ok(read(&self.all.join("0/state"))? == "on")
    }

    /// The thread that runs it, while it is on.
    ///
    /// # Errors
    /// With the file that could not be read or understood.
    pub fn thread(&self) -> Result<Pid, DamonUnavailable> {
        let path = self.all.join("0/pid");
        let text = read(&path)?;
        text.parse()
            .map(Pid)
            .map_err(|error| DamonUnavailable::File {
                path,
                source: io::Error::new(io::ErrorKind::InvalidData, error),
            })
    }

    fn context(&self, file: &str) -> PathBuf {
        self.all.join("0/contexts/0").join(file)
    }
}

impl Drop for Kdamond {
    /// First our kdamond goes, then statistics may come back.
    fn drop(&mut self) {
        for path in [&self.all, &self.statistics] {
            // What fails here stays in the journal, which tries again and reports when it restores.
            let _kept_in_the_journal = self.journal.release(path);
        }
    }
}

/// The kernel refuses to allow for fewer regions.
const REGIONS_MIN: u64 = 3;

fn check_free(all: &Path) -> Result<(), DamonUnavailable> {
    let path = all.join("nr_kdamonds");
    match value::read(&path) {
        Ok(count) if count == "0" => Ok(()),
        Ok(count) => Err(DamonUnavailable::InUse { count, path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DamonUnavailable::Absent { path })
        }
        Err(source) => Err(DamonUnavailable::File { path, source }),
    }
}

fn module_switch(sys: &SysRoot, module: &str) -> PathBuf {
    sys.path(&format!("module/{module}/parameters/enabled"))
}

fn running_modules(sys: &SysRoot) -> Result<Vec<&'static str>, DamonUnavailable> {
    let mut running = Vec::new();
    for module in MODULES {
        let path = module_switch(sys, module);
        match value::read(&path) {
            Ok(on) if on == "Y" => running.push(module),
            Ok(_off) => (),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(source) => return Err(DamonUnavailable::File { path, source }),
        }
    }
    Ok(running)
}

fn read(path: &Path) -> Result<String, DamonUnavailable> {
    value::read(path).map_err(|source| DamonUnavailable::File {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, value: impl Display) -> Result<(), DamonUnavailable> {
    value::write(path, &value.to_string()).map_err(|source| DamonUnavailable::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
