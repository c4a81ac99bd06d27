//! The files of a dump: one process writes, each step so that a kill leaves what can be gone on with.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::journal::{self, JournalEntry};
use super::manifest::{FORMAT, Manifest};
use super::names::{JOURNAL, MANIFEST};
use crate::error::BulkError;

/// The longest journal and manifest that are believed to be ones.
const DOCUMENT_BYTES_MAX: u64 = 4 << 30;

/// A dump folder that this process alone writes to.
#[derive(Debug)]
pub struct DumpFolder {
    path: PathBuf,
    journal: File,
    manifest: Manifest,
}

impl DumpFolder {
    /// Whether there is a dump in a folder, or the beginning of one.
    pub fn is_one(path: &Path) -> bool {
        path.join(MANIFEST).exists()
    }

    /// Begins a dump in a folder that is not there, or is empty.
    ///
    /// # Errors
    /// [`BulkError::FolderInUse`] if something is in it; [`BulkError::Busy`]; [`BulkError::File`].
    pub fn create(path: &Path, manifest: Manifest) -> Result<Self, BulkError> {
        fs::create_dir_all(path).map_err(failed("create", path))?;
        // A killed process may have left the empty journal, or a half-written manifest.
        let ours = |name: &std::ffi::OsStr| name == JOURNAL || name == partial(MANIFEST).as_str();
        for entry in fs::read_dir(path).map_err(failed("list", path))? {
            let entry = entry.map_err(failed("list", path))?;
            if !ours(&entry.file_name()) {
                return Err(BulkError::FolderInUse { path: path.to_owned() });
            }
        }
        let mut folder = Self { path: path.to_owned(), journal: lock(path)?, manifest };
        folder.checkpoint()?;
        Ok(folder)
    }

    /// Opens a dump to go on with. A torn end of the journal is cut off.
    ///
    /// # Errors
    /// [`BulkError::Busy`] if another process writes to it; [`BulkError::Damaged`], [`BulkError::NewerFormat`],
    /// [`BulkError::File`].
    pub fn open(path: &Path) -> Result<Self, BulkError> {
        let mut journal = lock(path)?;
        let mut manifest = read_manifest(path)?;
        let good_bytes = replay(path, &mut journal, &mut manifest)?;
        let journal_path = path.join(JOURNAL);
        journal.set_len(good_bytes).map_err(failed("cut", &journal_path))?;
        journal.seek(SeekFrom::End(0)).map_err(failed("read", &journal_path))?;
        Ok(Self { path: path.to_owned(), journal, manifest })
    }

    /// What a dump holds, without taking part in it.
    ///
    /// # Errors
    /// As [`DumpFolder::open`], without [`BulkError::Busy`].
    pub fn read(path: &Path) -> Result<Manifest, BulkError> {
        let mut manifest = read_manifest(path)?;
        let journal_path = path.join(JOURNAL);
        match File::open(&journal_path) {
            Ok(mut journal) => drop(replay(path, &mut journal, &mut manifest)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(BulkError::File { action: "open", path: journal_path, source }),
        }
        Ok(manifest)
    }

    /// What is in it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What is in it, to be changed before [`DumpFolder::checkpoint`].
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Records something. A killed process has recorded it; a machine without power perhaps not, and then nothing later
    /// either.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Damaged`] if it contradicts what was recorded before.
    pub fn record(&mut self, entry: JournalEntry) -> Result<(), BulkError> {
        let line = entry.to_line();
        let path = self.file(JOURNAL);
        self.manifest.absorb(entry).map_err(|reason| BulkError::Damaged { path: path.clone(), reason })?;
        self.journal.write_all(line.as_bytes()).map_err(failed("write", &path))
    }

    /// Writes the manifest anew, with all that the journal says, and empties the journal.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn checkpoint(&mut self) -> Result<(), BulkError> {
        let path = self.file(MANIFEST);
        let text = serde_json::to_vec_pretty(&self.manifest).map_err(io::Error::other);
        self.write(MANIFEST, &text.map_err(failed("write", &path))?)?;
        let path = self.file(JOURNAL);
        self.journal.set_len(0).map_err(failed("empty", &path))?;
        self.journal.seek(SeekFrom::Start(0)).map_err(failed("empty", &path))?;
        Ok(())
    }

    /// Writes a whole small file: it is there as a whole or not at all.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), BulkError> {
        let temporary = self.file(&partial(name));
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.map_err(failed("write", &temporary))?;
        fs::rename(&temporary, self.file(name)).map_err(failed("rename", &temporary))?;
        self.sync()
    }

    /// Makes what was created and renamed in the folder outlast a power cut.
    fn sync(&self) -> Result<(), BulkError> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(failed("sync", &self.path))
    }
}

/// The name of a file that is not complete yet.
pub(crate) fn partial(name: &str) -> String {
    format!("{name}.partial")
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BulkError + use<> {
    let path = path.to_owned();
    move |source| BulkError::File { action, path, source }
}

fn lock(path: &Path) -> Result<File, BulkError> {
    let file = path.join(JOURNAL);
    let journal = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
    let journal = journal.map_err(failed("open", &file))?;
    match flock(&journal, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(journal),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BulkError::Busy { path: path.to_owned() }),
        Err(error) => Err(BulkError::File { action: "lock", path: file, source: error.into() }),
    }
}

fn read_manifest(path: &Path) -> Result<Manifest, BulkError> {
    let path = path.join(MANIFEST);
    let mut file = File::open(&path).map_err(failed("open", &path))?;
    let text = read_all(&mut file, &path)?;
    let damaged =
        |error: serde_json::Error| BulkError::Damaged { path: path.clone(), reason: error.to_string() };
    // Before anything else, which a newer format may have otherwise.
    let format: FormatOnly = serde_json::from_slice(&text).map_err(damaged)?;
    if format.format > FORMAT {
        return Err(BulkError::NewerFormat { path, found: format.format, known: FORMAT });
    }
    serde_json::from_slice(&text).map_err(damaged)
}

#[derive(serde::Deserialize)]
struct FormatOnly {
    format: u32,
}

fn read_all(file: &mut File, path: &Path) -> Result<Vec<u8>, BulkError> {
    let mut bytes = Vec::new();
    file.take(DOCUMENT_BYTES_MAX).read_to_end(&mut bytes).map_err(failed("read", path))?;
    Ok(bytes)
}

/// Takes up what the journal says; how many bytes of it hold.
fn replay(path: &Path, journal: &mut File, manifest: &mut Manifest) -> Result<u64, BulkError> {
    let path = path.join(JOURNAL);
    let (entries, good_bytes) = journal::parse::<JournalEntry>(&read_all(journal, &path)?);
    for entry in entries {
        manifest.absorb(entry).map_err(|reason| BulkError::Damaged { path: path.clone(), reason })?;
    }
    Ok(good_bytes as u64)
}
