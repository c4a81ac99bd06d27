//! Decides which failures of a capture to report. Pure: time is an input.
//!
//! A source that is not running or not set up yet fails every attempt in the same way, at first several times
//! a second. Such a failure is reported once, and again only after an interval, until the stream works again.

use std::time::{Duration, Instant};

/// A continuing failure is reported again after this interval.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// Number of different failures that are distinguished. A source that alternates between more failures is
/// reported more often.
const KINDS_MAX: usize = 8;

#[derive(Debug)]
struct ReportedFailure {
    text: String,
    at: Instant,
    /// Number of occurrences since it was reported.
    repeated: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    reported: Vec<ReportedFailure>,
}

impl FailureLog {
    /// Records a failure. If it must be reported now, returns the number of unreported occurrences before.
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
    fn repeated_failure_is_reported_once() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(log.record("off", at(0)), Some(0));
        for second in 1..4 {
            assert_eq!(log.record("off", at(second)), None);
        }
        // Another failure in between does not restart the interval of the first.
        assert_eq!(log.record("refused", at(4)), Some(0));
        assert_eq!(log.record("off", at(5)), None);
        assert_eq!(log.record("refused", at(6)), None);
        assert_eq!(log.record("off", at(600)), Some(4), "a continuing failure is reported again");
        assert_eq!(log.record("off", at(601)), None);
        log.reset();
        assert_eq!(log.record("off", at(602)), Some(0), "the stream worked in between");
    }

    #[test]
    fn number_of_failures_is_bounded() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        for number in 0..1_000 {
            assert_eq!(log.record(&number.to_string(), now), Some(0));
        }
        assert_eq!(log.reported.len(), KINDS_MAX);
        assert_eq!(log.record("999", now), None);
    }
}
