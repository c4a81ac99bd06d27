//! The interface to the files of a dump: in a local folder, or in another store of whole files.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::BulkError;

/// Maximum size of a manifest, a journal or a definition: a manifest has some hundred bytes for each of
/// millions of chunks.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// The files of one dump. Calls block; asynchronous callers run them on a separate thread.
pub trait DumpFiles: fmt::Debug + Send + Sync {
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

    /// As [`DumpFiles::put`], for files that other users must not read. A store has its own access rights.
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

/// Reads a whole small file.
///
/// # Errors
/// [`BulkError::File`]; [`BulkError::Damaged`] if it is too large.
pub fn document(files: &dyn DumpFiles, name: &str) -> Result<Vec<u8>, BulkError> {
    document_of(files, name, DOCUMENT_BYTES_MAX)
}

/// As [`document`], with its own limit.
///
/// # Errors
/// As [`document`].
pub(crate) fn document_of(files: &dyn DumpFiles, name: &str, bytes_max: u64) -> Result<Vec<u8>, BulkError> {
    let path = files.path(name);
    let read = files.open(name).and_then(|file| tailwater_files::read_bounded(file, bytes_max));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => BulkError::Damaged { path, reason: error.to_string() },
        _ => failed("read", &path)(error),
    })
}

/// The error for a failed action on a file.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BulkError + use<> {
    let path = path.to_owned();
    move |source| BulkError::File { action, path, source }
}

/// The name of a file that is not complete yet.
pub(crate) fn partial(name: &str) -> String {
    format!("{name}.partial")
}
