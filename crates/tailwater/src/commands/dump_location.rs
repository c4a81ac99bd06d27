//! Opens a dump location given on the command line: a folder or an S3 address.

use std::sync::Arc;

use anyhow::Context;
use tailwater_files::file_store::{FileStore, LocalFiles};

use tailwater_object_storage::dump_files::ObjectFiles;

/// Opens a dump location.
///
/// # Errors
/// If the location is invalid.
pub(super) fn open_dump(place: &str) -> anyhow::Result<Arc<dyn FileStore>> {
    if place.starts_with("s3://") {
        return Ok(Arc::new(ObjectFiles::open(place).with_context(|| place.to_owned())?));
    }
    let folder = place.strip_prefix("file://").unwrap_or(place);
    anyhow::ensure!(!folder.contains("://"), "{place}: expected a folder or s3://BUCKET/PREFIX");
    Ok(Arc::new(LocalFiles::new(folder)))
}

/// Returns a dump location for messages. Leaves out what follows a question mark, which may be a secret.
pub(super) fn shown_place(place: &str) -> &str {
    match place {
        "-" => "standard output",
        _ if place.contains("://") => place.split('?').next().unwrap_or_default(),
        folder => folder,
    }
}
