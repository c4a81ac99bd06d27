//! Archives sealed segments in the background of `tailwater run`, and expires old archived ones.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use tailwater_log::archive::ArchiveOptions;
use tailwater_log::{Archive, LogDir, LogError};
use tracing::{info, warn};

/// A log and its archive.
#[derive(Debug)]
pub struct ArchiveJob {
    /// The log's directory, which may not exist yet.
    pub directory: PathBuf,
    /// Shared with the log's writer, so that both know the archived segments.
    pub archive: Archive,
}

/// The interval of archiving, and the retention of archived segments.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub interval: Duration,
    pub retention: Option<Duration>,
}

/// Archives in a new thread until the process ends. The process may end at any time: a partial upload leaves
/// no object.
///
/// # Errors
/// If no thread can be started.
pub fn start(jobs: Vec<ArchiveJob>, schedule: Schedule) -> std::io::Result<()> {
    let archive_all = move || {
        loop {
            for job in &jobs {
                if let Err(error) = job.run(schedule.retention) {
                    let source = job.archive.source();
                    warn!(
                        source,
                        code = error.code(),
                        "archiving failed; trying again in {} s: {error}",
                        schedule.interval.as_secs()
                    );
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
