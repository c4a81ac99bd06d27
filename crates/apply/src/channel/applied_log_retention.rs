//! Decides how long the log is kept after it was applied. A target may lose its last commits in a crash, and
//! then needs the log again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tailwater_log::LogPosition;

/// A target that does not sync its commits loses commits of at most this period in a crash. So the log, and
/// the recorded intents to run DDL statements, are kept for this period after they were last needed.
pub(super) const TARGET_LOSS_MAX: Duration = Duration::from_secs(60);

/// Low watermarks of the past, each with the time at which it was recorded.
#[derive(Debug)]
pub(super) struct LowWatermarkHistory(VecDeque<(Instant, LogPosition)>);

impl LowWatermarkHistory {
    /// Starts with the low watermark `low`.
    pub(super) fn new(now: Instant, low: LogPosition) -> Self {
        Self([(now, low)].into())
    }

    /// Records the low watermark. Returns the oldest log position that the target may still need after a
    /// crash.
    pub(super) fn record(&mut self, now: Instant, low: LogPosition) -> LogPosition {
        self.0.push_back((now, low));
        while self.0.get(1).is_some_and(|(when, _)| *when + TARGET_LOSS_MAX <= now) {
            self.0.pop_front();
        }
        self.0.front().map_or(low, |(_, needed)| *needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_kept_while_the_target_may_lose_commits() {
        let at = |offset| LogPosition { segment: 1, offset };
        let start = Instant::now();
        let mut history = LowWatermarkHistory::new(start, at(4));
        assert_eq!(history.record(start + Duration::from_secs(1), at(10)), at(4));
        assert_eq!(history.record(start + TARGET_LOSS_MAX, at(20)), at(4));
        assert_eq!(history.record(start + TARGET_LOSS_MAX + Duration::from_secs(1), at(30)), at(10));
        assert_eq!(history.record(start + TARGET_LOSS_MAX * 3, at(40)), at(30));
    }
}
