//! The file of the newest segment as the writer uses it: which bytes are buffered, written and allocated.

use std::sync::Arc;

use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{EventHeader, FIRST_EVENT_OFFSET};

use crate::error::LogError;
use crate::index_entry_builder::{Framing, FramingAction};
use crate::log_options::LogOptions;
use crate::log_position::{LogEntry, LogPosition};
use crate::segment_files::segment_name;
use crate::segment_index::SegmentHeader;
use crate::shared_log_state::LogShared;
use crate::storage::LogFile;
use crate::sync_thread::{Flusher, SyncTarget};

/// A write that ends inside a transaction always ends at a multiple of this number of bytes. So a crash can
/// tear a sector of the disk only at the end of a transaction. With this rule, recovery distinguishes a torn
/// write from bit rot.
const ALIGNMENT_BYTES: u64 = 4096;

/// The size in bytes of the pieces of a big transaction. After each piece, the log asks the kernel to start
/// writing it to the disk.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// The segment that the writer appends to.
///
/// `whole_end <= written` holds only while a big transaction is written in parts. From `written` to
/// `allocated`, the file contains zeros. After a rollback, it contains zeros from `whole_end` on.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    header: Arc<SegmentHeader>,
    file: Arc<dyn LogFile>,
    framing: Framing,
    /// Appended bytes that are not written yet. The first byte belongs at offset `written`.
    buffer: Vec<u8>,
    /// Offset after the last byte written to the file.
    written: u64,
    /// Offset after the last whole entry. The entry may still be in the buffer.
    whole_end: u64,
    /// Offset after the space that is reserved in the file.
    allocated: u64,
    /// Whether the file system can reserve space.
    can_allocate: bool,
    /// Offset up to which the log has asked the kernel to write a big transaction to the disk.
    writeback_end: u64,
    /// Number of bytes of the current event that were not appended yet.
    event_remaining: u64,
}

impl ActiveSegment {
    /// Creates a segment with an empty file.
    pub(crate) fn create(header: Arc<SegmentHeader>, file: Arc<dyn LogFile>) -> Self {
        let framing = Framing::new(header.segment, header.source_offset, header.source.flavour);
        Self::at(header, file, framing, 0)
    }

    /// Continues a segment that recovery has truncated to `end`.
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

    /// Returns the offset after the last whole entry.
    pub(crate) fn whole_end(&self) -> u64 {
        self.whole_end
    }

    /// Returns the offset after the last whole entry that is written to the file.
    pub(crate) fn readable_end(&self) -> u64 {
        self.whole_end.min(self.written)
    }

    /// Returns the position after the last appended byte.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition { segment: self.header.segment, offset: self.written + self.buffer.len() as u64 }
    }

    /// Writes and syncs the magic bytes of a binlog file.
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

    /// Checks the next event. Returns whether it is accepted, or whether the caller must first remove an
    /// incomplete transaction.
    pub(crate) fn begin_event(
        &mut self,
        header: &EventHeader,
        first_chunk: &[u8],
    ) -> Result<FramingAction, WireError> {
        if self.event_remaining > 0 {
            let reason =
                format!("a {} event was appended before the previous event was complete", header.event_type);
            return Err(WireError::malformed("event stream", reason));
        }
        let before = self.framing.begin_event(self.position().offset, header, first_chunk)?;
        if before == FramingAction::Accept {
            self.event_remaining = u64::from(header.event_length);
        }
        Ok(before)
    }

    /// Subtracts a chunk from the bytes of the current event that are still missing. Returns an error if the
    /// length of the chunk does not fit.
    pub(crate) fn count_chunk(&mut self, bytes: usize, last: bool) -> Result<(), String> {
        match self.event_remaining.checked_sub(bytes as u64) {
            Some(0) if last => self.event_remaining = 0,
            Some(remaining) if remaining > 0 && !last => self.event_remaining = remaining,
            _ => {
                let kind = if last { "the last chunk" } else { "a chunk" };
                return Err(format!(
                    "{kind} has {bytes} bytes, but the rest of the event has {} bytes",
                    self.event_remaining
                ));
            }
        }
        Ok(())
    }

    /// Appends the bytes of a chunk. Writes them to the file if the buffer is full.
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

    /// Ends the current event. If the event completes an index entry, returns this entry.
    pub(crate) fn end_event(&mut self) -> Option<LogEntry> {
        let end = self.position().offset;
        self.framing.end_event(end)
    }

    /// Marks everything up to `end` as whole entries.
    pub(crate) fn commit_entries(&mut self, end: u64) {
        self.whole_end = end;
        self.framing.commit_entries();
    }

    /// Writes the buffered bytes of whole entries to the file.
    pub(crate) fn write_whole(&mut self, shared: &LogShared, options: &LogOptions) -> Result<(), LogError> {
        match self.whole_end.checked_sub(self.written) {
            Some(count) if count > 0 => self.write(shared, options, count as usize),
            _ => Ok(()),
        }
    }

    /// Writes the first `count` bytes of the buffer to the file.
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
                // Reserving space writes the file's metadata anyway, so sync the index at the same time. Then
                // after a power cut the index lacks only a bounded part of the segment.
                shared.sync_index()
            }
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                self.can_allocate = false;
                Ok(())
            }
            Err(error) => Err(self.failed(shared, "reserve space for", error)),
        }
    }

    /// Returns the request with which the flusher syncs this segment.
    pub(crate) fn sync_target(&self) -> SyncTarget {
        SyncTarget { segment: self.header.segment, file: Arc::clone(&self.file), end: self.readable_end() }
    }

    /// Makes the written bytes durable, and publishes the position after the last whole entry.
    pub(crate) fn sync(&self, shared: &LogShared) -> Result<(), LogError> {
        shared.sync(self.header.segment, self.file.as_ref(), self.readable_end())
    }

    /// Removes everything that was appended after the last whole entry.
    pub(crate) fn rollback(&mut self, shared: &LogShared) -> Result<(), LogError> {
        self.framing.rollback();
        self.event_remaining = 0;
        if self.whole_end >= self.written {
            self.buffer.truncate((self.whole_end - self.written) as usize);
            return Ok(());
        }
        self.buffer.clear();
        self.cut(shared)?;
        // The truncation must be durable before other bytes are written to the same offset. Otherwise a power
        // cut could mix old and new bytes.
        self.sync(shared)
    }

    /// Truncates the file to its exact length. All buffered bytes must have been written.
    fn cut(&mut self, shared: &LogShared) -> Result<(), LogError> {
        self.file.truncate(self.whole_end).map_err(|error| self.failed(shared, "truncate", error))?;
        self.written = self.whole_end;
        self.allocated = self.whole_end;
        self.writeback_end = self.writeback_end.min(self.whole_end);
        Ok(())
    }

    /// Makes everything durable and truncates the file to its content.
    pub(crate) fn close(&mut self, shared: &LogShared, options: &LogOptions) -> Result<(), LogError> {
        self.write_whole(shared, options)?;
        self.cut(shared)?;
        self.sync(shared)?;
        shared.sync_index()
    }

    /// Seals a complete segment: nothing can be appended after that.
    pub(crate) fn seal(&mut self, shared: &LogShared, options: &LogOptions) -> Result<(), LogError> {
        self.write_whole(shared, options)?;
        self.cut(shared)?;
        self.sync(shared)?;
        shared.seal(self.header.segment, self.whole_end)
    }

    /// Reads appended bytes, whether they are written or still buffered.
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
                    "the file has fewer bytes than the log has written to it",
                ));
            }
        }
        Ok(())
    }

    fn failed(&self, shared: &LogShared, action: &'static str, error: std::io::Error) -> LogError {
        LogError::write(action, shared.directory.path_of(&segment_name(self.header.segment)), error)
    }
}
