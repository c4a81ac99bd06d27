//! Figures about a log, for monitoring: the duration of its syncs, its size, and the backlog of its readers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::log_position::LogPosition;
use crate::shared_log_state::LogShared;

/// The upper bounds of the buckets of [`SyncDurations`], in seconds. The last bucket has no bound.
pub const SYNC_SECONDS_BOUNDS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// The durations of the fdatasync calls that made a log durable.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SyncDurations {
    /// The number of calls by their duration: one number for each bound in [`SYNC_SECONDS_BOUNDS`], and one
    /// number for all longer calls.
    pub counts: [u64; SYNC_SECONDS_BOUNDS.len() + 1],
    /// The sum of all durations, in seconds.
    pub sum_seconds: f64,
}

/// Counts durations. Any thread may add or read them.
#[derive(Debug, Default)]
pub(crate) struct SyncDurationCounters {
    counts: [AtomicU64; SYNC_SECONDS_BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl SyncDurationCounters {
    pub(crate) fn add(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = SYNC_SECONDS_BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> SyncDurations {
        SyncDurations {
            counts: self.counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum_seconds: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

/// Figures about a log at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogFigures {
    /// The number of local segments.
    pub segments: u64,
    /// The durable bytes of the local segments.
    pub bytes: u64,
    /// The persistent readers, connected or not.
    pub readers: Vec<ReaderBacklog>,
    /// How long the syncs of the log took.
    pub syncs: SyncDurations,
}

/// How far a persistent reader is behind the durable end of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderBacklog {
    /// The name under which the reader was registered.
    pub name: String,
    /// The durable bytes of local segments that the reader has not read, or still needs.
    pub bytes: u64,
}

impl LogShared {
    pub(crate) fn figures(&self) -> LogFigures {
        let durable = self.durable().position;
        let readers = self.readers().all();
        let segments = self.segments.lock();
        // For each segment, newest first: the number of bytes of this segment and of all newer segments.
        let mut totals = Vec::with_capacity(segments.len());
        let mut bytes = 0_u64;
        for (number, state) in segments.iter().rev() {
            bytes += state.sealed.map_or(durable.offset, |(length, _)| length);
            totals.push((*number, bytes));
        }
        drop(segments);
        let behind = |position: LogPosition| {
            // Purged segments do not count.
            let from = totals.partition_point(|(number, _)| *number >= position.segment);
            let (oldest, total) =
                from.checked_sub(1).and_then(|at| totals.get(at)).copied().unwrap_or_default();
            total.saturating_sub(if oldest == position.segment { position.offset } else { 0 })
        };
        LogFigures {
            segments: totals.len() as u64,
            bytes,
            readers: readers
                .into_iter()
                .map(|reader| ReaderBacklog { bytes: behind(reader.position), name: reader.name })
                .collect(),
            syncs: self.sync_durations.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_their_bucket() {
        let counters = SyncDurationCounters::default();
        for micros in [1, 100, 101, 999_999, 1_000_000, 1_000_001] {
            counters.add(Duration::from_micros(micros));
        }
        let read = counters.read();
        assert_eq!(read.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
        assert!((read.sum_seconds - 3.000_202).abs() < 1e-9, "{read:?}");
    }
}
