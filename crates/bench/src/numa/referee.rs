//! The guest's side of the virtual PMU: finding it, publishing threads to it, ending its windows.
//!
//! On a machine without one, which is every real one, nothing of this happens and the workload runs all the same.

use crate::BenchError;
use crate::sys::words::Words;
pub use hugepilot_vpmu::Kind;
use hugepilot_vpmu::{BYTES, Layout, NotThere, PCI_DEVICE, PCI_VENDOR, RESOURCE, Slot, Thread};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// The plugin closes a window as soon as some CPU executes a few instructions; later than this it is dead.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// A virtual PMU.
#[derive(Debug)]
pub struct Referee {
    words: Words,
}

impl Referee {
    /// The machine's virtual PMU, if it has one.
    ///
    /// # Errors
    /// If there is one that cannot be used.
    pub fn find() -> Result<Option<Self>, BenchError> {
        let Some(device) = device(Path::new(PCI_DEVICES))? else {
            return Ok(None);
        };
        let path = device.join(RESOURCE);
        let failed = |source| BenchError::Read {
            path: path.display().to_string(),
            source,
        };
        let file = std::fs::File::options().read(true).write(true).open(&path);
        let words =
            Words::shared(file.map_err(failed)?, BYTES).map_err(|error| failed(error.into()))?;
        match Layout::over(&words) {
            Ok(_) => Ok(Some(Self { words })),
            // Shared memory that serves something else.
            Err(NotThere::Magic(_)) => Ok(None),
            Err(error) => Err(BenchError::VirtualPmu(error)),
        }
    }

    /// Publishes the calling thread, which is pinned to `cpu`.
    ///
    /// # Errors
    /// If the table is full.
    pub fn publish(&self, cpu: u32, addresses: Range<u64>, kind: Kind) -> Result<Slot, BenchError> {
        let thread = Thread {
            cpu,
            pid: std::process::id(),
            tid: rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .unsigned_abs(),
            addresses,
            kind,
        };
        let published = self.layout().publish_thread(&thread);
        published.map_err(|source| BenchError::Unpublished { source })
    }

    /// Takes a thread back.
    pub fn withdraw(&self, slot: Slot) {
        self.layout().withdraw(slot);
    }

    /// Takes a sample of each published thread every so many accesses; 0: none.
    pub fn sample_every(&self, accesses: u64) {
        self.layout().set_period(accesses);
    }

    /// What stands beside windows from now on.
    pub fn label(&self, label: u64) {
        self.layout().set_label(label);
    }

    /// Ends a window and begins the next; the number of the one that ended, from 1.
    ///
    /// # Errors
    /// If the plugin does not answer.
    pub fn next_window(&self) -> Result<u64, BenchError> {
        let number = self.layout().next_window();
        let deadline = Instant::now() + CLOSED_WITHIN;
        while self.layout().windows_closed() < number {
            if Instant::now() > deadline {
                return Err(BenchError::Spec(
                    "the virtual PMU does not close its window",
                ));
            }
            std::thread::yield_now();
        }
        Ok(number)
    }

    fn layout(&self) -> Layout<'_> {
        Layout::over(&self.words)
            .expect("it was checked when it was found, and only a plugin's start changes it")
    }
}

/// The first device of that kind.
fn device(root: &Path) -> Result<Option<PathBuf>, BenchError> {
    let failed = |path: &Path, source| BenchError::Read {
        path: path.display().to_string(),
        source,
    };
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(root, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(root, error))?.path();
        let number = |file: &str| {
            let path = path.join(file);
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            Ok(u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok())
        };
        if number("vendor")? == Some(PCI_VENDOR) && number("device")? == Some(PCI_DEVICE) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(root: &Path, name: &str, vendor: &str, device: &str) {
        let directory = root.join(name);
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("vendor"), vendor).expect("written");
        std::fs::write(directory.join("device"), device).expect("written");
    }

    #[test]
    fn the_device_is_found_among_others() {
        let root = std::env::temp_dir().join(format!("hugepilot-referee-{}", std::process::id()));
        std::fs::create_dir(&root).expect("a directory");
        fake(&root, "a", "0x8086\n", "0x1110\n");
        assert_eq!(device(&root).expect("read"), None);
        fake(&root, "b", "0x1af4\n", "0x1110\n");
        assert_eq!(device(&root).expect("read"), Some(root.join("b")));
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_machine_without_pci_has_none() {
        assert_eq!(device(Path::new("/nowhere")).expect("nothing there"), None);
    }
}
