//! Writes the journal of a dump: one growing file where files can grow, otherwise numbered files of several
//! entries each.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use tailwater_files::PRIVATE_FILE_MODE;

use super::dump_file_names::{JOURNAL, WRITER, journal_number, numbered_journal};
use super::journal_entries::JournalEntry;
use super::small_file_reader::{DOCUMENT_BYTES_MAX, document};
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::journal_file;

/// Maximum size of the finished data files, in bytes, that are not yet recorded in the journal. They are lost
/// if a process that writes numbered journal files is killed. The limit is not lower because each journal
/// file costs a request, and databases may have thousands of small tables.
const LOST_FILE_BYTES_MAX: u64 = 16 << 20;
const LOST_ENTRIES_MAX: usize = 64;

/// Where journal entries are written.
pub(super) enum JournalWriter {
    /// One growing file, which this process locks while it is open.
    Growing(File),
    /// Numbered files, in stores where files cannot grow.
    NumberedJournal(NumberedJournal),
}

/// Numbered journal files, and the entries that are not written to a file yet.
pub(super) struct NumberedJournal {
    files: Arc<dyn FileStore>,
    /// A unique name that identifies this process.
    writer: String,
    /// The numbers of the existing journal files.
    existing: Vec<u32>,
    next: u32,
    lines: String,
    entries: usize,
    /// Size of the data files, in bytes, that are recorded as finished only in `lines`.
    file_bytes: u64,
}

impl fmt::Debug for JournalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Growing(_) => "Growing",
            Self::NumberedJournal(_) => "Numbered",
        })
    }
}

impl JournalWriter {
    /// Takes over the journal for this process. A local folder is locked against other processes. An object
    /// store has no locks; there, another process that still writes to the journal detects the new owner and
    /// stops.
    ///
    /// # Errors
    /// [`BulkError::Busy`], [`BulkError::File`].
    pub(super) fn take(files: &Arc<dyn FileStore>) -> Result<Self, BulkError> {
        if let Some(folder) = files.folder() {
            return lock(folder).map(Self::Growing);
        }
        let writer = unique_name();
        files.put(WRITER, writer.as_bytes()).map_err(file_error("write", &files.path(WRITER)))?;
        let existing = numbers(files.as_ref())?;
        Ok(Self::NumberedJournal(NumberedJournal {
            files: Arc::clone(files),
            writer,
            next: existing.last().map_or(0, |last| last.saturating_add(1)),
            existing,
            lines: String::new(),
            entries: 0,
            file_bytes: 0,
        }))
    }

    /// Returns the entries of the journal. Removes an incomplete line at the end.
    ///
    /// # Errors
    /// [`BulkError::File`], [`BulkError::Damaged`].
    pub(super) fn entries(&mut self, files: &dyn FileStore) -> Result<Vec<JournalEntry>, BulkError> {
        match self {
            Self::Growing(file) => {
                let path = files.path(JOURNAL);
                let bytes = tailwater_files::read_bounded(&mut *file, DOCUMENT_BYTES_MAX);
                let bytes = bytes.map_err(file_error("read", &path))?;
                let (entries, good_bytes) = parsed(&bytes, &path)?;
                file.set_len(good_bytes as u64).map_err(file_error("cut", &path))?;
                file.seek(SeekFrom::End(0)).map_err(file_error("read", &path))?;
                Ok(entries)
            }
            Self::NumberedJournal(numbered) => {
                // The files are listed again: the process that wrote the journal before may just have emptied
                // it.
                numbered.existing = numbers(files)?;
                numbered_entries(files, &numbered.existing)
            }
        }
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Busy`] if another process has taken over the journal.
    pub(super) fn record(&mut self, entry: &JournalEntry, files: &dyn FileStore) -> Result<(), BulkError> {
        match self {
            Self::Growing(file) => {
                let path = files.path(JOURNAL);
                file.write_all(entry.to_line().as_bytes()).map_err(file_error("write", &path))
            }
            Self::NumberedJournal(numbered) => {
                numbered.lines.push_str(&entry.to_line());
                numbered.entries += 1;
                if let JournalEntry::Finished { chunk, .. } = entry {
                    numbered.file_bytes += chunk.file_bytes;
                }
                let enough =
                    numbered.entries >= LOST_ENTRIES_MAX || numbered.file_bytes >= LOST_FILE_BYTES_MAX;
                if enough { numbered.flush() } else { Ok(()) }
            }
        }
    }

    /// Empties the journal after `write` has written a manifest with all its entries.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Busy`] if another process has taken over the journal.
    pub(super) fn empty_after(
        &mut self,
        files: &dyn FileStore,
        write: impl FnOnce() -> Result<(), BulkError>,
    ) -> Result<(), BulkError> {
        match self {
            Self::Growing(file) => {
                write()?;
                let path = files.path(JOURNAL);
                file.set_len(0).map_err(file_error("empty", &path))?;
                file.seek(SeekFrom::Start(0)).map_err(file_error("empty", &path))?;
            }
            Self::NumberedJournal(numbered) => {
                numbered.check_mine()?;
                write()?;
                numbered.forget_lines();
                for number in numbered.existing.drain(..) {
                    let name = numbered_journal(number);
                    files.remove(&name).map_err(file_error("remove", &files.path(&name)))?;
                }
            }
        }
        Ok(())
    }
}

impl NumberedJournal {
    fn flush(&mut self) -> Result<(), BulkError> {
        self.check_mine()?;
        let name = numbered_journal(self.next);
        let put = self.files.put(&name, self.lines.as_bytes());
        put.map_err(file_error("write", &self.files.path(&name)))?;
        self.existing.push(self.next);
        self.next += 1;
        self.forget_lines();
        Ok(())
    }

    fn forget_lines(&mut self) {
        self.lines.clear();
        (self.entries, self.file_bytes) = (0, 0);
    }

    /// Checks that this process still owns the journal. An object store has no locks. If two processes write
    /// to one dump, the process that started later continues, and the earlier process fails at this check.
    fn check_mine(&self) -> Result<(), BulkError> {
        let now = document(self.files.as_ref(), WRITER)?;
        match now == self.writer.as_bytes() {
            true => Ok(()),
            false => Err(BulkError::Busy { path: self.files.path("") }),
        }
    }
}

/// Reads the entries of a journal without locking it.
///
/// # Errors
/// [`BulkError::File`], [`BulkError::Damaged`].
pub(super) fn read(files: &dyn FileStore) -> Result<Vec<JournalEntry>, BulkError> {
    if files.folder().is_none() {
        return numbered_entries(files, &numbers(files)?);
    }
    match document(files, JOURNAL) {
        Err(BulkError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => Ok(parsed(&read?, &files.path(JOURNAL))?.0),
    }
}

fn parsed(bytes: &[u8], path: &Path) -> Result<(Vec<JournalEntry>, usize), BulkError> {
    journal_file::parse(bytes).map_err(|reason| BulkError::Damaged { path: path.to_owned(), reason })
}

/// Returns the numbers of the existing journal files.
fn numbers(files: &dyn FileStore) -> Result<Vec<u32>, BulkError> {
    let listed = files.list().map_err(file_error("list", &files.path("")))?;
    let mut existing: Vec<_> = listed.iter().filter_map(|(name, _)| journal_number(name)).collect();
    existing.sort_unstable();
    Ok(existing)
}

fn numbered_entries(files: &dyn FileStore, existing: &[u32]) -> Result<Vec<JournalEntry>, BulkError> {
    let mut all = Vec::new();
    for &number in existing {
        let name = numbered_journal(number);
        let bytes = document(files, &name)?;
        let (entries, good_bytes) = parsed(&bytes, &files.path(&name))?;
        // A numbered journal file is written atomically, so an incomplete line means that the file is
        // damaged.
        if good_bytes != bytes.len() {
            let reason = format!("the line at byte {good_bytes} is damaged");
            return Err(BulkError::Damaged { path: files.path(&name), reason });
        }
        all.extend(entries);
    }
    Ok(all)
}

fn lock(folder: &Path) -> Result<File, BulkError> {
    let path = folder.join(JOURNAL);
    let journal =
        tailwater_files::open_or_create(&path, PRIVATE_FILE_MODE).map_err(file_error("open", &path))?;
    match flock(&journal, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(journal),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BulkError::Busy { path: folder.to_owned() }),
        Err(error) => Err(BulkError::File { action: "lock", path, source: error.into() }),
    }
}

/// Returns a unique name, made from the process, the time and the hasher's random seed.
fn unique_name() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hash = Sha256::new();
    hash.update(std::process::id().to_le_bytes());
    hash.update(chrono::Utc::now().to_rfc3339());
    hash.update(RandomState::new().build_hasher().finish().to_le_bytes());
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
