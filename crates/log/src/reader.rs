//! Reading the log: whole transactions, and never a byte that is not durable, unless a reader asks for those too.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tailwater_wire::event::{EVENT_HEADER_BYTES, EventHeader};
use tokio::sync::watch;

use crate::error::LogError;
use crate::handle::{if_purged, segment_numbers};
use crate::index::{IndexDamage, Record, SegmentHeader};
use crate::index_file::{IndexReader, NextRecord};
use crate::position::{LogEntry, LogPosition, SourceIdentity};
use crate::progress::{Ahead, DurableState, LogState, Shared};
use crate::segment::{FIRST_EVENT_OFFSET, index_name, segment_name};
use crate::storage::{Directory, File, OpenMode};
use crate::window::{WINDOW_BYTES, Windows};

/// How far a reader may go.
#[derive(Debug)]
pub(crate) enum Bound {
    /// To what the writer in this process has published.
    Live(Arc<Shared>, watch::Receiver<DurableState>),
    /// To what stands in its file, durable or not.
    Ahead(Arc<Shared>, watch::Receiver<LogPosition>),
    /// To what the index says.
    Indexed,
}

/// Reads entries in their order: whole transactions, and the events between them.
///
/// After [`next`](Self::next) or [`try_next`](Self::try_next) gave an entry, [`next_event`](Self::next_event) and
/// [`read_chunk`](Self::read_chunk) give its bytes, in bounded memory. Does file I/O in the calling thread; in a segment
/// that is archived, requests to the archive, each of which may take seconds, and holds up to about 10 MiB of it.
#[derive(Debug)]
pub struct LogReader {
    directory: Arc<dyn Directory>,
    bound: Bound,
    segment: Option<OpenSegment>,
    windows: Arc<Windows>,
    /// Behind the last entry given.
    position: LogPosition,
    /// The bytes of the present entry that were not read yet.
    entry: Span,
    /// The bytes of the present event that were not read yet, within `entry`.
    event: Span,
}

/// A range of a segment.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u64,
    end: u64,
}

#[derive(Debug)]
struct OpenSegment {
    header: SegmentHeader,
    index: IndexReader,
    file: Arc<dyn File>,
    path: PathBuf,
    window: Bytes,
    window_offset: u64,
    windows: Arc<Windows>,
    /// Beside a writer in another process: the segment was the newest when it was opened.
    may_grow: bool,
    /// Behind it nothing is kept in the window: those bytes may not be written yet.
    readable_end: u64,
}

impl LogReader {
    pub(crate) fn open(
        directory: Arc<dyn Directory>,
        bound: Bound,
        from: LogPosition,
    ) -> Result<Self, LogError> {
        let mut reader = Self {
            directory,
            bound,
            segment: None,
            windows: Arc::default(),
            position: from,
            entry: Span::default(),
            event: Span::default(),
        };
        reader.seek(from)?;
        Ok(reader)
    }

    /// Behind the last entry given: where a reader that takes over has to begin.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Which server the present segment came from, and from which of its files; `None` before the first entry.
    pub fn source(&self) -> Option<(&SourceIdentity, &str)> {
        self.segment.as_ref().map(|segment| (&segment.header.source, segment.header.source_file.as_str()))
    }

    /// The next entry; `None` at the end of what is durable now, or written for one [ahead](crate::LogHandle::reader_up_to_written).
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Purged`], [`LogError::Io`].
    pub fn try_next(&mut self) -> Result<Option<LogEntry>, LogError> {
        loop {
            let durable = self.durable_end();
            if durable.is_some_and(|durable| self.position >= durable) {
                match self.written_entry()? {
                    Ahead::Durable => continue,
                    Ahead::Nothing => return Ok(None),
                    Ahead::Entry(entry, readable_end) => return Ok(self.give_ahead(entry, readable_end)),
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
                // It was given before it was durable.
                NextRecord::Record(Record::Entry(entry), length)
                    if matches!(self.bound, Bound::Ahead(..)) && entry.end() <= self.position =>
                {
                    segment.index.advance(length);
                }
                NextRecord::Record(Record::Entry(entry), length) => {
                    if entry.position != self.position || entry.length == 0 {
                        let reason =
                            format!("an entry for {} where {} was expected", entry.position, self.position);
                        return Err(corrupt(reason));
                    }
                    if durable.is_some_and(|durable| entry.end() > durable) {
                        let reason = format!("an entry up to {}, which is not durable yet", entry.end());
                        return Err(corrupt(reason));
                    }
                    segment.index.advance(length);
                    segment.readable_end = match durable {
                        Some(durable) if durable.segment == entry.position.segment => durable.offset,
                        None if segment.may_grow => entry.end().offset,
                        _ => u64::MAX,
                    };
                    self.go_to(&entry);
                    return Ok(Some(entry));
                }
                NextRecord::Record(Record::Seal { length, .. }, _) => {
                    if length != self.position.offset {
                        let reason = format!("a seal at {length} behind entries up to {}", self.position);
                        return Err(corrupt(reason));
                    }
                    // The seal stays unread until there is a next segment: a writer that is restarted just here takes
                    // it back and goes on in this one.
                    if !self.open_next(self.position.segment + 1)? {
                        return Ok(None);
                    }
                }
                // Beside a writer, its index may be seen half written.
                _ if is_newest(self.directory.as_ref(), self.position.segment, durable)? => return Ok(None),
                NextRecord::End => return Err(corrupt("it ends before its segment does".into())),
                NextRecord::Damaged(reason) => return Err(corrupt(reason)),
            }
        }
    }

    /// The next entry, waiting for it if necessary; `None` when the writer has closed the log and everything was read.
    ///
    /// Beside a writer in another process there is nothing to wait on: then `None` means the present end.
    ///
    /// # Errors
    /// As [`LogReader::try_next`]; [`LogError::Poisoned`] when the log failed and everything durable was read.
    pub async fn next(&mut self) -> Result<Option<LogEntry>, LogError> {
        loop {
            // What is published while this looks is a change that the wait below sees.
            let state = match &mut self.bound {
                Bound::Live(_, durable) => Some(durable.borrow_and_update().state),
                Bound::Ahead(shared, written) => {
                    written.mark_unchanged();
                    Some(shared.durable().state)
                }
                Bound::Indexed => None,
            };
            if let Some(entry) = self.try_next()? {
                return Ok(Some(entry));
            }
            match (&mut self.bound, state) {
                (Bound::Live(shared, _) | Bound::Ahead(shared, _), Some(LogState::Poisoned)) => {
                    shared.check()?;
                    return Ok(None);
                }
                (Bound::Live(_, durable), Some(LogState::Open)) => {
                    if durable.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                (Bound::Ahead(_, written), Some(LogState::Open)) => {
                    if written.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// Goes to the next event of the present entry and gives its header; `None` behind the last one.
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
            let reason = format!("an event of {} bytes reaches beyond its transaction", header.event_length);
            return Err(LogError::corrupt(&segment.path, start, reason));
        }
        self.event = Span { start, end };
        Ok(Some(header))
    }

    /// The next bytes of the event that [`next_event`](Self::next_event) went to, header included; at most `bytes_max`
    /// of them, and none at its end.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_event_chunk(&mut self, bytes_max: usize) -> Result<&[u8], LogError> {
        let count = bytes_max.min((self.event.end - self.event.start) as usize).min(WINDOW_BYTES);
        let Some(segment) = self.segment.as_mut().filter(|_| count > 0) else { return Ok(&[]) };
        let bytes = segment.read(self.event.start, count)?;
        self.event.start += count as u64;
        Ok(bytes)
    }

    /// The whole event that [`next_event`](Self::next_event) went to, into `buffer`.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_event(&mut self, buffer: &mut Vec<u8>) -> Result<(), LogError> {
        buffer.clear();
        loop {
            let chunk = self.read_event_chunk(WINDOW_BYTES)?;
            if chunk.is_empty() {
                return Ok(());
            }
            buffer.extend_from_slice(chunk);
        }
    }

    /// Where the present event begins.
    pub fn event_position(&self) -> LogPosition {
        LogPosition { segment: self.position.segment, offset: self.event.start }
    }

    /// The next bytes of the present entry, whatever events they are of; at most `bytes_max`, and none at its end.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_chunk(&mut self, bytes_max: usize) -> Result<&[u8], LogError> {
        let count = bytes_max.min((self.entry.end - self.entry.start) as usize).min(WINDOW_BYTES);
        let Some(segment) = self.segment.as_mut().filter(|_| count > 0) else { return Ok(&[]) };
        let bytes = segment.read(self.entry.start, count)?;
        self.entry.start += count as u64;
        Ok(bytes)
    }

    /// The whole of the present entry, of which nothing was read before.
    ///
    /// It is not copied if it lies in what was read at once, 256 KiB, and the memory of such pieces that somebody still has
    /// an entry of is not more than `shared_bytes_max`. An entry that is kept may keep its whole piece.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn read_entry(&mut self, shared_bytes_max: usize) -> Result<Bytes, LogError> {
        let Span { start, end } = self.entry;
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        if let Some(segment) = self.segment.as_mut().filter(|_| length <= WINDOW_BYTES) {
            let range = segment.find(start, length)?;
            self.entry.start = end;
            return Ok(match segment.windows.lent_bytes() <= shared_bytes_max {
                true => segment.window.slice(range),
                false => Bytes::copy_from_slice(&segment.window[range]),
            });
        }
        let mut bytes = BytesMut::with_capacity(length);
        loop {
            let chunk = self.read_chunk(WINDOW_BYTES)?;
            if chunk.is_empty() {
                return Ok(bytes.freeze());
            }
            bytes.extend_from_slice(chunk);
        }
    }

    fn durable_end(&self) -> Option<LogPosition> {
        match &self.bound {
            Bound::Live(shared, _) | Bound::Ahead(shared, _) => Some(shared.durable().position),
            Bound::Indexed => None,
        }
    }

    fn written_entry(&mut self) -> Result<Ahead, LogError> {
        let Bound::Ahead(shared, _) = &self.bound else { return Ok(Ahead::Nothing) };
        let shared = Arc::clone(shared);
        if self.segment.is_none() && !self.open_next(self.position.segment)? {
            return Ok(Ahead::Nothing);
        }
        Ok(shared.written_entry(self.position))
    }

    /// The index is behind then, and catches up when this is durable.
    fn give_ahead(&mut self, entry: LogEntry, readable_end: u64) -> Option<LogEntry> {
        let segment = self.segment.as_mut()?;
        segment.readable_end = readable_end;
        self.go_to(&entry);
        Some(entry)
    }

    fn go_to(&mut self, entry: &LogEntry) {
        self.position = entry.end();
        self.entry = Span { start: entry.position.offset, end: entry.end().offset };
        self.event = Span { start: self.entry.start, end: self.entry.start };
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
            return Err(no_such(self, "it is behind what is durable"));
        }
        self.position = LogPosition { segment: from.segment, offset: FIRST_EVENT_OFFSET };
        if !self.open_next(from.segment)? {
            return Err(no_such(self, "there is no such segment"));
        }
        while self.position < from {
            if self.try_next()?.is_none() {
                return Err(no_such(self, "it is behind the end"));
            }
        }
        if self.position != from {
            return Err(no_such(self, "it is within a transaction, or behind the end of its segment"));
        }
        // Nothing was handed out yet.
        self.entry = Span::default();
        self.event = Span::default();
        Ok(())
    }

    fn numbers(&self) -> Result<BTreeSet<u64>, LogError> {
        segment_numbers(self.directory.as_ref())
    }

    /// Opens a segment and stands at its beginning; false if it is not there yet.
    fn open_next(&mut self, number: u64) -> Result<bool, LogError> {
        let name = segment_name(number);
        let path = self.directory.path_of(&name);
        let file = match self.directory.open(&name, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if_purged(self.directory.as_ref(), number)?;
                return match self.numbers()?.last() {
                    Some(last) if *last > number && self.directory.modified(&name).is_err() => {
                        Err(LogError::corrupt(path, 0, format!("it is missing, though there is {last}")))
                    }
                    _ => Ok(false),
                };
            }
            Err(error) => return Err(LogError::io("open", path, error)),
        };
        match IndexReader::open(self.directory.as_ref(), number)? {
            Ok((header, index)) => {
                let may_grow =
                    matches!(self.bound, Bound::Indexed) && is_newest(self.directory.as_ref(), number, None)?;
                self.segment = Some(OpenSegment {
                    header,
                    index,
                    file,
                    path,
                    window: Bytes::new(),
                    windows: Arc::clone(&self.windows),
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
                    _ => "it is missing or too short".to_owned(),
                };
                Err(LogError::corrupt(self.directory.path_of(&index_name(number)), 0, reason))
            }
        }
    }
}

/// Whether a segment is the newest, so that its index may go on. With a writer at hand that need not be asked: it says
/// what is durable, and the reader has not come to that.
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
    /// `count` bytes at `offset`, at most [`WINDOW_BYTES`], through a window that is read in big pieces.
    fn read(&mut self, offset: u64, count: usize) -> Result<&[u8], LogError> {
        let range = self.find(offset, count)?;
        Ok(&self.window[range])
    }

    /// Where in the window they are.
    fn find(&mut self, offset: u64, count: usize) -> Result<Range<usize>, LogError> {
        let window_end = self.window_offset + self.window.len() as u64;
        if offset < self.window_offset || offset + count as u64 > window_end {
            // No further than may be kept: who follows the log at its end would otherwise read, with each entry, a quarter
            // of a megabyte of what is reserved for entries to come.
            let readable = usize::try_from(self.readable_end.saturating_sub(offset)).unwrap_or(usize::MAX);
            // Before the next one is lent, so that its memory may be lent again.
            self.window = Bytes::new();
            let mut window = self.windows.lend(WINDOW_BYTES.min(readable));
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
