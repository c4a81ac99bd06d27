//! Decides whether the candidate is close enough to the primary for the write pause to begin. During the
//! pause, the candidate must execute the transactions that it lacks when writes stop.

/// If the lag of the candidate is at most this many milliseconds, the pause may begin at once. Pausing writes
/// takes longer than such a lag.
const NEAR_MS: u64 = 10;

/// The number of rounds after which further waiting would not help.
const ROUNDS_MAX: u32 = 20;

/// Measures, in each round, how long the candidate took to execute what the primary had executed at the start
/// of the round.
#[derive(Debug, Clone, Default)]
pub(super) struct CatchUpProgress {
    rounds: u32,
    began_ms: u64,
    behind_ms: u64,
}

/// What follows a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CatchUpVerdict {
    /// The candidate is close enough: the pause may begin.
    Near,
    NextRound,
    /// The candidate does not catch up with the primary.
    TooFarBehind {
        /// Lag of the candidate, in milliseconds.
        behind_ms: u64,
    },
}

impl CatchUpProgress {
    /// Records the start of a round.
    pub(super) fn begins(&mut self, at_ms: u64) {
        self.began_ms = at_ms;
    }

    /// Records the end of a round.
    pub(super) fn ends(&mut self, at_ms: u64) {
        self.rounds += 1;
        self.behind_ms = at_ms.saturating_sub(self.began_ms);
    }

    /// Decides what follows the round. In the last round a lag of a quarter of the pause is close enough:
    /// another quarter is for pausing writes, and half for everything else.
    pub(super) fn verdict(&self, write_pause_ms_max: u64) -> CatchUpVerdict {
        match self.behind_ms {
            behind_ms if behind_ms <= NEAR_MS.min(write_pause_ms_max / 4) => CatchUpVerdict::Near,
            _ if self.rounds < ROUNDS_MAX => CatchUpVerdict::NextRound,
            behind_ms if behind_ms <= write_pause_ms_max / 4 => CatchUpVerdict::Near,
            behind_ms => CatchUpVerdict::TooFarBehind { behind_ms },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_that_catches_up_is_waited_for_and_one_that_does_not_is_rejected() {
        let after = |rounds: u32, took_ms: u64| {
            let mut catch_up = CatchUpProgress::default();
            for round in 0..u64::from(rounds) {
                catch_up.begins(round * 1000);
                catch_up.ends(round * 1000 + took_ms);
            }
            catch_up.verdict(1000)
        };
        assert_eq!(after(1, NEAR_MS), CatchUpVerdict::Near);
        assert_eq!(after(1, NEAR_MS + 1), CatchUpVerdict::NextRound);
        assert_eq!(after(ROUNDS_MAX - 1, 250), CatchUpVerdict::NextRound);
        assert_eq!(after(ROUNDS_MAX, 250), CatchUpVerdict::Near);
        assert_eq!(after(ROUNDS_MAX, 251), CatchUpVerdict::TooFarBehind { behind_ms: 251 });
        let mut narrow = CatchUpProgress::default();
        narrow.ends(3);
        assert_eq!(narrow.verdict(8), CatchUpVerdict::NextRound);
    }
}
