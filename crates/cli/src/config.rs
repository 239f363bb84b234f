//! Parameters from a TOML file and from `--set`, both checked before anything is touched.
//!
//! A file is parsed with the place of every key, so that a wrong name or a value out of range is told with its line.
//! Files first, then `--set` in order: the later one wins.

use crate::failure::Usage;
use hugepilot_core::params::Spec;
use hugepilot_core::policy::Settings;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Longest configuration file that is read: ours have a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where parameters come from.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// Parameters from a TOML file; `hugepilot config --defaults` prints one to start from
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One parameter, as in --set mega.present_min=0.95; wins over the file
    #[arg(long, value_name = "SECTION.FIELD=VALUE", value_parser = parse_set)]
    pub set: Vec<Assignment>,
}

/// One `--set`.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    section: String,
    field: String,
    value: Value,
}

impl ConfigArgs {
    /// The parameters.
    ///
    /// # Errors
    /// One sentence on the first thing that is wrong.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        self.settings_over(Settings::default())
    }

    /// The parameters given, over others that hold where nothing is given.
    ///
    /// # Errors
    /// One sentence on the first thing that is wrong.
    pub fn settings_over(&self, mut settings: Settings) -> anyhow::Result<Settings> {
        if let Some(path) = &self.config {
            let text = read(path)?;
            apply(&mut settings, &text)
                .map_err(|why| Usage::error(format!("{}: {why}", path.display())))?;
        }
        for one in &self.set {
            settings
                .set(&one.section, &one.field, &one.value)
                .map_err(|why| Usage::error(format!("--set: {why}")))?;
        }
        Ok(settings)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let error = |why: String| Usage::error(format!("cannot read {}: {why}", path.display()));
    let length = std::fs::metadata(path)
        .map_err(|why| error(why.to_string()))?
        .len();
    if length > FILE_BYTES_MAX {
        return Err(error(format!(
            "it has {length} bytes, so it is no configuration"
        )));
    }
    std::fs::read_to_string(path).map_err(|why| error(why.to_string()))
}

/// Takes `section.field=value` apart.
fn parse_set(text: &str) -> Result<Assignment, String> {
    let shape = "must look like section.field=value, as in mega.present_min=0.95";
    let (name, value) = text.split_once('=').ok_or(shape)?;
    let (section, field) = name.trim().split_once('.').ok_or(shape)?;
    Ok(Assignment {
        section: section.to_owned(),
        field: field.to_owned(),
        value: scalar(value.trim()),
    })
}

/// A number or a boolean where it reads as one, else text.
fn scalar(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
        Ok(Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_)) | Err(_) => {
            Value::String(text.to_owned())
        }
    }
}

/// Sets what a TOML text says, or tells the line that is wrong.
pub fn apply(settings: &mut Settings, text: &str) -> Result<(), String> {
    let at = |offset: usize, why: &dyn std::fmt::Display| {
        format!("line {}: {why}", line_of(text, offset))
    };
    let table = DeTable::parse(text).map_err(|error| {
        at(
            error.span().map_or(0, |span| span.start),
            &error.message().replace('\n', ", "),
        )
    })?;
    for (section, fields) in table.get_ref() {
        let start = section.span().start;
        let DeValue::Table(fields) = fields.get_ref() else {
            let hint = "write it under its section, as in [mega]";
            return Err(at(
                start,
                &format!(
                    "{} stands outside of any section; {hint}",
                    section.get_ref()
                ),
            ));
        };
        for (field, value) in fields {
            let start = field.span().start;
            let value = json(value.get_ref()).map_err(|why| at(start, &why))?;
            settings
                .set(section.get_ref(), field.get_ref(), &value)
                .map_err(|why| at(start, &why))?;
        }
    }
    Ok(())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        + 1
}

/// A TOML scalar as the JSON value that parameters are set from.
fn json(value: &DeValue<'_>) -> Result<Value, String> {
    let number = |text: &str| scalar(&text.replace('_', ""));
    match value {
        DeValue::String(text) => Ok(Value::String(text.to_string())),
        DeValue::Integer(integer) if integer.radix() == 10 => Ok(number(integer.as_str())),
        DeValue::Integer(_) => Err("write the number in decimal".to_owned()),
        DeValue::Float(float) => Ok(number(float.as_str())),
        DeValue::Boolean(flag) => Ok(Value::Bool(*flag)),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err("a parameter is a number, true or false, or a text".to_owned())
        }
    }
}

/// The configuration as a TOML file, every parameter with what it does, its unit, range and source.
pub fn to_toml(settings: &Settings) -> String {
    let values = settings.values();
    let mut text =
        String::from("# hugepilot's parameters. What a file does not name keeps its default.\n");
    let mut section = "";
    let specs = Settings::specs();
    for spec in &specs {
        let (of, field) = spec.name.split_once('.').expect("names have a section");
        if of != section {
            section = of;
            write!(text, "\n[{section}]\n").expect("a string takes it");
        }
        let value = &values[of][field];
        writeln!(text, "{}{field} = {value}", comment(spec)).expect("a string takes it");
    }
    text
}

fn comment(spec: &Spec) -> String {
    let range = match (
        &spec.schema["minimum"],
        &spec.schema["maximum"],
        &spec.schema["enum"],
    ) {
        (Value::Number(min), Value::Number(max), _) => format!(", {min} to {max}"),
        (_, _, Value::Array(choices)) => {
            format!(
                ": {}",
                choices
                    .iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        _ => String::new(),
    };
    format!(
        "# {} ({}{range}; source: {}).\n",
        spec.what, spec.unit, spec.source
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(text: &str, expected: &[&str]) {
        let why = apply(&mut Settings::default(), text).expect_err(text);
        for part in expected {
            assert!(why.contains(part), "{why:?} should contain {part:?}");
        }
        assert!(!why.contains('\n'), "{why:?} is more than a line");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        check_error(
            "[mega]\n\npresent_min = 1.5\n",
            &["line 3", "mega.present_min", "from 0 to 1"],
        );
        check_error(
            "[mega]\nno_such = 1\n",
            &["line 2", "no_such", "present_min"],
        );
        check_error("[nosuch]\na = 1\n", &["line 2", "nosuch", "mega"]);
        check_error("[mega]\npresent_min = \n", &["line 2"]);
        check_error("x = 3\n", &["line 1", "outside of any section"]);
        check_error("[mega]\npresent_min = [1]\n", &["line 2", "a number"]);
        check_error("[watch]\ntick_ms = 0x10\n", &["line 2", "decimal"]);
        check_error("[mega]\npresent_min = nan\n", &["line 2", "from 0 to 1"]);
    }

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        let defaults = Settings::default();
        let mut read = Settings::default();
        apply(&mut read, &to_toml(&defaults)).expect("our own file");
        assert_eq!(read, defaults);
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let mut settings = Settings::default();
        apply(
            &mut settings,
            "[mega]\npresent_min = 0.75\n[watch]\ntick_ms = 1_000\n",
        )
        .expect("valid");
        assert_eq!(settings.values()["mega"]["present_min"], 0.75);
        assert_eq!(settings.values()["watch"]["tick_ms"], 1000);
    }

    #[test]
    fn a_set_without_a_name_is_refused() {
        for text in ["mega.present_min", "present_min=1", "=", ""] {
            assert!(parse_set(text).is_err(), "{text}");
        }
        let one = parse_set("linux.mode=always").expect("valid");
        assert_eq!(one.value, Value::String("always".to_owned()));
    }
}
