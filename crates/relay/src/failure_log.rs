//! Which failures of a capture were reported already. Pure: time is an input.
//!
//! A source that is not there yet, or not set up yet, fails each try in the same way, several times a second at first.
//! That is reported once, and again only after a while, until the capture reads the stream again.

use std::time::{Duration, Instant};

/// A failure that continues is reported again so seldom.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// Different failures that are kept apart; a source that fails in turn in more ways is reported more often.
const KINDS_MAX: usize = 8;

#[derive(Debug)]
struct ReportedFailure {
    text: String,
    at: Instant,
    /// How often it came since.
    repeated: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    reported: Vec<ReportedFailure>,
}

impl FailureLog {
    /// Notes a failure. Whether it is to be reported now, and then how often it came unreported before.
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

    /// The stream is read: what fails from now on has not been reported.
    pub(crate) fn reset(&mut self) {
        self.reported.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_told_once() {
        let (mut log, begun) = (FailureLog::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert_eq!(log.record("off", at(0)), Some(0));
        for second in 1..4 {
            assert_eq!(log.record("off", at(second)), None);
        }
        // Another failure between two of the same kind is no new beginning of it.
        assert_eq!(log.record("refused", at(4)), Some(0));
        assert_eq!(log.record("off", at(5)), None);
        assert_eq!(log.record("refused", at(6)), None);
        assert_eq!(log.record("off", at(600)), Some(4), "that it goes on is reported");
        assert_eq!(log.record("off", at(601)), None);
        log.reset();
        assert_eq!(log.record("off", at(602)), Some(0), "it had streamed meanwhile");
    }

    #[test]
    fn it_is_bounded() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        for number in 0..1_000 {
            assert_eq!(log.record(&number.to_string(), now), Some(0));
        }
        assert_eq!(log.reported.len(), KINDS_MAX);
        assert_eq!(log.record("999", now), None);
    }
}
