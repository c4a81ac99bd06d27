//! Small files that are replaced whole: one line of JSON, and one with its checksum. Format: docs/reference/log-format.md.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::LogError;
use crate::storage::{Directory, OpenMode, RealDirectory};

/// Appended to a file's name while what replaces it is written.
const REPLACEMENT_SUFFIX: &str = ".new";

/// A small file that another room keeps in a log's folder as the log keeps its own: replaced whole, durably, with a checksum.
#[derive(Debug, Clone)]
pub struct AtomicJsonFile {
    directory: PathBuf,
    name: &'static str,
    bytes_max: u64,
}

impl AtomicJsonFile {
    /// The file of that name in the folder of a source's log, never longer than `bytes_max`.
    pub fn new(directory: &Path, name: &'static str, bytes_max: u64) -> Self {
        Self { directory: directory.to_owned(), name, bytes_max }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// The line of JSON in it; `None` if there is no such file.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if its checksum does not match; [`LogError::Io`].
    pub fn read(&self) -> Result<Option<String>, LogError> {
        let document = read(&RealDirectory::new(&self.directory), self.name, self.bytes_max)?;
        document.transpose().map_err(|reason| self.corrupt(reason))
    }

    /// Replaces it: when this returns, a power cut leaves the new one. `document` is one line.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]: it may be the old one or the new one then.
    pub fn replace(&self, document: &str) -> Result<(), LogError> {
        replace(&RealDirectory::new(&self.directory), self.name, document)
    }

    /// What to say of a document that makes no sense.
    pub fn corrupt(&self, reason: impl Into<String>) -> LogError {
        LogError::corrupt(self.path(), 0, reason.into())
    }
}

/// Reads the document in a file; `None` if there is no such file. `Err` inside says what is wrong with the bytes.
pub(crate) fn read(
    directory: &dyn Directory,
    name: &str,
    bytes_max: u64,
) -> Result<Option<Result<String, String>>, LogError> {
    let path = directory.path_of(name);
    let file = match directory.open(name, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("open", path, error)),
    };
    let length = file.length().map_err(|error| LogError::io("read", &path, error))?;
    if length > bytes_max {
        return Ok(Some(Err(format!("it has {length} bytes, more than any such file"))));
    }
    let mut bytes = vec![0; length as usize];
    let filled = file.read_full_at(&mut bytes, 0).map_err(|error| LogError::io("read", &path, error))?;
    Ok(Some(decode(&bytes[..filled])))
}

/// Replaces a file durably.
pub(crate) fn replace(directory: &dyn Directory, name: &str, document: &str) -> Result<(), LogError> {
    let replacement = format!("{name}{REPLACEMENT_SUFFIX}");
    let fail = |action, name: &str| {
        let path = directory.path_of(name);
        move |error| LogError::write(action, path, error)
    };
    match directory.remove(&replacement) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(fail("remove", &replacement)(error)),
        _ => {}
    }
    let file = directory.open(&replacement, OpenMode::CreateNew).map_err(fail("create", &replacement))?;
    file.write_at(&encode(document), 0).map_err(fail("write", &replacement))?;
    file.sync().map_err(fail("fdatasync", &replacement))?;
    directory.rename(&replacement, name).map_err(fail("replace", name))?;
    directory.sync().map_err(fail("sync the directory of", name))
}

pub(crate) fn encode(document: &str) -> Vec<u8> {
    format!("{document}\ncrc32 {:08x}\n", crc32fast::hash(document.as_bytes())).into_bytes()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let mut lines = text.lines();
    let (Some(document), Some(crc), None) = (lines.next(), lines.next(), lines.next()) else {
        return Err("it does not have two lines".into());
    };
    if crc != format!("crc32 {:08x}", crc32fast::hash(document.as_bytes())) {
        return Err("its checksum does not match".into());
    }
    Ok(document.to_owned())
}

/// The name of the file that a replacement not put in place was to replace.
pub(crate) fn replaced_by(name: &str) -> Option<&str> {
    name.strip_suffix(REPLACEMENT_SUFFIX)
}
