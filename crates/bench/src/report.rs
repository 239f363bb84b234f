//! From the runs of all rounds to tables and JSON. Pure.
//!
//! A [`Metric`] says where its figure stands in a run; everything else (medians, ratios, noise, both tables) follows from
//! the list of metrics.

mod metrics;

pub use metrics::{Metric, Unit, metrics, show};

use crate::paper;
use crate::schedule::{Cell, Mode};
use crate::summary::{Stats, median_ratio};
use crate::table;
use crate::targets::{self, Judged};
use crate::worker::WorkerResult;
use hugepilot_core::units::{Bytes, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON: raised when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// What the manager of a run did and cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ManagerFigures {
    /// Its processor time, from start to end.
    pub cpu_ns: Span,
    /// How long it ran.
    pub wall_ns: Span,
    /// Collapses that were verified as done.
    pub collapses: u64,
    /// Of these, during the closed loop.
    pub collapses_in_closed: u64,
    /// Of these, during the open loop.
    pub collapses_in_open: u64,
    /// Splits that were verified as done.
    pub splits: u64,
    /// All actions, by action and outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Its own summary, as it wrote it.
    pub summary: Option<serde_json::Value>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round, from 0.
    pub round: u32,
    /// Who decided.
    pub cell: Cell,
    /// What the worker measured.
    pub worker: WorkerResult,
    /// What the manager did, where there was one.
    pub manager: Option<ManagerFigures>,
}

/// The machine that a report comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// `uname -r`.
    pub kernel: String,
    /// Processor model.
    pub processor: String,
    /// Processors online.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: Bytes,
    /// `enabled` and `defrag` of THP while mega and ingens ran.
    pub thp: String,
}

/// Which benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Benchmark {
    /// Latency of touches.
    Faults,
    /// Random reads after settling.
    Access,
}

/// One metric of one mode over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Over the rounds.
    #[serde(flatten)]
    pub stats: Stats,
    /// Median of the ratios to `never` within each round.
    pub vs_never: Option<f64>,
    /// Median of the ratios to `always` within each round.
    pub vs_always: Option<f64>,
}

/// All that is printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which benchmark.
    pub benchmark: Benchmark,
    /// The command that made it.
    pub command: String,
    /// Where.
    pub machine: MachineFacts,
    /// Memory touched in each loop.
    pub touched_bytes: Bytes,
    /// By metric, then by mode (`never_again` and `always_again` are the noise).
    pub figures: BTreeMap<&'static str, BTreeMap<String, Figure>>,
    /// What was promised, and whether it was kept.
    pub targets: Vec<Judged>,
    /// The paper's table, in microseconds; it timed another quantity.
    pub paper: [paper::PaperColumn; 4],
    /// What the paper timed.
    pub paper_note: &'static str,
    /// Every run.
    pub runs: Vec<Run>,
}

impl Report {
    /// From the runs.
    #[must_use]
    pub fn new(
        benchmark: Benchmark,
        command: String,
        machine: MachineFacts,
        touched_bytes: Bytes,
        runs: Vec<Run>,
    ) -> Self {
        let figures: BTreeMap<_, _> = metrics(benchmark)
            .iter()
            .map(|metric| (metric.key, figures_of(metric, &runs)))
            .collect();
        Self {
            schema: SCHEMA,
            benchmark,
            command,
            machine,
            touched_bytes,
            targets: targets::judge(benchmark, touched_bytes, &figures),
            figures,
            paper: paper::FAULT_LATENCY,
            paper_note: paper::NOTE,
            runs,
        }
    }

    /// As text, for a terminal.
    #[must_use]
    pub fn render(&self) -> String {
        let rounds = self
            .runs
            .iter()
            .map(|run| run.round)
            .max()
            .map_or(0, |last| last + 1);
        let machine = &self.machine;
        let mut text = format!(
            "{} touched, {rounds} rounds. Linux {}, {} × {}, {}, THP {}\n{}\n\n",
            self.touched_bytes,
            machine.kernel,
            machine.processors,
            machine.processor,
            machine.memory_bytes,
            machine.thp,
            self.command,
        );
        text.push_str(
            "Medians over the rounds; × is the median of the ratios to never within each round.\n",
        );
        text.push_str("never/never and always/always are the noise.\n\n");
        text.push_str(&self.medians());
        text.push_str("\nLeast and greatest over the rounds.\n\n");
        text.push_str(&self.extremes());
        if self.benchmark == Benchmark::Faults {
            text.push_str("\nThe paper's own table.\n\n");
            text.push_str(&paper::render());
        }
        text.push('\n');
        for target in &self.targets {
            text.push_str(&format!("{target}\n"));
        }
        text
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.runs.iter().map(|run| run.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    fn firsts(&self) -> Vec<Cell> {
        let cells = self.cells();
        cells
            .into_iter()
            .filter(|cell| *cell == Cell::first(cell.mode))
            .collect()
    }

    fn medians(&self) -> String {
        let firsts = self.firsts();
        let noise = [Mode::Never, Mode::Always].map(|mode| (mode, Cell::again(mode).to_string()));
        let mut head = vec!["median".to_owned()];
        head.extend(firsts.iter().map(Cell::to_string));
        head.extend(noise.iter().map(|(mode, _)| format!("{mode}/{mode}")));
        let row = |metric: &Metric| {
            let figures = &self.figures[metric.key];
            let mut row = vec![metric.title.to_owned()];
            row.extend(
                firsts
                    .iter()
                    .map(|cell| median_cell(metric, figures, *cell)),
            );
            row.extend(noise.iter().map(|(mode, again)| {
                let ratio = figures.get(again).and_then(|figure| match mode {
                    Mode::Always => figure.vs_always,
                    Mode::Never | Mode::Mega | Mode::Ingens => figure.vs_never,
                });
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("×{ratio:.2}"))
            }));
            row
        };
        let rows: Vec<Vec<String>> = metrics(self.benchmark).iter().map(row).collect();
        table::render(&head, &rows)
    }

    fn extremes(&self) -> String {
        let cells = self.cells();
        let mut head = vec!["min - max".to_owned()];
        head.extend(cells.iter().map(Cell::to_string));
        let row = |metric: &Metric| {
            let cell = |cell: &Cell| {
                let figure = self.figures[metric.key].get(&cell.to_string());
                figure.map_or_else(
                    || "-".to_owned(),
                    |figure| {
                        let show = |value| show(metric.unit, value);
                        format!("{} - {}", show(figure.stats.min), show(figure.stats.max))
                    },
                )
            };
            std::iter::once(metric.title.to_owned())
                .chain(cells.iter().map(cell))
                .collect()
        };
        let rows: Vec<Vec<String>> = metrics(self.benchmark).iter().map(row).collect();
        table::render(&head, &rows)
    }
}

fn median_cell(metric: &Metric, figures: &BTreeMap<String, Figure>, cell: Cell) -> String {
    let Some(figure) = figures.get(&cell.to_string()) else {
        return "-".to_owned();
    };
    let median = show(metric.unit, figure.stats.median);
    match (cell.mode, figure.vs_never) {
        (Mode::Never, _) | (_, None) => median,
        (Mode::Always | Mode::Mega | Mode::Ingens, Some(ratio)) => format!("{median} ×{ratio:.2}"),
    }
}

fn figures_of(metric: &Metric, runs: &[Run]) -> BTreeMap<String, Figure> {
    let by_round = |cell: Cell| -> Vec<Option<f64>> {
        let rounds = runs
            .iter()
            .map(|run| run.round)
            .max()
            .map_or(0, |last| last + 1);
        let of = |round| {
            runs.iter()
                .find(|run| run.round == round && run.cell == cell)
        };
        (0..rounds)
            .map(|round| of(round).and_then(metric.of))
            .collect()
    };
    let never = by_round(Cell::first(Mode::Never));
    let always = by_round(Cell::first(Mode::Always));
    let mut cells: Vec<Cell> = runs.iter().map(|run| run.cell).collect();
    cells.sort_unstable();
    cells.dedup();
    let figure = |cell: Cell| {
        let values = by_round(cell);
        let stats = Stats::of(values.iter().copied().flatten())?;
        let vs_never = median_ratio(&values, &never);
        let vs_always = median_ratio(&values, &always);
        let figure = Figure {
            stats,
            vs_never,
            vs_always,
        };
        Some((cell.to_string(), figure))
    };
    cells.into_iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests;
