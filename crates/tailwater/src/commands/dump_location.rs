//! Where a dump is, as the command line says it: a folder, or an object store.

use std::sync::Arc;

use anyhow::Context;
use tailwater_bulk::folder::{DumpFiles, LocalFiles};

use tailwater_daemon::object_files::ObjectFiles;

/// The files at a place.
///
/// # Errors
/// If the place makes no sense.
pub(super) fn dump_files(place: &str) -> anyhow::Result<Arc<dyn DumpFiles>> {
    if place.starts_with("s3://") {
        return Ok(Arc::new(ObjectFiles::open(place).with_context(|| place.to_owned())?));
    }
    let folder = place.strip_prefix("file://").unwrap_or(place);
    anyhow::ensure!(!folder.contains("://"), "{place}: want a folder or s3://BUCKET/PREFIX");
    Ok(Arc::new(LocalFiles::new(folder)))
}
