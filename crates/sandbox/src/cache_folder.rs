//! The folders in which installed servers, template data directories and running sandboxes are stored.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::{FileContext, SandboxError};

/// The cache folder. It has these subfolders:
///
/// - `servers/<kind>`: unpacked servers
/// - `templates/<kind>-<version>`: template data directories, which are copied for each new server
/// - `run/<pid>-<n>`: data of servers that end with the process that started them
/// - `up`: servers started by `tailwater sandbox up`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Returns the cache at `$TAILWATER_CACHE`, else `$XDG_CACHE_HOME/tailwater`, else `~/.cache/tailwater`.
    ///
    /// # Errors
    /// [`SandboxError::NoCacheFolder`] if none of the variables is set to an absolute path.
    pub fn locate() -> Result<Self, SandboxError> {
        Self::from_environment(|name| env::var_os(name))
    }

    /// Returns the cache in a given folder, for tests and for `--cache`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, SandboxError> {
        // A relative path is ignored, because it would name another cache in each working directory.
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("TAILWATER_CACHE")
            .or_else(|| absolute("XDG_CACHE_HOME").map(|path| path.join("tailwater")))
            .or_else(|| absolute("HOME").map(|path| path.join(".cache/tailwater")))
            .map(Self::at)
            .ok_or(SandboxError::NoCacheFolder)
    }

    /// Returns the cache folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of unpacked servers. It has a subfolder for each kind.
    pub fn servers(&self) -> PathBuf {
        self.root.join("servers")
    }

    /// Returns the folder of template data directories.
    pub fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }

    /// Returns the folder for data of servers that end with the process that started them.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Returns the folder for data of servers that `tailwater sandbox up` started.
    pub fn up(&self) -> PathBuf {
        self.root.join("up")
    }
}

/// An advisory lock on a file. It is released when this value is dropped. If the process is killed, the
/// kernel releases the lock.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Waits for the lock. Calls `waiting` once if another process has the lock.
    pub(crate) fn acquire(path: &Path, waiting: impl FnOnce()) -> Result<Self, SandboxError> {
        if let Some(lock) = Self::try_acquire(path)? {
            return Ok(lock);
        }
        waiting();
        let file = Self::open(path)?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))
            .on_path("lock", path)?;
        Ok(Self { file })
    }

    /// Acquires the lock if no other process has it, else returns `None`.
    pub(crate) fn try_acquire(path: &Path) -> Result<Option<Self>, SandboxError> {
        let file = Self::open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(source) => Err(source).on_path("lock", path),
        }
    }

    /// Returns whether the locked file is still at `path`. Another process may have removed the file while
    /// this process waited for the lock, or before it tried to lock the file. Such a lock does not exclude
    /// other processes.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let (locked, there) = (self.file.metadata().map(identity), fs::metadata(path).map(identity));
        matches!((locked, there), (Ok(locked), Ok(there)) if locked == there)
    }

    fn open(path: &Path) -> Result<File, SandboxError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).on_path("create", folder)?;
        }
        OpenOptions::new().create(true).truncate(false).write(true).open(path).on_path("open", path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_environment_variable_wins() {
        let check = |set: &[(&str, &str)], want: Option<&str>| {
            let variable = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            let root = Cache::from_environment(variable).ok().map(|cache| cache.root);
            assert_eq!(root, want.map(PathBuf::from), "wrong cache folder with the variables {set:?}");
        };
        check(&[("HOME", "/home/a")], Some("/home/a/.cache/tailwater"));
        check(&[("HOME", "/home/a"), ("XDG_CACHE_HOME", "/x")], Some("/x/tailwater"));
        check(&[("XDG_CACHE_HOME", "/x"), ("TAILWATER_CACHE", "/t")], Some("/t"));
        check(&[("HOME", "/home/a"), ("TAILWATER_CACHE", "relative")], Some("/home/a/.cache/tailwater"));
        check(&[("HOME", "")], None);
        check(&[], None);
    }

    #[test]
    fn a_lock_on_a_removed_file_is_recognized() {
        let folder = tempfile::tempdir().expect("a temporary folder is created");
        let path = folder.path().join("lock");
        let lock = FileLock::try_acquire(&path).expect("lock").expect("no other process holds the lock");
        assert!(lock.is_at(&path));
        fs::remove_file(&path).expect("the lock file is removed");
        assert!(!lock.is_at(&path));
        let other = FileLock::try_acquire(&path).expect("lock").expect("the new lock file is not locked");
        assert!(other.is_at(&path) && !lock.is_at(&path));
    }

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("deep/lock");
        let held = FileLock::try_acquire(&path).expect("lock");
        assert!(held.is_some());
        assert!(FileLock::try_acquire(&path).expect("second try").is_none());
        drop(held);
        assert!(FileLock::try_acquire(&path).expect("third try").is_some());
    }
}
