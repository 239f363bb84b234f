//! Whose turn it is: where a policy's proposals begin.
//!
//! A policy proposes at most [`WISHES_MAX`] actions, the best first, and does not know the laws. If the laws hold all of
//! them back (a parent with a living forked child has thousands), the same ones would come again, and nobody else's. So
//! after a full list of which not one was carried out, the next begins behind it; after any other, at the front again.

use super::WISHES_MAX;

/// Where the next proposals begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    skip: usize,
    full: bool,
    answered: bool,
}

impl Turn {
    /// Takes the proposals of this tick from all that there are, the best first.
    pub fn take<T>(&mut self, all: impl Iterator<Item = T>) -> Vec<T> {
        self.skip = if self.full && !self.answered {
            self.skip + WISHES_MAX
        } else {
            0
        };
        let taken: Vec<T> = all.skip(self.skip).take(WISHES_MAX).collect();
        self.full = taken.len() == WISHES_MAX;
        self.answered = false;
        taken
    }

    /// One of them was carried out.
    pub const fn answered(&mut self) {
        self.answered = true;
    }

    /// How many are passed over, for the policy's state.
    #[must_use]
    pub const fn skipped(&self) -> usize {
        self.skip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_held_back_makes_way() {
        let all = WISHES_MAX + 10;
        let mut turn = Turn::default();
        assert_eq!(turn.take(0..all).first(), Some(&0));
        assert_eq!(turn.take(0..all).first(), Some(&WISHES_MAX));
        assert_eq!(
            turn.take(0..all).first(),
            Some(&0),
            "the rest was not full: from the front"
        );
    }

    #[test]
    fn while_something_is_done_the_best_stay_first() {
        let mut turn = Turn::default();
        for _ in 0..3 {
            assert_eq!(turn.take(0..WISHES_MAX * 2).first(), Some(&0));
            turn.answered();
        }
    }
}
