//! The disk as a directory of the file system.

use std::any::Any;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock};

use super::{Directory, LogFile, OpenMode, blocking};

/// The mode that servers give their binlog files: the owner and the group can read the rows.
const FILE_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;
/// How long to wait for a lock that another process holds. If the owner of the lock has ended but had just
/// forked a child process, the child holds the lock until it calls `exec`.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(500);
/// The time between two attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// A directory of the file system.
#[derive(Debug)]
pub(crate) struct RealDirectory {
    path: PathBuf,
}

impl RealDirectory {
    /// Wraps a directory that exists.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Creates the directory and its missing parents durably.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let missing: Vec<&Path> =
            path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        for created in missing {
            let parent =
                created.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::File::open(parent)?.sync_all()?;
        }
        Ok(Self::new(path))
    }
}

impl Directory for RealDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // Leave out a file whose name is not UTF-8, because it is not a file of the log.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn LogFile>> {
        let path = self.path.join(name);
        let file = match mode {
            OpenMode::CreateNew => tailwater_files::create_new(&path, FILE_MODE)?,
            _ => tailwater_files::open_existing(&path, mode != OpenMode::Read)?,
        };
        Ok(Arc::new(RealFile { file }))
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        fs::metadata(self.path.join(name))?.modified()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        blocking(|| fs::File::open(&self.path)?.sync_all())
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let path = self.path.join(name);
        let file = tailwater_files::open_or_create(&path, FILE_MODE)?;
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        blocking(|| {
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break Ok(true),
                    Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= deadline => break Ok(false),
                    Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_POLL),
                    Err(error) => break Err(error.into()),
                }
            }
        })
        .map(|is_locked| is_locked.then(|| Box::new(file) as Box<dyn Any + Send + Sync>))
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
}

impl LogFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        blocking(|| fallocate(&self.file, FallocateFlags::empty(), offset, length)).map_err(io::Error::from)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        blocking(|| self.file.set_len(length))
    }

    fn sync(&self) -> io::Result<()> {
        blocking(|| self.file.sync_data())
    }

    fn start_writeback(&self, offset: u64, length: u64) -> io::Result<()> {
        // With this advice, Linux starts to write the dirty pages of the range to disk and does not wait. The
        // system call sync_file_range(SYNC_FILE_RANGE_WRITE) does the same, but there is no safe wrapper for
        // it. The advice also drops pages that are already clean. Pages that are being written remain in the
        // cache, so readers at the end of the log still find them.
        match NonZeroU64::new(length) {
            Some(length) => {
                fadvise(&self.file, offset, Some(length), Advice::DontNeed).map_err(io::Error::from)
            }
            None => Ok(()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
