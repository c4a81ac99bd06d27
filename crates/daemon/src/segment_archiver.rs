//! Uploads sealed segments to the archive in the background of `tailwater run`, and removes archived segments
//! that are too old.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tailwater_log::archive::{ArchiveOptions, ArchiveProgress, ArchiveReport, ArchiveStep};
use tailwater_log::{Archive, LogDir, LogError};
use tracing::{info, warn};

use crate::api::captures::{ArchiveProblem, ArchivingSegment, LogArchiveSnapshot, WaitingSegments};

/// The log of one source, and the archive for its segments.
#[derive(Debug)]
pub struct ArchiveJob {
    /// The log's directory. It may not exist yet.
    pub directory: PathBuf,
    /// The archive. The log's writer uses the same object, so that the archiver and the log's writer both
    /// know which segments are archived.
    pub archive: Archive,
    /// What the archiver does with this log.
    pub status: ArchiveStatus,
}

/// What the archiver does with a log, for the front ends.
#[derive(Debug, Clone, Default)]
pub struct ArchiveStatus(Arc<Mutex<LogArchiveSnapshot>>);

impl ArchiveStatus {
    /// The status of a log whose segments go to `archive`.
    pub fn of(archive: &Archive) -> Self {
        let address = archive.url().display().to_string();
        Self(Arc::new(Mutex::new(LogArchiveSnapshot { address, ..LogArchiveSnapshot::default() })))
    }

    /// Returns the present status.
    pub fn snapshot(&self) -> LogArchiveSnapshot {
        self.0.lock().clone()
    }

    fn progress(&self, progress: &ArchiveProgress) {
        let ArchiveProgress {
            segment,
            step,
            segment_bytes,
            segment_bytes_total,
            segments_left,
            bytes,
            bytes_total,
        } = *progress;
        let mut status = self.0.lock();
        let bytes_left = bytes_total.saturating_sub(bytes);
        status.waiting = Some(WaitingSegments { segments: segments_left, bytes: bytes_left });
        status.current = (step != ArchiveStep::Done).then_some(ArchivingSegment {
            segment,
            is_read_back: step == ArchiveStep::Check,
            bytes: segment_bytes,
            bytes_total: segment_bytes_total,
        });
        if step == ArchiveStep::Done {
            status.segments_total += 1;
            status.bytes_total += segment_bytes_total;
        }
    }

    fn succeeded(&self, report: &ArchiveReport, now_ms: u64) {
        let mut status = self.0.lock();
        status.compressed_bytes_total += report.compressed_bytes;
        status.waiting = Some(WaitingSegments::default());
        (status.current, status.problem, status.complete_ms) = (None, None, Some(now_ms));
    }

    fn failed(&self, error: &LogError, now_ms: u64) {
        let mut status = self.0.lock();
        let since_ms = status.problem.as_ref().map_or(now_ms, |problem| problem.since_ms);
        status.current = None;
        status.problem =
            Some(ArchiveProblem { code: error.code().to_owned(), text: error.to_string(), since_ms });
    }
}

/// How often segments are archived, and how long archived segments are kept.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub interval: Duration,
    pub retention: Option<Duration>,
}

/// Interval of the checks whether the schedule was changed.
const SCHEDULE_CHECK: Duration = Duration::from_secs(1);

/// Starts a thread that archives until the process ends. The process may end at any time, because a partial
/// upload leaves no object in the archive. Changes of the schedule are in force within a second.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(jobs: Vec<ArchiveJob>, schedule: Arc<Mutex<Schedule>>) -> std::io::Result<()> {
    let archive_all = move || {
        loop {
            let Schedule { interval, retention } = *schedule.lock();
            for job in &jobs {
                if let Err(error) = job.run(retention) {
                    job.status.failed(&error, now_ms());
                    let source = job.archive.source();
                    warn!(
                        source,
                        code = error.code(),
                        "archiving failed; trying again in {} s: {error}",
                        interval.as_secs()
                    );
                }
            }
            sleep(&schedule);
        }
    };
    thread::Builder::new().name("archiver".into()).spawn(archive_all).map(drop)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps for the archiving interval. If the interval is changed during the sleep, the new interval counts.
fn sleep(schedule: &Mutex<Schedule>) {
    let began = Instant::now();
    loop {
        let interval = schedule.lock().interval;
        let left = interval.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(SCHEDULE_CHECK));
    }
}

impl ArchiveJob {
    fn run(&self, retention: Option<Duration>) -> Result<(), LogError> {
        let log = match LogDir::open_read_only(&self.directory) {
            Ok(log) => log,
            // The log is empty: nothing was captured yet.
            Err(LogError::NoLog { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let source = self.archive.source();
        let tell = |progress: ArchiveProgress| self.status.progress(&progress);
        let archived = log.archive_sealed(&self.archive, ArchiveOptions::default(), tell)?;
        self.status.succeeded(&archived, now_ms());
        if !archived.segments.is_empty() {
            let (segments, bytes) = (archived.segments.len(), archived.bytes);
            info!(source, segments, bytes, compressed_bytes = archived.compressed_bytes, "archived segments");
        }
        let Some(time_max) = retention else { return Ok(()) };
        let dropped = log.expire_archive(&self.archive, time_max, SystemTime::now())?;
        if !dropped.segments.is_empty() {
            let (segments, bytes) = (dropped.segments.len(), dropped.bytes);
            info!(
                source,
                segments, bytes, "removed archived segments that are older than the retention time"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> LogError {
        LogError::ArchiveDiffers { object: PathBuf::from("s3://backups/orders"), reason: text.to_owned() }
    }

    #[test]
    fn the_status_tells_what_waits_and_why() {
        let status = ArchiveStatus::default();
        let progress = |step, segment_bytes, segments_left, bytes| {
            status.progress(&ArchiveProgress {
                segment: 7,
                step,
                segment_bytes,
                segment_bytes_total: 100,
                segments_left,
                bytes,
                bytes_total: 250,
            });
            status.snapshot()
        };
        let uploading = progress(ArchiveStep::Upload, 40, 2, 0);
        assert_eq!(uploading.waiting, Some(WaitingSegments { segments: 2, bytes: 250 }));
        let current = ArchivingSegment { segment: 7, is_read_back: false, bytes: 40, bytes_total: 100 };
        assert_eq!(uploading.current, Some(current));
        assert!(progress(ArchiveStep::Check, 9, 2, 0).current.is_some_and(|current| current.is_read_back));
        let done = progress(ArchiveStep::Done, 100, 1, 100);
        assert_eq!((done.current, done.segments_total, done.bytes_total), (None, 1, 100));
        assert_eq!(done.waiting, Some(WaitingSegments { segments: 1, bytes: 150 }));

        status.failed(&error("no route"), 5_000);
        status.failed(&error("denied"), 9_000);
        let failed = status.snapshot();
        let problem = failed.problem.expect("a problem");
        assert!(problem.since_ms == 5_000 && problem.text.contains("denied"), "{problem:?}");
        assert_eq!(failed.waiting, done.waiting, "what waits is still known");

        let report =
            ArchiveReport { segments: vec![8], segments_before: 7, bytes: 150, compressed_bytes: 60 };
        status.succeeded(&report, 12_000);
        let well = status.snapshot();
        assert_eq!((well.problem, well.complete_ms, well.compressed_bytes_total), (None, Some(12_000), 60));
        assert_eq!(well.waiting, Some(WaitingSegments::default()));
    }
}
