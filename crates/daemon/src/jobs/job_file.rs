//! Stores the list of jobs in a file of the log's folder.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use super::job_registry::{SCHEMA_VERSION, StoredJobs};

/// The greatest size of the file, in bytes. The registry's limits keep it below.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads the list; `None` if there is no file yet.
///
/// # Errors
/// If the file cannot be read, is damaged, or was written by a later version.
pub(super) fn read(path: &Path) -> Result<Option<StoredJobs>> {
    let bytes = match tailwater_files::read_regular(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let stored: StoredJobs = serde_json::from_slice(&bytes)?;
    if stored.schema_version > SCHEMA_VERSION {
        let version = stored.schema_version;
        return Err(Error::other(format!("a later version of Tailwater wrote it (format {version})")));
    }
    Ok(Some(stored))
}

/// Replaces the file.
///
/// # Errors
/// The error of the system; the earlier file then stays.
pub(super) fn write(path: &Path, jobs: &StoredJobs) -> Result<()> {
    tailwater_files::write_atomically(path, &serde_json::to_vec(jobs)?, tailwater_files::PRIVATE_FILE_MODE)
}
