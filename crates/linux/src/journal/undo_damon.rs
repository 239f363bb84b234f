//! Undoing kdamonds: DAMON's threads that we created through its sysfs interface.
//!
//! That interface is one for the whole machine, and nothing in it says who made a kdamond. So each context of ours
//! carries a mark where it does no harm: its update interval, which neither fixed virtual regions nor physical ones
//! use, is an hour plus the owner's pid in microseconds. A kdamond without our mark is somebody else's and stays.

use super::RestoreOutcome;
use super::value;
use hugepilot_core::ids::{Pid, ProcessId};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Kdamonds to take away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamonUndo {
    /// The directory `kdamonds` of DAMON's sysfs interface.
    pub kdamonds: PathBuf,
    /// How many we created where there were none.
    pub count: u32,
}

impl DamonUndo {
    /// The update interval in microseconds that marks a context of `owner`.
    #[must_use]
    pub fn mark_us(owner: Pid) -> u64 {
        const HOUR_US: u64 = 3_600_000_000;
        HOUR_US + u64::from(owner.0)
    }
}

/// Turns our kdamonds off and removes them.
pub(super) fn undo(damon: &DamonUndo, owner: ProcessId) -> io::Result<RestoreOutcome> {
    let number = damon.kdamonds.join("nr_kdamonds");
    let found = value::read(&number)?;
    if found == "0" {
        return Ok(RestoreOutcome::Unchanged);
    }
    let mine = found == damon.count.to_string() && all_ours(damon, owner)?;
    if !mine {
        return Ok(RestoreOutcome::ChangedSince {
            found: format!("{found} kdamonds"),
            ours: format!("{} kdamonds", damon.count),
        });
    }
    for index in 0..damon.count {
        turn_off(&damon.kdamonds.join(index.to_string()))?;
    }
    value::write(&number, "0")?;
    Ok(RestoreOutcome::Restored {
        from: format!("{found} kdamonds"),
        to: format!("{} kdamonds", value::read(&number)?),
    })
}

fn all_ours(damon: &DamonUndo, owner: ProcessId) -> io::Result<bool> {
    for index in 0..damon.count {
        if !is_ours(&damon.kdamonds.join(index.to_string()), owner)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// It carries our mark, or is still as bare as the kernel makes one: we died before we marked it.
fn is_ours(kdamond: &Path, owner: ProcessId) -> io::Result<bool> {
    let context = kdamond.join("contexts/0");
    if value::read(&kdamond.join("contexts/nr_contexts"))? == "0" {
        return is_off(kdamond);
    }
    let update = value::read(&context.join("monitoring_attrs/intervals/update_us"))?;
    if update == DamonUndo::mark_us(owner.pid).to_string() {
        return Ok(true);
    }
    Ok(is_off(kdamond)? && value::read(&context.join("targets/nr_targets"))? == "0")
}

fn is_off(kdamond: &Path) -> io::Result<bool> {
    Ok(value::read(&kdamond.join("state"))? == "off")
}

fn turn_off(kdamond: &Path) -> io::Result<()> {
    if is_off(kdamond)? {
        return Ok(());
    }
    value::write(&kdamond.join("state"), "off")
}
