//! Sizes on the command line: `2GiB`, `512M`, `1g`.

use hugepilot_core::units::Bytes;

/// Reads a size. Units are binary, their case and a trailing `B` or `iB` do not matter; a bare number is bytes.
///
/// # Errors
/// Says what a size looks like.
pub fn parse(text: &str) -> Result<Bytes, String> {
    let wrong = || format!("{text:?} is not a size such as 2GiB or 512M");
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|error| format!("{}: {error}", wrong()))?;
    let unit = unit.to_ascii_lowercase();
    let unit = unit
        .strip_suffix("ib")
        .or(unit.strip_suffix('b'))
        .unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).map(Bytes).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_every_spelling() {
        for text in [
            "2GiB",
            "2g",
            "2G",
            "2gb",
            "2048M",
            "2147483648",
            "2147483648B",
        ] {
            assert_eq!(parse(text), Ok(Bytes::gib(2)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "GiB",
            "2 GiB",
            "-1",
            "2x",
            "99999999999999999999",
            "999999999T",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
