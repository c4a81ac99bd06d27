//! Uploads sealed segments to the archive in the background of `tailwater run`, and removes archived segments
//! that are too old.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tailwater_log::archive::ArchiveOptions;
use tailwater_log::{Archive, LogDir, LogError};
use tracing::{info, warn};

/// The log of one source, and the archive for its segments.
#[derive(Debug)]
pub struct ArchiveJob {
    /// The log's directory. It may not exist yet.
    pub directory: PathBuf,
    /// The archive. The log's writer uses the same object, so that the archiver and the log's writer both
    /// know which segments are archived.
    pub archive: Archive,
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
        let archived = log.archive_sealed(&self.archive, ArchiveOptions::default(), |_| ())?;
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
