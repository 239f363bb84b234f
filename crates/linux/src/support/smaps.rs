//! Resident and huge bytes of a range, by `/proc/PID/smaps`: what every kernel shows to verify a probe by.

use crate::procfs::smaps;
use crate::support::env::{Answer, Env, Extent, TEXT_BYTES_MAX};
use hugepilot_core::units::Bytes;
use rustix::io::Errno;

/// What a range holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Resident; the shared zero page does not count.
    pub resident: Bytes,
    /// Mapped by PMD.
    pub huge: Bytes,
}

/// What the regions of `pid` that overlap `extent` hold. A text that is not understood is `EBADMSG`.
pub fn held(env: &Env<'_>, pid: u32, extent: Extent) -> Answer<Held> {
    let file = env.of_process(pid, "smaps");
    let text = env.calls.read(&file, 0, TEXT_BYTES_MAX)?;
    let Ok(regions) = smaps::parse(&text) else {
        return Err(Errno::BADMSG);
    };
    let within = regions
        .iter()
        .filter(|region| region.entry.start < extent.end() && region.entry.end > extent.start);
    Ok(within.fold(Held::default(), |sum, region| Held {
        resident: sum.resident + region.usage.resident,
        huge: sum.huge + region.usage.anonymous_huge,
    }))
}
