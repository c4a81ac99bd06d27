//! Makes sure that only one daemon uses a log's folder, whatever the names of its sources are.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tailwater_config::DAEMON_LOCK;

use super::ControlError;

/// The lock on a log's folder. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock. Creates the folder if it does not exist.
    ///
    /// # Errors
    /// [`ControlError::DirectoryInUse`] if another daemon holds the lock; [`ControlError::Directory`] if the
    /// folder or the file cannot be created.
    pub fn take(directory: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Directory { directory: directory.into(), source };
        create_durably(directory).map_err(failed)?;
        // A symbolic link is not followed, because it could lead to a file of another program.
        let path = directory.join(DAEMON_LOCK);
        let mut file =
            tailwater_files::open_or_create(&path, tailwater_files::PRIVATE_FILE_MODE).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // The process id is only used in the error message.
                let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut pid);
                let holder = match pid.trim() {
                    pid if !pid.is_empty() && pid.chars().all(|c| c.is_ascii_digit()) => {
                        format!("process {pid}")
                    }
                    _ => "another process".to_owned(),
                };
                return Err(ControlError::DirectoryInUse { directory: directory.into(), holder });
            }
            Err(errno) => return Err(failed(io::Error::from(errno))),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Creates the folder and its missing parents, and makes their names durable. Otherwise a power cut could
/// take away a new folder with a log whose files are durable.
fn create_durably(directory: &Path) -> io::Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    for created in &missing {
        sync_folder(parent(created))?;
    }
    if missing.is_empty() {
        // An earlier run may have been killed before it synced the parent. Only the owner of the folder can
        // read some parents.
        let _ = sync_folder(parent(directory));
    }
    sync_folder(directory)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_daemon_can_use_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("new/log");
        let lock = DirectoryLock::take(&directory).unwrap();
        let error = DirectoryLock::take(&directory).unwrap_err();
        assert_eq!(error.code(), "TW-CTL-0003");
        assert!(
            error.to_string().contains(&format!("process {}", std::process::id())),
            "the error does not name the process: {error}"
        );
        drop(lock);
        DirectoryLock::take(&directory).unwrap();
        // The symbolic link leads to a file of another program.
        let other = folder.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(folder.path().join("precious"), "text").unwrap();
        std::os::unix::fs::symlink(folder.path().join("precious"), other.join(DAEMON_LOCK)).unwrap();
        assert_eq!(DirectoryLock::take(&other).unwrap_err().code(), "TW-CTL-0004");
        assert_eq!(std::fs::read_to_string(folder.path().join("precious")).unwrap(), "text");
    }
}
