//! The storm: the worker's processes that hold checksummed memory and do everything to it that programs do.

use hugepilot_core::ids::Pid;
use hugepilot_linux::machine::LiveMachine;
use hugepilot_linux::sensors::selection::{Descendants, Selection};
use hugepilot_workers::client;
use serde::Deserialize;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// What the storm did, by its own count.
#[derive(Debug, Deserialize)]
pub struct Report {
    pub wrong_bytes: u64,
    pub verified_bytes: u64,
    pub forks: u64,
    pub mremaps: u64,
    pub mlocks: u64,
    pub unmaps: u64,
    pub execs: u64,
    pub deaths: u64,
    pub pins: u64,
    /// Processes that died otherwise than by their own doing.
    pub crashes: u64,
}

impl Report {
    /// It did all that it is there for; else the test would prove less than it says.
    pub fn assert_busy(&self) {
        let counts = [
            self.forks,
            self.mremaps,
            self.mlocks,
            self.unmaps,
            self.execs,
            self.deaths,
            self.pins,
        ];
        assert!(
            counts.iter().all(|count| *count > 0),
            "an idle storm: {self:?}"
        );
        assert_eq!(self.crashes, 0, "processes were harmed: {self:?}");
        assert!(self.verified_bytes > 0, "nothing was verified: {self:?}");
    }
}

/// A running storm; killed when dropped.
pub struct Storm {
    child: Child,
}

impl Storm {
    /// Starts a storm that ends by itself after `seconds`.
    pub fn start(seconds: u64, seed: u64, bytes: u64) -> Self {
        let worker = client::binary().unwrap_or_else(|error| panic!("{error}"));
        let child = Command::new(worker)
            .args([
                "storm",
                "--seconds",
                &seconds.to_string(),
                "--seed",
                &seed.to_string(),
            ])
            .args(["--bytes", &bytes.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the storm starts");
        Self { child }
    }

    /// A machine that watches the storm and all that comes of it.
    pub fn machine(&self) -> LiveMachine {
        let selection = Selection {
            pids: vec![Pid(self.child.id())],
            descendants: Descendants::Followed,
            ..Selection::default()
        };
        LiveMachine::builder()
            .select(selection)
            .watch_cpu_max(hugepilot_core::units::Ratio::ONE)
            .build()
            .expect("a live machine")
    }

    /// Waits for its end and reads what it says.
    pub fn finish(mut self) -> Report {
        let mut text = String::new();
        let mut output = self.child.stdout.take().expect("piped");
        output.read_to_string(&mut text).expect("text");
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "the storm ended with {status}: {text}");
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // Ended already, as it should be, or to be ended now.
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}
