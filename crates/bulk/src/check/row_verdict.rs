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
pub type Version = Option<Vec<Option<Vec<u8>>>>;

/// What is known of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the same on both sides.
    Equal,
    /// It is not.
    Differs {
        /// On the source.
        source: Version,
        /// On the target.
        target: Version,
    },
    /// Not known yet: ask again.
    Again,
    /// It changed too often to know.
    Undecided,
}

/// The trial of one row.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    rounds: u32,
    strikes: u32,
    last: Option<(Version, Version)>,
}

impl Trial {
    /// Takes in a round: what the source had before, the target, and the source after. `same` says whether versions of source
    /// and target are the same.
    pub fn round(
        &mut self,
        before: Version,
        target: Version,
        after: &Version,
        same: impl Fn(&Version, &Version) -> bool,
    ) -> Verdict {
        self.rounds += 1;
        if same(&before, &target) || same(after, &target) {
            return Verdict::Equal;
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
                Some((source, target)) => Verdict::Differs { source, target },
                None => Verdict::Again,
            };
        }
        if self.rounds >= ROUNDS_MAX { Verdict::Undecided } else { Verdict::Again }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(value: u8) -> Version {
        (value != 0).then(|| vec![Some(vec![value])])
    }

    fn is_same(one: &Version, other: &Version) -> bool {
        one == other
    }

    fn round(trial: &mut Trial, values: [u8; 3]) -> Verdict {
        let [before, target, after] = values.map(version);
        trial.round(before, target, &after, is_same)
    }

    #[test]
    fn only_a_difference_that_stays_is_one() {
        let mut trial = Trial::default();
        assert_eq!(round(&mut trial, [1, 2, 1]), Verdict::Again);
        assert_eq!(round(&mut trial, [1, 2, 1]), Verdict::Again);
        assert_eq!(round(&mut trial, [1, 2, 1]), Verdict::Differs { source: version(1), target: version(2) });
        let mut trial = Trial::default();
        for values in [[1, 2, 1], [1, 2, 1], [1, 3, 1], [1, 3, 1], [1, 3, 2], [0, 3, 0], [0, 3, 0]] {
            assert_eq!(round(&mut trial, values), Verdict::Again, "{values:?}");
        }
        assert_eq!(round(&mut trial, [3, 4, 4]), Verdict::Equal);
    }

    #[test]
    fn what_always_changes_is_given_up() {
        let mut trial = Trial::default();
        for _ in 1..ROUNDS_MAX {
            assert_eq!(round(&mut trial, [1, 9, 2]), Verdict::Again);
        }
        assert_eq!(round(&mut trial, [1, 9, 2]), Verdict::Undecided);
    }

    proptest! {
        /// A target that applies the source's history in order, however late and fast, is never found to differ, if versions
        /// do not come back.
        #[test]
        fn a_target_in_step_never_differs(steps in prop::collection::vec((0..3u16, 0..4u16, 0..3u16), 1..40)) {
            let (mut trial, mut source, mut applied) = (Trial::default(), 0u16, 0u16);
            for (during, behind, later) in steps {
                let before = source;
                source += during;
                // It has at least what the source had, and at most what the source has.
                applied = applied.max(before).max(source.saturating_sub(behind));
                let target = applied;
                source += later;
                let of = |value: u16| Some(vec![Some(value.to_be_bytes().to_vec())]);
                let verdict = trial.round(of(before), of(target), &of(source), is_same);
                let differs = matches!(verdict, Verdict::Differs { .. });
                prop_assert!(!differs);
                if verdict == Verdict::Equal {
                    trial = Trial::default();
                }
            }
        }
    }
}
