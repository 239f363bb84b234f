//! The windows that the virtual PMU writes (tests/qemu-plugin/README.md), as far as the table needs them. Pure.

use anyhow::{Context, Result};
use serde::Deserialize;

/// A window.
#[derive(Debug, Clone, Deserialize)]
pub struct Window {
    /// The interval that it was, from 1; 0 before the first.
    pub label: u64,
    /// Closed by the guest's end, and so none that the workload asked for.
    pub last: bool,
    /// All accesses.
    pub raw: Metrics,
    /// Those that no cache of the model served.
    pub dram: Metrics,
    pub cpus: Vec<Cpu>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Metrics {
    /// Accesses from a row's node to a column's.
    pub matrix: Vec<Vec<u64>>,
    pub lar: Option<f64>,
    pub imbalance: Option<f64>,
    pub huge_pages: Pages,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Pages {
    pub pamup: Option<f64>,
    pub nhp: u64,
    pub psp_threads: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Cpu {
    pub cpu: u32,
    pub user_instructions: u64,
    pub kernel_instructions: u64,
}

/// Reads all windows.
pub fn windows(text: &str) -> Result<Vec<Window>> {
    text.lines()
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("the referee wrote {line:?}"))
        })
        .collect()
}

/// LAR and imbalance over several windows, each weighing what it has of accesses.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub fn settled(windows: &[&Window], of: impl Fn(&Window) -> &Metrics) -> Result<(f64, f64)> {
    let nodes = windows.first().map_or(0, |window| of(window).matrix.len());
    let mut loads = vec![0_u64; nodes];
    let (mut local, mut all) = (0, 0);
    for window in windows {
        for (from, row) in of(window).matrix.iter().enumerate() {
            for (to, accesses) in row.iter().enumerate() {
                loads[to] += accesses;
                all += accesses;
                local += if from == to { *accesses } else { 0 };
            }
        }
    }
    anyhow::ensure!(all > 0, "the referee saw no access in the last intervals");
    let mean = all as f64 / nodes as f64;
    let variance = loads
        .iter()
        .map(|load| (*load as f64 - mean).powi(2))
        .sum::<f64>()
        / nodes as f64;
    Ok((local as f64 / all as f64, variance.sqrt() / mean))
}

/// Instructions in windows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Instructions {
    /// Of every CPU but the manager's.
    pub workload: u64,
    /// Of the manager's.
    pub manager: u64,
}

impl Instructions {
    /// The manager's over the workload's.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    pub fn overhead(self) -> f64 {
        self.manager as f64 / self.workload.max(1) as f64
    }
}

/// Adds them up.
pub fn instructions(windows: &[&Window], manager_cpu: Option<u32>) -> Instructions {
    let mut sum = Instructions::default();
    for cpu in windows.iter().flat_map(|window| &window.cpus) {
        let instructions = cpu.user_instructions + cpu.kernel_instructions;
        if Some(cpu.cpu) == manager_cpu {
            sum.manager += instructions;
        } else {
            sum.workload += instructions;
        }
    }
    sum
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A window of two nodes, in which CPU 0 of node 0 had so many local and so many remote accesses.
    pub fn window(label: u64, local: u64, remote: u64) -> Window {
        let all = f64::from(u32::try_from(local + remote).unwrap());
        let lar = f64::from(u32::try_from(local).unwrap()) / all;
        let metrics = serde_json::json!({
            "matrix": [[local, remote], [0, 0]],
            "lar": (all > 0.0).then_some(lar),
            "imbalance": 1.0,
            "huge_pages": {"pamup": 0.5, "nhp": 1, "psp_threads": 0.25},
        });
        let cpu = |cpu: u32, user: u64, kernel: u64| serde_json::json!({"cpu": cpu, "user_instructions": user, "kernel_instructions": kernel});
        let window = serde_json::json!({
            "label": label,
            "last": false,
            "raw": metrics,
            "dram": metrics,
            "cpus": [cpu(0, 80, 20), cpu(1, 4, 6)],
        });
        windows(&window.to_string()).unwrap().remove(0)
    }

    #[test]
    fn windows_weigh_what_they_have_of_accesses() {
        let windows = [window(1, 300, 0), window(2, 0, 100)];
        let (lar, imbalance) = settled(&[&windows[0], &windows[1]], |window| &window.dram).unwrap();
        assert!((lar - 0.75).abs() < 1e-9);
        assert!((imbalance - 0.5).abs() < 1e-9);
    }

    #[test]
    fn without_accesses_there_is_no_figure() {
        assert!(settled(&[&window(1, 0, 0)], |window| &window.raw).is_err());
        assert!(settled(&[], |window| &window.raw).is_err());
    }

    #[test]
    fn the_managers_cpu_is_told_from_the_others() {
        let window = window(1, 1, 1);
        let sum = instructions(&[&window, &window], Some(1));
        assert_eq!((sum.workload, sum.manager), (200, 20));
        assert_eq!(instructions(&[&window], None).workload, 110);
    }
}
