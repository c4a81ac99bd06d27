//! Reads whole transactions from the log. A reader sees only durable bytes. On request, it also sees bytes
//! that are written but not durable yet.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader, FIRST_EVENT_OFFSET};
use tokio::sync::watch;

use crate::error::LogError;
use crate::log_handle::{if_purged, segment_numbers};
use crate::log_position::{LogEntry, LogPosition, ReaderPlace, SourceIdentity};
use crate::read_buffer_pool::{BUFFER_BYTES, BufferPool};
use crate::segment_files::{index_name, segment_name};
use crate::segment_index::{IndexDamage, IndexRecord, SegmentHeader};
use crate::segment_index_reader::{IndexReader, NextRecord};
use crate::shared_log_state::{DurableState, LogShared, LogState, WrittenEntry};
use crate::storage::{Directory, LogFile, OpenMode};

/// Up to where a reader may read.
#[derive(Debug)]
pub(crate) enum ReadLimit {
    /// The reader may read up to the durable position that the writer in this process publishes.
    Durable(Arc<LogShared>, watch::Receiver<DurableState>),
    /// The reader may read up to the last whole entry that is written to the file, even if the entry is not
    /// durable.
    Written(Arc<LogShared>, watch::Receiver<LogPosition>),
    /// The reader may read up to the end of the index. The writer is in another process.
    Indexed,
}

/// Reads entries in order: whole transactions, and the events between them.
///
/// After [`next`](Self::next) or [`try_next`](Self::try_next) returned an entry,
/// [`next_event`](Self::next_event) and [`read_chunk`](Self::read_chunk) return its bytes in bounded memory.
/// A reader does file I/O in the calling thread. For an archived segment it sends requests to the archive,
/// and each request may take seconds. It holds up to about 10 MiB of an archived segment in memory.
#[derive(Debug)]
pub struct LogReader {
    directory: Arc<dyn Directory>,
    limit: ReadLimit,
    segment: Option<OpenSegment>,
    pool: Arc<BufferPool>,
    /// The position after the last returned entry.
    position: LogPosition,
    /// The unread bytes of the current entry.
    entry: ByteRange,
    /// The unread bytes of the current event, a part of `entry`.
    event: ByteRange,
}

/// A range of bytes of a segment.
#[derive(Debug, Clone, Copy, Default)]
struct ByteRange {
    start: u64,
    end: u64,
}

#[derive(Debug)]
struct OpenSegment {
    header: SegmentHeader,
    index: IndexReader,
    file: Arc<dyn LogFile>,
    path: PathBuf,
    window: Bytes,
    window_offset: u64,
    pool: Arc<BufferPool>,
    /// Whether the segment may grow: it was the newest when the reader opened it, and the writer is in
    /// another process.
    may_grow: bool,
    /// The offset up to which the segment may be read into the window. Later bytes may not be written yet.
    readable_end: u64,
}

impl LogReader {
    pub(crate) fn open(
        directory: Arc<dyn Directory>,
        limit: ReadLimit,
        from: LogPosition,
    ) -> Result<Self, LogError> {
        let mut reader = Self {
            directory,
            limit,
            segment: None,
            pool: Arc::default(),
            position: from,
            entry: ByteRange::default(),
            event: ByteRange::default(),
        };
        reader.seek(from)?;
        Ok(reader)
    }

    /// Returns the position after the last returned entry, where another reader can continue.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Returns the place after the last returned entry, where another reader can
    /// [continue](Self::move_forward). Returns `None` before the first entry.
    pub fn place(&self) -> Option<ReaderPlace> {
        let segment = self.segment.as_ref()?;
        let ahead = matches!(self.limit, ReadLimit::Written(..));
        (!ahead).then(|| ReaderPlace { position: self.position, index_offset: segment.index.offset() })
    }

    /// Continues at a later place of the current segment, without reading anything up to there. Frees the
    /// buffers of this reader. Returns false, and stays, if the place is in another segment or before the
    /// current position.
    pub fn move_forward(&mut self, place: ReaderPlace) -> bool {
        let Some(segment) = &mut self.segment else { return false };
        if place.position.segment != self.position.segment || place.position < self.position {
            return false;
        }
        segment.index.seek(place.index_offset);
        segment.index.release_buffer();
        (segment.window, segment.window_offset) = (Bytes::new(), 0);
        self.position = place.position;
        (self.entry, self.event) = (ByteRange::default(), ByteRange::default());
        true
    }

    /// Returns the source of the current segment: the server and its binlog file. Returns `None` before the
    /// first entry.
    pub fn source(&self) -> Option<(&SourceIdentity, &str)> {
        self.segment.as_ref().map(|segment| (&segment.header.source, segment.header.source_file.as_str()))
    }

    /// Returns the next entry. Returns `None` at the end of the durable entries. A reader of
    /// [written](crate::LogHandle::reader_up_to_written) entries returns `None` at the end of the written
    /// entries.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Purged`], [`LogError::Io`].
    pub fn try_next(&mut self) -> Result<Option<LogEntry>, LogError> {
        loop {
            let durable = self.durable_end();
            if durable.is_some_and(|durable| self.position >= durable) {
                match self.written_entry()? {
                    WrittenEntry::Durable => continue,
                    WrittenEntry::None => return Ok(None),
                    WrittenEntry::Entry(entry, readable_end) => {
                        return Ok(self.return_written(entry, readable_end));
                    }
                }
            }
            if self.segment.is_none() && !self.open_next(self.position.segment)? {
                return Ok(None);
            }
            let Some(segment) = &mut self.segment else { return Ok(None) };
            let at = segment.index.offset();
            let next = segment.index.peek()?;
            let corrupt = |reason: String| LogError::corrupt(segment.index.path(), at, reason);
            match next {
                // A reader of written entries has already returned this entry, before the entry was durable.
                NextRecord::Record(IndexRecord::Entry(entry), length)
                    if matches!(self.limit, ReadLimit::Written(..)) && entry.end() <= self.position =>
                {
                    segment.index.advance(length);
                }
                NextRecord::Record(IndexRecord::Entry(entry), length) => {
                    if entry.position != self.position || entry.length == 0 {
                        let reason = format!(
                            "the index has an entry for {} where {} was expected",
                            entry.position, self.position
                        );
                        return Err(corrupt(reason));
                    }
                    if durable.is_some_and(|durable| entry.end() > durable) {
                        let reason =
                            format!("the index has an entry up to {}, which is not durable yet", entry.end());
                        return Err(corrupt(reason));
                    }
                    segment.index.advance(length);
                    segment.readable_end = match durable {
                        Some(durable) if durable.segment == entry.position.segment => durable.offset,
                        None if segment.may_grow => entry.end().offset,
                        _ => u64::MAX,
                    };
                    self.move_to(&entry);
                    return Ok(Some(entry));
                }
                NextRecord::Record(IndexRecord::Seal { length, .. }, _) => {
                    if length != self.position.offset {
                        let reason = format!(
                            "the seal states a segment of {length} bytes, but the entries end at {}",
                            self.position
                        );
                        return Err(corrupt(reason));
                    }
                    // Do not consume the seal, the last record of the index, until the next segment exists.
                    // If a writer restarts now, it removes the seal and continues this segment.
                    if !self.open_next(self.position.segment + 1)? {
                        return Ok(None);
                    }
                }
                // If the writer is in another process, the last record may be incomplete.
                _ if is_newest(self.directory.as_ref(), self.position.segment, durable)? => return Ok(None),
                NextRecord::End => return Err(corrupt("the index ends before its segment does".into())),
                NextRecord::Damaged(reason) => return Err(corrupt(reason)),
            }
        }
    }

    /// Returns the next entry, and waits for it if necessary. Returns `None` after the writer has closed the
    /// log and the reader has read everything.
    ///
    /// If the writer is in another process, this method cannot wait. In that case `None` means the current
    /// end of the log.
    ///
    /// # Errors
    /// The same as of [`LogReader::try_next`]. [`LogError::Poisoned`] if a write to the log failed and the
    /// reader has read everything that is durable.
    pub async fn next(&mut self) -> Result<Option<LogEntry>, LogError> {
        loop {
            // Mark the published position as seen. If the writer publishes a new position after this line,
            // the next wait returns at once.
            let state = match &mut self.limit {
                ReadLimit::Durable(_, durable) => Some(durable.borrow_and_update().state),
                ReadLimit::Written(shared, written) => {
                    written.mark_unchanged();
                    Some(shared.durable().state)
                }
                ReadLimit::Indexed => None,
            };
            if let Some(entry) = self.try_next()? {
                return Ok(Some(entry));
            }
            match (&mut self.limit, state) {
                (ReadLimit::Durable(shared, _) | ReadLimit::Written(shared, _), Some(LogState::Poisoned)) => {
                    shared.check()?;
                    return Ok(None);
                }
                (ReadLimit::Durable(_, durable), Some(LogState::Open)) => {
                    if durable.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                (ReadLimit::Written(_, written), Some(LogState::Open)) => {
                    if written.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// Moves to the next event of the current entry and returns its header. Returns `None` after the last
    /// event.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn next_event(&mut self) -> Result<Option<EventHeader>, LogError> {
        let start = self.event.end;
        if start >= self.entry.end {
            return Ok(None);
        }
        let entry_end = self.entry.end;
        let Some(segment) = &mut self.segment else { return Ok(None) };
        let bytes = segment.read(start, EVENT_HEADER_BYTES.min((entry_end - start) as usize))?;
        let header = EventHeader::parse(bytes)
            .map_err(|error| LogError::corrupt(&segment.path, start, error.to_string()))?;
        let end = start + u64::from(header.event_length);
        if end > entry_end {
            let reason = format!("an event of {} bytes extends past its transaction", header.event_length);
            return Err(LogError::corrupt(&segment.path, start, reason));
        }
        self.event = ByteRange { start, end };
        Ok(Some(header))
    }

    /// Returns the next bytes of the current event (see [`next_event`](Self::next_event)), header included.
    /// Returns at most `bytes_max` bytes, and no bytes at the end of the event.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_event_chunk(&mut self, bytes_max: usize) -> Result<&[u8], LogError> {
        let count = bytes_max.min((self.event.end - self.event.start) as usize).min(BUFFER_BYTES);
        let Some(segment) = self.segment.as_mut().filter(|_| count > 0) else { return Ok(&[]) };
        let bytes = segment.read(self.event.start, count)?;
        self.event.start += count as u64;
        Ok(bytes)
    }

    /// Reads the complete current event (see [`next_event`](Self::next_event)) into `buffer`.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_event(&mut self, buffer: &mut Vec<u8>) -> Result<(), LogError> {
        buffer.clear();
        loop {
            let chunk = self.read_event_chunk(BUFFER_BYTES)?;
            if chunk.is_empty() {
                return Ok(());
            }
            buffer.extend_from_slice(chunk);
        }
    }

    /// Returns the position of the current event.
    pub fn event_position(&self) -> LogPosition {
        LogPosition { segment: self.position.segment, offset: self.event.start }
    }

    /// Returns the next bytes of the current entry, across its events. Returns at most `bytes_max` bytes, and
    /// no bytes at the end of the entry.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_chunk(&mut self, bytes_max: usize) -> Result<&[u8], LogError> {
        let count = bytes_max.min((self.entry.end - self.entry.start) as usize).min(BUFFER_BYTES);
        let Some(segment) = self.segment.as_mut().filter(|_| count > 0) else { return Ok(&[]) };
        let bytes = segment.read(self.entry.start, count)?;
        self.entry.start += count as u64;
        Ok(bytes)
    }

    /// Returns the complete current entry. No byte of it may have been read before.
    ///
    /// The entry is not copied if it lies within one read of 256 KiB and the buffers in use have at most
    /// `shared_bytes_max` bytes. As long as the caller keeps such an entry, its whole buffer stays in memory.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_entry(&mut self, shared_bytes_max: usize) -> Result<Bytes, LogError> {
        let ByteRange { start, end } = self.entry;
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        if let Some(segment) = self.segment.as_mut().filter(|_| length <= BUFFER_BYTES) {
            let range = segment.find(start, length)?;
            self.entry.start = end;
            return Ok(match segment.pool.bytes_in_use() <= shared_bytes_max {
                true => segment.window.slice(range),
                false => Bytes::copy_from_slice(&segment.window[range]),
            });
        }
        let mut bytes = BytesMut::with_capacity(length);
        loop {
            let chunk = self.read_chunk(BUFFER_BYTES)?;
            if chunk.is_empty() {
                return Ok(bytes.freeze());
            }
            bytes.extend_from_slice(chunk);
        }
    }

    fn durable_end(&self) -> Option<LogPosition> {
        match &self.limit {
            ReadLimit::Durable(shared, _) | ReadLimit::Written(shared, _) => Some(shared.durable().position),
            ReadLimit::Indexed => None,
        }
    }

    fn written_entry(&mut self) -> Result<WrittenEntry, LogError> {
        let ReadLimit::Written(shared, _) = &self.limit else { return Ok(WrittenEntry::None) };
        let shared = Arc::clone(shared);
        if self.segment.is_none() && !self.open_next(self.position.segment)? {
            return Ok(WrittenEntry::None);
        }
        Ok(shared.written_entry(self.position))
    }

    /// Returns an entry that is written but not durable. Its index record is written when the entry becomes
    /// durable.
    fn return_written(&mut self, entry: LogEntry, readable_end: u64) -> Option<LogEntry> {
        let segment = self.segment.as_mut()?;
        segment.readable_end = readable_end;
        self.move_to(&entry);
        Some(entry)
    }

    fn move_to(&mut self, entry: &LogEntry) {
        self.position = entry.end();
        self.entry = ByteRange { start: entry.position.offset, end: entry.end().offset };
        self.event = ByteRange { start: self.entry.start, end: self.entry.start };
    }

    fn seek(&mut self, from: LogPosition) -> Result<(), LogError> {
        if from == LogPosition::ZERO {
            let first = self.numbers()?.first().copied();
            self.position = LogPosition { segment: first.unwrap_or(1), offset: FIRST_EVENT_OFFSET };
            return Ok(());
        }
        if_purged(self.directory.as_ref(), from.segment)?;
        let no_such = |reader: &Self, reason: &str| LogError::NoSuchPosition {
            path: reader.directory.path().to_owned(),
            segment: from.segment,
            offset: from.offset,
            reason: reason.to_owned(),
        };
        if self.durable_end().is_some_and(|durable| from > durable) {
            return Err(no_such(self, "the position is past the durable end of the log"));
        }
        self.position = LogPosition { segment: from.segment, offset: FIRST_EVENT_OFFSET };
        if !self.open_next(from.segment)? {
            return Err(no_such(self, "the log has no segment with this number"));
        }
        while self.position < from {
            if self.try_next()?.is_none() {
                return Err(no_such(self, "the position is past the end of the log"));
            }
        }
        if self.position != from {
            return Err(no_such(
                self,
                "the position is inside a transaction, or past the end of its segment",
            ));
        }
        // The reader has not returned an entry yet.
        self.entry = ByteRange::default();
        self.event = ByteRange::default();
        Ok(())
    }

    fn numbers(&self) -> Result<BTreeSet<u64>, LogError> {
        segment_numbers(self.directory.as_ref())
    }

    /// Opens a segment and moves to its start. Returns false if the segment does not exist yet.
    fn open_next(&mut self, number: u64) -> Result<bool, LogError> {
        let name = segment_name(number);
        let path = self.directory.path_of(&name);
        let file = match self.directory.open(&name, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if_purged(self.directory.as_ref(), number)?;
                return match self.numbers()?.last() {
                    Some(last) if *last > number && self.directory.modified(&name).is_err() => {
                        Err(LogError::corrupt(
                            path,
                            0,
                            format!("the segment is missing, although segment {last} exists"),
                        ))
                    }
                    _ => Ok(false),
                };
            }
            Err(error) => return Err(LogError::io("open", path, error)),
        };
        match IndexReader::open(self.directory.as_ref(), number)? {
            Ok((header, index)) => {
                let may_grow = matches!(self.limit, ReadLimit::Indexed)
                    && is_newest(self.directory.as_ref(), number, None)?;
                self.segment = Some(OpenSegment {
                    header,
                    index,
                    file,
                    path,
                    window: Bytes::new(),
                    pool: Arc::clone(&self.pool),
                    window_offset: 0,
                    may_grow,
                    readable_end: u64::MAX,
                });
                self.position = LogPosition { segment: number, offset: FIRST_EVENT_OFFSET };
                Ok(true)
            }
            Err(damage) => {
                if_purged(self.directory.as_ref(), number)?;
                let reason = match damage {
                    IndexDamage::Malformed(reason) => reason,
                    _ => "the file is missing or too short".to_owned(),
                };
                Err(LogError::corrupt(self.directory.path_of(&index_name(number)), 0, reason))
            }
        }
    }
}

/// Returns whether a segment is the newest, so that its index may grow. Returns false for a reader in the
/// writer's process (`durable` is set): that reader reads only index entries before the durable position,
/// which are complete.
fn is_newest(
    directory: &dyn Directory,
    segment: u64,
    durable: Option<LogPosition>,
) -> Result<bool, LogError> {
    if durable.is_some() {
        return Ok(false);
    }
    let next = index_name(segment + 1);
    match directory.open(&next, OpenMode::Read) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(LogError::io("open", directory.path_of(&next), error)),
    }
}

impl OpenSegment {
    /// Reads `count` bytes at `offset`, at most [`BUFFER_BYTES`]. The bytes come from the window, a buffer
    /// that is filled by large reads.
    fn read(&mut self, offset: u64, count: usize) -> Result<&[u8], LogError> {
        let range = self.find(offset, count)?;
        Ok(&self.window[range])
    }

    /// Fills the window if it lacks some of the `count` bytes at `offset`. Returns where these bytes are in
    /// the window.
    fn find(&mut self, offset: u64, count: usize) -> Result<Range<usize>, LogError> {
        let window_end = self.window_offset + self.window.len() as u64;
        if offset < self.window_offset || offset + count as u64 > window_end {
            // Do not read past `readable_end`. Otherwise, at the end of the log, each entry would cause a
            // read of a quarter of a megabyte of space that is reserved for later entries.
            let readable = usize::try_from(self.readable_end.saturating_sub(offset)).unwrap_or(usize::MAX);
            // The old buffer is released first, so that the pool can use its memory again.
            self.window = Bytes::new();
            let mut window = self.pool.acquire(BUFFER_BYTES.min(readable));
            let filled = self.file.read_full_at(window.bytes_mut(), offset);
            let filled = filled.map_err(|error| LogError::io("read", &self.path, error))?;
            self.window = window.filled(filled);
            self.window_offset = offset;
        }
        let start = (offset - self.window_offset) as usize;
        match self.window.get(start..start + count) {
            Some(_) => Ok(start..start + count),
            None => Err(LogError::corrupt(&self.path, offset, "the file ends before its index does")),
        }
    }
}
