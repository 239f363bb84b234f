//! One-value files of sysfs and procfs.

use std::fs;
use std::io;
use std::path::Path;

/// The value that a file shows: of a list with one choice in brackets (`always [madvise] never`) that choice, else the
/// text without blanks around it.
#[must_use]
pub fn selected(text: &str) -> &str {
    let text = text.trim();
    text.split_ascii_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(text)
}

/// Reads the value of a file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|text| selected(&text).to_owned())
}

/// Writes a value in one call, as sysfs wants it. The file must exist.
///
/// # Errors
/// If it cannot be written: the kernel's own answer.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::selected;

    fn check(text: &str, value: &str) {
        assert_eq!(selected(text), value);
    }

    #[test]
    fn the_bracketed_choice_is_the_value() {
        check("always [madvise] never\n", "madvise");
        check("[always] madvise never\n", "always");
        check("always defer defer+madvise madvise [never]", "never");
    }

    #[test]
    fn a_plain_value_is_itself() {
        check("511\n", "511");
        check("  Y\n", "Y");
        check("", "");
        check("half [open", "half [open");
    }
}
