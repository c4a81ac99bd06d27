//! Reads small files of a dump completely.

use std::io;

use tailwater_files::file_store::FileStore;
use tailwater_tables::error::{BulkError, file_error};

/// Maximum size in bytes of a manifest, a journal or a definition. A manifest has some hundred bytes for each
/// chunk, and may have millions of chunks.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// Reads a small file completely.
///
/// # Errors
/// [`BulkError::File`]; [`BulkError::Damaged`] if it is too large.
pub fn document(files: &dyn FileStore, name: &str) -> Result<Vec<u8>, BulkError> {
    document_of(files, name, DOCUMENT_BYTES_MAX)
}

/// Reads a small file completely, as [`document`], with a maximum size given by the caller.
///
/// # Errors
/// The same as for [`document`].
pub(crate) fn document_of(files: &dyn FileStore, name: &str, bytes_max: u64) -> Result<Vec<u8>, BulkError> {
    let path = files.path(name);
    let read = files.open(name).and_then(|file| tailwater_files::read_bounded(file, bytes_max));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => BulkError::Damaged { path, reason: error.to_string() },
        _ => file_error("read", &path)(error),
    })
}
