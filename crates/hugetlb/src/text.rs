//! Bytes in, values out, without anything that could panic: fixed buffers, numbers, sizes with a unit.

use core::ffi::CStr;

/// Decimal digits of the greatest number.
const DIGITS_MAX: usize = 20;

/// A buffer on the stack. What does not fit is dropped and remembered, never written elsewhere.
pub struct Buffer<const N: usize> {
    bytes: [u8; N],
    length: usize,
    overflowed: bool,
}

impl<const N: usize> Buffer<N> {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
            overflowed: false,
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.length = 0;
        self.overflowed = false;
    }

    /// Appends a byte.
    pub fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.length) {
            Some(place) => {
                *place = byte;
                self.length = self.length.wrapping_add(1);
            }
            None => self.overflowed = true,
        }
    }

    /// Appends bytes.
    pub fn push_all(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(*byte);
        }
    }

    /// Appends a number in decimal.
    pub fn push_number(&mut self, number: usize) {
        let mut digits = Buffer::<DIGITS_MAX>::new();
        let mut rest = number;
        loop {
            digits.push(b'0'.wrapping_add(u8::try_from(rest % 10).unwrap_or(0)));
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for digit in digits.cut().iter().rev() {
            self.push(*digit);
        }
    }

    /// What it holds, unless something did not fit.
    pub fn whole(&self) -> Option<&[u8]> {
        let held = self.bytes.get(..self.length);
        if self.overflowed { None } else { held }
    }

    /// What it holds, cut off where it was full.
    pub fn cut(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// The same as a C string: with a zero at its end, if that fits.
    pub fn as_c_str(&mut self) -> Option<&CStr> {
        self.push(0);
        self.length = self.length.saturating_sub(1);
        if self.overflowed {
            return None;
        }
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// The number at the beginning of a text, and what follows it. Blanks before it are skipped.
pub fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    if number.is_empty() {
        return None;
    }
    let value = number.iter().try_fold(0_usize, |value, digit| {
        let digit = usize::from(digit.wrapping_sub(b'0'));
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some((value, rest))
}

/// A size: a number of bytes, or of K, M or G (of 1024), in either case, with or without a B: `2M`, `1GB`, `2097152`.
pub fn size(text: &[u8]) -> Option<usize> {
    let (count, unit) = number(text)?;
    let unit = unit.trim_ascii();
    let (head, tail) = unit
        .split_first()
        .map_or((b'b', unit), |(head, tail)| (*head, tail));
    let shift = match head.to_ascii_lowercase() {
        b'b' => 0,
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        _ => return None,
    };
    let bare = tail.is_empty() || (shift > 0 && tail.eq_ignore_ascii_case(b"b"));
    if bare {
        count.checked_mul(1 << shift)
    } else {
        None
    }
}

/// Is one of the names in a list with colons this one?
pub fn listed(list: &[u8], name: &[u8]) -> bool {
    list.split(|byte| *byte == b':').any(|entry| entry == name)
}

/// What follows the last slash.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_units_or_none() {
        for (text, bytes) in [
            ("2M", 2 << 20),
            ("2MB", 2 << 20),
            ("1g", 1 << 30),
            ("64k", 64 << 10),
            (" 2097152", 2 << 20),
            ("2097152B", 2 << 20),
        ] {
            assert_eq!(size(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "2X",
            "2MM",
            "2 bananas",
            "-2M",
            "99999999999999999999",
            "17179869184G",
        ] {
            assert_eq!(size(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 7, 10, 99, 100, 1_000_000_007, usize::MAX] {
            let mut buffer = Buffer::<32>::new();
            buffer.push_number(value);
            assert_eq!(buffer.whole(), Some(value.to_string().as_bytes()));
            assert_eq!(number(buffer.cut()), Some((value, &b""[..])));
        }
    }

    #[test]
    fn what_does_not_fit_is_known() {
        let mut buffer = Buffer::<3>::new();
        buffer.push_all(b"abc");
        assert_eq!(buffer.whole(), Some(&b"abc"[..]));
        assert!(buffer.as_c_str().is_none(), "no room for the zero");
        buffer.clear();
        buffer.push_all(b"ab");
        assert_eq!(buffer.as_c_str(), Some(c"ab"));
        buffer.push_all(b"cd");
        assert_eq!((buffer.whole(), buffer.cut()), (None, &b"abc"[..]));
    }

    #[test]
    fn names_in_lists_match_as_a_whole() {
        assert!(listed(b"hpcc:long_hpcc", b"hpcc"));
        assert!(!listed(b"hpcc_no:long", b"hpcc"));
        assert_eq!(base_name(b"/usr/bin/cc"), b"cc");
        assert_eq!(base_name(b"cc"), b"cc");
    }

    proptest! {
        #[test]
        fn a_size_is_its_number_times_its_unit(count in 0..1_u64 << 33, unit in 0..4_usize, upper: bool) {
            let letter = ["", "k", "m", "g"][unit];
            let letter = if upper { letter.to_uppercase() } else { letter.to_owned() };
            let bytes = usize::try_from(count << (10 * unit)).expect("64 bits");
            prop_assert_eq!(size(format!("{count}{letter}").as_bytes()), Some(bytes));
        }

        #[test]
        fn no_text_is_too_much(text in vec(any::<u8>(), 0..100)) {
            size(&text);
            number(&text);
            listed(&text, base_name(&text));
        }
    }
}
