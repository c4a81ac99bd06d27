//! Reads and changes the manifests of dump folders.

use std::path::Path;

use anyhow::Result;
use tailwater_dump::dump_folder::dump_file_names::MANIFEST;
use tailwater_dump::dump_folder::{DumpFolder, Manifest};

pub fn read_manifest(folder: &Path) -> Result<Manifest> {
    Ok(DumpFolder::read(folder)?)
}

/// Writes a manifest without a checksum, as an older version did.
pub fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<()> {
    Ok(std::fs::write(folder.join(MANIFEST), serde_json::to_vec_pretty(manifest)?)?)
}
