//! Uploads sealed segments to the archive. A segment counts as archived only after it was read back and is
//! equal to the local segment.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::archived_segment_list::Archive;
use super::object_store::RangedRead;
use super::seekable_zstd::{SeekableEncoder, SeekableReader};
use crate::error::LogError;
use crate::log_handle::{if_purged, segment_numbers};
use crate::segment_files::{index_name, segment_name};
use crate::segment_index_reader;
use crate::storage::{Directory, LogFile, OpenMode};

/// The options for archiving segments.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveOptions {
    /// The compression level of zstd, 1 to 19.
    pub level: i32,
    /// For each segment: how long requests to a failing store are retried.
    pub retry_max: Duration,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self { level: 3, retry_max: Duration::from_secs(30) }
    }
}

/// The current step for a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveStep {
    /// The segment is being compressed and uploaded.
    Upload,
    /// The uploaded segment is being read back.
    Check,
    /// The segment is archived.
    Done,
}

/// The progress of archiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveProgress {
    /// The number of the current segment.
    pub segment: u64,
    /// The current step for that segment.
    pub step: ArchiveStep,
    /// The number of bytes of the segment that this step has processed.
    pub segment_bytes: u64,
    /// The length of the segment in bytes.
    pub segment_bytes_total: u64,
    /// The number of segments that are not archived yet. Until its last step, this includes the current one.
    pub segments_left: u64,
    /// The number of bytes of the finished segments.
    pub bytes: u64,
    /// The number of bytes of all segments that were not archived at the start.
    pub bytes_total: u64,
}

/// The result of archiving.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveReport {
    /// The archived segments, oldest first.
    pub segments: Vec<u64>,
    /// The number of segments that were already archived before this call.
    pub segments_before: u64,
    /// The number of bytes of the segments that this call has archived, without their indexes.
    pub bytes: u64,
    /// The compressed size in bytes of the segments that this call has archived.
    pub compressed_bytes: u64,
}

/// A complete segment.
struct SealedSegment {
    number: u64,
    bytes: u64,
}

/// Archives every sealed segment of `directory` that is not archived yet, oldest first. If a segment fails,
/// the segments before it are already archived.
pub(crate) fn archive_sealed(
    directory: &dyn Directory,
    archive: &Archive,
    options: ArchiveOptions,
    progress: &mut dyn FnMut(ArchiveProgress),
) -> Result<ArchiveReport, LogError> {
    let mut archived = ArchiveReport::default();
    let waiting = unarchived_segments(directory, archive, &mut archived)?;
    let bytes_total = waiting.iter().map(|segment| segment.bytes).sum();
    let (mut bytes, mut segments_left) = (0, waiting.len() as u64);
    for SealedSegment { number, bytes: segment_bytes_total } in waiting {
        let mut upload =
            Upload { directory, archive, number, bytes: segment_bytes_total, level: options.level };
        let mut tell = |step, segment_bytes, bytes, segments_left| {
            let progress_now = ArchiveProgress {
                segment: number,
                step,
                segment_bytes,
                segment_bytes_total,
                segments_left,
                bytes,
                bytes_total,
            };
            progress(progress_now);
        };
        // Also if the store refuses the first request, the caller learns what waits.
        tell(ArchiveStep::Upload, 0, bytes, segments_left);
        let uploaded = retry(options.retry_max, number, || {
            upload.run(&mut |step, done| tell(step, done, bytes, segments_left))
        });
        segments_left -= 1;
        let Some(compressed_bytes) = uploaded? else { continue };
        bytes += segment_bytes_total;
        archived.segments.push(number);
        archived.bytes += segment_bytes_total;
        archived.compressed_bytes += compressed_bytes;
        tell(ArchiveStep::Done, segment_bytes_total, bytes, segments_left);
    }
    Ok(archived)
}

/// Returns the sealed segments that are not archived. Checks that the archived segments equal the local
/// segments.
fn unarchived_segments(
    directory: &dyn Directory,
    archive: &Archive,
    archived: &mut ArchiveReport,
) -> Result<Vec<SealedSegment>, LogError> {
    let list = |error| LogError::io("list", archive.url(), error);
    let mut numbers = segment_numbers(directory)?;
    // Leave out the newest segment: a writer may append to it, even if it looks sealed.
    numbers.pop_last();
    let mut all_known = true;
    for number in &numbers {
        all_known &= archive.is_confirmed(*number).map_err(list)?;
    }
    if !all_known {
        // Another process may archive segments at the same time, so list the store again.
        archive.refresh().map_err(list)?;
    }
    let mut waiting = Vec::new();
    for number in numbers {
        match segment(directory, archive, number) {
            Ok(Some(sealed)) => waiting.push(sealed),
            Ok(None) => archived.segments_before += 1,
            // The segment was purged while this loop ran.
            Err(_) if if_purged(directory, number).is_err() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(waiting)
}

/// Returns the segment if it must be archived, or `None` if it is archived and the copy equals the local
/// segment.
fn segment(
    directory: &dyn Directory,
    archive: &Archive,
    number: u64,
) -> Result<Option<SealedSegment>, LogError> {
    if archive.contains(number).map_err(|error| LogError::io("list", archive.url(), error))? {
        confirm(directory, archive, number)?;
        return Ok(None);
    }
    match segment_index_reader::read_sealed(directory, number)? {
        Some(index) => Ok(Some(SealedSegment { number, bytes: index.length })),
        None => {
            let path = directory.path_of(&index_name(number));
            Err(LogError::corrupt(path, 0, "the index has no seal; opening the log rebuilds the index"))
        }
    }
}

/// Checks that the archived segment is the segment of this log: their indexes must be equal.
///
/// Another log may have been archived under the same name. An archived segment of another log must not count
/// as a copy of a local segment, because the local segment could then be purged.
pub(crate) fn confirm(directory: &dyn Directory, archive: &Archive, number: u64) -> Result<(), LogError> {
    let object = archive.url().join(index_name(number));
    let fail = |error| LogError::io("read", &object, error);
    if archive.is_confirmed(number).map_err(fail)? {
        return Ok(());
    }
    let theirs = archive.open_index(number).map_err(fail)?;
    let their_ends = ends_of(theirs.as_ref()).map_err(fail)?;
    let path = directory.path_of(&index_name(number));
    let ours = directory.open(&index_name(number), OpenMode::Read).and_then(|file| ends_of(file.as_ref()));
    if ours.map_err(|error| LogError::io("read", &path, error))? != their_ends {
        let reason =
            format!("the object is not a copy of {}; configure another archive for this log", path.display());
        return Err(LogError::ArchiveDiffers { object, reason });
    }
    archive.confirm(number, None);
    Ok(())
}

/// Returns the length of an index, and its first and last bytes. They identify the index, because they
/// contain its header, its last GTIDs and its seal.
fn ends_of(index: &dyn LogFile) -> io::Result<(u64, Vec<u8>)> {
    const END_BYTES: usize = 64 << 10;
    let length = index.length()?;
    let mut ends = vec![0; 2 * END_BYTES];
    let (front, back) = ends.split_at_mut(END_BYTES);
    let front = index.read_full_at(front, 0)?;
    let back = index.read_full_at(back, length.saturating_sub(END_BYTES as u64))?;
    ends.copy_within(END_BYTES..END_BYTES + back, front);
    ends.truncate(front + back);
    Ok((length, ends))
}

/// Runs `attempt`. If it fails because of the store or the connection, runs it again after a pause, for at
/// most `retry_max` in total.
fn retry<T>(
    retry_max: Duration,
    segment: u64,
    mut attempt: impl FnMut() -> Result<T, LogError>,
) -> Result<T, LogError> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        match attempt() {
            Err(error) if error.is_transient() && began.elapsed() + pause <= retry_max => {
                tracing::warn!(segment, code = error.code(), "archiving failed; trying again: {error}");
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            result => return result,
        }
    }
}

/// The upload of one segment.
struct Upload<'a> {
    directory: &'a dyn Directory,
    archive: &'a Archive,
    number: u64,
    bytes: u64,
    level: i32,
}

impl Upload<'_> {
    /// Uploads the segment. Returns its compressed size in bytes, or `None` if the segment was purged in the
    /// meantime.
    fn run(&mut self, tell: &mut dyn FnMut(ArchiveStep, u64)) -> Result<Option<u64>, LogError> {
        let names = [segment_name(self.number), index_name(self.number)];
        let mut files = Vec::new();
        for name in &names {
            match self.directory.open(name, OpenMode::Read) {
                Ok(file) => files.push(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(LogError::io("open", self.directory.path_of(name), error)),
            }
        }
        let [segment, index] = files.as_slice() else { return Ok(None) };
        let compressed_bytes = self.put_segment(segment.as_ref(), tell)?;
        // Store the index last, because the segment counts as archived as soon as its index object exists.
        let index_bytes = self.put_index(index.as_ref())?;
        self.archive.confirm(self.number, Some((compressed_bytes, index_bytes)));
        Ok(Some(compressed_bytes))
    }

    fn put_segment(
        &self,
        file: &dyn LogFile,
        tell: &mut dyn FnMut(ArchiveStep, u64),
    ) -> Result<u64, LogError> {
        let name = self.archive.segment_object(self.number);
        let object = self.object_path(&name);
        let mut content = ChecksummedReader::new(file, self.bytes);
        let mut progress_reader =
            ProgressReader { content: &mut content, tell: &mut |bytes| tell(ArchiveStep::Upload, bytes) };
        let encoder = SeekableEncoder::new(&mut progress_reader, self.level);
        encoder
            .and_then(|mut encoder| self.archive.store().put(&name, &mut encoder))
            .map_err(|error| LogError::io("put", &object, error))?;
        let put = content.finished(&object)?;
        let stored =
            self.archive.fresh_object(&name).map_err(|error| LogError::io("read", &object, error))?;
        let compressed_bytes = stored.length().map_err(|error| LogError::io("read", &object, error))?;
        let read = SeekableReader::open(stored)
            .and_then(|reader| {
                let bytes = reader.content_bytes();
                ChecksummedReader::new(&reader, bytes).checksum(&mut |done| tell(ArchiveStep::Check, done))
            })
            .map_err(|error| differs_if_damaged(LogError::io("read", &object, error)))?;
        same(&object, put, read)?;
        Ok(compressed_bytes)
    }

    fn put_index(&self, file: &dyn LogFile) -> Result<u64, LogError> {
        let name = self.archive.index_object(self.number);
        let object = self.object_path(&name);
        let bytes = file
            .length()
            .map_err(|error| LogError::io("read", self.directory.path_of(&index_name(self.number)), error))?;
        let mut content = ChecksummedReader::new(file, bytes);
        self.archive.store().put(&name, &mut content).map_err(|error| LogError::io("put", &object, error))?;
        let put = content.finished(&object)?;
        let stored =
            self.archive.fresh_object(&name).map_err(|error| LogError::io("read", &object, error))?;
        let read = stored
            .length()
            .and_then(|bytes| ChecksummedReader::new(stored.as_ref(), bytes).checksum(&mut |_| ()))
            .map_err(|error| LogError::io("read", &object, error))?;
        if let Err(error) = same(&object, put, read) {
            // Delete the index object that differs. While it exists, the segment counts as archived.
            self.archive.store().delete(&name).map_err(|error| LogError::io("delete", &object, error))?;
            return Err(error);
        }
        Ok(bytes)
    }

    fn object_path(&self, name: &str) -> PathBuf {
        let file = name.rsplit('/').next().unwrap_or(name);
        self.archive.url().join(file)
    }
}

/// The length and the CRC-32 of content.
type ContentChecksum = (u64, u32);

fn same(object: &std::path::Path, put: ContentChecksum, read: ContentChecksum) -> Result<(), LogError> {
    match put == read {
        true => Ok(()),
        false => {
            let reason = format!(
                "the upload stored {} bytes with CRC {:08x}, but {} bytes with CRC {:08x} were read back",
                put.0, put.1, read.0, read.1
            );
            Err(LogError::ArchiveDiffers { object: object.to_owned(), reason })
        }
    }
}

/// Converts an error: damage in an object that was just stored is a fault of the store, not of the log.
fn differs_if_damaged(error: LogError) -> LogError {
    match error {
        LogError::Corrupt { path, offset, reason } => {
            LogError::ArchiveDiffers { object: path, reason: format!("at offset {offset}: {reason}") }
        }
        error => error,
    }
}

/// Reads `bytes` bytes in order and computes their checksum.
struct ChecksummedReader<'a, S: ?Sized> {
    source: &'a S,
    at: u64,
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl<'a, S: ReadAt + ?Sized> ChecksummedReader<'a, S> {
    fn new(source: &'a S, bytes: u64) -> Self {
        Self { source, at: 0, bytes, crc: crc32fast::Hasher::new() }
    }

    /// Reads everything and returns the checksum.
    fn checksum(&mut self, tell: &mut dyn FnMut(u64)) -> io::Result<ContentChecksum> {
        let mut piece = vec![0; (1 << 20).min(self.bytes as usize)];
        loop {
            match self.read(&mut piece)? {
                0 => return Ok((self.at, self.crc.clone().finalize())),
                _ => tell(self.at),
            }
        }
    }

    /// Returns the checksum, after the caller has read everything.
    fn finished(self, object: &std::path::Path) -> Result<ContentChecksum, LogError> {
        match self.at == self.bytes {
            true => Ok((self.at, self.crc.finalize())),
            false => {
                let reason = format!("the store read only {} of {} bytes", self.at, self.bytes);
                Err(LogError::ArchiveDiffers { object: object.to_owned(), reason })
            }
        }
    }
}

impl<S: ReadAt + ?Sized> Read for ChecksummedReader<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.bytes - self.at).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.source.read_some_at(&mut buffer[..wanted], self.at)?;
        if count == 0 {
            let reason = format!("the content ends at {}, but its length is {} bytes", self.at, self.bytes);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        self.crc.update(&buffer[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

/// Reports how far a [`ChecksummedReader`] has read.
struct ProgressReader<'a, 'b, S: ?Sized> {
    content: &'a mut ChecksummedReader<'b, S>,
    tell: &'a mut dyn FnMut(u64),
}

impl<S: ReadAt + ?Sized> Read for ProgressReader<'_, '_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        (self.tell)(self.content.at);
        Ok(count)
    }
}

/// Reads at an offset, from a local file or from an archived object.
trait ReadAt {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for dyn LogFile + '_ {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
}

impl ReadAt for dyn RangedRead + '_ {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
}

impl ReadAt for SeekableReader {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
}
