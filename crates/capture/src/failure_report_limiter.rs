//! Decides which failures of a capture are logged. It does no I/O and reads no clock: callers pass the time.
//!
//! If a source is not running or not set up yet, every attempt to connect fails in the same way, at first
//! several times a second. Such a failure is logged once, and then again after each [`REPORT_INTERVAL`] until
//! the stream works.

use std::time::{Duration, Instant};

/// The time after which a failure that continues is logged again.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// The maximum number of different failures that are remembered. If a source alternates between more failures
/// than this, they are logged more often.
const KINDS_MAX: usize = 8;

#[derive(Debug)]
struct ReportedFailure {
    text: String,
    at: Instant,
    /// The number of times that the failure has occurred since it was last logged.
    repeated: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    reported: Vec<ReportedFailure>,
}

impl FailureLog {
    /// Records a failure. If it must be logged now, returns how many earlier occurrences were not logged.
    pub(crate) fn record(&mut self, text: &str, now: Instant) -> Option<u64> {
        if let Some(reported) = self.reported.iter_mut().find(|reported| reported.text == text) {
            if now.saturating_duration_since(reported.at) < REPORT_INTERVAL {
                reported.repeated += 1;
                return None;
            }
            reported.at = now;
            return Some(std::mem::take(&mut reported.repeated));
        }
        if self.reported.len() == KINDS_MAX {
            self.reported.remove(0);
        }
        self.reported.push(ReportedFailure { text: text.to_owned(), at: now, repeated: 0 });
        Some(0)
    }

    /// Forgets all failures, because the stream works again.
    pub(crate) fn reset(&mut self) {
        self.reported.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_logged_once_per_interval() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(log.record("off", at(0)), Some(0));
        for second in 1..4 {
            assert_eq!(log.record("off", at(second)), None);
        }
        // Another failure in between does not restart the interval of the first failure.
        assert_eq!(log.record("refused", at(4)), Some(0));
        assert_eq!(log.record("off", at(5)), None);
        assert_eq!(log.record("refused", at(6)), None);
        assert_eq!(log.record("off", at(600)), Some(4), "a continuing failure must be logged again");
        assert_eq!(log.record("off", at(601)), None);
        log.reset();
        assert_eq!(log.record("off", at(602)), Some(0), "a failure after a working stream must be logged");
    }

    #[test]
    fn the_number_of_remembered_failures_is_bounded() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        for number in 0..1_000 {
            assert_eq!(log.record(&number.to_string(), now), Some(0));
        }
        assert_eq!(log.reported.len(), KINDS_MAX);
        assert_eq!(log.record("999", now), None);
    }
}
