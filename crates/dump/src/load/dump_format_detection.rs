//! Detects which tool wrote a dump folder.

use std::io::ErrorKind;
use std::sync::Arc;

use super::{DumpContents, mydumper_folder, mysql_shell_folder, tailwater_folder};
use crate::dump_folder::dump_file_names::MANIFEST;
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::{BulkError, file_error};

/// Reads the contents of a dump folder that any of the supported tools wrote.
///
/// # Errors
/// The errors of the three modules that read the folders of Tailwater, mydumper and MySQL Shell.
pub fn read(files: Arc<dyn FileStore>, mixed_allowed: bool) -> Result<DumpContents, BulkError> {
    let listed = match files.list() {
        Ok(listed) => listed,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(file_error("list", &files.path(""))(error)),
    };
    let has = |wanted: &str| listed.iter().any(|(name, _)| name == wanted);
    match () {
        () if has(MANIFEST) => tailwater_folder::read_files(files, mixed_allowed),
        () if has(mysql_shell_folder::DUMP) => mysql_shell_folder::read(files),
        () if has(mydumper_folder::METADATA) || has(mydumper_folder::METADATA_PARTIAL) => {
            mydumper_folder::read(files)
        }
        // No file of a known tool was found. The error names the manifest that a folder of Tailwater would
        // have.
        () => tailwater_folder::read_files(files, mixed_allowed),
    }
}
