//! Named parameters: every threshold has a name, a unit, a range, a default and a source, and is settable.
//!
//! One table a section; from it come the configuration's parsing and its JSON schema, `--set`, `--help` and the pages
//! on the policies. Values travel as JSON values; TOML is turned into them at the edge.

use crate::action::LinuxMode;
use crate::units::{BasePages, Bytes, Ratio, Span};
use serde_json::{Value, json};
use thiserror::Error;

/// What a parameter is, in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// `section.field`.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// What it does, one sentence.
    pub what: &'static str,
    /// Where its default comes from.
    pub source: &'static str,
    /// The default.
    pub default: Value,
    /// JSON schema of its value.
    pub schema: Value,
}

/// Why a parameter was not set.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParamError {
    /// No such section.
    #[error("there is no section [{section}]; the sections are {known}")]
    Section {
        /// As given.
        section: String,
        /// All there are.
        known: String,
    },
    /// No such parameter.
    #[error("there is no parameter {name}; [{section}] has {known}")]
    Name {
        /// As given.
        name: String,
        /// Its section.
        section: &'static str,
        /// All there are.
        known: String,
    },
    /// The value does not fit.
    #[error("{name} = {value}: {why}")]
    Value {
        /// Of which parameter.
        name: String,
        /// As given.
        value: Value,
        /// What it must be.
        why: String,
    },
}

/// A type that a parameter can have.
pub trait ParamValue: Sized + Copy {
    /// From a JSON value within `min..=max`, or what it must be.
    ///
    /// # Errors
    /// A sentence that says what the value must be.
    fn parse(value: &Value, min: f64, max: f64) -> Result<Self, String>;
    /// As a JSON value.
    fn value(self) -> Value;
    /// Its JSON schema.
    fn schema(min: f64, max: f64) -> Value;
}

fn number(value: &Value, min: f64, max: f64) -> Result<f64, String> {
    let text = value.as_str().and_then(|text| text.parse::<f64>().ok());
    value
        .as_f64()
        .or(text)
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("must be a number from {min} to {max}"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: whole and in range"
)]
fn whole(value: &Value, min: f64, max: f64) -> Result<u64, String> {
    let number = number(value, min, max)?;
    if number.fract() == 0.0 && number >= 0.0 {
        Ok(number as u64)
    } else {
        Err(format!("must be a whole number from {min} to {max}"))
    }
}

impl ParamValue for Ratio {
    fn parse(value: &Value, min: f64, max: f64) -> Result<Self, String> {
        number(value, min.max(0.0), max.min(1.0)).map(Self::new)
    }
    fn value(self) -> Value {
        json!(self.get())
    }
    fn schema(min: f64, max: f64) -> Value {
        json!({"type": "number", "minimum": min, "maximum": max})
    }
}

impl ParamValue for f64 {
    fn parse(value: &Value, min: f64, max: f64) -> Result<Self, String> {
        number(value, min, max)
    }
    fn value(self) -> Value {
        json!(self)
    }
    fn schema(min: f64, max: f64) -> Value {
        json!({"type": "number", "minimum": min, "maximum": max})
    }
}

macro_rules! whole_number {
    ($($ty:ty: $make:expr, $take:expr;)*) => {$(
        impl ParamValue for $ty {
            fn parse(value: &Value, min: f64, max: f64) -> Result<Self, String> {
                whole(value, min, max).map($make)
            }
            fn value(self) -> Value {
                json!($take(self))
            }
            fn schema(min: f64, max: f64) -> Value {
                json!({"type": "integer", "minimum": min, "maximum": max})
            }
        }
    )*};
}

whole_number! {
    u64: |n| n, |n| n;
    Bytes: Bytes, |bytes: Bytes| bytes.0;
    BasePages: BasePages, |pages: BasePages| pages.0;
    Span: Span::millis, |span: Span| span.0 / 1_000_000;
}

impl ParamValue for bool {
    fn parse(value: &Value, _: f64, _: f64) -> Result<Self, String> {
        match value {
            Value::Bool(flag) => Ok(*flag),
            Value::String(text) if text == "true" => Ok(true),
            Value::String(text) if text == "false" => Ok(false),
            Value::Null
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Err("must be true or false".to_owned()),
        }
    }
    fn value(self) -> Value {
        json!(self)
    }
    fn schema(_: f64, _: f64) -> Value {
        json!({"type": "boolean"})
    }
}

impl ParamValue for LinuxMode {
    fn parse(value: &Value, _: f64, _: f64) -> Result<Self, String> {
        serde_json::from_value(value.clone())
            .map_err(|_not_a_mode| "must be never, madvise, always or khugepaged".to_owned())
    }
    fn value(self) -> Value {
        json!(self)
    }
    fn schema(_: f64, _: f64) -> Value {
        json!({"enum": ["never", "madvise", "always", "khugepaged"]})
    }
}

/// A section of parameters.
pub trait Parameters: Default {
    /// The section's name.
    const SECTION: &'static str;
    /// All its parameters.
    fn specs() -> Vec<Spec>;
    /// Sets one, by the name of its field.
    ///
    /// # Errors
    /// Where there is no such parameter or the value does not fit; nothing is changed then.
    fn set(&mut self, field: &str, value: &Value) -> Result<(), ParamError>;
    /// The values in force, by field.
    fn values(&self) -> Value;
}

/// Declares a section: a struct with its defaults, specs and setter.
#[macro_export]
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        pub struct $name:ident in $section:literal {
            $( $field:ident: $ty:ty = $default:expr, $min:literal..=$max:literal, $unit:literal, $what:literal, $source:literal; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( #[doc = $what] #[doc = concat!("\n\nUnit: ", $unit, ". Source: ", $source, ".")] pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::params::Parameters for $name {
            const SECTION: &'static str = $section;

            fn specs() -> Vec<$crate::params::Spec> {
                let defaults = Self::default();
                vec![$( $crate::params::Spec {
                    name: concat!($section, ".", stringify!($field)).to_owned(),
                    unit: $unit,
                    what: $what,
                    source: $source,
                    default: $crate::params::ParamValue::value(defaults.$field),
                    schema: <$ty as $crate::params::ParamValue>::schema(f64::from($min), f64::from($max)),
                }, )*]
            }

            fn set(&mut self, field: &str, value: &serde_json::Value) -> Result<(), $crate::params::ParamError> {
                match field {
                    $( stringify!($field) => {
                        self.$field = <$ty as $crate::params::ParamValue>::parse(value, f64::from($min), f64::from($max))
                            .map_err(|why| $crate::params::ParamError::Value {
                                name: concat!($section, ".", stringify!($field)).to_owned(),
                                value: value.clone(),
                                why,
                            })?;
                        Ok(())
                    } )*
                    _ => Err($crate::params::ParamError::Name {
                        name: format!("{}.{field}", $section),
                        section: $section,
                        known: [$( stringify!($field) ),*].join(", "),
                    }),
                }
            }

            fn values(&self) -> serde_json::Value {
                serde_json::json!({ $( stringify!($field): $crate::params::ParamValue::value(self.$field), )* })
            }
        }
    };
}
