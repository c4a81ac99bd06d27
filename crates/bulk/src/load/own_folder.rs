//! Reads a dump that we wrote.

use std::io;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use tailwater_wire::Flavour;

use super::contents::{Contents, Definition, LoadChunk, LoadTable, Packing};
use crate::error::BulkError;
use crate::folder::names::{JOURNAL, MANIFEST};
use crate::folder::{
    Compression, DumpedFlavour, FORMAT, Manifest, ObjectEntry, ObjectKind, TableEntry, journal,
};
use crate::schema::TableName;

/// The most bytes of a manifest or journal: some hundred for each of a million chunks.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// Reads what a folder holds, without taking it from a dump that writes to it.
///
/// # Errors
/// [`BulkError::File`], [`BulkError::Damaged`], [`BulkError::NewerFormat`]; [`BulkError::Unfinished`] if the dump is not
/// complete; [`BulkError::Mixed`] if it is not of one point in time and `mixed_allowed` is not set.
pub fn read(folder: &Path, mixed_allowed: bool) -> Result<Contents, BulkError> {
    let manifest = manifest(folder)?;
    if !manifest.is_complete() || manifest.finished_at.is_none() {
        let unfinished = manifest.tables.iter().filter(|table| !table.finished).count();
        return Err(BulkError::Unfinished { path: folder.into(), tables: unfinished });
    }
    let used: Vec<_> = manifest.snapshots_used().into_iter().collect();
    if used.len() > 1 && !mixed_allowed {
        return Err(BulkError::Mixed { path: folder.into(), points: used.len() });
    }
    let point = match used[..] {
        [] => manifest.snapshots.last(),
        [only] => manifest.snapshots.get(only),
        _ => None,
    };
    let point = point.cloned();
    let path = |file: &str| inside(folder, file);
    let object = |object: &ObjectEntry| {
        let kind = object.kind.name().replace('_', " ");
        let what = format!("{kind} {}.{}", object.schema, object.name);
        Ok(Definition { what, path: path(&object.file)? })
    };
    let is_sequence = |entry: &&ObjectEntry| entry.kind == ObjectKind::Sequence;
    let schema = |schema: &crate::folder::SchemaEntry| {
        Ok(Definition { what: format!("database {}", schema.name), path: path(&schema.file)? })
    };
    Ok(Contents {
        id: id(&manifest),
        folder: folder.into(),
        flavour: Some(match manifest.server.flavour {
            DumpedFlavour::MySql => Flavour::MySql,
            DumpedFlavour::MariaDb => Flavour::MariaDb,
        }),
        schemas: manifest.schemas.iter().map(schema).collect::<Result<_, BulkError>>()?,
        sequences: manifest
            .objects
            .iter()
            .filter(is_sequence)
            .map(object)
            .collect::<Result<_, BulkError>>()?,
        objects: manifest
            .objects
            .iter()
            .filter(|entry| !is_sequence(entry))
            .map(object)
            .collect::<Result<_, BulkError>>()?,
        tables: manifest
            .tables
            .iter()
            .map(|entry| table(folder, entry, manifest.compression))
            .collect::<Result<_, _>>()?,
        point,
    })
}

/// The manifest with what the journal adds to it.
fn manifest(folder: &Path) -> Result<Manifest, BulkError> {
    let path = folder.join(MANIFEST);
    let damaged = |reason: String| BulkError::Damaged { path: path.clone(), reason };
    let bytes = document(&path)?;
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    // Before anything else is understood: what else there is may differ.
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    match format {
        Some(found) if found > u64::from(FORMAT) => {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(BulkError::NewerFormat { path, found, known: FORMAT });
        }
        Some(_) => {}
        None => return Err(damaged("it names no format".into())),
    }
    let mut manifest: Manifest = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
    let path = folder.join(JOURNAL);
    let journal = match document(&path) {
        Err(BulkError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    for entry in journal::parse(&journal).0 {
        manifest.absorb(entry).map_err(|reason| BulkError::Damaged { path: path.clone(), reason })?;
    }
    Ok(manifest)
}

/// All of a file that is small unless somebody tampered with it.
pub(super) fn document(path: &Path) -> Result<Vec<u8>, BulkError> {
    let failed = |source| BulkError::File { action: "read", path: path.into(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > DOCUMENT_BYTES_MAX {
        let reason = format!("it has {bytes} bytes, more than {DOCUMENT_BYTES_MAX}");
        return Err(BulkError::Damaged { path: path.into(), reason });
    }
    std::fs::read(path).map_err(failed)
}

/// The path of a file that a manifest names. It must be one of the folder: what it holds is sent to a server.
fn inside(folder: &Path, file: &str) -> Result<PathBuf, BulkError> {
    let mut components = Path::new(file).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) => Ok(folder.join(name)),
        _ => {
            let reason = format!("it names the file {file:?}, which is not one of its folder");
            Err(BulkError::Damaged { path: folder.join(MANIFEST), reason })
        }
    }
}

/// Tells the dump from others; what changes while it is written is not in it.
fn id(manifest: &Manifest) -> String {
    let mut hash = Sha256::new();
    hash.update(&manifest.started_at);
    hash.update(&manifest.server.version);
    for table in &manifest.tables {
        for part in [&table.schema, &table.table] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn table(folder: &Path, entry: &TableEntry, compression: Compression) -> Result<LoadTable, BulkError> {
    let packing = match compression {
        Compression::None => Packing::None,
        Compression::Zstd => Packing::Zstd,
    };
    let mut chunks = Vec::with_capacity(entry.chunks.len());
    for (number, chunk) in (0..).zip(&entry.chunks) {
        // A finished table has no other.
        let Some(written) = chunk.written else { continue };
        chunks.push(LoadChunk {
            number,
            path: inside(folder, &chunk.file)?,
            packing,
            rows: Some(written.rows),
            bytes: Some(written.bytes),
            crc32: Some(written.crc32),
            file_bytes: written.file_bytes,
        });
    }
    Ok(LoadTable {
        name: TableName::new(&entry.schema, &entry.table),
        definition: inside(folder, &entry.file)?,
        columns: Some(entry.columns.iter().map(|column| column.name.clone()).collect()),
        chunks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_outside_of_the_folder_is_named() {
        let folder = Path::new("/dump");
        assert_eq!(
            inside(folder, "a.b.000000.tsv").expect("it is inside"),
            Path::new("/dump/a.b.000000.tsv")
        );
        for file in ["/etc/passwd", "../a", "a/b", "", ".", ".."] {
            assert!(inside(folder, file).is_err(), "{file:?}");
        }
    }
}
