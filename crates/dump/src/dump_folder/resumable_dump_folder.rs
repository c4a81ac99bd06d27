//! A dump folder, to which one process writes. The dump can resume after a kill at any step.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dump_file_names::{JOURNAL, MANIFEST, TABLE_ENDING, WRITER};
use super::journal_entries::JournalEntry;
use super::journal_writer::{self, JournalWriter};
use super::manifest::{FORMAT, Manifest};
use super::manifest_file::{self as manifest_document, DocumentError};
use super::small_file_reader::document;
use tailwater_files::file_store::{FileStore, LocalFiles, partial};
use tailwater_tables::error::{BulkError, file_error};

/// Number of recently finished files whose contents are verified when a dump resumes. Only files that the
/// journal records and the manifest does not are counted.
const LAST_FILES_MAX: usize = 16;

/// The files of a dump, to which only this process writes.
#[derive(Debug)]
pub struct DumpFolder {
    files: Arc<dyn FileStore>,
    recorder: JournalWriter,
    manifest: Manifest,
    last_files: Vec<String>,
}

impl DumpFolder {
    /// Returns whether the folder has a dump, or the start of a dump.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn is_one(files: &dyn FileStore) -> Result<bool, BulkError> {
        match files.list() {
            Ok(listed) => Ok(listed.iter().any(|(name, _)| name == MANIFEST)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(file_error("list", &files.path(""))(error)),
        }
    }

    /// Creates a dump in a folder that does not exist yet or is empty.
    ///
    /// # Errors
    /// [`BulkError::FolderNotEmpty`] if it has files; [`BulkError::Busy`]; [`BulkError::File`].
    pub fn create(files: Arc<dyn FileStore>, manifest: Manifest) -> Result<Self, BulkError> {
        let place = files.path("");
        if let Some(folder) = files.folder() {
            tailwater_files::create_private_folder(folder).map_err(file_error("create", &place))?;
        }
        // A killed process may have left an empty journal or an incomplete manifest, which count as an empty
        // folder.
        let ours = [JOURNAL, WRITER, &partial(MANIFEST)];
        let listed = files.list().map_err(file_error("list", &place))?;
        let mut names = listed.iter().map(|(name, _)| name.as_str());
        let is_begun = names.clone().any(|name| name == MANIFEST);
        if names.any(|name| !ours.contains(&name) && name != MANIFEST) {
            return Err(BulkError::FolderNotEmpty { path: place });
        }
        if is_begun && !is_of_nothing(files.as_ref()) {
            return Err(BulkError::FolderNotEmpty { path: place });
        }
        let recorder = JournalWriter::take(&files)?;
        let mut folder = Self { files, recorder, manifest, last_files: Vec::new() };
        folder.checkpoint()?;
        Ok(folder)
    }

    /// Opens a dump to resume it. Removes an incomplete line at the end of the journal.
    ///
    /// # Errors
    /// [`BulkError::Busy`] if another process writes to it; [`BulkError::Damaged`],
    /// [`BulkError::NewerFormat`], [`BulkError::File`].
    pub fn open(files: Arc<dyn FileStore>) -> Result<Self, BulkError> {
        let mut recorder = JournalWriter::take(&files)?;
        let (mut manifest, entries) = read_both(files.as_ref(), || recorder.entries(files.as_ref()))?;
        let mut last_files = Vec::new();
        for entry in &entries {
            let JournalEntry::Finished { schema, table, number, .. } = entry else { continue };
            last_files.push(super::dump_file_names::chunk_file(schema, table, *number, manifest.ending()));
        }
        last_files.drain(..last_files.len().saturating_sub(LAST_FILES_MAX));
        absorb(files.as_ref(), &mut manifest, entries)?;
        Ok(Self { files, recorder, manifest, last_files })
    }

    /// Reads the manifest of a dump in a local folder, without locking it.
    ///
    /// # Errors
    /// The same as for [`DumpFolder::open`], except [`BulkError::Busy`].
    pub fn read(folder: &Path) -> Result<Manifest, BulkError> {
        Self::read_files(&LocalFiles::new(folder))
    }

    /// Reads the manifest of a dump, without locking it.
    ///
    /// # Errors
    /// The same as for [`DumpFolder::open`], except [`BulkError::Busy`].
    pub fn read_files(files: &dyn FileStore) -> Result<Manifest, BulkError> {
        let (mut manifest, entries) = read_both(files, || journal_writer::read(files))?;
        absorb(files, &mut manifest, entries)?;
        Ok(manifest)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the manifest, to change it before [`DumpFolder::checkpoint`].
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Returns the store of the dump's files.
    pub fn files(&self) -> &Arc<dyn FileStore> {
        &self.files
    }

    /// Returns the names of the data files that the interrupted process finished last.
    pub fn last_files(&self) -> &[String] {
        &self.last_files
    }

    /// Returns the path of a file, for messages.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    /// Records an entry in the journal. In a local folder, the entry survives a kill of the process. A power
    /// failure may lose the entry, and then all later entries are lost too. In an object store, a kill may
    /// lose some of the last entries.
    ///
    /// # Errors
    /// [`BulkError::File`], [`BulkError::Busy`]; [`BulkError::Damaged`] if it contradicts an earlier entry.
    pub fn record(&mut self, entry: JournalEntry) -> Result<(), BulkError> {
        let path = || self.files.path(JOURNAL);
        self.manifest.absorb(entry.clone()).map_err(|reason| BulkError::Damaged { path: path(), reason })?;
        self.recorder.record(&entry, self.files.as_ref())
    }

    /// Writes the manifest, including all entries of the journal, and empties the journal.
    ///
    /// # Errors
    /// [`BulkError::File`], [`BulkError::Busy`]
    pub fn checkpoint(&mut self) -> Result<(), BulkError> {
        let Self { files, recorder, manifest, .. } = self;
        recorder.empty_after(files.as_ref(), || {
            let path = files.path(MANIFEST);
            let text = manifest_document::encode(manifest).map_err(io::Error::other);
            text.and_then(|text| files.put(MANIFEST, &text)).map_err(file_error("write", &path))
        })
    }

    /// Writes a small file atomically.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), BulkError> {
        self.files.put(name, bytes).map_err(file_error("write", &self.files.path(name)))
    }
}

/// Reads the manifest, and then the journal. If another process removes a file of the journal between the two
/// reads, both are read again: the newer manifest has the entries of that file.
fn read_both(
    files: &dyn FileStore,
    mut journal: impl FnMut() -> Result<Vec<JournalEntry>, BulkError>,
) -> Result<(Manifest, Vec<JournalEntry>), BulkError> {
    const TRIES_MAX: u32 = 5;
    let mut tries = 1;
    loop {
        let manifest = read_manifest(files)?;
        match journal() {
            Ok(entries) => return Ok((manifest, entries)),
            Err(BulkError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound && tries < TRIES_MAX =>
            {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

impl DumpFolder {
    /// Writes a small file atomically, as [`DumpFolder::write`] does; other users of the machine cannot read
    /// the file.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn write_private(&self, name: &str, bytes: &[u8]) -> Result<(), BulkError> {
        self.files.put_private(name, bytes).map_err(file_error("write", &self.files.path(name)))
    }
}

fn absorb(
    files: &dyn FileStore,
    manifest: &mut Manifest,
    entries: Vec<JournalEntry>,
) -> Result<(), BulkError> {
    for entry in entries {
        manifest.absorb(entry).map_err(|reason| BulkError::Damaged { path: files.path(JOURNAL), reason })?;
    }
    manifest.check().map_err(|reason| BulkError::Damaged { path: files.path(JOURNAL), reason })
}

fn read_manifest(files: &dyn FileStore) -> Result<Manifest, BulkError> {
    let path = files.path(MANIFEST);
    // The first byte is checked before the whole file is read: a damaged manifest may be a huge file of
    // zeros.
    let mut first = [0];
    let begins = files.open(MANIFEST).and_then(|mut file| file.read(&mut first));
    if begins.map_err(file_error("read", &path))? == 0 || first != *b"{" {
        return Err(BulkError::Damaged {
            path,
            reason: "the file does not start like a manifest".to_owned(),
        });
    }
    let text = document(files, MANIFEST)?;
    let (manifest, has_checksum) =
        manifest_document::decode(&text).map_err(|unreadable| match unreadable {
            DocumentError::NewerFormat(found) => {
                BulkError::NewerFormat { path: path.clone(), found, known: FORMAT }
            }
            DocumentError::Damaged(reason) => BulkError::Damaged { path: path.clone(), reason },
        })?;
    if manifest.finished_at.is_some() && !has_checksum {
        check_definitions(files, &manifest)?;
    }
    Ok(manifest)
}

/// Returns whether the manifest belongs to a dump that ended before it had listed its databases and tables.
/// Such a manifest can be replaced without loss.
fn is_of_nothing(files: &dyn FileStore) -> bool {
    let is_bare = |manifest: &Manifest| {
        manifest.finished_at.is_none() && manifest.tables.is_empty() && manifest.schemas.is_empty()
    };
    DumpFolder::read_files(files).as_ref().is_ok_and(is_bare)
}

/// Checks that every table whose definition is in the folder is in the manifest. A manifest of an older
/// version has no checksum. If a table was removed from it by hand, the load would omit that table without an
/// error.
fn check_definitions(files: &dyn FileStore, manifest: &Manifest) -> Result<(), BulkError> {
    let listed = files.list().map_err(file_error("list", &files.path("")))?;
    let known: HashSet<_> = manifest.tables.iter().map(|table| table.file.as_str()).collect();
    let is_unknown = |name: &&str| name.ends_with(TABLE_ENDING) && !known.contains(name);
    match listed.iter().map(|(name, _)| name.as_str()).find(is_unknown) {
        None => Ok(()),
        Some(name) => {
            let reason = format!(
                "the manifest does not name {name}, the definition of a table in the folder; to omit the table, remove that file"
            );
            Err(BulkError::Damaged { path: files.path(MANIFEST), reason })
        }
    }
}
