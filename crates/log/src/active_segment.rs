//! The newest segment's file as the writer uses it: buffered, written and allocated bytes.

use std::sync::Arc;

use tailwater_wire::WireError;
use tailwater_wire::event::EventHeader;

use crate::error::LogError;
use crate::flusher::{Flusher, SyncTarget};
use crate::framing::{Framing, FramingAction};
use crate::index::SegmentHeader;
use crate::options::LogOptions;
use crate::position::{LogEntry, LogPosition};
use crate::segment::segment_name;
use crate::shared_state::LogShared;
use crate::storage::LogFile;
use tailwater_wire::event::FIRST_EVENT_OFFSET;

/// A write that ends inside a transaction ends at a multiple of this. A sector of the disk is then only ever
/// torn at the end of a transaction, which is how recovery distinguishes a torn write from bit rot.
const ALIGNMENT_BYTES: u64 = 4096;

/// Writeback of a big transaction starts in pieces of this size.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// The segment being written.
///
/// `whole_end <= written` only while a big transaction is written in parts. After `written`, and after
/// `whole_end` following a rollback, the file reads as zeros up to `allocated`.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    header: Arc<SegmentHeader>,
    file: Arc<dyn LogFile>,
    framing: Framing,
    /// Appended bytes that are not written yet; the first one belongs at offset `written`.
    buffer: Vec<u8>,
    /// Offset after the last byte written.
    written: u64,
    /// Offset after the last whole entry; at most `written` plus the buffer's length.
    whole_end: u64,
    /// Offset after the reserved space.
    allocated: u64,
    /// The file system can reserve space.
    can_allocate: bool,
    /// Offset up to which writeback of a big transaction was started.
    writeback_end: u64,
    /// Remaining bytes of the current event.
    event_remaining: u64,
}

impl ActiveSegment {
    /// A new segment with an empty file.
    pub(crate) fn create(header: Arc<SegmentHeader>, file: Arc<dyn LogFile>) -> Self {
        let framing = Framing::new(header.segment, header.source_offset, header.source.flavour);
        Self::at(header, file, framing, 0)
    }

    /// A segment that recovery has truncated to `end`.
    pub(crate) fn resume(
        header: Arc<SegmentHeader>,
        file: Arc<dyn LogFile>,
        framing: Framing,
        end: u64,
    ) -> Self {
        Self::at(header, file, framing, end)
    }

    fn at(header: Arc<SegmentHeader>, file: Arc<dyn LogFile>, framing: Framing, end: u64) -> Self {
        Self {
            header,
            file,
            framing,
            buffer: Vec::new(),
            written: end,
            whole_end: end,
            allocated: end,
            can_allocate: true,
            writeback_end: end,
            event_remaining: 0,
        }
    }

    pub(crate) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    pub(crate) fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Offset after the last whole entry.
    pub(crate) fn whole_end(&self) -> u64 {
        self.whole_end
    }

    /// Offset after the last whole entry that is written to the file.
    pub(crate) fn readable_end(&self) -> u64 {
        self.whole_end.min(self.written)
    }

    /// Position after the last appended byte.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition { segment: self.header.segment, offset: self.written + self.buffer.len() as u64 }
    }

    /// Writes and syncs the magic bytes.
    pub(crate) fn write_magic(
        &mut self,
        shared: &LogShared,
        options: &LogOptions,
        magic: &[u8],
    ) -> Result<(), LogError> {
        self.buffer.extend_from_slice(magic);
        self.whole_end = FIRST_EVENT_OFFSET;
        self.write_whole(shared, options)?;
        self.file.sync().map_err(|error| self.failed(shared, "fdatasync", error))
    }

    /// Checks and frames the next event.
    pub(crate) fn begin_event(
        &mut self,
        header: &EventHeader,
        first_chunk: &[u8],
    ) -> Result<FramingAction, WireError> {
        if self.event_remaining > 0 {
            let reason = format!("a {} event begins inside another event", header.event_type);
            return Err(WireError::malformed("event stream", reason));
        }
        let before = self.framing.begin_event(self.position().offset, header, first_chunk)?;
        if before == FramingAction::Accept {
            self.event_remaining = u64::from(header.event_length);
        }
        Ok(before)
    }

    /// Subtracts a chunk from the current event's remaining bytes.
    pub(crate) fn count_chunk(&mut self, bytes: usize, last: bool) -> Result<(), String> {
        match self.event_remaining.checked_sub(bytes as u64) {
            Some(0) if last => self.event_remaining = 0,
            Some(remaining) if remaining > 0 && !last => self.event_remaining = remaining,
            _ => {
                let kind = if last { "a last chunk" } else { "a chunk" };
                return Err(format!(
                    "{kind} of {bytes} bytes, but {} bytes are left of the event",
                    self.event_remaining
                ));
            }
        }
        Ok(())
    }

    /// Appends the bytes of a chunk; writes them if the buffer is full.
    pub(crate) fn append_chunk(
        &mut self,
        shared: &LogShared,
        options: &LogOptions,
        flusher: &mut Flusher,
        chunk: &[u8],
    ) -> Result<(), LogError> {
        self.buffer.extend_from_slice(chunk);
        if self.buffer.len() < options.buffer_bytes_max {
            return Ok(());
        }
        let end = (self.written + self.buffer.len() as u64) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        if let Some(count) = end.checked_sub(self.written) {
            self.write(shared, options, count as usize)?;
        }
        if self.written - self.writeback_end >= WRITEBACK_BYTES {
            let length = self.written / ALIGNMENT_BYTES * ALIGNMENT_BYTES - self.writeback_end;
            flusher.write_back(Arc::clone(&self.file), self.writeback_end, length)?;
            self.writeback_end += length;
        }
        Ok(())
    }

    /// Ends the current event; returns the entry that it completes, if any.
    pub(crate) fn end_event(&mut self) -> Option<LogEntry> {
        let end = self.position().offset;
        self.framing.end_event(end)
    }

    /// Marks everything up to `end` as whole entries.
    pub(crate) fn commit_entries(&mut self, end: u64) {
        self.whole_end = end;
        self.framing.commit_entries();
    }

    /// Writes the buffered bytes of whole entries.
    pub(crate) fn write_whole(&mut self, shared: &LogShared, options: &LogOptions) -> Result<(), LogError> {
        match self.whole_end.checked_sub(self.written) {
            Some(count) if count > 0 => self.write(shared, options, count as usize),
            _ => Ok(()),
        }
    }

    /// Writes the first `count` bytes of the buffer.
    fn write(&mut self, shared: &LogShared, options: &LogOptions, count: usize) -> Result<(), LogError> {
        self.allocate(shared, options, self.written + count as u64)?;
        self.file
            .write_at(&self.buffer[..count], self.written)
            .map_err(|error| self.failed(shared, "write to", error))?;
        self.buffer.drain(..count);
        self.written += count as u64;
        Ok(())
    }

    fn allocate(&mut self, shared: &LogShared, options: &LogOptions, end: u64) -> Result<(), LogError> {
        if end <= self.allocated || !self.can_allocate {
            return Ok(());
        }
        let length = (end - self.allocated).max(options.preallocate_bytes);
        match self.file.allocate(self.allocated, length) {
            Ok(()) => {
                self.allocated += length;
                // Sync the index here, where the file's metadata is written anyway. This bounds how much of
                // the segment the index does not cover after a power cut.
                shared.sync_index()
            }
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                self.can_allocate = false;
                Ok(())
            }
            Err(error) => Err(self.failed(shared, "reserve space for", error)),
        }
    }

    /// The flusher's request for this segment.
    pub(crate) fn sync_target(&self) -> SyncTarget {
        SyncTarget { segment: self.header.segment, file: Arc::clone(&self.file), end: self.readable_end() }
    }

    /// Makes the written bytes durable, and publishes them up to the last whole entry.
    pub(crate) fn sync(&self, shared: &LogShared) -> Result<(), LogError> {
        shared.sync(self.header.segment, self.file.as_ref(), self.readable_end())
    }

    /// Cuts everything appended after the last whole entry.
    pub(crate) fn rollback(&mut self, shared: &LogShared) -> Result<(), LogError> {
        self.framing.rollback();
        self.event_remaining = 0;
        if self.whole_end >= self.written {
            self.buffer.truncate((self.whole_end - self.written) as usize);
            return Ok(());
        }
        self.buffer.clear();
        self.cut(shared)?;
        // The truncation must be durable before other bytes are written to the same place. Otherwise a power
        // cut could mix the two.
        self.sync(shared)
    }

    /// Truncates the file to its exact length. Everything is written.
    fn cut(&mut self, shared: &LogShared) -> Result<(), LogError> {
        self.file.truncate(self.whole_end).map_err(|error| self.failed(shared, "truncate", error))?;
        self.written = self.whole_end;
        self.allocated = self.whole_end;
        self.writeback_end = self.writeback_end.min(self.whole_end);
        Ok(())
    }

    /// Makes everything durable and truncates the file to its contents.
    pub(crate) fn close(&mut self, shared: &LogShared, options: &LogOptions) -> Result<(), LogError> {
        self.write_whole(shared, options)?;
        self.cut(shared)?;
        self.sync(shared)?;
        shared.sync_index()
    }

    /// Seals a complete segment.
    pub(crate) fn seal(&mut self, shared: &LogShared, options: &LogOptions) -> Result<(), LogError> {
        self.write_whole(shared, options)?;
        self.cut(shared)?;
        self.sync(shared)?;
        shared.seal(self.header.segment, self.whole_end)
    }

    /// Reads appended bytes, written or still buffered.
    pub(crate) fn read(&self, shared: &LogShared, offset: u64, buffer: &mut [u8]) -> Result<(), LogError> {
        let from_file =
            usize::try_from(self.written.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let (front, back) = buffer.split_at_mut(from_file);
        let path = || shared.directory.path_of(&segment_name(self.header.segment));
        let filled =
            self.file.read_full_at(front, offset).map_err(|error| LogError::io("read", path(), error))?;
        let start = (offset + from_file as u64 - self.written.min(offset + from_file as u64)) as usize;
        match self.buffer.get(start..start + back.len()) {
            Some(bytes) if filled == from_file => back.copy_from_slice(bytes),
            _ if filled == from_file && back.is_empty() => {}
            _ => {
                return Err(LogError::corrupt(
                    path(),
                    offset + filled as u64,
                    "the file is shorter than what was written",
                ));
            }
        }
        Ok(())
    }

    fn failed(&self, shared: &LogShared, action: &'static str, error: std::io::Error) -> LogError {
        LogError::write(action, shared.directory.path_of(&segment_name(self.header.segment)), error)
    }
}
