//! Reads the newest events of a log that this process writes, in bounded time.

use std::path::Path;

use tailwater_log::{LogError, LogHandle, LogPosition, SegmentSummary};

use crate::local_binlog_reader::read_entries;
use crate::{Collector, CollectorOptions, ReadProgress, StatsError, StatsResult};

/// The first record of each segment has this offset.
const SEGMENT_START: u64 = 4;

/// Statistics of the newest part of a log.
#[derive(Debug)]
pub struct RecentStats {
    /// The statistics.
    pub result: StatsResult,
    /// Whether transactions of the period are left out: the period has too many bytes of transactions, or
    /// only the archive has some of them.
    pub is_cut: bool,
}

/// Returns the statistics of the transactions that committed at `since_us` or later, in microseconds since
/// 1970. Reads only transactions on this machine, and only the newest that together have at most `bytes_max`
/// bytes.
///
/// # Errors
/// The errors of [`read_log`](crate::read_log).
pub fn read_recent(log: &LogHandle, since_us: u64, bytes_max: u64) -> Result<RecentStats, StatsError> {
    let folder = log.path();
    let failed = |cause: LogError| StatsError::Log { path: folder.clone(), cause };
    let local: Vec<SegmentSummary> =
        log.segments().into_iter().filter(|segment| segment.path.starts_with(&folder)).collect();
    let start = start_segment(log, &local, since_us).map_err(failed)?;
    let (mut kept_us, mut is_cut) = (since_us, false);
    if let Some(start) = start {
        (kept_us, is_cut) = kept_since(log, start, since_us, bytes_max).map_err(failed)?;
    }
    let options = CollectorOptions { since_us: Some(kept_us), ..CollectorOptions::default() };
    let mut collector = Collector::new(options.clone());
    if let Some(start) = start {
        let mut reader = log.reader(start).map_err(failed)?;
        read_entries(&mut reader, &folder, &options, &mut collector, &mut NoProgress)?;
    }
    Ok(RecentStats { result: StatsResult::new(title(&folder), &collector), is_cut })
}

fn title(folder: &Path) -> String {
    folder.display().to_string()
}

/// Returns the start of the newest segment whose first transaction committed before `since_us`. If there is
/// no such segment, returns the start of the oldest segment.
fn start_segment(
    log: &LogHandle,
    segments: &[SegmentSummary],
    since_us: u64,
) -> Result<Option<LogPosition>, LogError> {
    for segment in segments.iter().rev() {
        let start = LogPosition { segment: segment.number, offset: SEGMENT_START };
        let mut reader = log.reader(start)?;
        while let Some(entry) = reader.try_next()?.filter(|entry| entry.position.segment == segment.number) {
            if !entry.is_transaction() {
                continue;
            }
            if entry.commit_time_us < since_us {
                return Ok(Some(start));
            }
            break;
        }
    }
    let oldest = segments.first();
    Ok(oldest.map(|oldest| LogPosition { segment: oldest.number, offset: SEGMENT_START }))
}

/// Returns the commit time from which on transactions are read, and whether older transactions of the period
/// are left out. Reads only the index.
fn kept_since(
    log: &LogHandle,
    start: LogPosition,
    since_us: u64,
    bytes_max: u64,
) -> Result<(u64, bool), LogError> {
    let mut reader = log.reader(start)?;
    let mut selected = Vec::new();
    while let Some(entry) = reader.try_next()? {
        if entry.is_transaction() && entry.commit_time_us >= since_us {
            selected.push((entry.commit_time_us, entry.length));
        }
    }
    Ok(newest_that_fit(&selected, since_us, bytes_max))
}

/// Returns the commit time from which on all transactions together have at most `bytes_max` bytes, and
/// whether older transactions are left out. `selected` has the commit time and the size of each transaction,
/// in the order of the log.
fn newest_that_fit(selected: &[(u64, u64)], since_us: u64, bytes_max: u64) -> (u64, bool) {
    let mut left = bytes_max;
    for (commit_us, bytes) in selected.iter().rev() {
        match left.checked_sub(*bytes) {
            Some(rest) => left = rest,
            // Leave out all transactions with this commit time.
            None => return (commit_us.saturating_add(1), true),
        }
    }
    (since_us, false)
}

struct NoProgress;

impl ReadProgress for NoProgress {
    fn start(&mut self, _: &str, _: u64) {}
    fn file(&mut self, _: &str) {}
    fn advance(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_transactions_that_fit_are_kept() {
        let selected = [(10, 50), (20, 50), (20, 30), (30, 40)];
        assert_eq!(newest_that_fit(&selected, 5, 170), (5, false));
        assert_eq!(newest_that_fit(&selected, 5, 169), (11, true));
        assert_eq!(newest_that_fit(&selected, 5, 100), (21, true));
        assert_eq!(newest_that_fit(&selected, 5, 10), (31, true));
        assert_eq!(newest_that_fit(&[], 5, 0), (5, false));
    }
}
