//! Finds how wide a range must be where keys are sparse. The search uses the optimizer's estimates, for which
//! the server reads a few index pages and no rows.

/// Maximum number of estimates. It is enough to double the width from 1 to more than all 64-bit keys, and to
/// halve it back.
const TRIES_MAX: u32 = 160;

/// A search for the width of a key range that contains about the wanted number of rows. The width is the
/// number of possible key values in the range, whether or not a row has them.
#[derive(Debug, Clone)]
pub(super) struct WidthSearch {
    /// The wanted number of rows.
    rows: u64,
    /// The width that is estimated next, in key values.
    width: u128,
    /// The largest width that is known to contain too few rows.
    too_few: u128,
    /// The smallest width that is known to contain too many rows.
    too_many: Option<u128>,
    /// The number of key values from the start of the range to the highest key.
    rest: u128,
    tries: u32,
}

impl WidthSearch {
    /// Starts a search with a guess of the width, among `rest` key values.
    pub(super) fn new(rows: u64, guess: u128, rest: u128) -> Self {
        let rest = rest.max(1);
        Self { rows, width: guess.clamp(1, rest), too_few: 0, too_many: None, rest, tries: 0 }
    }

    /// Returns the width to estimate next, in key values.
    pub(super) fn width(&self) -> u128 {
        self.width
    }

    /// Takes the estimated number of rows in [`WidthSearch::width`] key values. Returns the width once the
    /// search has found it.
    pub(super) fn estimated(&mut self, estimate: u64) -> Option<u128> {
        self.tries += 1;
        // Servers estimate 1 row for an empty range.
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
    fn a_gap_is_crossed_with_few_estimates() {
        let mut search = WidthSearch::new(1000, 1, 1 << 64);
        let mut asked = 0;
        let found = loop {
            asked += 1;
            // A table without rows up to the key 2^40, and then with one row per key value.
            let rows = search.width().saturating_sub(1 << 40).max(1);
            if let Some(found) = search.estimated(u64::try_from(rows).unwrap_or(u64::MAX)) {
                break found;
            }
        };
        assert!(
            found > 1 << 40 && found <= (1 << 40) + 2000,
            "a range of width {found} does not have about 1000 rows"
        );
        assert!(asked < 80, "the search needed {asked} estimates, which is too many");
    }

    proptest! {
        #[test]
        fn the_search_ends_with_any_estimates(
            rows in 1u64.., guess: u128, rest: u64, estimates in prop::collection::vec(any::<u64>(), 1..50),
        ) {
            let rest = u128::from(rest.max(1));
            let mut search = WidthSearch::new(rows, guess, rest);
            let mut answers = estimates.iter().cycle();
            let mut asked = 0;
            loop {
                prop_assert!((1..=rest).contains(&search.width()));
                asked += 1;
                if let Some(found) = search.estimated(*answers.next().unwrap()) {
                    prop_assert!((1..=rest).contains(&found));
                    break;
                }
                prop_assert!(asked <= TRIES_MAX);
            }
        }
    }
}
