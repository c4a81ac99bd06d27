//! Small JSON files that are replaced as a whole. A file has one line of JSON and one line with its checksum.
//! Format: docs/reference/log-format.md.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::LogError;
use crate::storage::{Directory, OpenMode, RealDirectory};

/// Suffix of the temporary file that is written first and then renamed to the name of the original file.
const REPLACEMENT_SUFFIX: &str = ".new";

/// A small JSON file that another crate keeps in the directory of a log. It is replaced as a whole and
/// durably, and holds a checksum.
#[derive(Debug, Clone)]
pub struct AtomicJsonFile {
    directory: PathBuf,
    name: &'static str,
    bytes_max: u64,
}

impl AtomicJsonFile {
    /// Returns the file `name` in the directory of a source's log. The file may have at most `bytes_max`
    /// bytes.
    pub fn new(directory: &Path, name: &'static str, bytes_max: u64) -> Self {
        Self { directory: directory.to_owned(), name, bytes_max }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// Reads the JSON line. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if the checksum does not match; [`LogError::Io`].
    pub fn read(&self) -> Result<Option<String>, LogError> {
        let document = read(&RealDirectory::new(&self.directory), self.name, self.bytes_max)?;
        document.transpose().map_err(|reason| self.corrupt(reason))
    }

    /// Replaces the file. When this method returns, the new content survives a power cut. `document` must be
    /// one line.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]: the file then holds the old or the new content.
    pub fn replace(&self, document: &str) -> Result<(), LogError> {
        replace(&RealDirectory::new(&self.directory), self.name, document)
    }

    /// Returns the error for content that the caller cannot interpret.
    pub fn corrupt(&self, reason: impl Into<String>) -> LogError {
        LogError::corrupt(self.path(), 0, reason.into())
    }
}

/// Reads the JSON line of a file. Returns `None` if the file does not exist. The inner `Err` describes what
/// is wrong with the bytes.
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
        return Ok(Some(Err(format!("the file has {length} bytes; the limit is {bytes_max}"))));
    }
    let mut bytes = vec![0; length as usize];
    let filled = file.read_full_at(&mut bytes, 0).map_err(|error| LogError::io("read", &path, error))?;
    Ok(Some(decode(&bytes[..filled])))
}

/// Replaces the file `name` durably. `document` must be one line.
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
    let text = std::str::from_utf8(bytes).map_err(|_| "the file is not text")?;
    let mut lines = text.lines();
    let (Some(document), Some(crc), None) = (lines.next(), lines.next(), lines.next()) else {
        return Err("the file does not have two lines".into());
    };
    if crc != format!("crc32 {:08x}", crc32fast::hash(document.as_bytes())) {
        return Err("the checksum of the file does not match".into());
    }
    Ok(document.to_owned())
}

/// Returns the name of the file that a temporary file was meant to replace.
pub(crate) fn replaced_by(name: &str) -> Option<&str> {
    name.strip_suffix(REPLACEMENT_SUFFIX)
}
