//! How far a chunk reaches where keys are sparse: a search over the optimizer's estimates, which look at a few pages and not
//! at rows.

/// Doubling from 1 past every 64-bit key, and halving back.
const TRIES_MAX: u32 = 160;

/// A search for how many keys, present or not, hold about as many rows as wanted.
#[derive(Debug, Clone)]
pub(super) struct WidthSearch {
    /// How many rows are wanted.
    rows: u64,
    /// How many keys are tried now.
    width: u128,
    /// The most keys that are known to hold too few rows.
    too_few: u128,
    /// The fewest keys that are known to hold too many.
    too_many: Option<u128>,
    /// How many keys there are.
    rest: u128,
    tries: u32,
}

impl WidthSearch {
    /// Begins with a guess, among `rest` keys.
    pub(super) fn new(rows: u64, guess: u128, rest: u128) -> Self {
        let rest = rest.max(1);
        Self { rows, width: guess.clamp(1, rest), too_few: 0, too_many: None, rest, tries: 0 }
    }

    /// How many keys to have estimated.
    pub(super) fn width(&self) -> u128 {
        self.width
    }

    /// Takes in an estimate of the rows among [`WidthSearch::width`] keys; gives the number of keys when it is found.
    pub(super) fn estimated(&mut self, estimate: u64) -> Option<u128> {
        self.tries += 1;
        // Where there is nothing, servers estimate 1.
        let few = estimate <= 1 || estimate.saturating_mul(2) < self.rows;
        let many = !few && estimate > self.rows.saturating_mul(2);
        if (few && self.width == self.rest) || (!few && !many) || self.tries >= TRIES_MAX {
            return Some(self.width);
        }
        if few {
            self.too_few = self.width;
        } else {
            self.too_many = Some(self.width);
        }
        let next = match self.too_many {
            None => self.width.saturating_mul(2).min(self.rest),
            Some(too_many) => self.too_few + (too_many - self.too_few.min(too_many)) / 2,
        };
        if next == self.too_few || Some(next) == self.too_many {
            return Some(next.max(1));
        }
        self.width = next;
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gap_is_crossed_in_few_questions() {
        let mut search = WidthSearch::new(1000, 1, 1 << 64);
        let mut asked = 0;
        let found = loop {
            asked += 1;
            // Nothing up to 2^40, then one row for each key.
            let rows = search.width().saturating_sub(1 << 40).max(1);
            if let Some(found) = search.estimated(u64::try_from(rows).unwrap_or(u64::MAX)) {
                break found;
            }
        };
        assert!(found > 1 << 40 && found <= (1 << 40) + 2000, "{found}");
        assert!(asked < 80, "{asked}");
    }

    proptest! {
        #[test]
        fn it_ends_within_the_rest_whatever_it_is_told(
            rows in 1u64.., guess: u128, rest: u64, estimates in prop::collection::vec(any::<u64>(), 1..50),
        ) {
            let rest = u128::from(rest.max(1));
            let mut search = WidthSearch::new(rows, guess, rest);
            let mut told = estimates.iter().cycle();
            let mut asked = 0;
            loop {
                prop_assert!((1..=rest).contains(&search.width()));
                asked += 1;
                if let Some(found) = search.estimated(*told.next().unwrap()) {
                    prop_assert!((1..=rest).contains(&found));
                    break;
                }
                prop_assert!(asked <= TRIES_MAX);
            }
        }
    }
}
