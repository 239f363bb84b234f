//! How many pages, of which size, where: text, checked.

use crate::text::bytes;
use hugepilot_core::ids::NodeId;
use hugepilot_linux::pool::PageSize;

/// Pages, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    quantity: Quantity,
    /// A node alone.
    pub node: Option<NodeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Pages(u64),
    Bytes(hugepilot_core::units::Bytes),
}

/// A size, and pages of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Of which pool.
    pub size: PageSize,
    /// How many.
    pub amount: Amount,
}

/// The most memory that a pool is asked to have: more than the largest machine has, and far from where numbers end.
const POOL_MAX: u64 = 1 << 52;

impl Amount {
    /// In pages of this size.
    pub fn pages(self, size: PageSize) -> Result<u64, String> {
        let pages = match self.quantity {
            Quantity::Pages(pages) => pages,
            Quantity::Bytes(bytes) if bytes.0 % size.bytes().0 == 0 => size.pages_for(bytes),
            Quantity::Bytes(bytes) => {
                return Err(format!("{bytes} is no whole number of {size} pages"));
            }
        };
        if pages <= POOL_MAX / size.bytes().0 {
            Ok(pages)
        } else {
            Err(format!("no machine has {pages} pages of {size}"))
        }
    }
}

/// The size of a page: `2M`, `1G`, `2048kB`.
pub fn size(text: &str) -> Result<PageSize, String> {
    let hint = "write the size of a page like 64K, 2M or 1G";
    let digits = text.strip_suffix('B').unwrap_or(text);
    let bytes = bytes(digits)
        .or_else(|_not_so| bytes(text))
        .map_err(|_no_number: String| hint.to_owned())?;
    PageSize::new(bytes).ok_or_else(|| hint.to_owned())
}

/// `SIZE=N[@NODE]`
pub fn setting(text: &str) -> Result<Setting, String> {
    let (of, many) = text
        .split_once('=')
        .ok_or("write SIZE=N or SIZE=N@NODE, like 2M=512 or 1G=4@0")?;
    let setting = Setting {
        size: size(of)?,
        amount: unsigned(many)?,
    };
    setting.amount.pages(setting.size)?;
    Ok(setting)
}

/// `N` or `+N`, `@NODE` behind it or not.
pub fn more(text: &str) -> Result<Amount, String> {
    unsigned(text.strip_prefix('+').unwrap_or(text))
}

/// `N` or `-N`, `@NODE` behind it or not.
pub fn fewer(text: &str) -> Result<Amount, String> {
    unsigned(text.strip_prefix('-').unwrap_or(text))
}

fn unsigned(text: &str) -> Result<Amount, String> {
    let hint = "write pages like 512, or memory like 512M; of one node like 512@0";
    let (many, node) = match text.split_once('@') {
        Some((many, node)) => (many, Some(self::node(node).ok_or(hint)?)),
        None => (text, None),
    };
    if !many.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(hint.to_owned());
    }
    let quantity = match many.parse() {
        Ok(pages) => Quantity::Pages(pages),
        Err(_has_a_unit) => {
            Quantity::Bytes(bytes(many).map_err(|_no_number: String| hint.to_owned())?)
        }
    };
    Ok(Amount { quantity, node })
}

fn node(text: &str) -> Option<NodeId> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(NodeId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_core::units::Bytes;

    fn two() -> PageSize {
        PageSize::new(Bytes::mib(2)).expect("a power of two")
    }

    #[test]
    fn sizes_may_be_written_as_everybody_does() {
        for text in ["2M", "2MiB", "2048k", "2048kB", "2MB", "2097152"] {
            assert_eq!(size(text), Ok(two()), "{text}");
        }
        for wrong in ["", "2", "3M", "0", "M", "-2M", "2X"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pages_and_memory_are_told_apart() {
        let pages = |text| setting(text).map(|setting| setting.amount.pages(setting.size));
        assert_eq!(pages("2M=512"), Ok(Ok(512)));
        assert_eq!(pages("2M=1G"), Ok(Ok(512)));
        assert_eq!(pages("2M=0"), Ok(Ok(0)));
        let wrong = [
            "2M",
            "2M=",
            "2M=-1",
            "2M=+1",
            "2M=x",
            "2M=3k",
            "2M=1@",
            "2M=1@x",
            "2M=1@+1",
            "=1",
            "2M=1@99999",
            "2M=99999999999999999999",
            "2M=4503599627370496",
        ];
        for text in wrong {
            assert!(setting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn signs_are_welcome_where_they_say_the_same() {
        assert_eq!(more("+4@1"), more("4@1"));
        assert_eq!(more("4@1").expect("right").node, Some(NodeId(1)));
        assert_eq!(fewer("-4"), fewer("4"));
        assert!(more("-4").is_err() && fewer("+4").is_err() && more("++4").is_err());
    }
}
