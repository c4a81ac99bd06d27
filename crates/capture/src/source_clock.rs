//! The time on the source's clock, which stamps its events.
//!
//! A replica queries its source's time once, when it connects. From then on it subtracts the difference of
//! their clocks from the age of each event: that is its `Seconds_Behind_Source`. This machine's clock would
//! be a wrong answer: it may differ from the source's, and it may be set later. The replica would then show
//! a lag that it does not have, or hide one that it has, until it connects again. The capture therefore
//! queries the source's time, and a monotonic clock advances it.

/// If the source's answer differs from the predicted time by more than this, in microseconds, the prediction
/// was wrong. A clock that is slewed moves far less between two checks.
const STEP_MIN_US: i64 = 1_000_000;

/// The source's clock, as far as it is known. All times are in microseconds: the source's since 1970, the
/// monotonic clock's since any moment.
#[derive(Debug, Clone, Copy)]
pub struct SourceClock {
    /// The source's time minus the monotonic clock's.
    offset_us: i64,
}

impl SourceClock {
    /// This machine's clock, until the source has answered.
    pub fn from_local_clock(wall_us: i64, monotonic_us: i64) -> Self {
        Self { offset_us: wall_us.saturating_sub(monotonic_us) }
    }

    /// The current time on the source's clock.
    pub fn now_us(&self, monotonic_us: i64) -> i64 {
        self.offset_us.saturating_add(monotonic_us)
    }

    /// The source stated `source_us` at some moment between the query and its answer. Returns how far that is
    /// ahead of the predicted time, if the difference is so large that clients must query it again.
    pub fn observe(&mut self, source_us: i64, asked_us: i64, answered_us: i64) -> Option<i64> {
        let least = source_us.saturating_sub(asked_us.max(answered_us));
        let most = source_us.saturating_sub(asked_us.min(answered_us));
        let nearest = self.offset_us.clamp(least, most);
        let error_us = nearest.saturating_sub(self.offset_us);
        // The prediction drifts from the source's clock, and is corrected silently.
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
    fn wrong_local_clock_is_corrected() {
        for error in [20 * SECOND, -20 * SECOND, 3_600 * SECOND] {
            let mut clock = SourceClock::from_local_clock(NOON + error, 0);
            assert_eq!(clock.now_us(SECOND), NOON + error + SECOND);
            assert_eq!(clock.observe(NOON + SECOND, SECOND, SECOND), Some(-error));
            assert_eq!(clock.now_us(2 * SECOND), NOON + 2 * SECOND);
            // Reported once.
            assert_eq!(clock.observe(NOON + 3 * SECOND, 3 * SECOND, 3 * SECOND), None);
        }
        let mut clock = SourceClock::from_local_clock(NOON + SECOND, 0);
        assert_eq!(clock.observe(NOON, 0, 0), None);
        assert_eq!(clock.now_us(0), NOON);
    }

    #[test]
    fn slow_answer_proves_only_a_range() {
        let mut clock = SourceClock::from_local_clock(NOON, 0);
        // Read at the query, or an hour later: both would fit.
        assert_eq!(clock.observe(NOON, 0, 3_600 * SECOND), None);
        assert_eq!(clock.observe(NOON + 7_200 * SECOND, 3_600 * SECOND, 7_200 * SECOND), None);
        assert_eq!(clock.now_us(0), NOON);
        // An error of more than an hour fits neither.
        assert_eq!(
            clock.observe(NOON + 20_000 * SECOND, 9_000 * SECOND, 12_600 * SECOND),
            Some(7_400 * SECOND)
        );
    }

    #[test]
    fn source_clock_is_used_after_the_machine_slept() {
        let mut clock = SourceClock::from_local_clock(NOON, 0);
        // The machine slept for a minute.
        assert_eq!(clock.observe(NOON + 61 * SECOND, SECOND, SECOND), Some(60 * SECOND));
        assert_eq!(clock.now_us(SECOND), NOON + 61 * SECOND);
    }

    proptest! {
        /// A source that drifts, or is slewed by at most a twelfth as daemons do it, is followed silently.
        /// The prediction is right except for the time that an answer took.
        #[test]
        fn slewed_source_is_followed(
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
                prop_assert!(wrong.abs() <= took, "{} us wrong; the answer took {} us", wrong, took);
                steady = asked + took;
            }
        }

        /// After any answer, the next prediction fits it.
        #[test]
        fn prediction_fits_the_last_answer(
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

        /// Nonsensical input causes no panic.
        #[test]
        fn nonsensical_input_causes_no_panic(wall: i64, steady: i64, source: i64, asked: i64, answered: i64) {
            let mut clock = SourceClock::from_local_clock(wall, steady);
            let _ = (clock.observe(source, asked, answered), clock.now_us(answered));
        }
    }
}
