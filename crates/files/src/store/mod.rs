//! A flat set of whole files: in a local folder, or in another store such as S3.
//!
//! - [`FileStore`]: the interface. [`LocalFiles`]: a local folder; `direct_io`: how its files are written.

mod direct_io;
mod local;

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

pub use local::LocalFiles;

/// A set of files. Calls block; asynchronous callers run them on a separate thread.
pub trait FileStore: fmt::Debug + Send + Sync {
    /// A file's full name, for messages; that of the folder for "".
    fn path(&self, name: &str) -> PathBuf;

    /// The folder, if it is local: then the journal is a growing file.
    fn folder(&self) -> Option<&Path>;

    /// All files: names and lengths in bytes.
    ///
    /// # Errors
    /// The error of the system or the store; `NotFound` for a missing folder.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens a file.
    ///
    /// # Errors
    /// The error of the system or the store, also during reads; `NotFound` if it does not exist.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Creates a file. It exists under its name once it is finished; if it is dropped before, it is
    /// discarded.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>>;

    /// Writes a whole small file durably; replaces a file of that name atomically.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// As [`FileStore::put`], for files that other users must not read. A store has its own access rights.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn put_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put(name, bytes)
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Send {
    /// Gives it its name, durably if `durable`. Returns its length in bytes.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn finish(self: Box<Self>, durable: bool) -> io::Result<u64>;
}

/// The name of a file that is not complete yet.
pub fn partial(name: &str) -> String {
    format!("{name}.partial")
}
