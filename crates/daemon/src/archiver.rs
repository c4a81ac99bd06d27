//! What `tailwater run` archives in the background: sealed segments as they come, and old archived ones out again.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use tailwater_log::archive::ArchiveOptions;
use tailwater_log::{Archive, LogDir, LogError};
use tracing::{info, warn};

/// A log and where it is archived.
#[derive(Debug)]
pub struct ArchiveJob {
    /// The log's directory, which may not be there yet.
    pub directory: PathBuf,
    /// Shared with the log's writer, so that each knows what the other has found out.
    pub archive: Archive,
}

/// How often, and for how long archived segments are kept.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub interval: Duration,
    pub retention: Option<Duration>,
}

/// Archives from a thread of its own until the process ends. It may end at any moment: half an upload counts for nothing.
///
/// # Errors
/// If the system gives no thread.
pub fn start(jobs: Vec<ArchiveJob>, schedule: Schedule) -> std::io::Result<()> {
    let archive_all = move || {
        loop {
            for job in &jobs {
                if let Err(error) = job.run(schedule.retention) {
                    let source = job.archive.source();
                    warn!(source, code = error.code(), "archiving failed, and is tried again: {error}");
                }
            }
            thread::sleep(schedule.interval);
        }
    };
    thread::Builder::new().name("archiver".into()).spawn(archive_all).map(drop)
}

impl ArchiveJob {
    fn run(&self, retention: Option<Duration>) -> Result<(), LogError> {
        let log = match LogDir::open_read_only(&self.directory) {
            Ok(log) => log,
            // Nothing was captured yet.
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
            info!(source, segments, bytes, "dropped old archived segments");
        }
        Ok(())
    }
}
