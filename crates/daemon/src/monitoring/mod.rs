//! Figures that only metrics and the status need: the space of the log's disk, the age of backups, the
//! results of checks for drift.
//!
//! - `free_space_forecast`: when the disk will be full. Does no I/O.
//! - `backup_and_drift_results`: reads the folders of `[[backup]]` and the files of `[[check]]`.

mod backup_and_drift_results;
mod free_space_forecast;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tailwater_config::Config;
use tokio::task::JoinSet;

use self::backup_and_drift_results::ResultReader;
use self::free_space_forecast::FreeSpaceForecast;
use crate::api::disk_backup_and_drift_snapshots::{BackupSnapshot, DriftCheckSnapshot, LogDiskSnapshot};

/// How often the disk is measured, and backups and checks are read.
const INTERVAL: Duration = Duration::from_secs(5);

/// A disk that has not answered in this time counts as hung.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The latest readings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readings {
    pub log_disk: LogDiskSnapshot,
    pub backups: Vec<BackupSnapshot>,
    pub drift_checks: Vec<DriftCheckSnapshot>,
}

/// Takes the readings in background tasks, so that a hung disk delays nothing else.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    readings: Arc<Mutex<Readings>>,
    _tasks: JoinSet<()>,
}

impl Monitor {
    /// Starts the background tasks. Must be called within a tokio runtime.
    pub fn start(config: &Config) -> Self {
        let readings = Arc::<Mutex<Readings>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(measure_log_disk(config.log.directory.clone(), Arc::clone(&readings)));
        if !config.backups.is_empty() || !config.drift_checks.is_empty() {
            let reader = ResultReader::new(config.backups.clone(), config.drift_checks.clone());
            tasks.spawn(read_results(reader, Arc::clone(&readings)));
        }
        Self { readings, _tasks: tasks }
    }

    /// Returns the latest readings.
    pub fn readings(&self) -> Readings {
        self.readings.lock().clone()
    }
}

async fn measure_log_disk(directory: PathBuf, readings: Arc<Mutex<Readings>>) {
    let (started, mut forecast) = (Instant::now(), FreeSpaceForecast::default());
    loop {
        let folder = directory.clone();
        let measuring = tokio::task::spawn_blocking(move || space(&folder));
        let space = match tokio::time::timeout(ANSWER_MAX, measuring).await {
            Ok(Ok(space)) => space.ok(),
            // The disk does not answer. Its earlier reading may be wrong by now, so it is discarded.
            Ok(Err(_)) | Err(_) => None,
        };
        if let Some((_, free_bytes)) = space {
            forecast.add(started.elapsed(), free_bytes);
        }
        readings.lock().log_disk = LogDiskSnapshot {
            space,
            full_in_seconds: space.and_then(|_| forecast.full_in()).map(|time| time.as_secs_f64()),
        };
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the size of the file system, and what ordinary users can still write, in bytes.
fn space(directory: &Path) -> std::io::Result<(u64, u64)> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok((disk.f_blocks.saturating_mul(disk.f_frsize), disk.f_bavail.saturating_mul(disk.f_frsize)))
}

async fn read_results(mut reader: ResultReader, readings: Arc<Mutex<Readings>>) {
    loop {
        let reading = tokio::task::spawn_blocking(move || {
            let results = reader.read(Instant::now());
            (reader, results)
        });
        // The reading fails only if the process ends.
        let Ok((again, (backups, drift_checks))) = reading.await else { return };
        reader = again;
        {
            let mut readings = readings.lock();
            (readings.backups, readings.drift_checks) = (backups, drift_checks);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
