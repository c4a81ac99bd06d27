//! The interface to an object store for archived segments. The log itself opens no sockets: its caller
//! implements this interface.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

/// Stores objects under names. A name is a path with `/`. An object exists completely under its name, or not
/// at all.
///
/// All calls block the thread. They end in bounded time, because the store limits the number of its own
/// retries. The errors are those of `io`: [`ErrorKind::NotFound`] for an object that does not exist, and
/// [`ErrorKind::PermissionDenied`] if a retry is pointless. They wrap an [`ArchiveFailure`] if the store
/// could not be reached.
pub trait ArchiveStore: Debug + Send + Sync {
    /// Returns the location of the store for messages, without secrets.
    fn url(&self) -> &str;
    /// Stores an object durably. Replaces an object of the same name.
    ///
    /// # Errors
    /// The errors of `content` and of the store. After an error, there is no object of this name, or the
    /// previous object is unchanged.
    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()>;
    /// Fills `buffer` with the bytes from `offset` on. Returns the number of bytes read, which is smaller
    /// than the buffer only at the end of the object.
    ///
    /// # Errors
    /// See [`ArchiveStore`].
    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Returns the length of the object in bytes.
    ///
    /// # Errors
    /// See [`ArchiveStore`].
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Returns the objects in `folder`, in any order. Returns all objects if `folder` is empty.
    ///
    /// # Errors
    /// See [`ArchiveStore`]. A folder that does not exist counts as empty.
    fn list(&self, folder: &str) -> io::Result<Vec<ArchiveObject>>;
    /// Deletes an object. It is not an error if the object does not exist.
    ///
    /// # Errors
    /// See [`ArchiveStore`].
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// An object in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveObject {
    /// The name of the object.
    pub name: String,
    /// The length of the object in bytes.
    pub bytes: u64,
    /// When the object was stored.
    pub modified: SystemTime,
}

/// The store could not be reached, or it refused the request. The `io::Error`s of an [`ArchiveStore`] contain
/// this error.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ArchiveFailure {
    /// The error text of the store.
    pub reason: String,
}

impl ArchiveFailure {
    /// Returns an `io::Error` that wraps this failure.
    pub fn error(kind: ErrorKind, reason: impl Into<String>) -> io::Error {
        io::Error::new(kind, Self { reason: reason.into() })
    }
}

/// Bytes that can be read at any offset, such as an archived object.
pub trait RangedRead: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes. Returns 0 only at the end.
    ///
    /// # Errors
    /// An error of the store or file that holds the bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// An error of the store or file that holds the bytes.
    fn length(&self) -> io::Result<u64>;
}

/// Fills `buffer` with the bytes of `source` from `offset` on.
///
/// # Errors
/// [`ErrorKind::UnexpectedEof`] if `source` ends before the buffer is full.
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

/// The minimum number of bytes that are requested from a store at once. The request itself costs more than
/// the transfer of this many bytes.
const READ_BYTES_MIN: usize = 128 << 10;
/// The maximum number of bytes that are requested at once, if an object is read sequentially.
const READ_BYTES_MAX: usize = 4 << 20;

/// An object in a store. The longer a caller reads it sequentially, the more bytes each request fetches.
#[derive(Debug)]
pub(crate) struct StoredObject {
    store: Arc<dyn ArchiveStore>,
    name: String,
    bytes: u64,
    window: Mutex<ReadBuffer>,
}

#[derive(Debug)]
struct ReadBuffer {
    offset: u64,
    bytes: Vec<u8>,
    next_bytes: usize,
}

impl StoredObject {
    /// Wraps an object of `bytes` bytes.
    pub(crate) fn new(store: Arc<dyn ArchiveStore>, name: String, bytes: u64) -> Self {
        let window = ReadBuffer { offset: 0, bytes: Vec::new(), next_bytes: READ_BYTES_MIN };
        Self { store, name, bytes, window: Mutex::new(window) }
    }
}

impl RangedRead for StoredObject {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut window = self.window.lock();
        let window = &mut *window;
        let end = window.offset + window.bytes.len() as u64;
        if offset < window.offset || offset >= end {
            if offset >= self.bytes || buffer.is_empty() {
                return Ok(0);
            }
            window.next_bytes = match offset == end && end > 0 {
                true => (window.next_bytes * 2).min(READ_BYTES_MAX),
                false => READ_BYTES_MIN,
            };
            // This program chooses the length of `buffer` (a frame or a page), so outside data cannot make it
            // large.
            let wanted = window.next_bytes.max(buffer.len()).min((self.bytes - offset) as usize);
            window.bytes.resize(wanted, 0);
            window.offset = offset;
            let filled = self.store.read_at(&self.name, &mut window.bytes, offset);
            window.bytes.truncate(*filled.as_ref().unwrap_or(&0));
            if filled? == 0 {
                let reason = format!(
                    "the object {} ends at {offset}, but the store listed it with {} bytes",
                    self.name, self.bytes
                );
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
