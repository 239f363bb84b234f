//! Units as types: nothing in the core adds bytes to pages or microseconds to nanoseconds.
//!
//! A unit is a newtype over an unsigned integer with checked-in-debug arithmetic; on the wire it is a plain number
//! whose field name carries the unit. Ratios are `f64` in `0.0..=1.0` where a share is meant; the type asserts it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);

            /// The bare number, in the unit that the type names.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// `self - other`, or `None` where that would be below zero.
            #[must_use]
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }

            /// How far `self` has grown past `other`; zero where a counter went back (a process that exec'd).
            #[must_use]
            pub fn growth_since(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

unit! {
    /// A length in bytes.
    Bytes(u64)
}
unit! {
    /// A length in base pages: the smallest page of the machine (4 KiB on x86).
    BasePages(u64)
}
unit! {
    /// A number of PMD-mapped huge pages.
    HugePages(u64)
}
unit! {
    /// A length of time in nanoseconds.
    Span(u64)
}
unit! {
    /// Processor cycles.
    Cycles(u64)
}

impl Bytes {
    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` GiB.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// A share of it, rounded down.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a size: 53 bits suffice, and it is never negative"
    )]
    pub fn share(self, share: Ratio) -> Self {
        Self((self.0 as f64 * share.0) as u64)
    }
}

impl fmt::Display for Bytes {
    /// Exact in the largest binary unit that divides it or with one decimal: `0 B`, `512 KiB`, `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let step = (0..UNITS.len() - 1)
            .take_while(|step| self.0 >> (10 * (step + 1)) != 0)
            .count();
        let unit = 1u64 << (10 * step);
        if self.0 % unit == 0 {
            write!(f, "{} {}", self.0 / unit, UNITS[step])
        } else {
            #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
            let value = self.0 as f64 / unit as f64;
            write!(f, "{value:.1} {}", UNITS[step])
        }
    }
}

impl Span {
    /// `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// Seconds with their fraction.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a length of time for arithmetic on rates"
    )]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Whole microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// A span of `seconds`; negative and not-a-number count as zero, too long as the longest.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float-to-int casts saturate"
    )]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9) as u64)
    }
}

impl fmt::Display for Span {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns} ns"),
            ns if ns < 1_000_000 => write!(f, "{:.1} µs", ns as f64 / 1e3),
            ns if ns < 1_000_000_000 => write!(f, "{:.1} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.1} s", ns as f64 / 1e9),
        }
    }
}

/// A moment: nanoseconds since an origin that is fixed within one recording (the boot of the machine).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to `self`; zero where `earlier` is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// The moment `span` later.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// A share: a number from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// None of it.
    pub const ZERO: Self = Self(0.0);
    /// All of it.
    pub const ONE: Self = Self(1.0);

    /// `value` as a share.
    ///
    /// # Panics
    /// If `value` is not within `0.0..=1.0`: a share outside is a programmer's error.
    #[must_use]
    pub fn new(value: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&value),
            "{value} is not a share from 0 to 1"
        );
        Self(value)
    }

    /// `percent` of a hundred.
    ///
    /// # Panics
    /// If it is more than a hundred.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        assert!(percent <= 100, "more than all of it");
        Self(percent as f64 / 100.0)
    }

    /// `part / whole`; zero of an empty whole is zero; a part larger than its whole (a torn read) counts as all of it.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of page counts")]
    pub fn of(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        Self((part as f64 / whole as f64).min(1.0))
    }

    /// The number from 0 to 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: u64, shown: &str) {
        assert_eq!(Bytes(bytes).to_string(), shown);
    }

    #[test]
    fn bytes_are_shown_in_binary_units() {
        check(0, "0 B");
        check(1023, "1023 B");
        check(2 << 20, "2 MiB");
        check(3 << 29, "1.5 GiB");
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!(Ratio::of(0, 0), Ratio::ZERO);
        assert_eq!(Ratio::of(3, 2), Ratio::ONE);
    }

    #[test]
    #[should_panic(expected = "not a share")]
    fn a_share_above_one_is_refused() {
        let _ = Ratio::new(1.01);
    }

    #[test]
    fn time_never_runs_backwards() {
        assert_eq!(Instant(5).since(Instant(9)), Span::ZERO);
    }
}
