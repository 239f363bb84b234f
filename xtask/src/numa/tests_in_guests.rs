//! A small part of the table as a test: false sharing and first touch on 4 nodes and one kernel, under four modes each.
//!
//! What is asserted is what the referee cannot be mistaken about. Every byte right (a case that is not has no figures);
//! the same checksum in every mode; false sharing: THP is far below base pages, and `carrefour-lp` above THP; first touch:
//! a policy lifts LAR; at least [`MOVES_MIN`] verified moves in all.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::case::{Case, Mode, Sampler, Workload};
use super::figures::Figures;
use super::guest::Rig;
use super::size::Size;
use super::{Profile, abuse, program};
use crate::vm;

/// With fewer verified moves in all, too little was tried to call it a test.
const MOVES_MIN: u64 = 1_000;
/// THP's LAR must be below that of base pages by so much where data is falsely shared: by construction it is a quarter
/// against nine tenths.
const HARM_MIN: f64 = 0.3;
/// A policy's gain in LAR: far more than what one run differs from the next.
const GAIN_MIN: f64 = 0.1;
/// The kernel that it runs on.
const KERNEL: &str = "6.12";
const NODES: u32 = 4;
/// A quarter of a minute of a guest on an idle host, and so some fifteen decisions of a policy.
const SIZE: Size = Size {
    mebibytes_per_node: 8,
    intervals: 10,
    accesses: 500_000,
};
/// Of one guest; one takes half a minute, or two on a busy host.
const LIMIT: Duration = Duration::from_secs(240);

/// What is run, and what LAR it must have against another one.
const CASES: [(Workload, [Mode; 4]); 2] = [
    (
        Workload::FalseSharing,
        [Mode::Base, Mode::Thp, Mode::ThpBalancing, Mode::CarrefourLp],
    ),
    (
        Workload::FirstTouch,
        [Mode::Base, Mode::Thp, Mode::Carrefour2m, Mode::CarrefourLp],
    ),
];

/// Runs all. Results look like those of a test program, so that whoever counts tests counts these too.
pub fn perform() -> Result<ExitCode> {
    let rig = Rig {
        program: program(Profile::Debug)?,
        size: SIZE,
        limit: LIMIT,
        scratch: vm::workspace_root()?.join(super::DIRECTORY).join("test"),
        keep: true,
    };
    let mut score = Score::default();
    for (workload, modes) in CASES {
        score.workload(&rig, workload, &modes);
    }
    let enough = score.moves >= MOVES_MIN;
    score.count(
        "at least 1,000 verified moves",
        enough
            .then_some(())
            .with_context(|| format!("{}", score.moves)),
    );
    for (name, went) in abuse::perform(&rig) {
        score.count(name, went);
    }
    let Score { passed, failed, .. } = score;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed;");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What passed and what did not.
#[derive(Debug, Default)]
struct Score {
    passed: u32,
    failed: u32,
    /// Base pages that the kernel migrated for a policy: its own balancing is off there.
    moves: u64,
}

impl Score {
    fn count(&mut self, name: &str, went: Result<()>) {
        match went {
            Ok(()) => {
                self.passed += 1;
                println!("test numa: {name} ... ok");
            }
            Err(error) => {
                self.failed += 1;
                println!("test numa: {name} ... FAILED: {error:#}");
            }
        }
    }

    /// A workload under all of its modes, and what they must be to one another.
    fn workload(&mut self, rig: &Rig, workload: Workload, modes: &[Mode]) {
        let mut found = Vec::new();
        for &mode in modes {
            let case = case(workload, mode);
            match rig.run(&case) {
                Ok(figures) => {
                    if figures.manager.is_some() {
                        self.moves += figures.migrated;
                    }
                    self.count(&format!("{case}: LAR {:.3}", figures.lar), Ok(()));
                    found.push((mode, figures));
                }
                Err(error) => self.count(&case.to_string(), Err(error)),
            }
        }
        for complaint in complaints(workload, &found) {
            self.count(workload.name(), Err(anyhow!(complaint)));
        }
    }
}

fn case(workload: Workload, mode: Mode) -> Case {
    Case {
        workload,
        nodes: NODES,
        kernel: KERNEL.to_owned(),
        mode,
        sampler: mode.policy().map(|_| Sampler::Virtual),
    }
}

/// What is not as it must be. A mode without figures was complained about already.
fn complaints(workload: Workload, found: &[(Mode, Figures)]) -> Vec<String> {
    let lar = |mode| {
        found
            .iter()
            .find(|(of, _)| *of == mode)
            .map(|(_, figures)| figures.lar)
    };
    let mut complaints = Vec::new();
    let mut above = |high: Mode, low: Mode, by: f64| {
        let (Some(high_lar), Some(low_lar)) = (lar(high), lar(low)) else {
            return;
        };
        if high_lar < low_lar + by {
            complaints.push(format!(
                "{}: LAR {high_lar:.3} under {} must be {by} above {}'s, {low_lar:.3}",
                workload.name(),
                high.name(),
                low.name()
            ));
        }
    };
    if workload == Workload::FalseSharing {
        above(Mode::Base, Mode::Thp, HARM_MIN);
        above(Mode::CarrefourLp, Mode::Thp, GAIN_MIN);
        above(Mode::CarrefourLp, Mode::ThpBalancing, GAIN_MIN);
    } else {
        above(Mode::Carrefour2m, Mode::Thp, GAIN_MIN);
        above(Mode::CarrefourLp, Mode::Thp, GAIN_MIN);
    }
    let same = found
        .windows(2)
        .all(|pair| pair[0].1.checksum == pair[1].1.checksum);
    if !same {
        complaints.push(format!("{}: not every mode read the same", workload.name()));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::table::tests::figures;

    #[test]
    fn harm_that_is_not_there_and_gain_that_is_not_there_are_told() {
        let found = |thp: f64, lp: f64| {
            vec![
                (Mode::Base, figures(&[0.9])),
                (Mode::Thp, figures(&[thp])),
                (Mode::CarrefourLp, figures(&[lp])),
            ]
        };
        assert_eq!(
            complaints(Workload::FalseSharing, &found(0.3, 0.85)),
            [""; 0]
        );
        assert_eq!(
            complaints(Workload::FalseSharing, &found(0.8, 0.95)).len(),
            1
        );
        assert_eq!(
            complaints(Workload::FalseSharing, &found(0.3, 0.35)).len(),
            1
        );
    }

    #[test]
    fn another_checksum_is_told() {
        let mut found = vec![(Mode::Base, figures(&[0.9])), (Mode::Thp, figures(&[0.2]))];
        found[1].1.checksum += 1;
        assert!(complaints(Workload::FalseSharing, &found)[0].contains("the same"));
    }
}
