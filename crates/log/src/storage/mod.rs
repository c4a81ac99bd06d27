//! The interface between the log and a disk. All file operations of the log go through these two traits, so
//! that recovery can be tested against a simulated disk that loses, tears and reorders unsynced writes.

mod real;
#[cfg(test)]
pub(crate) mod simulated;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) use real::RealDirectory;

/// Blocks this thread for a disk or another thread. On a thread of a multi-threaded runtime, its other tasks
/// move to another thread first.
pub fn blocking<T>(wait: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(wait)
        }
        _ => wait(),
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// It must exist; read-only.
    Read,
    /// It must exist; read and write.
    ReadWrite,
    /// It must not exist; read and write.
    CreateNew,
}

/// A directory of files, without subdirectories.
pub(crate) trait Directory: Debug + Send + Sync {
    /// Its path, for messages.
    fn path(&self) -> &Path;
    /// The names of its files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens or creates a file.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn LogFile>>;
    /// When the file was last written.
    fn modified(&self, name: &str) -> io::Result<SystemTime>;
    /// Renames a file within the directory; replaces an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> io::Result<()>;
    /// Takes the exclusive lock until the guard is dropped; `None` if another process or writer holds it.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;

    /// The oldest of the archived segments that lead up to `first`, the directory's own first segment,
    /// without a gap.
    fn archived_before(&self, _first: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Segments before `first` that are missing although older ones are archived.
    fn missing_before(&self, _first: u64) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// The full path of a file, for messages.
    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// An open file.
pub(crate) trait LogFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reserves space that reads as zeros, and makes the file at least `offset + length` bytes long.
    /// `Unsupported` if the file system cannot.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Sets the length, and releases the space after it.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// fdatasync: contents and length are on stable storage when this returns.
    fn sync(&self) -> io::Result<()>;
    /// Starts writing `offset..offset + length` to the disk, without waiting.
    fn start_writeback(&self, offset: u64, length: u64) -> io::Result<()>;
    /// The length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer`, or returns the number of bytes up to the end of the file.
    fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}
