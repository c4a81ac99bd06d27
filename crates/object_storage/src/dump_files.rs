//! The files of a dump in S3. Files are uploaded in parts while they are written, and downloaded in ranges,
//! so memory is bounded.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tailwater_files::file_store::{FileStore, NewFile};
use tailwater_log::archive::ArchiveStore;
use tokio::task::JoinHandle;

use crate::segment_archive::{ArchiveAddress, ObjectArchive};

/// Size of the first parts of an upload, in bytes. S3 accepts at most 10,000 parts, so later parts are
/// larger. With these sizes, a file can have up to 300 GB.
const PART_BYTES_FIRST: usize = 8 << 20;
const PARTS_OF_A_SIZE: usize = 2500;

/// Maximum number of parts of one file that are uploaded at the same time.
const PARTS_MAX: usize = 2;

/// The number of bytes in a download range, and the maximum number of ranges that are downloaded at the same
/// time.
const RANGE_BYTES: u64 = 4 << 20;
const RANGES_MAX: usize = 2;

/// Maximum number of requests for one range. A range is requested again if the response breaks off. In
/// addition, the S3 client retries each failed request.
const RANGE_TRIES_MAX: u32 = 5;

/// The files of a dump in a bucket, under a prefix.
#[derive(Debug)]
pub struct ObjectFiles {
    archive: Arc<ObjectArchive>,
}

impl ObjectFiles {
    /// Opens the files at `s3://BUCKET/PREFIX` without sending a request.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid address; the operating system's error if a thread cannot be started.
    pub fn open(url: &str) -> io::Result<Self> {
        Ok(Self { archive: Arc::new(ObjectArchive::open_existing(&ArchiveAddress::at(url))?) })
    }
}

impl FileStore for ObjectFiles {
    fn path(&self, name: &str) -> PathBuf {
        match name {
            "" => self.archive.url().into(),
            name => format!("{}/{name}", self.archive.url()).into(),
        }
    }

    fn folder(&self) -> Option<&Path> {
        None
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let objects = self.archive.list("")?;
        Ok(objects.into_iter().map(|object| (object.name, object.bytes)).collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let bytes = self.archive.length(name)?;
        Ok(Box::new(ObjectReader {
            archive: Arc::clone(&self.archive),
            path: self.archive.path(name)?,
            remaining: 0..bytes,
            requests: VecDeque::new(),
            piece: Bytes::new(),
        }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(NewObject {
            archive: Arc::clone(&self.archive),
            path: self.archive.path(name)?,
            part: Vec::new(),
            parts: 0,
            bytes: 0,
            upload: None,
            requests: VecDeque::new(),
        }))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.archive.put(name, &mut &*bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.archive.delete(name)
    }
}

/// An object while it is uploaded. It becomes visible in the bucket when the upload is complete.
struct NewObject {
    archive: Arc<ObjectArchive>,
    path: ObjectPath,
    part: Vec<u8>,
    /// Number of uploaded parts.
    parts: usize,
    bytes: u64,
    /// The multipart upload. `None` while the object is not larger than one part.
    upload: Option<Box<dyn MultipartUpload>>,
    requests: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl fmt::Debug for NewObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewObject").field("path", &self.path).finish_non_exhaustive()
    }
}

impl NewObject {
    fn part_bytes(&self) -> usize {
        PART_BYTES_FIRST << (self.parts / PARTS_OF_A_SIZE)
    }

    fn send_part(&mut self) -> io::Result<()> {
        if self.upload.is_none() {
            let (store, path) = (Arc::clone(self.archive.store()), self.path.clone());
            self.upload = Some(self.archive.wait(async move { store.put_multipart(&path).await })?);
        }
        if self.requests.len() == PARTS_MAX
            && let Some(oldest) = self.requests.pop_front()
        {
            self.archive.part_sent(oldest)?;
        }
        let part = PutPayload::from(std::mem::take(&mut self.part));
        if let Some(upload) = &mut self.upload {
            self.requests.push_back(self.archive.spawn(upload.put_part(part))?);
            self.parts += 1;
        }
        Ok(())
    }
}

impl Write for NewObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.part_bytes() - self.part.len();
        let taken = room.min(bytes.len());
        self.part.extend_from_slice(&bytes[..taken]);
        self.bytes += taken as u64;
        if self.part.len() == self.part_bytes() {
            self.send_part()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for NewObject {
    fn finish(mut self: Box<Self>, _durable: bool) -> io::Result<u64> {
        if self.upload.is_none() {
            let (store, path) = (Arc::clone(self.archive.store()), self.path.clone());
            let content = PutPayload::from(std::mem::take(&mut self.part));
            self.archive.wait(async move { store.put(&path, content).await })?;
            return Ok(self.bytes);
        }
        if !self.part.is_empty() {
            self.send_part()?;
        }
        while let Some(part) = self.requests.pop_front() {
            self.archive.part_sent(part)?;
        }
        if let Some(mut upload) = self.upload.take() {
            self.archive.wait(async move { upload.complete().await })?;
        }
        Ok(self.bytes)
    }
}

impl Drop for NewObject {
    fn drop(&mut self) {
        // Abort an unfinished upload. If the process is killed, this code does not run, and the uploaded
        // parts use storage until the bucket's lifecycle rules remove them.
        if let Some(mut upload) = self.upload.take() {
            let requests = std::mem::take(&mut self.requests);
            let abort = async move {
                for part in requests {
                    let _ = part.await;
                }
                let _ = upload.abort().await;
            };
            let _ = self.archive.spawn(abort);
        }
    }
}

/// An object that is read sequentially.
struct ObjectReader {
    archive: Arc<ObjectArchive>,
    path: ObjectPath,
    remaining: Range<u64>,
    requests: VecDeque<JoinHandle<object_store::Result<Bytes>>>,
    piece: Bytes,
}

impl ObjectReader {
    fn request_ranges(&mut self) -> io::Result<()> {
        while self.requests.len() < RANGES_MAX && !self.remaining.is_empty() {
            let range = self.remaining.start..self.remaining.end.min(self.remaining.start + RANGE_BYTES);
            self.remaining.start = range.end;
            let request = fetch(Arc::clone(self.archive.store()), self.path.clone(), range);
            self.requests.push_back(self.archive.spawn(request)?);
        }
        Ok(())
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            self.request_ranges()?;
            let Some(next) = self.requests.pop_front() else { return Ok(0) };
            // A network failure does not mean that the file is damaged, so it gets an error kind of its own.
            let failed = |error: io::Error| match error.kind() {
                ErrorKind::Other => io::Error::new(ErrorKind::ConnectionAborted, error),
                _ => error,
            };
            self.piece = self.archive.join(next).map_err(failed)?;
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Downloads a range of an object. Requests it again if the response breaks off.
async fn fetch(
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    range: Range<u64>,
) -> object_store::Result<Bytes> {
    let mut tries = 1;
    loop {
        let response = store.get_range(&path, range.clone()).await;
        match response {
            Err(object_store::Error::Generic { .. }) if tries < RANGE_TRIES_MAX => {
                tokio::time::sleep(Duration::from_millis(100) * 3u32.pow(tries)).await;
                tries += 1;
            }
            done => return done,
        }
    }
}
