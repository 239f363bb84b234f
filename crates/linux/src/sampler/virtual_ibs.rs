//! Samples of a virtual machine's memory accesses, which its hypervisor takes as hardware would.
//!
//! **Problem.** A guest has no PMU that samples accesses. A hypervisor that sees every access can put samples into memory that
//! it shares with the guest (the crate `hugepilot-vpmu` says how); then everything above works as on hardware.
//!
//! **What.** The PCI device is found by its ids; its memory is mapped and read. Only threads that published themselves there
//! are sampled. A sample carries the page's node and whether memory served it, and stands for as many accesses as the period says.
//!
//! **Period.** Whoever set one before us has his way; else [`PERIOD`] is set, and taken back when sampling ends.
//!
//! **Bounds.** [`PIECE`] records at a time, until the intake is over its budget. What is left then stays in the device's
//! ring; what that overwrites before it is read counts as lost.

use super::{Access, AccessSampler, Intake, SamplerUnavailable};
use crate::procfs::SysRoot;
use crate::sys::device_memory;
use hugepilot_core::ids::{CpuId, NodeId, Pid, Tid};
use hugepilot_core::sample::{Sampler, ServedBy};
use hugepilot_core::units::{Bytes, Ratio};
use hugepilot_vpmu::{Layout, PCI_DEVICE, PCI_VENDOR, RESOURCE, Reader, Record, WORDS};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Accesses of one thread per sample, where nobody set it: an emulated processor makes some 10 million a second, so some 500
/// samples. A prime, so that it does not beat with a program's loops.
pub const PERIOD: u64 = 20_011;
/// Records read between two looks at the clock.
const PIECE: usize = 256;

/// Reads a hypervisor's samples.
pub struct VirtualIbs {
    layout: Layout<'static>,
    reader: Option<Reader<'static>>,
    /// Did we set the period?
    ours: bool,
}

impl fmt::Debug for VirtualIbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualIbs")
            .field("ours", &self.ours)
            .finish_non_exhaustive()
    }
}

impl VirtualIbs {
    /// Looks for the device and maps its memory.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn probe(sys: &SysRoot) -> Result<Self, SamplerUnavailable> {
        Ok(Self {
            layout: device(sys)?,
            reader: None,
            ours: false,
        })
    }
}

/// The memory that the hypervisor shares with us, mapped for good.
///
/// # Errors
/// Why it cannot be had.
pub fn device(sys: &SysRoot) -> Result<Layout<'static>, SamplerUnavailable> {
    let Some(device) = find(&sys.path("bus/pci/devices"))? else {
        return Err(SamplerUnavailable::Absent(
            "no hypervisor samples accesses here (PCI device 1af4:1110 is missing)".to_owned(),
        ));
    };
    let path = device.join(RESOURCE);
    let words =
        device_memory::map_for_good(&path, WORDS).map_err(|errno| SamplerUnavailable::Read {
            what: path.display().to_string(),
            source: io::Error::from(errno),
            fix: "it needs root, and a kernel that is not locked down",
        })?;
    Layout::over(words).map_err(|why| {
        SamplerUnavailable::Absent(format!("{} is no virtual PMU: {why}", device.display()))
    })
}

/// The first PCI device with the ids of a virtual PMU's memory.
fn find(devices: &Path) -> Result<Option<PathBuf>, SamplerUnavailable> {
    let failed = |source| SamplerUnavailable::Read {
        what: devices.display().to_string(),
        source,
        fix: "it is readable by everybody, unless /sys is not the kernel's",
    };
    let entries = match std::fs::read_dir(devices) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let device = entry.map_err(failed)?.path();
        let has = |file: &str, id: u16| -> bool {
            // A device that was unplugged meanwhile is none.
            std::fs::read_to_string(device.join(file))
                .is_ok_and(|text| text.trim() == format!("{id:#06x}"))
        };
        if has("vendor", PCI_VENDOR) && has("device", PCI_DEVICE) {
            found.push(device);
        }
    }
    Ok(found.into_iter().min())
}

impl AccessSampler for VirtualIbs {
    fn kind(&self) -> Sampler {
        Sampler::Virtual
    }

    fn switch(&mut self, on: bool) -> Result<(), SamplerUnavailable> {
        if on && self.reader.is_none() {
            self.reader = Some(Reader::new(self.layout));
            if self.layout.sampling().period_accesses == 0 {
                self.layout.set_period(PERIOD);
                self.ours = true;
            }
        } else if !on {
            self.reader = None;
            if std::mem::take(&mut self.ours) {
                self.layout.set_period(0);
            }
        }
        Ok(())
    }

    fn drain(&mut self, intake: &mut Intake<'_>) {
        let rate = rate(self.layout.sampling().period_accesses);
        let Some(reader) = &mut self.reader else {
            return;
        };
        while !intake.over_budget() {
            let taken = reader.read(PIECE);
            intake.lose(taken.lost);
            for record in &taken.records {
                intake.offer(access(record, rate));
            }
            if taken.records.len() < PIECE {
                return;
            }
        }
    }

    fn coverage(&mut self, _present: Bytes) -> Option<Ratio> {
        // Any access of a published thread may be sampled.
        self.reader.as_ref().map(|_| Ratio::ONE)
    }
}

impl Drop for VirtualIbs {
    fn drop(&mut self) {
        if self.ours {
            self.layout.set_period(0);
        }
    }
}

fn access(record: &Record, rate: Option<f64>) -> Access {
    Access {
        pid: Pid(record.pid),
        tid: Tid(record.tid),
        cpu: CpuId(u32::from(record.cpu)),
        address: record.vaddr,
        page_node: Some(NodeId(record.memory_node)),
        served_by: if record.dram {
            ServedBy::Dram
        } else {
            ServedBy::Cache
        },
        rate,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a period is far below 2^53")]
fn rate(period: u64) -> Option<f64> {
    (period > 0).then_some(period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::units::Span;
    use hugepilot_vpmu::{Machine, Writer};
    use std::sync::atomic::AtomicU64;

    fn prepared() -> (VirtualIbs, Writer<'static>) {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let machine = Machine { nodes: 4, cpus: 4 };
        let layout = Layout::prepare(words.leak(), machine, 1024).expect("prepared");
        let sampler = VirtualIbs {
            layout,
            reader: None,
            ours: false,
        };
        (sampler, Writer::new(layout))
    }

    fn record(vaddr: u64) -> Record {
        Record {
            instructions: 1,
            vaddr,
            paddr: 4096,
            pid: 7,
            tid: 8,
            cpu: 2,
            cpu_node: 2,
            memory_node: 3,
            store: false,
            dram: true,
            huge: true,
        }
    }

    fn drained(sampler: &mut VirtualIbs) -> super::super::Taken {
        let mut intake = Intake::new(&|_| true, 10_000, Span::secs(99), 1);
        sampler.drain(&mut intake);
        intake.finish()
    }

    #[test]
    fn records_become_accesses_that_know_their_node_and_rate() {
        let (mut sampler, writer) = prepared();
        sampler.switch(true).expect("on");
        writer.push(&record(0x1234));
        let taken = drained(&mut sampler);
        let expected = Access {
            pid: Pid(7),
            tid: Tid(8),
            cpu: CpuId(2),
            address: 0x1234,
            page_node: Some(NodeId(3)),
            served_by: ServedBy::Dram,
            rate: Some(20_011.0),
        };
        assert_eq!((taken.kept.as_slice(), taken.lost), (&[expected][..], 0));
    }

    #[test]
    fn what_the_ring_overwrote_is_lost() {
        let (mut sampler, writer) = prepared();
        sampler.switch(true).expect("on");
        (0..1500).for_each(|at| writer.push(&record(at)));
        let taken = drained(&mut sampler);
        assert_eq!((taken.kept.len(), taken.lost), (1024, 476));
    }

    #[test]
    fn the_period_is_taken_back_but_not_somebody_elses() {
        let (mut sampler, _writer) = prepared();
        sampler.switch(true).expect("on");
        assert_eq!(sampler.layout.sampling().period_accesses, PERIOD);
        sampler.switch(false).expect("off");
        assert_eq!(sampler.layout.sampling().period_accesses, 0);
        sampler.layout.set_period(99);
        sampler.switch(true).expect("on");
        sampler.switch(false).expect("off");
        assert_eq!(sampler.layout.sampling().period_accesses, 99);
    }

    #[test]
    fn the_device_is_found_by_its_ids() {
        let dir = tempfile::tempdir().expect("a directory");
        for (device, vendor, id) in [
            ("0000:00:01.0", "0x1af4", "0x1000"),
            ("0000:00:02.0", "0x1af4", "0x1110"),
        ] {
            let path = dir.path().join(device);
            std::fs::create_dir(&path).expect("made");
            std::fs::write(path.join("vendor"), format!("{vendor}\n")).expect("written");
            std::fs::write(path.join("device"), format!("{id}\n")).expect("written");
        }
        let found = find(dir.path()).expect("readable").expect("there");
        assert!(found.ends_with("0000:00:02.0"));
        assert!(
            find(&dir.path().join("none"))
                .expect("no directory")
                .is_none()
        );
    }
}
