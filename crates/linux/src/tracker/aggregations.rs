//! What a kdamond counted, as its thread says it: a perf event on `damon:damon_aggregated` and its ring.
//!
//! The event belongs to a descriptor of ours, so nothing is left on the system when we die. tracefs need not be
//! mounted: two of its files are read through a mount that is attached nowhere.

use super::records::{Batch, Format};
use crate::sys::perf::{self, Ring};
use crate::sys::{Errno, detached_mount};
use hugepilot_core::geometry::Geometry;
use hugepilot_core::ids::Pid;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

const EVENT: &str = "events/damon/damon_aggregated";

/// Bytes that one record takes in the ring, at the most: header, size, 48 bytes of fields, padding.
const RECORD_BYTES_MAX: usize = 72;

/// Aggregations that the ring holds before it loses one: a tick may come late.
const AGGREGATIONS_HELD: usize = 2;

/// Why DAMON's counts cannot be read, each with what would change it.
#[derive(Debug, thiserror::Error)]
pub enum CountsUnavailable {
    /// The tracepoint cannot be looked up.
    #[error(
        "cannot look up the tracepoint damon:damon_aggregated: {source}; it needs root and a kernel with tracefs"
    )]
    Tracepoint {
        /// Why.
        source: io::Error,
    },
    /// The tracepoint's fields are not as we know them.
    #[error(
        "the tracepoint damon:damon_aggregated lacks a field that we need; please report its format file"
    )]
    Format,
    /// perf refuses.
    #[error(
        "perf does not open the tracepoint damon:damon_aggregated: {source}; it needs CAP_PERFMON"
    )]
    Perf {
        /// Why.
        source: Errno,
    },
}

/// The tracepoint: its number and the form of its records.
#[derive(Debug, Clone)]
pub struct Tracepoint {
    id: u64,
    format: Format,
}

impl Tracepoint {
    /// Looks it up.
    ///
    /// # Errors
    /// Why not.
    pub fn find() -> Result<Self, CountsUnavailable> {
        let id = tracefs("id")?;
        let id = id
            .trim()
            .parse()
            .map_err(|error| CountsUnavailable::Tracepoint {
                source: io::Error::new(io::ErrorKind::InvalidData, error),
            })?;
        let format = Format::parse(&tracefs("format")?).ok_or(CountsUnavailable::Format)?;
        Ok(Self { id, format })
    }
}

fn tracefs(file: &str) -> Result<String, CountsUnavailable> {
    let text = || -> io::Result<String> {
        let path = format!("{EVENT}/{file}");
        let fd = detached_mount::open(c"tracefs", &path, OFlags::RDONLY)?;
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text)?;
        Ok(text)
    };
    text().map_err(|source| CountsUnavailable::Tracepoint { source })
}

/// What one kdamond counts, from when this was opened.
#[derive(Debug)]
pub struct Aggregations {
    // Declared first, dropped first: the ring is a mapping of the event.
    ring: Ring,
    _event: OwnedFd,
    format: Format,
}

impl Aggregations {
    /// Listens to `thread`, a kdamond with `regions` regions.
    ///
    /// # Errors
    /// If perf refuses.
    pub fn listen(
        tracepoint: &Tracepoint,
        thread: Pid,
        regions: u64,
        geometry: &Geometry,
    ) -> Result<Self, CountsUnavailable> {
        let error = |source| CountsUnavailable::Perf { source };
        let event = perf::open_tracepoint(tracepoint.id, thread).map_err(error)?;
        let page = 1_usize << geometry.base_shift;
        let ring = Ring::map(&event, page, ring_order(page, regions)).map_err(error)?;
        Ok(Self {
            ring,
            _event: event,
            format: tracepoint.format.clone(),
        })
    }

    /// What was counted since the last call.
    #[must_use]
    pub fn take(&self) -> Batch {
        self.format.records(&self.ring.take())
    }
}

/// log2 of the pages that hold some aggregations of `regions`.
fn ring_order(page: usize, regions: u64) -> u8 {
    let regions = usize::try_from(regions).unwrap_or(usize::MAX);
    let bytes = regions.saturating_mul(RECORD_BYTES_MAX * AGGREGATIONS_HELD);
    let pages = bytes.div_ceil(page).max(1).next_power_of_two();
    u8::try_from(pages.trailing_zeros()).expect("a logarithm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_holds_two_aggregations() {
        for regions in [1, 28, 29, 4096, 50_000] {
            let bytes = 4096_u64 << ring_order(4096, regions);
            assert!(bytes >= regions * 144, "{regions} regions in {bytes} bytes");
            assert!(
                bytes <= (regions * 144 * 2).max(8192),
                "{regions} regions in {bytes} bytes"
            );
        }
    }
}
