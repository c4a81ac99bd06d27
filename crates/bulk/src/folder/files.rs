//! Where the files of a dump are: in a folder of this machine, or in whatever else keeps whole files by their names.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::BulkError;

/// The most bytes of a manifest, a journal or a definition that are believed to be one: a manifest has some hundred for each
/// of millions of chunks.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// The files of one dump. Calls wait: those who must not wait make them on a thread of their own.
pub trait DumpFiles: fmt::Debug + Send + Sync {
    /// A file's name with its place, for messages; the place itself for "".
    fn path(&self, name: &str) -> PathBuf;

    /// The folder, if the files are in one of this machine: then a journal there grows line by line.
    fn folder(&self) -> Option<&Path>;

    /// All files: names and lengths in bytes.
    ///
    /// # Errors
    /// What the system or the store says; `NotFound` for a folder that is not there.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens a file.
    ///
    /// # Errors
    /// What the system or the store says, also while it is read; `NotFound` if it is not there.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Begins a file. Under its name it is there when it is finished, and not before; dropped before, it is not kept.
    ///
    /// # Errors
    /// What the system or the store says.
    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>>;

    /// Writes a whole small file, durably; one of that name is replaced as a whole.
    ///
    /// # Errors
    /// What the system or the store says.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// As [`DumpFiles::put`], of what is not for everybody. A store has rights of its own.
    ///
    /// # Errors
    /// What the system or the store says.
    fn put_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put(name, bytes)
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// What the system or the store says.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Send {
    /// Gives it its name, durably if it is to be; gives its length in bytes.
    ///
    /// # Errors
    /// What the system or the store says.
    fn finish(self: Box<Self>, durable: bool) -> io::Result<u64>;
}

/// All of a small file.
///
/// # Errors
/// [`BulkError::File`]; [`BulkError::Damaged`] if it is too long to be small.
pub fn document(files: &dyn DumpFiles, name: &str) -> Result<Vec<u8>, BulkError> {
    document_of(files, name, DOCUMENT_BYTES_MAX)
}

/// As [`document`], with a limit of its own.
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

/// An action that failed with a file.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BulkError + use<> {
    let path = path.to_owned();
    move |source| BulkError::File { action, path, source }
}

/// The name of a file that is not complete yet.
pub(crate) fn partial(name: &str) -> String {
    format!("{name}.partial")
}
