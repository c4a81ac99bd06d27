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
        return Err(Error::other(format!("a later version of Tailwater wrote the file (format {version})")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_and_one_of_a_later_version_are_errors() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("jobs.json");
        assert!(read(&path)?.is_none());
        let jobs = StoredJobs { schema_version: SCHEMA_VERSION, next_id: 7, jobs: Vec::new() };
        write(&path, &jobs)?;
        assert_eq!(read(&path)?, Some(jobs.clone()));
        write(&path, &StoredJobs { schema_version: SCHEMA_VERSION + 1, ..jobs })?;
        let later = read(&path).expect_err("a later version was read");
        assert!(
            later.to_string().contains("a later version of Tailwater wrote the file"),
            "the error does not name the later version: {later}"
        );
        std::fs::write(&path, "{\"schema_version\": 1, \"next")?;
        assert!(read(&path).is_err(), "a damaged file was read");
        Ok(())
    }
}
