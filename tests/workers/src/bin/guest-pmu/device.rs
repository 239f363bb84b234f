//! Finding and mapping the memory that is shared with the virtual PMU.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use hugepilot_vpmu::{BYTES, PCI_DEVICE, PCI_VENDOR, RESOURCE, WORDS};
use hugepilot_workers::sys::{self, Source};

/// Where it is mapped: far from everything else.
const ADDRESS: usize = 0x5200_0000_0000;

/// Maps it for the rest of the program's life.
pub fn map() -> io::Result<&'static [AtomicU64]> {
    let path = find()?.join(RESOURCE);
    let file = File::options().read(true).write(true).open(path)?;
    sys::map_at(ADDRESS, BYTES, Source::Shared(file.as_raw_fd()))?;
    // SAFETY: mapped above, never unmapped, aligned to pages, and reached by atomic words alone.
    Ok(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(ADDRESS), WORDS) })
}

fn find() -> io::Result<PathBuf> {
    for entry in fs::read_dir("/sys/bus/pci/devices")? {
        let device = entry?.path();
        let id = |name| -> io::Result<String> {
            Ok(fs::read_to_string(device.join(name))?.trim().to_owned())
        };
        if id("vendor")? == format!("{PCI_VENDOR:#06x}")
            && id("device")? == format!("{PCI_DEVICE:#06x}")
        {
            return Ok(device);
        }
    }
    Err(io::Error::other(
        "this machine has no virtual PMU: start the guest with --pmu",
    ))
}
