//! A workload's name as an argument, with what it does as its help.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use hugepilot_bench::numa::Name;

/// A name that somebody typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenName(pub Name);

const ALL: [ChosenName; Name::ALL.len()] = {
    let mut all = [ChosenName(Name::FirstTouch); Name::ALL.len()];
    let mut place = 0;
    while place < all.len() {
        all[place] = ChosenName(Name::ALL[place]);
        place += 1;
    }
    all
};

impl ValueEnum for ChosenName {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()).help(self.0.about()))
    }
}
