//! The newest segment's file as the writer sees it: buffer, written, allocated.

use std::sync::Arc;

use tailwater_wire::WireError;
use tailwater_wire::event::EventHeader;

use crate::error::LogError;
use crate::flusher::{Flusher, SyncTarget};
use crate::framing::{Before, Framing};
use crate::index::SegmentHeader;
use crate::options::LogOptions;
use crate::position::{LogEntry, LogPosition};
use crate::progress::Shared;
use crate::segment::{FIRST_EVENT_OFFSET, segment_name};
use crate::storage::File;

/// Writes that end within a transaction end at a multiple of this, so that a sector of the disk is only ever torn at the
/// end of a transaction. Recovery builds on that to tell a torn write from bit rot.
const ALIGNMENT_BYTES: u64 = 4096;

/// Writeback of a big transaction starts in pieces of this size.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// The segment being written.
///
/// `whole_end <= written` only while a big transaction streams through; behind `written`, and behind `whole_end` after a
/// rollback, the file reads as zeros up to `allocated`.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    header: Arc<SegmentHeader>,
    file: Arc<dyn File>,
    framing: Framing,
    /// What was appended and not written yet; its first byte belongs at `written`.
    buffer: Vec<u8>,
    /// Offset behind the last byte written.
    written: u64,
    /// Offset behind the last whole entry; at most `written` plus the buffer's length.
    whole_end: u64,
    /// Offset behind the space reserved.
    allocated: u64,
    /// The file system can reserve space.
    can_allocate: bool,
    /// Offset up to which writeback of a big transaction was started.
    writeback_end: u64,
    /// Bytes of the present event that are still to come.
    event_remaining: u64,
}

impl ActiveSegment {
    /// A new segment, whose file is empty.
    pub(crate) fn create(header: Arc<SegmentHeader>, file: Arc<dyn File>) -> Self {
        let framing = Framing::new(header.segment, header.source_offset, header.source.flavour);
        Self::at(header, file, framing, 0)
    }

    /// A segment that recovery has cut to `end`.
    pub(crate) fn resume(
        header: Arc<SegmentHeader>,
        file: Arc<dyn File>,
        framing: Framing,
        end: u64,
    ) -> Self {
        Self::at(header, file, framing, end)
    }

    fn at(header: Arc<SegmentHeader>, file: Arc<dyn File>, framing: Framing, end: u64) -> Self {
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

    /// Offset behind the last whole entry.
    pub(crate) fn whole_end(&self) -> u64 {
        self.whole_end
    }

    /// Offset behind the last whole entry that stands in the file.
    pub(crate) fn readable_end(&self) -> u64 {
        self.whole_end.min(self.written)
    }

    /// Behind the last byte appended.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition { segment: self.header.segment, offset: self.written + self.buffer.len() as u64 }
    }

    /// Begins the file.
    pub(crate) fn write_magic(
        &mut self,
        shared: &Shared,
        options: &LogOptions,
        magic: &[u8],
    ) -> Result<(), LogError> {
        self.buffer.extend_from_slice(magic);
        self.whole_end = FIRST_EVENT_OFFSET;
        self.write_whole(shared, options)?;
        self.file.sync().map_err(|error| self.failed(shared, "fdatasync", error))
    }

    /// Takes note of the event that comes.
    pub(crate) fn begin_event(
        &mut self,
        header: &EventHeader,
        first_chunk: &[u8],
    ) -> Result<Before, WireError> {
        if self.event_remaining > 0 {
            let reason = format!("a {} event within another", header.event_type);
            return Err(WireError::malformed("event stream", reason));
        }
        let before = self.framing.begin_event(self.position().offset, header, first_chunk)?;
        if before == Before::Keep {
            self.event_remaining = u64::from(header.event_length);
        }
        Ok(before)
    }

    /// Counts a chunk off the present event.
    pub(crate) fn count_chunk(&mut self, bytes: usize, last: bool) -> Result<(), String> {
        match self.event_remaining.checked_sub(bytes as u64) {
            Some(0) if last => self.event_remaining = 0,
            Some(remaining) if remaining > 0 && !last => self.event_remaining = remaining,
            _ => {
                let kind = if last { "a last chunk" } else { "a chunk" };
                return Err(format!(
                    "{kind} of {bytes} bytes, {} are left of the event",
                    self.event_remaining
                ));
            }
        }
        Ok(())
    }

    /// Takes the bytes of a chunk.
    pub(crate) fn take(
        &mut self,
        shared: &Shared,
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

    /// The present event is complete.
    pub(crate) fn end_event(&mut self) -> Option<LogEntry> {
        let end = self.position().offset;
        self.framing.end_event(end)
    }

    /// Everything up to `end` is whole entries, and stays.
    pub(crate) fn keep(&mut self, end: u64) {
        self.whole_end = end;
        self.framing.keep();
    }

    /// Writes what is buffered of whole entries.
    pub(crate) fn write_whole(&mut self, shared: &Shared, options: &LogOptions) -> Result<(), LogError> {
        match self.whole_end.checked_sub(self.written) {
            Some(count) if count > 0 => self.write(shared, options, count as usize),
            _ => Ok(()),
        }
    }

    /// Writes the first `count` bytes of the buffer.
    fn write(&mut self, shared: &Shared, options: &LogOptions, count: usize) -> Result<(), LogError> {
        self.allocate(shared, options, self.written + count as u64)?;
        self.file
            .write_at(&self.buffer[..count], self.written)
            .map_err(|error| self.failed(shared, "write to", error))?;
        self.buffer.drain(..count);
        self.written += count as u64;
        Ok(())
    }

    fn allocate(&mut self, shared: &Shared, options: &LogOptions, end: u64) -> Result<(), LogError> {
        if end <= self.allocated || !self.can_allocate {
            return Ok(());
        }
        let length = (end - self.allocated).max(options.preallocate_bytes);
        match self.file.allocate(self.allocated, length) {
            Ok(()) => {
                self.allocated += length;
                // Here and there, where the file's metadata moves anyway: it bounds how much of the segment the index
                // does not vouch for after a power cut.
                shared.sync_index()
            }
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                self.can_allocate = false;
                Ok(())
            }
            Err(error) => Err(self.failed(shared, "reserve space for", error)),
        }
    }

    /// What the flusher is to sync.
    pub(crate) fn sync_target(&self) -> SyncTarget {
        SyncTarget { segment: self.header.segment, file: Arc::clone(&self.file), end: self.readable_end() }
    }

    /// Makes what is written durable, and visible as far as it is whole.
    pub(crate) fn sync(&self, shared: &Shared) -> Result<(), LogError> {
        shared.sync(self.header.segment, self.file.as_ref(), self.readable_end())
    }

    /// Cuts what was appended behind the last whole entry.
    pub(crate) fn rollback(&mut self, shared: &Shared) -> Result<(), LogError> {
        self.framing.rollback();
        self.event_remaining = 0;
        if self.whole_end >= self.written {
            self.buffer.truncate((self.whole_end - self.written) as usize);
            return Ok(());
        }
        self.buffer.clear();
        self.cut(shared)?;
        // Durable before other bytes go to the same place, so that after a power cut the two are never mixed.
        self.sync(shared)
    }

    /// Gives the file its exact length: everything is written.
    fn cut(&mut self, shared: &Shared) -> Result<(), LogError> {
        self.file.truncate(self.whole_end).map_err(|error| self.failed(shared, "truncate", error))?;
        self.written = self.whole_end;
        self.allocated = self.whole_end;
        self.writeback_end = self.writeback_end.min(self.whole_end);
        Ok(())
    }

    /// Everything is durable, and the file as long as what is in it.
    pub(crate) fn close(&mut self, shared: &Shared, options: &LogOptions) -> Result<(), LogError> {
        self.write_whole(shared, options)?;
        self.cut(shared)?;
        self.sync(shared)?;
        shared.sync_index()
    }

    /// The segment is complete.
    pub(crate) fn seal(&mut self, shared: &Shared, options: &LogOptions) -> Result<(), LogError> {
        self.write_whole(shared, options)?;
        self.cut(shared)?;
        self.sync(shared)?;
        shared.seal(self.header.segment, self.whole_end)
    }

    /// Reads appended bytes, whether they are written already or still buffered.
    pub(crate) fn read(&self, shared: &Shared, offset: u64, buffer: &mut [u8]) -> Result<(), LogError> {
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

    fn failed(&self, shared: &Shared, action: &'static str, error: std::io::Error) -> LogError {
        LogError::write(action, shared.directory.path_of(&segment_name(self.header.segment)), error)
    }
}
