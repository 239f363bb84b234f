//! The table, as Markdown. Pure.

use super::case::{Case, Mode};
use super::figures::Figures;
use super::results::{Became, Results};

const HEAD: &str = "| workload | nodes | kernel | mode | sampler | LAR | imbalance | raw LAR, imbalance | PAMUP | NHP | PSP | \
                    huge | within | pages migrated | overhead | seconds |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
/// Points of LAR by which a case may miss what it settles to and yet count as settled.
const SETTLED_WITHIN: f64 = 0.03;

/// All cases that were run, in the order of `cases`.
pub fn markdown(results: &Results, cases: &[Case]) -> String {
    let mut text = String::from(HEAD);
    for case in cases {
        let Some(row) = results.of(case) else {
            continue;
        };
        let sampler = case.sampler.map_or("", |sampler| sampler.name());
        text.push_str(&format!(
            "| {} | {} | {} | {} | {sampler} | ",
            case.workload.name(),
            case.nodes,
            case.kernel,
            mode_name(case.mode),
        ));
        match &row.became {
            Became::Done(figures) => text.push_str(&cells(figures)),
            Became::Failed(why) => text.push_str(&format!(
                "failed: {}{}",
                why.replace('|', "/").replace('\n', " "),
                " |".repeat(9)
            )),
        }
        text.push_str(&format!(" | {:.0} |\n", row.seconds));
    }
    text
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Base => "base pages",
        Mode::Thp => "THP",
        Mode::ThpBalancing => "THP + kernel's balancing",
        Mode::Gigantic => "1 GiB page",
        Mode::Carrefour
        | Mode::Carrefour2m
        | Mode::Conservative
        | Mode::Reactive
        | Mode::CarrefourLp => mode.name(),
    }
}

fn cells(figures: &Figures) -> String {
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let known = |share: Option<f64>| share.map_or(String::new(), percent);
    let overhead = figures
        .manager
        .as_ref()
        .map_or_else(String::new, |manager| {
            format!("{:.1} %", manager.overhead * 100.0)
        });
    [
        percent(figures.lar),
        percent(figures.imbalance),
        format!(
            "{}, {}",
            percent(figures.lar_raw),
            percent(figures.imbalance_raw)
        ),
        known(figures.pamup_huge),
        figures.nhp_huge.to_string(),
        known(figures.psp_huge),
        percent(figures.huge_share),
        settled_after(figures).map_or_else(|| "never".to_owned(), |interval| interval.to_string()),
        figures.migrated.to_string(),
        overhead,
    ]
    .join(" | ")
}

/// The interval, from 1, from which on every one's LAR is near what the case settled to.
fn settled_after(figures: &Figures) -> Option<usize> {
    let near = |lar: &f64| (lar - figures.lar).abs() <= SETTLED_WITHIN;
    let first_near = figures
        .lar_series
        .iter()
        .rev()
        .take_while(|lar| near(lar))
        .count();
    (first_near > 0).then(|| figures.lar_series.len() - first_near + 1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn figures(series: &[f64]) -> Figures {
        Figures {
            lar: *series.last().unwrap(),
            imbalance: 0.1,
            lar_raw: 0.8,
            imbalance_raw: 0.2,
            pamup_huge: Some(0.08),
            nhp_huge: 3,
            psp_huge: Some(0.7),
            lar_series: series.to_vec(),
            imbalance_series: Vec::new(),
            huge_share: 1.0,
            checksum: 1,
            instructions: 1,
            migrated: 0,
            manager: None,
        }
    }

    #[test]
    fn a_row_has_as_many_cells_as_the_head() {
        let cells_of = |line: &str| line.matches('|').count();
        let row = format!("| a | b | c | d | e | {} | 1 |", cells(&figures(&[0.5])));
        assert_eq!(cells_of(&row), cells_of(HEAD.lines().next().unwrap()));
    }

    #[test]
    fn settled_is_when_it_stays_near_the_end() {
        assert_eq!(
            settled_after(&figures(&[0.2, 0.9, 0.3, 0.88, 0.9])),
            Some(4)
        );
        assert_eq!(settled_after(&figures(&[0.9, 0.9])), Some(1));
        assert_eq!(
            settled_after(&Figures {
                lar: 0.5,
                ..figures(&[0.1])
            }),
            None
        );
    }
}
