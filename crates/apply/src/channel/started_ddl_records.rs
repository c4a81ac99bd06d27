//! Decides how long the target keeps an intent: the record that a statement which commits implicitly may have
//! run. The intent is kept until no crash of the target can undo the statement.

use std::time::Instant;

use super::applied_log_retention::TARGET_LOSS_MAX;

/// The recorded intents to run statements. Each has the log position of its transaction, and the last time at
/// which its statement may have completed.
#[derive(Debug)]
pub(super) struct IntentRetention(Vec<(String, Instant)>);

impl IntentRetention {
    /// Starts with the recorded intents that were found on the target. It is unknown when their statements
    /// completed, so the retention starts now.
    pub(super) fn new(positions: impl Iterator<Item = String>, now: Instant) -> Self {
        Self(positions.map(|position| (position, now)).collect())
    }

    /// Records that a statement has completed.
    pub(super) fn record(&mut self, position: String, now: Instant) {
        self.0.retain(|(known, _)| *known != position);
        self.0.push((position, now));
    }

    /// Removes and returns the recorded intents whose statements completed so long ago that no crash of the
    /// target can undo them.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<String> {
        let is_old = |completed: &Instant| now.saturating_duration_since(*completed) > TARGET_LOSS_MAX;
        let old = self.0.iter().filter(|(_, completed)| is_old(completed));
        let old = old.map(|(position, _)| position.clone()).collect();
        self.0.retain(|(_, completed)| !is_old(completed));
        old
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn intents_expire_some_time_after_the_last_completion() {
        let start = Instant::now();
        let day = Duration::from_secs(86_400);
        let mut retention = IntentRetention::new(["1:4".to_owned()].into_iter(), start);
        retention.record("1:99".to_owned(), start + day);
        // The statement ran a second time, and completed a day after the start.
        retention.record("1:4".to_owned(), start + day);
        let lossy = start + day + TARGET_LOSS_MAX;
        assert!(retention.take_expired(lossy).is_empty());
        assert_eq!(retention.take_expired(lossy + Duration::from_secs(1)), ["1:99", "1:4"]);
        assert!(retention.take_expired(lossy + day).is_empty());
    }
}
