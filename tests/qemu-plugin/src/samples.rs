// SPDX-License-Identifier: GPL-2.0-or-later

//! Samples as lines of JSON, in the form that recordings of hugepilot have them: so real programs on
//! real kernels feed policies, without a guest.
//!
//! The types here only mirror that form, as the plugin shares no code with the program that it
//! judges; a test reads the lines with the program's own types.

use std::io::{self, Write};

use hugepilot_vpmu::Record;
use serde::Serialize;

use crate::tlb::{BASE_SHIFT, HUGE_SHIFT};

/// The plugin does not see when a process started.
const START_UNKNOWN: u64 = 0;

#[derive(Debug, Clone, Copy, Serialize)]
struct Process {
    pid: u32,
    start_ticks: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Object {
    Private(Process),
}

#[derive(Debug, Serialize)]
struct Slot {
    object: Object,
    index: u64,
}

#[derive(Debug, Serialize)]
struct Line {
    process: Process,
    thread: u32,
    cpu: u16,
    cpu_node: u16,
    slot: Slot,
    base_page: u64,
    page_node: u16,
    served_by: &'static str,
    rate: u64,
    sampler: &'static str,
}

/// Writes one sample, which stands for so many accesses.
pub fn write(file: &mut impl Write, record: &Record, rate: u64) -> io::Result<()> {
    let process = Process {
        pid: record.pid,
        start_ticks: START_UNKNOWN,
    };
    let pages_in_slot = 1 << (HUGE_SHIFT - BASE_SHIFT);
    let line = Line {
        process,
        thread: record.tid,
        cpu: record.cpu,
        cpu_node: record.cpu_node,
        slot: Slot {
            object: Object::Private(process),
            index: record.vaddr >> HUGE_SHIFT,
        },
        base_page: (record.vaddr >> BASE_SHIFT) % pages_in_slot,
        page_node: record.memory_node,
        served_by: if record.dram { "dram" } else { "cache" },
        rate,
        sampler: "virtual",
    };
    serde_json::to_writer(&mut *file, &line)?;
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::ids::{NodeId, ObjectId};
    use hugepilot_core::sample::{Sample, Sampler, ServedBy};

    #[test]
    fn lines_are_samples_of_the_program() {
        let record = Record {
            instructions: 1,
            vaddr: 0x7f12_3456_7890,
            paddr: 0x4000_0890,
            pid: 100,
            tid: 101,
            cpu: 3,
            cpu_node: 1,
            memory_node: 2,
            store: false,
            dram: true,
            huge: false,
        };
        let mut file = Vec::new();
        write(&mut file, &record, 1000).unwrap();
        write(
            &mut file,
            &Record {
                dram: false,
                ..record
            },
            1000,
        )
        .unwrap();
        let text = String::from_utf8(file).unwrap();
        let lines: Vec<Sample> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let sample = &lines[0];
        assert_eq!((sample.process.pid.0, sample.thread.0), (100, 101));
        assert_eq!(sample.slot.object, ObjectId::Private(sample.process));
        assert_eq!(sample.slot.index, 0x7f12_3456_7890 >> 21);
        assert_eq!(sample.base_page.0, 0x167);
        assert_eq!(sample.page_node, Some(NodeId(2)));
        assert_eq!((sample.cpu.0, sample.cpu_node), (3, NodeId(1)));
        assert_eq!(
            (sample.rate, sample.sampler),
            (Some(1000.0), Sampler::Virtual)
        );
        assert_eq!(sample.served_by, ServedBy::Dram);
        assert_eq!(lines[1].served_by, ServedBy::Cache);
    }
}
