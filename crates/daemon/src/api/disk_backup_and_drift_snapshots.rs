//! The state of the log's disk, of backups, and of checks for drift.

use serde::{Deserialize, Serialize};

/// The disk of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogDiskSnapshot {
    /// The size of the file system, and what ordinary users can still write, in bytes; absent if they could
    /// not be read.
    pub space: Option<(u64, u64)>,
    /// The time until the disk is full if its free space shrinks as in the last hour, in seconds; absent if
    /// the free space does not shrink.
    pub full_in_seconds: Option<f64>,
}

/// The dumps in the folder of a `[[backup]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BackupSnapshot {
    /// The name of the backup.
    pub name: String,
    /// The greatest age of the newest dump, in seconds.
    pub age_seconds_max: u64,
    /// The number of finished dumps.
    pub dumps: u64,
    /// The point in time of the newest dump's data, in milliseconds since 1970; absent if there is no dump.
    pub newest_ms: Option<u64>,
    /// Why the folder or a dump in it could not be read.
    pub problem: Option<String>,
}

/// The result of a `[[check]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DriftCheckSnapshot {
    /// The name of the check.
    pub name: String,
    /// The greatest age of the result, in seconds.
    pub age_seconds_max: u64,
    /// When the last finished check ended, in milliseconds since 1970; absent if that is not known.
    pub finished_ms: Option<u64>,
    /// Number of rows and tables that differ. If the running check has found differences, this is their
    /// number so far. Otherwise it is the number that the last finished check found.
    pub differences: Option<u64>,
    /// Why the result could not be read.
    pub problem: Option<String>,
}
