//! Reads a dump folder of Tailwater.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tailwater_wire::Flavour;

use super::dump_contents::{
    AccountScripts, DefinitionScript, DumpContents, FileCompression, LoadChunk, ScriptDialect, TableFiles,
};
use crate::dump_folder::dump_file_names::MANIFEST;
use crate::dump_folder::{
    AccountEntry, DumpCompression, DumpFolder, DumpedFlavour, Manifest, ObjectEntry, RowFormat, TableEntry,
};
use tailwater_files::file_store::{FileStore, LocalFiles};
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::{ObjectKind, TableName};
use tailwater_tables::snapshot::SnapshotPoint;

/// Reads the contents of a folder, without a lock, so that a dump may still write to the folder.
///
/// # Errors
/// - [`BulkError::File`], [`BulkError::Damaged`], [`BulkError::NewerFormat`],
///   [`BulkError::RowFormatUnsupported`].
/// - [`BulkError::IncompleteDump`] if the dump is not complete.
/// - [`BulkError::MixedSnapshots`] if the tables have different points in time and `mixed_allowed` is not
///   set.
pub fn read(folder: &Path, mixed_allowed: bool) -> Result<DumpContents, BulkError> {
    read_files(Arc::new(LocalFiles::new(folder)), mixed_allowed)
}

/// Reads the contents of a dump as [`read`] does, from files in any store.
///
/// # Errors
/// The same as for [`read`].
pub fn read_files(files: Arc<dyn FileStore>, mixed_allowed: bool) -> Result<DumpContents, BulkError> {
    let manifest = DumpFolder::read_files(files.as_ref())?;
    let folder = &files.path("");
    if !manifest.is_complete() || manifest.finished_at.is_none() {
        let unfinished = manifest.tables.iter().filter(|table| !table.finished).count();
        return Err(BulkError::IncompleteDump { path: folder.into(), tables: unfinished });
    }
    if manifest.rows != RowFormat::Tsv {
        return Err(BulkError::RowFormatUnsupported { path: folder.into(), format: manifest.rows.name() });
    }
    let used: Vec<_> = manifest.snapshots_used().into_iter().collect();
    if used.len() > 1 && !mixed_allowed {
        return Err(BulkError::MixedSnapshots { path: folder.into(), points: used.len() });
    }
    let point = match used[..] {
        [] => manifest.snapshots.last(),
        [only] => manifest.snapshots.get(only),
        _ => None,
    };
    contents(Arc::clone(&files), &manifest, point.cloned())
}

/// Returns the contents that a manifest describes, with finished chunks only.
///
/// # Errors
/// [`BulkError::Damaged`] if the manifest names files outside of the folder.
pub(crate) fn contents(
    files: Arc<dyn FileStore>,
    manifest: &Manifest,
    point: Option<SnapshotPoint>,
) -> Result<DumpContents, BulkError> {
    let folder = &files.path("");
    let path = |file: &str| inside(folder, file);
    let object = |object: &ObjectEntry| {
        let kind = object.kind.name().replace('_', " ");
        let what = format!("{kind} {}.{}", object.schema, object.name);
        Ok(DefinitionScript { what, path: path(&object.file)?, dialect: ScriptDialect::Own })
    };
    let account = |account: &AccountEntry| {
        let AccountEntry { user, host, file, grants_file } = account;
        let script = |what: String, file: &str| {
            Ok::<_, BulkError>(DefinitionScript { what, path: path(file)?, dialect: ScriptDialect::Own })
        };
        Ok(AccountScripts {
            user: user.clone(),
            host: host.clone(),
            create: script(format!("account {user}@{host}"), file)?,
            grants: script(format!("grants of {user}@{host}"), grants_file)?,
        })
    };
    let is_sequence = |entry: &&ObjectEntry| entry.kind == ObjectKind::Sequence;
    let schema = |schema: &crate::dump_folder::SchemaEntry| {
        Ok(DefinitionScript {
            what: format!("database {}", schema.name),
            path: path(&schema.file)?,
            dialect: ScriptDialect::Own,
        })
    };
    Ok(DumpContents {
        id: id(manifest),
        files: Arc::clone(&files),
        accounts: manifest.accounts.iter().map(account).collect::<Result<_, BulkError>>()?,
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

/// Returns the path of a file that a manifest names. The file must be in the folder, because the load sends
/// its contents to a server.
fn inside(folder: &Path, file: &str) -> Result<PathBuf, BulkError> {
    let mut components = Path::new(file).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) => Ok(folder.join(name)),
        _ => {
            let reason =
                format!("the manifest names the file {file:?}, which is outside of the dump's folder");
            Err(BulkError::Damaged { path: folder.join(MANIFEST), reason })
        }
    }
}

/// Returns an identifier of the dump. It depends only on facts that do not change while the dump is being
/// written.
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

fn table(folder: &Path, entry: &TableEntry, compression: DumpCompression) -> Result<TableFiles, BulkError> {
    let packing = match compression {
        DumpCompression::None => FileCompression::None,
        DumpCompression::Zstd => FileCompression::Zstd,
        DumpCompression::Gzip => FileCompression::Gzip,
    };
    let mut chunks = Vec::with_capacity(entry.chunks.len());
    for (number, chunk) in (0..).zip(&entry.chunks) {
        // A chunk without a written file is left out. A finished table has no such chunk.
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
    Ok(TableFiles {
        name: TableName::new(&entry.schema, &entry.table),
        definition: DefinitionScript {
            what: format!("table {}.{}", entry.schema, entry.table),
            path: inside(folder, &entry.file)?,
            dialect: ScriptDialect::Own,
        },
        text: None,
        columns: Some(entry.columns.iter().map(|column| column.name.clone()).collect()),
        chunks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_folder_are_refused() {
        let folder = Path::new("/dump");
        assert_eq!(
            inside(folder, "a.b.000000.tsv").expect("the file is inside the folder"),
            Path::new("/dump/a.b.000000.tsv")
        );
        for file in ["/etc/passwd", "../a", "a/b", "", ".", ".."] {
            assert!(inside(folder, file).is_err(), "a path outside the folder was accepted: {file:?}");
        }
    }
}
