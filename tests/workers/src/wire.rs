//! One line a command, one line a reply: `ok key=value …` or `err text`.

use std::fmt::{Display, Write};

/// A reply in the making.
#[derive(Debug, Default)]
pub struct Reply(String);

impl Reply {
    pub fn ok() -> Self {
        Self("ok".to_owned())
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: impl Display) -> Self {
        write!(self.0, " {key}={value}").expect("writing to a string");
        self
    }

    pub fn line(&self) -> &str {
        &self.0
    }
}

/// A number, decimal or `0x…`.
pub fn number(word: &str) -> Result<usize, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|error| format!("{word} is not a number: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("4096"), Ok(4096));
        assert_eq!(number("0x10"), Ok(16));
        assert!(number("ten").is_err());
    }

    #[test]
    fn a_reply_is_one_line() {
        assert_eq!(Reply::ok().with("a", 1).with("b", "x").line(), "ok a=1 b=x");
    }
}
