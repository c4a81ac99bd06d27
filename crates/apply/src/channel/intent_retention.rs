//! How long what a statement was noted with is kept: until its completion is certain to outlive a crash of the target.

use std::time::Instant;

use super::log_retention::TARGET_LOSS_MAX;

/// Statements that are noted on the target, by where their transactions begin in the log, with when they were last known to
/// have completed, or may have.
#[derive(Debug)]
pub(super) struct IntentRetention(Vec<(String, Instant)>);

impl IntentRetention {
    /// Those that were found on the target, which may just have completed.
    pub(super) fn new(positions: impl Iterator<Item = String>, now: Instant) -> Self {
        Self(positions.map(|position| (position, now)).collect())
    }

    /// One has completed.
    pub(super) fn record(&mut self, position: String, now: Instant) {
        self.0.retain(|(known, _)| *known != position);
        self.0.push((position, now));
    }

    /// Those that completed so long ago that no crash takes it back.
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
    fn a_statement_is_as_old_as_its_completion() {
        let start = Instant::now();
        let day = Duration::from_secs(86_400);
        let mut retention = IntentRetention::new(["1:4".to_owned()].into_iter(), start);
        retention.record("1:99".to_owned(), start + day);
        // It was begun anew, and took a day.
        retention.record("1:4".to_owned(), start + day);
        let lossy = start + day + TARGET_LOSS_MAX;
        assert!(retention.take_expired(lossy).is_empty());
        assert_eq!(retention.take_expired(lossy + Duration::from_secs(1)), ["1:99", "1:4"]);
        assert!(retention.take_expired(lossy + day).is_empty());
    }
}
