//! The time on the source's clock. The source writes this time into its events.
//!
//! A replica queries its source's time once, when it connects. From then on it computes
//! `Seconds_Behind_Source` as the age of each event minus the difference between the two clocks. The binlog
//! server must not answer with this machine's time: the clock of this machine may differ from the source's
//! clock, and an operator may set it later. The replica would then show a wrong lag until it connects again.
//! So the capture queries the source's time. Between two queries, it adds the time of a monotonic clock.

/// The smallest jump of the source's clock that is reported, in microseconds. If the source's answer differs
/// from the predicted time by more than this, clients must query the time again. A clock that a time daemon
/// adjusts slowly (slewing) moves far less between two checks.
const STEP_MIN_US: i64 = 1_000_000;

/// An estimate of the source's clock. All times are in microseconds. The source's times count from 1970, the
/// times of the monotonic clock from any fixed moment.
#[derive(Debug, Clone, Copy)]
pub struct SourceClock {
    /// The source's time minus the time of the monotonic clock.
    offset_us: i64,
}

impl SourceClock {
    /// Starts with this machine's clock, which is used until the source has answered.
    pub fn from_local_clock(wall_us: i64, monotonic_us: i64) -> Self {
        Self { offset_us: wall_us.saturating_sub(monotonic_us) }
    }

    /// The current time on the source's clock.
    pub fn now_us(&self, monotonic_us: i64) -> i64 {
        self.offset_us.saturating_add(monotonic_us)
    }

    /// Records the source's answer `source_us`. The source read its clock at some moment between the query
    /// and the answer. If the answer differs so much from the prediction that clients must query the time
    /// again, returns the answer minus the prediction.
    pub fn observe(&mut self, source_us: i64, asked_us: i64, answered_us: i64) -> Option<i64> {
        let least = source_us.saturating_sub(asked_us.max(answered_us));
        let most = source_us.saturating_sub(asked_us.min(answered_us));
        let nearest = self.offset_us.clamp(least, most);
        let error_us = nearest.saturating_sub(self.offset_us);
        // The prediction drifts slowly from the source's clock. Correct the prediction without reporting a
        // step.
        self.offset_us = nearest;
        (error_us.saturating_abs() > STEP_MIN_US).then_some(error_us)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const NOON: i64 = 1_709_208_000 * SECOND;

    #[test]
    fn a_wrong_local_clock_is_corrected() {
        for error in [20 * SECOND, -20 * SECOND, 3_600 * SECOND] {
            let mut clock = SourceClock::from_local_clock(NOON + error, 0);
            assert_eq!(clock.now_us(SECOND), NOON + error + SECOND);
            assert_eq!(clock.observe(NOON + SECOND, SECOND, SECOND), Some(-error));
            assert_eq!(clock.now_us(2 * SECOND), NOON + 2 * SECOND);
            // The jump is reported only once.
            assert_eq!(clock.observe(NOON + 3 * SECOND, 3 * SECOND, 3 * SECOND), None);
        }
        let mut clock = SourceClock::from_local_clock(NOON + SECOND, 0);
        assert_eq!(clock.observe(NOON, 0, 0), None);
        assert_eq!(clock.now_us(0), NOON);
    }

    #[test]
    fn a_slow_answer_proves_only_a_range() {
        let mut clock = SourceClock::from_local_clock(NOON, 0);
        // The answer took an hour. Whether the source read its clock at the start or the end of that hour,
        // its answer fits the prediction.
        assert_eq!(clock.observe(NOON, 0, 3_600 * SECOND), None);
        assert_eq!(clock.observe(NOON + 7_200 * SECOND, 3_600 * SECOND, 7_200 * SECOND), None);
        assert_eq!(clock.now_us(0), NOON);
        // If the answer is more than an hour off, it does not fit the prediction, whenever the source read
        // its clock.
        assert_eq!(
            clock.observe(NOON + 20_000 * SECOND, 9_000 * SECOND, 12_600 * SECOND),
            Some(7_400 * SECOND)
        );
    }

    #[test]
    fn the_source_clock_is_correct_after_this_machine_slept() {
        let mut clock = SourceClock::from_local_clock(NOON, 0);
        // This machine slept for a minute, in which the monotonic clock stopped.
        assert_eq!(clock.observe(NOON + 61 * SECOND, SECOND, SECOND), Some(60 * SECOND));
        assert_eq!(clock.now_us(SECOND), NOON + 61 * SECOND);
    }

    proptest! {
        /// The source's clock drifts, or a time daemon changes its speed by at most one twelfth. The
        /// prediction follows without reporting a step. Its error is at most the time that an answer took.
        #[test]
        fn a_slewed_source_clock_is_followed(
            per_million in -83_333i64..=83_333,
            looks in proptest::collection::vec((1..5 * SECOND, 0..SECOND / 4, 0.0..=1.0), 1..60),
        ) {
            let source = |steady: i64| NOON + steady + steady * per_million / 1_000_000;
            let mut clock = SourceClock::from_local_clock(NOON, 0);
            let mut steady = 0;
            for (pause, took, when) in looks {
                let asked = steady + pause;
                let read = asked + (took as f64 * when) as i64;
                prop_assert_eq!(clock.observe(source(read), asked, asked + took), None);
                let wrong = clock.now_us(read) - source(read);
                prop_assert!(
                    wrong.abs() <= took,
                    "the prediction is wrong by {} us, but the answer took only {} us",
                    wrong,
                    took
                );
                steady = asked + took;
            }
        }

        /// After any answer of the source, the next prediction is consistent with this answer.
        #[test]
        fn the_prediction_fits_the_last_answer(
            wall in 0..4_000 * 1_000_000 * SECOND,
            looks: Vec<(u32, u32, u32)>,
        ) {
            let mut clock = SourceClock::from_local_clock(wall, 0);
            for (source, asked, took) in looks {
                let (source, asked) = (i64::from(source) * 1_000_000, i64::from(asked) * 1_000);
                let answered = asked + i64::from(took);
                let before = clock.now_us(answered);
                let stepped = clock.observe(source, asked, answered);
                let now = clock.now_us(answered);
                prop_assert!((source..=source + i64::from(took)).contains(&now));
                prop_assert_eq!(stepped, Some(now - before).filter(|us| us.abs() > SECOND));
            }
        }

        /// Times that cannot occur in reality cause no panic.
        #[test]
        fn impossible_times_cause_no_panic(wall: i64, steady: i64, source: i64, asked: i64, answered: i64) {
            let mut clock = SourceClock::from_local_clock(wall, steady);
            let _ = (clock.observe(source, asked, answered), clock.now_us(answered));
        }
    }
}
