//! Pressure stall information: `/proc/pressure/memory`, a cgroup's `memory.pressure`.

use super::{ParseError, lines, words};
use hugepilot_core::units::Ratio;

/// Share of the last 10 s in which some task waited.
///
/// # Errors
/// If there is no `some avg10=` with a percentage.
pub fn parse(text: &[u8]) -> Result<Ratio, ParseError> {
    for (number, line) in lines(text) {
        let mut fields = words(line);
        if fields.next() != Some(b"some") {
            continue;
        }
        return fields
            .find_map(|field| field.strip_prefix(b"avg10="))
            .and_then(percentage)
            .ok_or(ParseError::new(
                "pressure",
                number,
                "expected avg10 from 0 to 100",
            ));
    }
    Err(ParseError::new("pressure", 1, "expected a line of `some`"))
}

fn percentage(text: &[u8]) -> Option<Ratio> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (0.0..=100.0)
        .contains(&value)
        .then(|| Ratio::new(value / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_last_ten_seconds() {
        let text = b"some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse(text), Ok(Ratio::new(0.125)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "full avg10=1.00",
            "some avg10=NaN",
            "some avg10=101",
            "some avg60=1",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
