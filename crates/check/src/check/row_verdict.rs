//! Decides whether a row really differs while both sides may change, from versions that are read one after
//! the other without locks.
//!
//! Each round reads the source's version, then the source's position. When the target has reached that
//! position, it reads the target's version, and then the source's again. If both source versions are equal,
//! the row had that version all the time, unless it changed and changed back. Then the target's version, read
//! in between, must be equal as well. One round is not enough: a server may show a version before its
//! position includes it, and rows may change back.

/// How many times in a row the same versions must differ.
const STRIKES: u32 = 3;

/// How often a row is read before the comparison gives up.
pub const ROUNDS_MAX: u32 = 15;

/// A version of a row: its values, or `None` if the row does not exist.
pub type RowVersion = Option<Vec<Option<Vec<u8>>>>;

/// The result for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowVerdict {
    /// It is the same on both sides.
    Equal,
    /// It differs.
    Differs {
        /// On the source.
        source: RowVersion,
        /// On the target.
        target: RowVersion,
    },
    /// Not known yet: run another round.
    Again,
    /// It changed too often to decide.
    Undecided,
}

/// The rounds of one row.
#[derive(Debug, Clone, Default)]
pub struct RowTrial {
    rounds: u32,
    strikes: u32,
    last: Option<(RowVersion, RowVersion)>,
}

impl RowTrial {
    /// Takes the versions of a round: the source before, the target, and the source after. `same` compares
    /// versions of source and target.
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
            self.strikes = 0;
            self.last = None;
        } else {
            let seen = Some((before, target));
            self.strikes = if self.last == seen { self.strikes + 1 } else { 1 };
            self.last = seen;
        }
        if self.strikes >= STRIKES {
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
    fn only_a_lasting_difference_counts() {
        let mut trial = RowTrial::default();
        assert_eq!(round(&mut trial, [1, 2, 1]), RowVerdict::Again);
        assert_eq!(round(&mut trial, [1, 2, 1]), RowVerdict::Again);
        assert_eq!(
            round(&mut trial, [1, 2, 1]),
            RowVerdict::Differs { source: version(1), target: version(2) }
        );
        let mut trial = RowTrial::default();
        for values in [[1, 2, 1], [1, 2, 1], [1, 3, 1], [1, 3, 1], [1, 3, 2], [0, 3, 0], [0, 3, 0]] {
            assert_eq!(round(&mut trial, values), RowVerdict::Again, "{values:?}");
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
        /// A target that applies the source's history in order, however late and fast, never differs, if
        /// versions do not recur.
        #[test]
        fn a_replicating_target_never_differs(steps in prop::collection::vec((0..3u16, 0..4u16, 0..3u16), 1..40)) {
            let (mut trial, mut source, mut applied) = (RowTrial::default(), 0u16, 0u16);
            for (during, lag, later) in steps {
                let before = source;
                source += during;
                // It has at least what the source had, and at most what the source has.
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
