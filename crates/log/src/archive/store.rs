//! What the log needs of a place for archived segments. The log opens no sockets: whoever does implements this.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Objects by name. A name is a path with `/`; an object appears whole under its name, or not at all.
///
/// Calls block; they end in bounded time, after bounded tries of the store's own. Errors are those of `io`:
/// [`ErrorKind::NotFound`] for an object that is not there, [`ErrorKind::PermissionDenied`] for what trying again does
/// not help; around an [`ArchiveFailure`] if the store could not be asked.
pub trait ArchiveStore: Debug + Send + Sync {
    /// Where it is, for messages; without secrets.
    fn url(&self) -> &str;
    /// Puts an object, replacing one of the same name, durably.
    ///
    /// # Errors
    /// Those of `content`, and those of the store. Then the object is not there, or still the one before.
    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()>;
    /// Fills `buffer` from `offset` on, or gives back how many bytes there were up to the object's end.
    ///
    /// # Errors
    /// As above.
    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The object's length in bytes.
    ///
    /// # Errors
    /// As above.
    fn length(&self, name: &str) -> io::Result<u64>;
    /// The objects below `folder`, or all if it is empty, in no order.
    ///
    /// # Errors
    /// As above. A folder that is not there is empty.
    fn list(&self, folder: &str) -> io::Result<Vec<ArchiveObject>>;
    /// Removes an object; one that is not there is no error.
    ///
    /// # Errors
    /// As above.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// An object of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveObject {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// When it was put.
    pub modified: SystemTime,
}

/// A store could not be asked, or refused. What stands in `io::Error`s of an [`ArchiveStore`].
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ArchiveFailure {
    /// Why, with the store's own words.
    pub reason: String,
}

impl ArchiveFailure {
    /// An error of this kind.
    pub fn error(kind: ErrorKind, reason: impl Into<String>) -> io::Error {
        io::Error::new(kind, Self { reason: reason.into() })
    }
}

/// Something of which any part can be read.
pub trait RangedRead: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes; 0 only at the end.
    ///
    /// # Errors
    /// Those of what is read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The length in bytes.
    ///
    /// # Errors
    /// Those of what is read.
    fn length(&self) -> io::Result<u64>;
}

/// Fills `buffer`.
///
/// # Errors
/// [`ErrorKind::UnexpectedEof`] if there is less.
pub(crate) fn read_exactly_at(
    source: &dyn RangedRead,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match source.read_at(buffer, offset) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl RangedRead for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// What is asked of a store at least, in bytes: asking costs more than this many bytes.
const AHEAD_BYTES_MIN: usize = 128 << 10;
/// And at most, where reading goes straight on.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// An object of a store. Reads further ahead the longer reading goes straight on.
#[derive(Debug)]
pub(crate) struct StoredObject {
    store: Arc<dyn ArchiveStore>,
    name: String,
    bytes: u64,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
    next_bytes: usize,
}

impl StoredObject {
    /// An object of `bytes` bytes.
    pub(crate) fn new(store: Arc<dyn ArchiveStore>, name: String, bytes: u64) -> Self {
        let window = Window { offset: 0, bytes: Vec::new(), next_bytes: AHEAD_BYTES_MIN };
        Self { store, name, bytes, window: Mutex::new(window) }
    }
}

impl RangedRead for StoredObject {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let window = &mut *window;
        let end = window.offset + window.bytes.len() as u64;
        if offset < window.offset || offset >= end {
            if offset >= self.bytes || buffer.is_empty() {
                return Ok(0);
            }
            window.next_bytes = match offset == end && end > 0 {
                true => (window.next_bytes * 2).min(AHEAD_BYTES_MAX),
                false => AHEAD_BYTES_MIN,
            };
            // `buffer` is a frame or a page of the log's own: not what a foreign length says.
            let wanted = window.next_bytes.max(buffer.len()).min((self.bytes - offset) as usize);
            window.bytes.resize(wanted, 0);
            window.offset = offset;
            let filled = self.store.read_at(&self.name, &mut window.bytes, offset);
            window.bytes.truncate(*filled.as_ref().unwrap_or(&0));
            if filled? == 0 {
                let reason = format!("{} ends at {offset}, it had {} bytes", self.name, self.bytes);
                return Err(ArchiveFailure::error(ErrorKind::UnexpectedEof, reason));
            }
        }
        let rest = &window.bytes[(offset - window.offset) as usize..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}
