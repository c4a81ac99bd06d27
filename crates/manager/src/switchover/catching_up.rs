//! Whether the candidate is near enough for the pause to begin: what it lacks when writes are held it executes while nobody can
//! write.

/// So near is near enough at once: less than holding the writes takes, in milliseconds.
const NEAR_MS: u64 = 10;

/// After so many rounds it does not come nearer by waiting.
const ROUNDS_MAX: u32 = 20;

/// How long the candidate took, round by round, to execute what the primary had executed when the round began.
#[derive(Debug, Clone, Default)]
pub(super) struct CatchingUp {
    rounds: u32,
    began_ms: u64,
    behind_ms: u64,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pause may begin.
    Near,
    /// Another round.
    Again,
    /// It does not come near.
    TooFar {
        /// As far as this.
        behind_ms: u64,
    },
}

impl CatchingUp {
    /// It is waited for from now on.
    pub(super) fn begins(&mut self, at_ms: u64) {
        self.began_ms = at_ms;
    }

    /// It is there.
    pub(super) fn ends(&mut self, at_ms: u64) {
        self.rounds += 1;
        self.behind_ms = at_ms.saturating_sub(self.began_ms);
    }

    /// In the end a quarter of the pause will do: there is as much for holding the writes, and the rest for all else.
    pub(super) fn verdict(&self, write_pause_ms_max: u64) -> Verdict {
        match self.behind_ms {
            behind_ms if behind_ms <= NEAR_MS.min(write_pause_ms_max / 4) => Verdict::Near,
            _ if self.rounds < ROUNDS_MAX => Verdict::Again,
            behind_ms if behind_ms <= write_pause_ms_max / 4 => Verdict::Near,
            behind_ms => Verdict::TooFar { behind_ms },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_a_candidate_that_comes_near_and_gives_up_on_one_that_does_not() {
        let after = |rounds: u32, took_ms: u64| {
            let mut catching_up = CatchingUp::default();
            for round in 0..u64::from(rounds) {
                catching_up.begins(round * 1000);
                catching_up.ends(round * 1000 + took_ms);
            }
            catching_up.verdict(1000)
        };
        assert_eq!(after(1, NEAR_MS), Verdict::Near);
        assert_eq!(after(1, NEAR_MS + 1), Verdict::Again);
        assert_eq!(after(ROUNDS_MAX - 1, 250), Verdict::Again);
        assert_eq!(after(ROUNDS_MAX, 250), Verdict::Near);
        assert_eq!(after(ROUNDS_MAX, 251), Verdict::TooFar { behind_ms: 251 });
        let mut narrow = CatchingUp::default();
        narrow.ends(3);
        assert_eq!(narrow.verdict(8), Verdict::Again);
    }
}
