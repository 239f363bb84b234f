//! What backs a slot: base pages by the order of the folio mapping that serves them.
//!
//! Values, not types: a 2 MiB page, a 64 KiB mTHP and a part of a 1 GiB page are entries of one map. Nearly every slot
//! has one order throughout, so that case is stored in place.

use crate::geometry::Order;
use crate::units::BasePages;
use serde::{Deserialize, Serialize};

/// Base pages present in a slot, by the order they are mapped at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Backing(Form);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum Form {
    #[default]
    Empty,
    Uniform(Order, u32),
    /// Sorted by order, at least two entries, none of zero pages.
    #[expect(
        clippy::box_collection,
        reason = "one word, not three: nearly all slots are uniform"
    )]
    Mixed(Box<Vec<(Order, u32)>>),
}

impl Backing {
    /// Nothing present.
    pub const EMPTY: Self = Self(Form::Empty);

    /// `pages` base pages, all mapped at `order`.
    #[must_use]
    pub fn uniform(order: Order, pages: BasePages) -> Self {
        Self::from_entries([(order, pages)])
    }

    /// From any number of (order, base pages); entries of one order add up.
    ///
    /// # Panics
    /// If a slot would hold more than `u32::MAX` base pages.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = (Order, BasePages)>) -> Self {
        let mut sorted: Vec<(Order, u32)> = Vec::new();
        for (order, pages) in entries {
            let pages = u32::try_from(pages.0).expect("a slot holds fewer than 2^32 base pages");
            match sorted.binary_search_by_key(&order, |entry| entry.0) {
                Ok(at) => sorted[at].1 += pages,
                Err(at) => sorted.insert(at, (order, pages)),
            }
        }
        sorted.retain(|entry| entry.1 > 0);
        Self(match sorted.as_slice() {
            [] => Form::Empty,
            [(order, pages)] => Form::Uniform(*order, *pages),
            _ => Form::Mixed(Box::new(sorted)),
        })
    }

    /// The entries in rising order, none of zero pages.
    pub fn entries(&self) -> impl Iterator<Item = (Order, BasePages)> + '_ {
        let one = match &self.0 {
            Form::Uniform(order, pages) => Some((*order, *pages)),
            Form::Empty | Form::Mixed(_) => None,
        };
        let many: &[(Order, u32)] = match &self.0 {
            Form::Mixed(entries) => entries,
            Form::Empty | Form::Uniform(..) => &[],
        };
        one.into_iter()
            .chain(many.iter().copied())
            .map(|(order, pages)| (order, BasePages(u64::from(pages))))
    }

    /// Base pages present, whatever maps them.
    #[must_use]
    pub fn present(&self) -> BasePages {
        self.entries().map(|(_, pages)| pages).sum()
    }

    /// Base pages mapped at exactly `order`.
    #[must_use]
    pub fn at(&self, order: Order) -> BasePages {
        self.entries()
            .find(|entry| entry.0 == order)
            .map_or(BasePages::ZERO, |entry| entry.1)
    }

    /// Base pages mapped at `order` or above.
    #[must_use]
    pub fn at_least(&self, order: Order) -> BasePages {
        self.entries()
            .filter(|entry| entry.0 >= order)
            .map(|entry| entry.1)
            .sum()
    }

    /// Is all that is present mapped at `slot_order` or above, and something present?
    #[must_use]
    pub fn is_huge(&self, slot_order: Order) -> bool {
        let huge = self.at_least(slot_order);
        huge > BasePages::ZERO && huge == self.present()
    }
}

impl Serialize for Backing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

impl<'de> Deserialize<'de> for Backing {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<(Order, BasePages)>::deserialize(deserializer).map(Self::from_entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_two_words() {
        assert!(size_of::<Backing>() <= 16);
    }

    #[test]
    fn equal_contents_are_equal_whatever_their_history() {
        let split = Backing::from_entries([
            (Order(0), BasePages(3)),
            (Order(4), BasePages(0)),
            (Order(0), BasePages(2)),
        ]);
        assert_eq!(split, Backing::uniform(Order(0), BasePages(5)));
    }

    #[test]
    fn a_mixture_keeps_every_order() {
        let mixed = Backing::from_entries([
            (Order(4), BasePages(32)),
            (Order(0), BasePages(7)),
            (Order(2), BasePages(8)),
        ]);
        assert_eq!(mixed.present(), BasePages(47));
        assert_eq!(mixed.at(Order(4)), BasePages(32));
        assert_eq!(mixed.at_least(Order(2)), BasePages(40));
        assert!(!mixed.is_huge(Order(9)));
        let text = serde_json::to_string(&mixed).expect("plain data");
        assert_eq!(text, "[[0,7],[2,8],[4,32]]");
        assert_eq!(
            serde_json::from_str::<Backing>(&text).expect("round trip"),
            mixed
        );
    }

    #[test]
    fn a_part_of_a_giant_page_is_huge() {
        assert!(Backing::uniform(Order(18), BasePages(512)).is_huge(Order(9)));
        assert!(!Backing::EMPTY.is_huge(Order(9)));
    }
}
