//! What is monitored besides captures, channels and clusters.

use serde::{Deserialize, Serialize};

/// The disk of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogDiskSnapshot {
    /// The size of the file system, and what ordinary users can still write, in bytes; absent if they could
    /// not be read.
    pub space: Option<(u64, u64)>,
    /// The time until it is full, if it fills as in the last hour, in seconds; absent if it does not fill.
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
    /// The point in time of the data of the newest one, in milliseconds since 1970; absent if there is none.
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
    /// The rows and tables that differ: what the check that runs has found, or else what the last finished
    /// one found.
    pub differences: Option<u64>,
    /// Why the result could not be read.
    pub problem: Option<String>,
}
