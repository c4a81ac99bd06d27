//! The folder of one running server: its data, socket, error log, and the lock that marks the folder as in
//! use.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::cache_folder::{Cache, FileLock};
use crate::error::{FileContext, SandboxError};
use crate::install::remove_tree;

/// Maximum length of a Unix socket path in bytes, without the terminating zero byte. This is the kernel's
/// limit.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The folder of a server. It is removed when this value is dropped. If the process was killed, the next
/// process that starts a server removes it.
#[derive(Debug)]
pub(crate) struct InstanceFolder {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: FileLock,
}

impl InstanceFolder {
    /// Creates a folder under the cache's `run`, and removes folders whose processes have ended.
    pub(crate) fn create(cache: &Cache) -> Result<Self, SandboxError> {
        let run = cache.run();
        private_folder(&run)?;
        sweep(&run)?;
        loop {
            // A later process may get the same process id. The random part of the name prevents a collision
            // with a lock file of the earlier process.
            let name = format!("{}-{:06x}", std::process::id(), rand::random::<u32>() & 0xff_ffff);
            let lock_path = run.join(format!("{name}.lock"));
            // The lock is acquired before the folder is created, so that each folder always has a locked lock
            // file.
            let lock = FileLock::acquire(&lock_path, || {})?;
            // Another process may have removed the lock file after it was created and before it was locked.
            if lock.is_at(&lock_path) {
                let path = run.join(name);
                private_folder(&path)?;
                return Ok(Self { path, lock_path, _lock: lock });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for InstanceFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_instance(&self.path, &self.lock_path) {
            tracing::warn!(%error, "cannot remove a server's folder");
        }
    }
}

/// Removes the folders of servers whose processes were killed.
fn sweep(run: &Path) -> Result<(), SandboxError> {
    for entry in fs::read_dir(run).on_path("list", run)?.flatten() {
        let lock_path = entry.path();
        if lock_path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        // The lock is held while the folder is removed, so that only one process removes it.
        if let Some(lock) = FileLock::try_acquire(&lock_path)?
            && lock.is_at(&lock_path)
        {
            let path = lock_path.with_extension("");
            tracing::debug!(path = %path.display(), "removing files of a killed process");
            remove_instance(&path, &lock_path)?;
        }
    }
    Ok(())
}

fn remove_instance(path: &Path, lock_path: &Path) -> Result<(), SandboxError> {
    remove_folder(path)?;
    match fs::remove_file(lock_path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).on_path("remove", lock_path),
        _ => Ok(()),
    }
}

/// Removes a server's folder, and the folder of its socket if that is a different one.
pub(crate) fn remove_folder(path: &Path) -> Result<(), SandboxError> {
    if let Ok(sockets) = fs::read_to_string(path.join(SOCKET_FOLDER_NOTE)) {
        let sockets = PathBuf::from(sockets);
        remove_tree(&sockets).on_path("remove", &sockets)?;
    }
    remove_tree(path).on_path("remove", path)
}

/// Name of the file that holds the path of the socket folder. It exists if the socket is not in the data
/// folder, because that path would be too long.
const SOCKET_FOLDER_NOTE: &str = "socket-folder";

/// Chooses the path of the socket: in the data folder, or in the temporary folder if that path would be too
/// long.
pub(crate) fn socket_path(folder: &Path) -> Result<PathBuf, SandboxError> {
    let sibling = folder.join("sock");
    if fits(&sibling) {
        return Ok(sibling);
    }
    let sockets = std::env::temp_dir().join(format!("tw-{:08x}", rand::random::<u32>()));
    let path = sockets.join("sock");
    if !fits(&path) {
        return Err(SandboxError::SocketPath { path });
    }
    private_folder(&sockets)?;
    let note = folder.join(SOCKET_FOLDER_NOTE);
    fs::write(&note, sockets.as_os_str().as_encoded_bytes()).on_path("write", &note)?;
    Ok(path)
}

fn fits(path: &Path) -> bool {
    // MySQL creates a lock file next to the socket, with ".lock" appended to the name.
    path.as_os_str().len() + ".lock".len() <= SOCKET_PATH_BYTES_MAX
}

/// Creates a folder that only its owner can enter, because these servers have a superuser without a password.
pub(crate) fn private_folder(path: &Path) -> Result<(), SandboxError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).on_path("create", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::at(folder.path());
        let first = InstanceFolder::create(&cache).expect("first");
        let stale = cache.run().join("1-abc");
        fs::create_dir_all(stale.join("data")).expect("stale folder");
        fs::write(cache.run().join("1-abc.lock"), b"").expect("stale lock");
        let second = InstanceFolder::create(&cache).expect("second");
        assert!(!stale.exists() && !cache.run().join("1-abc.lock").exists());
        assert!(first.path().is_dir() && second.path().is_dir());
        drop(first);
        drop(second);
        assert_eq!(fs::read_dir(cache.run()).expect("list").count(), 0);
    }

    #[test]
    fn a_socket_whose_path_is_too_long_is_in_the_temporary_folder() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(
            socket_path(folder.path()).expect("a short folder path gives a socket path"),
            folder.path().join("sock")
        );
        let deep = folder.path().join("x".repeat(100));
        fs::create_dir_all(&deep).expect("deep folder");
        let path = socket_path(&deep).expect("a long folder path gives a socket path");
        assert!(!path.starts_with(&deep) && path.parent().is_some_and(Path::is_dir));
        remove_instance(&deep, &folder.path().join("no.lock")).expect("remove");
        assert!(!path.parent().is_some_and(Path::exists));
    }
}
