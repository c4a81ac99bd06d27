//! The interface between the log and a disk. All file operations of the log use the traits [`Directory`] and
//! [`LogFile`]. So tests can run recovery on a simulated disk that loses, tears and reorders unsynced writes.

mod file_system;
#[cfg(test)]
pub(crate) mod power_cut_disk;
#[cfg(test)]
pub(crate) mod simulated_disk;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) use file_system::RealDirectory;

/// Runs `wait`, which blocks this thread because it waits for a disk or another thread. If the thread belongs
/// to a multi-threaded runtime, the other tasks of the runtime first move to another thread.
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
    /// The file must exist. It is opened for reading.
    Read,
    /// The file must exist. It is opened for reading and writing.
    ReadWrite,
    /// The file must not exist. It is created and opened for reading and writing.
    CreateNew,
}

/// A directory of files, without subdirectories.
pub(crate) trait Directory: Debug + Send + Sync {
    /// Returns the path of the directory, for messages.
    fn path(&self) -> &Path;
    /// Returns the names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens or creates a file.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn LogFile>>;
    /// Returns when the file was last written.
    fn modified(&self, name: &str) -> io::Result<SystemTime>;
    /// Renames a file within the directory. It replaces an existing file of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes created, renamed and removed files durable.
    fn sync(&self) -> io::Result<()>;
    /// Takes the exclusive lock and holds it until the returned guard is dropped. Returns `None` if another
    /// process or writer holds the lock.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;

    /// Returns the number of the oldest archived segment from which no segment up to `first` is missing in
    /// the archive. `first` is the first segment in the directory itself.
    fn archived_before(&self, _first: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the segments before `first` that are missing although older segments are archived.
    fn missing_before(&self, _first: u64) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// Returns the full path of a file, for messages.
    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// An open file.
pub(crate) trait LogFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes. Returns 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reserves space that reads as zeros, and makes the file at least `offset + length` bytes long. Returns
    /// `Unsupported` if the file system cannot do that.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Sets the length of the file, and frees the space after it.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Runs fdatasync: after it returns, content and length are on stable storage.
    fn sync(&self) -> io::Result<()>;
    /// Makes the kernel start to write `offset..offset + length` to the disk, and does not wait.
    fn start_writeback(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer`. Returns the number of bytes read, which is smaller than the buffer only at the end of
    /// the file.
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
