//! Measures transactions per second.

use std::time::Instant;

/// Counts transactions between two readings.
#[derive(Debug, Default)]
pub(super) struct TransactionRate {
    counted: u64,
    since: Option<Instant>,
}

impl TransactionRate {
    pub(super) fn count(&mut self, more: u64) {
        self.counted += more;
    }

    /// Returns how many transactions per second were counted since the last call; 0 at the first call.
    pub(super) fn per_second(&mut self, now: Instant) -> f64 {
        let since = self.since.replace(now);
        let counted = std::mem::take(&mut self.counted);
        let seconds = since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        if seconds > 0.0 { counted as f64 / seconds } else { 0.0 }
    }
}
