//! The tables of parameters in `docs/policies`: made from the declarations, so that they cannot lie.
//!
//! A page holds `<!-- parameters: SECTION -->`, the table, and `<!-- end of parameters -->`. `make bless` writes the
//! tables anew; the test only compares.

use crate::Violation;
use crate::files::File;
use hugepilot_core::params::Spec;
use serde_json::Value;
use std::collections::BTreeSet;

const END: &str = "<!-- end of parameters -->";

fn begin(section: &str) -> String {
    format!("<!-- parameters: {section} -->")
}

/// The table of a section.
#[must_use]
pub fn table(specs: &[Spec], section: &str) -> String {
    let mut table = "| parameter | default | unit | range | what it does | source |\n\
                     | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for spec in specs.iter().filter(|spec| section_of(spec) == section) {
        let cells = [
            format!("`{}`", spec.name),
            number(&spec.default),
            spec.unit.to_owned(),
            range(&spec.schema),
            spec.what.to_owned(),
            spec.source.to_owned(),
        ];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}

fn section_of(spec: &Spec) -> &str {
    spec.name.split('.').next().unwrap_or_default()
}

/// A value as one reads it: a whole number without a fraction, a text without quotes.
fn number(value: &Value) -> String {
    match (value.as_f64(), value.as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(text)) => text.to_owned(),
        (None, None) => value.to_string(),
    }
}

fn range(schema: &Value) -> String {
    if let Some(all) = schema["enum"].as_array() {
        return all.iter().map(number).collect::<Vec<_>>().join(", ");
    }
    if schema["type"] == "boolean" {
        return "true, false".to_owned();
    }
    format!(
        "{} to {}",
        number(&schema["minimum"]),
        number(&schema["maximum"])
    )
}

/// The page's text with its tables made anew.
#[must_use]
pub fn renew(page: &str, specs: &[Spec]) -> String {
    let mut page = page.to_owned();
    for section in sections(specs) {
        let begin = begin(section);
        let Some((before, rest)) = page.split_once(&begin) else {
            continue;
        };
        let Some((_, after)) = rest.split_once(END) else {
            continue;
        };
        page = format!("{before}{begin}\n\n{}\n{END}{after}", table(specs, section));
    }
    page
}

fn sections(specs: &[Spec]) -> BTreeSet<&str> {
    specs.iter().map(section_of).collect()
}

/// Sections that no page or more than one has, and pages whose tables are not as the declarations have it.
#[must_use]
pub fn check(pages: &[&File], specs: &[Spec]) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for section in sections(specs) {
        let has = |page: &&&File| {
            page.text
                .split_once(&begin(section))
                .is_some_and(|(_, rest)| rest.contains(END))
        };
        let count = pages.iter().filter(has).count();
        if count != 1 {
            let what = format!("{count} pages have the parameters of [{section}]; one must");
            wrong.push(Violation::of("docs/policies", what));
        }
    }
    for page in pages
        .iter()
        .filter(|page| renew(&page.text, specs) != page.text)
    {
        wrong.push(Violation::of(
            &page.path,
            "its tables are stale: run make bless",
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn specs() -> Vec<Spec> {
        vec![Spec {
            name: "mega.present_min".to_owned(),
            unit: "share",
            what: "What it does",
            source: "paper",
            default: json!(0.9),
            schema: json!({"type": "number", "minimum": 0.0, "maximum": 1.0}),
        }]
    }

    fn page(text: &str) -> File {
        File {
            path: "docs/policies/mega.md".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_table_says_what_the_declaration_says() {
        let row = "| `mega.present_min` | 0.9 | share | 0 to 1 | What it does | paper |\n";
        assert!(
            table(&specs(), "mega").ends_with(row),
            "{}",
            table(&specs(), "mega")
        );
    }

    #[test]
    fn a_renewed_page_passes_and_keeps_the_rest() {
        let text = renew(
            "# a\n<!-- parameters: mega -->\nold\n<!-- end of parameters -->\nz\n",
            &specs(),
        );
        assert!(
            text.starts_with("# a\n") && text.ends_with("-->\nz\n") && !text.contains("old"),
            "{text}"
        );
        assert!(check(&[&page(&text)], &specs()).is_empty());
    }

    #[test]
    fn stale_and_missing_tables_are_found() {
        let fresh = renew(
            "<!-- parameters: mega -->\n<!-- end of parameters -->\n",
            &specs(),
        );
        assert_eq!(
            check(&[&page(&fresh.replace("0.9", "0.8"))], &specs()).len(),
            1
        );
        assert_eq!(check(&[&page("no table")], &specs()).len(), 1);
        assert_eq!(check(&[&page(&fresh), &page(&fresh)], &specs()).len(), 1);
    }
}
