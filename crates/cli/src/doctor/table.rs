//! The report as text: verdicts first, then one aligned table a group. Pure.

use hugepilot_linux::support::Report;
use hugepilot_linux::support::finding::{Finding, State};
use hugepilot_linux::support::policies::{Ability, Verdict};
use std::fmt::Write;

/// With colours or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// ANSI colours.
    Coloured,
    /// None.
    Plain,
}

/// Columns of the state's word and of the feature's title.
const WORD_COLUMNS: usize = 9;
const TITLE_COLUMNS: usize = 58;

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const DIM: &str = "2";
const BOLD: &str = "1";

/// The whole text.
#[must_use]
pub fn render(kernel: &str, report: &Report, look: Look) -> String {
    let mut text = format!("{} {kernel}\n\n", paint("Kernel", BOLD, look));
    verdict(
        &mut text,
        &report.main_job,
        "main job: collapse and split",
        look,
    );
    for policy in &report.policies {
        verdict(&mut text, policy, &format!("policy {}", policy.name), look);
    }
    findings(&mut text, &report.findings, look);
    text
}

fn verdict(text: &mut String, verdict: &Verdict, title: &str, look: Look) {
    let (mark, colour) = match verdict.verdict {
        Ability::Works => ("✓", GREEN),
        Ability::WorksPartly => ("~", YELLOW),
        Ability::Cannot => ("✗", RED),
    };
    let head = paint(&format!("{mark} {title}"), colour, look);
    line(text, &format!("{head}: {}", verdict.verdict.words()));
    for why in &verdict.because {
        line(text, &format!("    because: {why}"));
    }
    if let Some(change) = &verdict.would_change {
        line(text, &format!("    to change it: {change}"));
    }
    let needs = format!("    needs: {}", verdict.privileges.join(", "));
    line(text, &paint(&needs, DIM, look));
}

fn findings(text: &mut String, findings: &[Finding], look: Look) {
    let mut group = None;
    for finding in findings {
        let row = finding.feature.described();
        if group != Some(row.group) {
            group = Some(row.group);
            line(text, "");
            line(text, &paint(row.group.title(), BOLD, look));
        }
        row_of(text, finding, look);
    }
}

fn row_of(text: &mut String, finding: &Finding, look: Look) {
    let (mark, colour) = mark_of(finding.state);
    let state = format!("{mark} {:WORD_COLUMNS$}", finding.state.word());
    let state = paint(&state, colour, look);
    let title = finding.feature.described().title;
    line(
        text,
        &format!("  {state}  {title:TITLE_COLUMNS$}  {}", finding.detail),
    );
    if let Some(fix) = &finding.fix {
        line(text, &paint(&format!("{:15}fix: {fix}", ""), DIM, look));
    }
}

const fn mark_of(state: State) -> (&'static str, &'static str) {
    match state {
        State::Works => ("✓", GREEN),
        State::Partly => ("~", YELLOW),
        State::Absent => ("·", DIM),
        State::Forbidden => ("✗", RED),
        State::Unknown => ("?", YELLOW),
    }
}

fn line(text: &mut String, content: &str) {
    writeln!(text, "{content}").expect("writing to a string cannot fail");
}

fn paint(content: &str, colour: &str, look: Look) -> String {
    match look {
        Look::Coloured => format!("\x1b[{colour}m{content}\x1b[0m"),
        Look::Plain => content.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_linux::support::feature::Feature;

    fn report() -> Report {
        let main_job = Verdict {
            name: "main_job",
            verdict: Ability::Cannot,
            because: vec!["collapse a slot: EPERM".to_owned()],
            would_change: Some("run as root".to_owned()),
            privileges: &["CAP_SYS_NICE"],
        };
        Report {
            schema: 1,
            main_job,
            policies: Vec::new(),
            findings: vec![
                Finding::works(Feature::CapSysNice, "held"),
                Finding::new(Feature::RemoteCollapse, State::Forbidden, "EPERM").fix("run as root"),
            ],
        }
    }

    #[test]
    fn plain_text_says_why_and_what_to_do() {
        let text = render("9.9", &report(), Look::Plain);
        assert!(text.contains("✗ main job: collapse and split: cannot\n    because: collapse a slot: EPERM\n    to change it: run as root\n"));
        assert!(text.contains("Acting on another process\n  ✗ forbidden  collapse a slot"));
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn colours_only_where_wanted() {
        assert!(render("9.9", &report(), Look::Coloured).contains("\x1b[31m"));
    }

    #[test]
    fn every_title_fits_its_column() {
        for feature in Feature::ALL {
            assert!(
                feature.described().title.chars().count() <= TITLE_COLUMNS,
                "{}",
                feature.name()
            );
        }
    }
}
