//! Reads the size and the free space of the log's disk.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::daemon_status::{DiskSpace, LogDiskStatus};

/// Time limit for reading the space of the disk. A disk that needs longer counts as hung.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Size of a block in the metadata of a file, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Returns the space of the disk that holds `directory`. Takes a limited time, even if the disk hangs.
pub(super) async fn measure(directory: Option<PathBuf>) -> LogDiskStatus {
    let Some(directory) = directory else { return LogDiskStatus::default() };
    let shown = directory.display().to_string();
    // The disk may hang, so it is read on a thread for blocking work and not on a thread of the runtime.
    let reading = tokio::task::spawn_blocking(move || space(&directory));
    let answer = tokio::time::timeout(ANSWER_MAX, reading).await;
    let space = match answer {
        Ok(Ok(space)) => space.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the disk has not answered for {} s", ANSWER_MAX.as_secs())),
    };
    match space {
        Ok(space) => LogDiskStatus { directory: shown, space: Some(space), problem: None },
        Err(problem) => LogDiskStatus { directory: shown, space: None, problem: Some(problem) },
    }
}

fn space(directory: &Path) -> io::Result<DiskSpace> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(DiskSpace {
        total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        log_bytes: occupied_bytes(directory)?,
    })
}

/// Returns the space that the files of a folder and its subfolders occupy. Files that are removed in the
/// meantime do not count. Folders that the daemon has no permission to read, such as `lost+found` of a file
/// system, do not count either.
fn occupied_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Err(error) if next != folder && is_unreadable(&error) => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => bytes = bytes.saturating_add(metadata.blocks().saturating_mul(BLOCK_BYTES)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bytes)
}

fn is_unreadable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_in_subfolders_count() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let empty = measure(Some(folder.path().to_owned())).await;
        // Files in all folders count, and also files in subfolders.
        for name in ["orders", "stock", "stock/older", "users"] {
            fs::create_dir(folder.path().join(name))?;
            let segment = folder.path().join(name).join("segment");
            fs::write(&segment, vec![1; 100_000])?;
            // The file system allocates the blocks of a file when it writes the data back, so the test syncs
            // the file.
            fs::File::open(segment)?.sync_all()?;
        }
        let status = measure(Some(folder.path().to_owned())).await;
        let (empty, space) = (empty.space.unwrap_or_default(), status.space.unwrap_or_default());
        assert!(
            space.log_bytes >= empty.log_bytes + 400_000,
            "a file in a subfolder is not counted: {space:?}"
        );
        assert!(
            space.total_bytes >= space.free_bytes && space.free_bytes > 0,
            "wrong size or free space: {space:?}"
        );
        let absent = measure(Some(folder.path().join("absent"))).await;
        assert!(
            absent.space.is_none() && absent.problem.is_some(),
            "a missing folder has a space: {absent:?}"
        );
        Ok(())
    }
}
