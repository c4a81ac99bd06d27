//! Whether a row really differs, while both sides may change: told from versions of it that were read one after the other,
//! without locks.
//!
//! In each round the source's version is read, then the source's position; when the target has that position, the target's
//! version; and then the source's again. If the source's two are equal, the row was that version all the time, unless it
//! changed and changed back; then so must be the target's, which was between the two. That a version can be seen on a server
//! before the position holds it, and rows that change back, are why one round is not believed.

/// How often in a row the same versions must differ.
const STRIKES: u32 = 3;

/// How often a row is asked for before it is given up.
pub const ROUNDS_MAX: u32 = 15;

/// A row's version: its values, or that there is no row.
pub type RowVersion = Option<Vec<Option<Vec<u8>>>>;

/// What is known of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowVerdict {
    /// It is the same on both sides.
    Equal,
    /// It is not.
    Differs {
        /// On the source.
        source: RowVersion,
        /// On the target.
        target: RowVersion,
    },
    /// Not known yet: ask again.
    Again,
    /// It changed too often to know.
    Undecided,
}

/// The trial of one row.
#[derive(Debug, Clone, Default)]
pub struct RowTrial {
    rounds: u32,
    strikes: u32,
    last: Option<(RowVersion, RowVersion)>,
}

impl RowTrial {
    /// Takes in a round: what the source had before, the target, and the source after. `same` says whether versions of source
    /// and target are the same.
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
    fn only_a_difference_that_stays_is_one() {
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
    fn what_always_changes_is_given_up() {
        let mut trial = RowTrial::default();
        for _ in 1..ROUNDS_MAX {
            assert_eq!(round(&mut trial, [1, 9, 2]), RowVerdict::Again);
        }
        assert_eq!(round(&mut trial, [1, 9, 2]), RowVerdict::Undecided);
    }

    proptest! {
        /// A target that applies the source's history in order, however late and fast, is never found to differ, if versions
        /// do not come back.
        #[test]
        fn a_target_in_step_never_differs(steps in prop::collection::vec((0..3u16, 0..4u16, 0..3u16), 1..40)) {
            let (mut trial, mut source, mut applied) = (RowTrial::default(), 0u16, 0u16);
            for (during, behind, later) in steps {
                let before = source;
                source += during;
                // It has at least what the source had, and at most what the source has.
                applied = applied.max(before).max(source.saturating_sub(behind));
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
