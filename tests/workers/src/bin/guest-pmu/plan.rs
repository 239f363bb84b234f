//! What the threads do, as text.

use std::io;

use crate::memory::PAGES_PER_NODE;

/// Loads by one thread from some pages of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    pub thread: usize,
    pub node: usize,
    pub first_page: usize,
    /// A power of two.
    pub pages: usize,
    pub loads: u64,
}

/// What is done at a time.
pub type Phase = Vec<Item>;

/// Reads `ITEM[+ITEM...]`.
pub fn parse(text: &str) -> io::Result<Phase> {
    let wrong = || io::Error::other(format!("{text:?} is no phase"));
    text.split('+')
        .map(|item| parse_item(item).ok_or_else(wrong))
        .collect()
}

fn parse_item(text: &str) -> Option<Item> {
    let numbers: Option<Vec<usize>> = text.split('/').map(|part| part.parse().ok()).collect();
    let [thread, node, first_page, pages, loads] = numbers?[..] else {
        return None;
    };
    let fits = pages.is_power_of_two() && first_page.checked_add(pages)? <= PAGES_PER_NODE;
    let loads = u64::try_from(loads).ok()?;
    (fits && loads > 0).then_some(Item {
        thread,
        node,
        first_page,
        pages,
        loads,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read() {
        let phase = parse("0/1/2/4/100+3/0/0/1/7").unwrap();
        assert_eq!(phase.len(), 2);
        assert_eq!((phase[0].first_page, phase[0].pages), (2, 4));
        assert_eq!((phase[1].thread, phase[1].loads), (3, 7));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "0/0/0/1",
            "0/0/0/3/5",
            "0/0/0/1/0",
            "0/0/4095/2/1",
            "a/0/0/1/1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
