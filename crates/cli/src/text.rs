//! Text from the command line, checked: lengths of time, process ids, names.

use hugepilot_core::ids::Pid;
use hugepilot_core::policy::NAMES;
use hugepilot_core::units::{Bytes, Span};
use hugepilot_linux::sampler::choice::Wish;

/// A length of time: `90`, `30s`, `1.5m`, `2h`, `500ms`.
pub fn span(text: &str) -> Result<Span, String> {
    let hint = "write a length of time like 30s, 5m, 2h or 500ms";
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(hint.to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_not_a_number| hint.to_owned())?;
    if number.is_finite() && number > 0.0 {
        Ok(Span::from_secs_f64(number * seconds))
    } else {
        Err(hint.to_owned())
    }
}

/// A number of bytes: `4096`, `64k`, `100M`, `2G`.
pub fn bytes(text: &str) -> Result<Bytes, String> {
    let hint = || "write a number of bytes like 4096, 64k, 100M or 2G".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(hint()),
    };
    let number: u64 = digits.parse().map_err(|_not_a_number| hint())?;
    number.checked_mul(1 << shift).map(Bytes).ok_or_else(hint)
}

/// A process id.
pub fn pid(text: &str) -> Result<Pid, String> {
    match text.parse::<u32>() {
        Ok(pid) if (1..=PID_MAX).contains(&pid) => Ok(Pid(pid)),
        Ok(_) | Err(_) => Err(format!("a process id is a number from 1 to {PID_MAX}")),
    }
}

/// The largest process id that a kernel hands out (`PID_MAX_LIMIT`, 4 Mi, on 64 bits).
const PID_MAX: u32 = 4 << 20;

/// The name of a policy.
pub fn policy(text: &str) -> Result<String, String> {
    if NAMES.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "there is no policy of that name; the policies are {}",
            NAMES.join(", ")
        ))
    }
}

/// The name of a sampler.
pub fn sampler(text: &str) -> Result<Wish, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        assert_eq!(span("30s"), Ok(Span::secs(30)));
        assert_eq!(span("90"), Ok(Span::secs(90)));
        assert_eq!(span("1.5m"), Ok(Span::secs(90)));
        assert_eq!(span("500ms"), Ok(Span::millis(500)));
        for wrong in ["", "s", "-1s", "0", "1y", "nan", "inf", "1 s", "1e400"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("4096"), Ok(Bytes(4096)));
        assert_eq!(bytes("2G"), Ok(Bytes::gib(2)));
        for wrong in ["", "G", "-1", "1.5G", "99999999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_and_names_are_checked() {
        assert_eq!(pid("1"), Ok(Pid(1)));
        for wrong in ["0", "-1", "x", "4194305", ""] {
            assert!(pid(wrong).is_err(), "{wrong}");
        }
        assert!(policy("mega").is_ok());
        assert!(policy("meg").expect_err("no such").contains("ingens"));
    }
}
