//! A set of complete files without subfolders, in a local folder or in another store such as S3.
//!
//! [`FileStore`] is the interface, and [`LocalFiles`] stores files in a local folder. `direct_io` writes
//! these local files.

mod direct_io;
mod local_folder;

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

pub use local_folder::LocalFiles;

/// A set of files. All calls block the thread, so asynchronous callers run them on a separate thread.
pub trait FileStore: fmt::Debug + Send + Sync {
    /// Returns the full name of a file for messages. For `""`, it returns the name of the folder.
    fn path(&self, name: &str) -> PathBuf;

    /// Returns the folder if the store is local. In a local folder, a dump appends to its journal instead of
    /// writing the whole journal again.
    fn folder(&self) -> Option<&Path>;

    /// Returns the names and lengths (in bytes) of all files.
    ///
    /// # Errors
    /// The error of the system or the store; `NotFound` for a missing folder.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The error of the system or the store, also during reads; `NotFound` if the file does not exist.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Creates a file. The file gets its name only when it is finished. If the writer is dropped before, the
    /// file is discarded.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>>;

    /// Writes a small file durably. Replaces an existing file of this name atomically.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Does the same as [`FileStore::put`] for a file that other users must not read. In a store that is not
    /// a local folder, the access rights of the store apply.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn put_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put(name, bytes)
    }

    /// Removes a file if it exists.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Send {
    /// Gives the file its name, durably if `durable` is true. Returns the length of the file in bytes.
    ///
    /// # Errors
    /// The error of the system or the store.
    fn finish(self: Box<Self>, durable: bool) -> io::Result<u64>;
}

/// Returns the temporary name of a file that is not complete yet.
pub fn partial(name: &str) -> String {
    format!("{name}.partial")
}
