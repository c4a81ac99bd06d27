//! Decides whether a row really differs while both sides may change. It uses versions of the row that were
//! read one after the other without locks.
//!
//! Each round reads the source's version of the row, then the source's position. When the target has reached
//! that position, the round reads the target's version, and then the source's version again. If both source
//! versions are equal, the row had that version all the time, unless it changed and changed back. Then the
//! target's version, which was read in between, must be equal as well.
//!
//! One round is not enough: a server may show a version before its position includes it, and rows may change
//! back.

/// The number of consecutive rounds in which the same two versions must differ before the row counts as
/// different.
const SAME_ROUNDS_MIN: u32 = 3;

/// Maximum number of rounds in which a row is read. After that many rounds the row is undecided.
pub const ROUNDS_MAX: u32 = 15;

/// A version of a row: its values, or `None` if the row does not exist.
pub type RowVersion = Option<Vec<Option<Vec<u8>>>>;

/// The result of comparing a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowVerdict {
    /// The row is the same on both sides.
    Equal,
    /// The row differs.
    Differs {
        /// The version on the source.
        source: RowVersion,
        /// The version on the target.
        target: RowVersion,
    },
    /// It is not known yet whether the row differs: read it in another round.
    Again,
    /// The row changed too often to decide.
    Undecided,
}

/// The state of comparing one row in several rounds.
#[derive(Debug, Clone, Default)]
pub struct RowTrial {
    rounds: u32,
    /// Number of consecutive rounds in which the same two versions differed.
    same_rounds: u32,
    last: Option<(RowVersion, RowVersion)>,
}

impl RowTrial {
    /// Adds the versions of one round: the source's first version, the target's version, and the source's
    /// second version. `same` compares a version of the source with one of the target.
    pub fn round(
        &mut self,
        before: RowVersion,
        target: RowVersion,
        after: &RowVersion,
        same: impl Fn(&RowVersion, &RowVersion) -> bool,
    ) -> RowVerdict {
        self.rounds += 1;
        if same(&before, &target) || same(after, &target) {
            return RowVerdict::Equal;
        }
        if before != *after {
            self.same_rounds = 0;
            self.last = None;
        } else {
            let seen = Some((before, target));
            self.same_rounds = if self.last == seen { self.same_rounds + 1 } else { 1 };
            self.last = seen;
        }
        if self.same_rounds >= SAME_ROUNDS_MIN {
            return match self.last.take() {
                Some((source, target)) => RowVerdict::Differs { source, target },
                None => RowVerdict::Again,
            };
        }
        if self.rounds >= ROUNDS_MAX { RowVerdict::Undecided } else { RowVerdict::Again }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(value: u8) -> RowVersion {
        (value != 0).then(|| vec![Some(vec![value])])
    }

    fn is_same(one: &RowVersion, other: &RowVersion) -> bool {
        one == other
    }

    fn round(trial: &mut RowTrial, values: [u8; 3]) -> RowVerdict {
        let [before, target, after] = values.map(version);
        trial.round(before, target, &after, is_same)
    }

    #[test]
    fn only_a_difference_in_several_rounds_counts() {
        let mut trial = RowTrial::default();
        assert_eq!(round(&mut trial, [1, 2, 1]), RowVerdict::Again);
        assert_eq!(round(&mut trial, [1, 2, 1]), RowVerdict::Again);
        assert_eq!(
            round(&mut trial, [1, 2, 1]),
            RowVerdict::Differs { source: version(1), target: version(2) }
        );
        let mut trial = RowTrial::default();
        for values in [[1, 2, 1], [1, 2, 1], [1, 3, 1], [1, 3, 1], [1, 3, 2], [0, 3, 0], [0, 3, 0]] {
            assert_eq!(
                round(&mut trial, values),
                RowVerdict::Again,
                "a row counts as different too early: {values:?}"
            );
        }
        assert_eq!(round(&mut trial, [3, 4, 4]), RowVerdict::Equal);
    }

    #[test]
    fn a_row_that_always_changes_is_undecided() {
        let mut trial = RowTrial::default();
        for _ in 1..ROUNDS_MAX {
            assert_eq!(round(&mut trial, [1, 9, 2]), RowVerdict::Again);
        }
        assert_eq!(round(&mut trial, [1, 9, 2]), RowVerdict::Undecided);
    }

    proptest! {
        /// A target that applies the source's changes in order is never reported as different, whatever its
        /// lag and speed are. This requires that no version of a row occurs twice.
        #[test]
        fn a_target_that_applies_changes_in_order_never_differs(
            steps in prop::collection::vec((0..3u16, 0..4u16, 0..3u16), 1..40),
        ) {
            let (mut trial, mut source, mut applied) = (RowTrial::default(), 0u16, 0u16);
            for (during, lag, later) in steps {
                let before = source;
                source += during;
                // When the target is read, it has at least the changes that the source had at the first read,
                // and at most the changes that the source has now.
                applied = applied.max(before).max(source.saturating_sub(lag));
                let target = applied;
                source += later;
                let of = |value: u16| Some(vec![Some(value.to_be_bytes().to_vec())]);
                let verdict = trial.round(of(before), of(target), &of(source), is_same);
                let differs = matches!(verdict, RowVerdict::Differs { .. });
                prop_assert!(!differs);
                if verdict == RowVerdict::Equal {
                    trial = RowTrial::default();
                }
            }
        }
    }
}
