// SPDX-License-Identifier: GPL-2.0-or-later

//! What all CPUs share.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hugepilot_vpmu::{Layout, Record, Writer};

use crate::arguments::Settings;
use crate::cache::SharedCache;
use crate::samples;
use crate::topology::Topology;
use crate::window::Closer;

/// Instructions of one CPU, apart from those of others in the host's caches.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CpuCounters {
    pub user: AtomicU64,
    pub kernel: AtomicU64,
}

/// The plugin at work.
#[derive(Debug)]
pub struct Plugin {
    pub settings: Settings,
    pub topology: Topology,
    pub layout: Layout<'static>,
    pub cpus: Box<[CpuCounters]>,
    /// One a node; none where the model is off.
    pub l3: Box<[SharedCache]>,
    /// The number of the open window.
    pub window: AtomicU64,
    /// Instructions after which the open window is closed unasked; [`u64::MAX`]: never.
    pub window_end: AtomicU64,
    /// Instructions of all CPUs, told by each CPU now and then.
    pub instructions: AtomicU64,
    /// Samples of the open window.
    pub samples_in_window: AtomicU64,
    pub closer: Mutex<Closer>,
    samples: Option<Mutex<BufWriter<File>>>,
}

impl Plugin {
    pub fn new(
        settings: Settings,
        topology: Topology,
        layout: Layout<'static>,
    ) -> io::Result<Self> {
        let append = |path| File::options().append(true).open(path);
        let samples = settings.samples.as_ref().map(append).transpose()?;
        let l3 = |shape| (0..topology.nodes()).map(move |_| SharedCache::new(shape));
        Ok(Self {
            cpus: (0..topology.cpus())
                .map(|_| CpuCounters::default())
                .collect(),
            l3: settings
                .caches
                .map_or_else(Box::default, |caches| l3(caches.l3).collect()),
            window: AtomicU64::new(0),
            window_end: AtomicU64::new(first_end(&settings)),
            instructions: AtomicU64::new(0),
            samples_in_window: AtomicU64::new(0),
            closer: Mutex::new(Closer::new(append(&settings.out)?)),
            samples: samples.map(BufWriter::new).map(Mutex::new),
            settings,
            topology,
            layout,
        })
    }

    /// Hands a sample to the guest and to the file, unless the cap forbids it.
    pub fn sample(&self, record: &Record) -> bool {
        let sampling = self.layout.sampling();
        let taken = self.samples_in_window.fetch_add(1, Ordering::Relaxed);
        let writer = Writer::new(self.layout);
        if sampling.window_samples_max > 0 && taken >= sampling.window_samples_max {
            writer.drop_one();
            return false;
        }
        writer.push(record);
        self.write_sample(record, sampling.period_accesses);
        true
    }

    fn write_sample(&self, record: &Record, rate: u64) {
        let Some(file) = &self.samples else {
            return;
        };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        samples::write(&mut *file, record, rate).expect("the samples' file can be written");
    }

    /// Writes out what is in memory.
    pub fn flush(&self) {
        if let Some(file) = &self.samples {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            io::Write::flush(&mut *file).expect("the samples' file can be written");
        }
    }
}

fn first_end(settings: &Settings) -> u64 {
    match settings.window_instructions {
        0 => u64::MAX,
        instructions => instructions,
    }
}
