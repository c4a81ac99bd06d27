//! Which failures of a capture were reported already. Pure: time is an input.
//!
//! A source that is not there yet, or not set up yet, fails each try in the same way, several times a second at first.
//! That is reported once, and again only after a while, until the capture reads the stream again.

use std::time::{Duration, Instant};

/// A failure that continues is reported again so seldom.
const TELL_AGAIN: Duration = Duration::from_secs(600);

/// Different failures that are kept apart; a source that fails in turn in more ways is reported more often.
const KINDS_MAX: usize = 8;

#[derive(Debug)]
struct Told {
    text: String,
    at: Instant,
    /// How often it came since.
    repeated: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    told: Vec<Told>,
}

impl FailureLog {
    /// Notes a failure. Whether it is to be reported now, and then how often it came unreported before.
    pub(crate) fn note(&mut self, text: &str, now: Instant) -> Option<u64> {
        if let Some(told) = self.told.iter_mut().find(|told| told.text == text) {
            if now.saturating_duration_since(told.at) < TELL_AGAIN {
                told.repeated += 1;
                return None;
            }
            told.at = now;
            return Some(std::mem::take(&mut told.repeated));
        }
        if self.told.len() == KINDS_MAX {
            self.told.remove(0);
        }
        self.told.push(Told { text: text.to_owned(), at: now, repeated: 0 });
        Some(0)
    }

    /// The stream is read: what fails from now on has not been told.
    pub(crate) fn forget(&mut self) {
        self.told.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_told_once() {
        let (mut log, begun) = (FailureLog::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert_eq!(log.note("off", at(0)), Some(0));
        for second in 1..4 {
            assert_eq!(log.note("off", at(second)), None);
        }
        // Another failure between two of the same kind is no new beginning of it.
        assert_eq!(log.note("refused", at(4)), Some(0));
        assert_eq!(log.note("off", at(5)), None);
        assert_eq!(log.note("refused", at(6)), None);
        assert_eq!(log.note("off", at(600)), Some(4), "that it goes on is told");
        assert_eq!(log.note("off", at(601)), None);
        log.forget();
        assert_eq!(log.note("off", at(602)), Some(0), "it had streamed meanwhile");
    }

    #[test]
    fn it_is_bounded() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        for number in 0..1_000 {
            assert_eq!(log.note(&number.to_string(), now), Some(0));
        }
        assert_eq!(log.told.len(), KINDS_MAX);
        assert_eq!(log.note("999", now), None);
    }
}
