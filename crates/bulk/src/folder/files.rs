//! Where the files of a dump are: in a folder of this machine, or in whatever else keeps whole files by their names.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use crate::error::BulkError;

/// The most bytes of a manifest, a journal or a definition that are believed to be one: a manifest has some hundred for each
/// of millions of chunks.
const DOCUMENT_BYTES_MAX: u64 = 4 << 30;

/// The files of one dump. Calls wait: those who must not wait make them on a thread of their own.
pub trait DumpFiles: fmt::Debug + Send + Sync {
    /// A file's name with its place, for messages; the place itself for "".
    fn path(&self, name: &str) -> PathBuf;

    /// The folder, if the files are in one of this machine: then a journal there grows line by line.
    fn folder(&self) -> Option<&Path>;

    /// All files: names and lengths in bytes.
    ///
    /// # Errors
    /// What the system or the store says; `NotFound` for a folder that is not there.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens a file.
    ///
    /// # Errors
    /// What the system or the store says, also while it is read; `NotFound` if it is not there.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Begins a file. Under its name it is there when it is finished, and not before; dropped before, it is not kept.
    ///
    /// # Errors
    /// What the system or the store says.
    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>>;

    /// Writes a whole small file, durably; one of that name is replaced as a whole.
    ///
    /// # Errors
    /// What the system or the store says.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// As [`DumpFiles::put`], of what is not for everybody. A store has rights of its own.
    ///
    /// # Errors
    /// What the system or the store says.
    fn put_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put(name, bytes)
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// What the system or the store says.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub trait NewFile: Write + Send {
    /// Gives it its name, durably if it is to be; gives its length in bytes.
    ///
    /// # Errors
    /// What the system or the store says.
    fn finish(self: Box<Self>, durable: bool) -> io::Result<u64>;
}

/// All of a small file.
///
/// # Errors
/// [`BulkError::File`]; [`BulkError::Damaged`] if it is too long to be small.
pub fn document(files: &dyn DumpFiles, name: &str) -> Result<Vec<u8>, BulkError> {
    let path = files.path(name);
    let mut bytes = Vec::new();
    let read = files.open(name).and_then(|file| file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(failed("read", &path))?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(BulkError::Damaged {
            path,
            reason: format!("it has more than {DOCUMENT_BYTES_MAX} bytes"),
        });
    }
    Ok(bytes)
}

/// An action that failed with a file.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BulkError + use<> {
    let path = path.to_owned();
    move |source| BulkError::File { action, path, source }
}

/// The name of a file that is not complete yet.
pub(crate) fn partial(name: &str) -> String {
    format!("{name}.partial")
}

/// Files in a folder of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFiles {
    folder: PathBuf,
}

impl LocalFiles {
    /// Those in a folder, which may not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes what was created and renamed outlast a power cut.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl DumpFiles for LocalFiles {
    fn path(&self, name: &str) -> PathBuf {
        match name {
            "" => self.folder.clone(),
            name => self.folder.join(name),
        }
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
        }
        Ok(found)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.path(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>> {
        let temporary = self.path(&partial(name));
        let file = File::create(&temporary)?;
        Ok(LocalFile::new(file, self.path(name), temporary))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(name)?;
        file.write_all(bytes)?;
        file.finish(true)?;
        self.sync()
    }

    fn put_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.path(&partial(name));
        self.remove(&partial(name))?;
        // No moment at which others may read it.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let mut file = LocalFile::new(file, self.path(name), temporary);
        file.write_all(bytes)?;
        file.finish(true)?;
        self.sync()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// So many bytes are on their way to the disk at once: what is left to wait for at the end of a file is little.
const WRITEBACK_BYTES: u64 = 4 << 20;

/// A file with another name until it is finished.
struct LocalFile {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
    renamed: bool,
    written_bytes: u64,
    /// Before here bytes are on their way to the disk.
    writeback_to: u64,
}

impl LocalFile {
    fn new(file: File, path: PathBuf, temporary: PathBuf) -> Box<Self> {
        Box::new(Self { file, path, temporary, renamed: false, written_bytes: 0, writeback_to: 0 })
    }

    /// Linux answers this advice by starting to write the range's pages to the disk, without waiting. A system that does
    /// otherwise only makes the end of the file slower.
    fn start_writeback(&mut self) {
        let length = NonZeroU64::new(self.written_bytes - self.writeback_to);
        let _ = fadvise(&self.file, self.writeback_to, length, Advice::DontNeed);
        self.writeback_to = self.written_bytes;
    }
}

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written_bytes += written as u64;
        if self.written_bytes - self.writeback_to >= WRITEBACK_BYTES {
            self.start_writeback();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewFile for LocalFile {
    fn finish(mut self: Box<Self>, durable: bool) -> io::Result<u64> {
        if durable {
            self.file.sync_data()?;
        }
        fs::rename(&self.temporary, &self.path)?;
        self.renamed = true;
        Ok(self.written_bytes)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if !self.renamed {
            // It is written anew whether or not it is there.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
