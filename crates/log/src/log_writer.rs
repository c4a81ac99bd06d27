//! The writer of a log: appends events, makes them durable, and starts segments.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use tailwater_wire::binlog_event::event_header::BINLOG_MAGIC;
use tailwater_wire::binlog_event::{
    EVENT_HEADER_BYTES, EventHeader, EventType, FIRST_EVENT_OFFSET, FormatDescription,
};
use tailwater_wire::gtid::GtidSet;

use crate::active_segment::ActiveSegment;
use crate::crash_recovery::{self, OpenedLog, RecoveryReport};
use crate::error::LogError;
use crate::index_entry_builder::FramingAction;
use crate::log_options::{AckMode, LogOptions};
use crate::log_position::{LogEntry, LogPosition, SourceIdentity, SourceTail, TransactionSpan};
use crate::segment_files::{index_name, segment_name};
use crate::segment_index::SegmentHeader;
use crate::shared_log_state::{LogShared, LogState, TailStart};
use crate::storage::{Directory, OpenMode, RealDirectory};
use crate::sync_thread::Flusher;
use crate::{LogHandle, previous_gtids};

/// The result of appending a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedChunk {
    /// The position after the chunk. The chunk is not durable yet, and readers do not see it before its
    /// transaction is complete.
    pub position: LogPosition,
    /// Whether the chunk was the last of a transaction.
    pub ends_transaction: bool,
}

/// The only writer of a log. All methods do file I/O in the calling thread. While a method
/// [waits](crate::blocking) for the disk, the other tasks of the runtime continue on another thread.
///
/// To store a commit group, call [`append`](Self::append) for every available chunk, then
/// [`sync_for_ack`](Self::sync_for_ack) once, and then send the ACKs.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<LogShared>,
    options: LogOptions,
    recovery: RecoveryReport,
    active: Option<ActiveSegment>,
    /// The GTIDs of all whole transactions that were appended, even if they are not durable yet, and of all
    /// transactions before the start of the log.
    gtids: Option<GtidSet>,
    /// Whether `gtids` includes all transactions from before the start of the log.
    gtids_known: bool,
    last_transaction: Option<LogEntry>,
    /// The offset up to which the writer has asked the flusher to sync the newest segment.
    requested_end: u64,
    // Fields are dropped in this order, so the flusher's thread ends before the lock is released.
    flusher: Flusher,
    _lock: Box<dyn Any + Send + Sync>,
}

impl LogWriter {
    /// Opens the log in `directory`. Creates the directory if necessary, and repairs the log after a crash.
    ///
    /// # Errors
    /// [`LogError::Locked`] if another writer has the log open; [`LogError::Corrupt`] if durable bytes have
    /// changed (in this case nothing is modified); [`LogError::FormatVersion`]; [`LogError::Io`].
    pub fn open(directory: &Path, options: LogOptions) -> Result<Self, LogError> {
        let directory =
            RealDirectory::create(directory).map_err(|error| LogError::io("create", directory, error))?;
        Self::open_on(Arc::new(directory), options)
    }

    pub(crate) fn open_on(directory: Arc<dyn Directory>, options: LogOptions) -> Result<Self, LogError> {
        const LOCK_NAME: &str = "lock";
        let path = directory.path_of(LOCK_NAME);
        let lock = match directory.lock(LOCK_NAME) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(LogError::Locked { path }),
            Err(error) => return Err(LogError::io("lock", path, error)),
        };
        let OpenedLog { control, segments, tail, recovery } = crash_recovery::recover(&directory)?;
        recovery.log_repairs(directory.path());
        let shared = Arc::new(LogShared::new(directory, control, segments, options.archive.clone()));
        let mut writer = Self {
            flusher: Flusher::new(Arc::clone(&shared), options.sync_interval),
            shared,
            options,
            recovery,
            active: None,
            gtids: None,
            gtids_known: false,
            last_transaction: None,
            requested_end: 0,
            _lock: lock,
        };
        if let Some(tail) = tail {
            writer.gtids = Some(tail.start.gtids.clone());
            writer.gtids_known = tail.start.gtids_known;
            writer.last_transaction = tail.start.last_transaction.clone();
            let unchecked = tail.framing.format().is_some_and(|format| !format.has_checksums());
            writer.active = Some(ActiveSegment::resume(
                Arc::clone(&tail.header),
                tail.file,
                tail.framing,
                tail.start.end,
            ));
            writer.shared.begin_segment(tail.header, tail.start);
            if unchecked {
                writer.shared.sync_index_always();
            }
        }
        Ok(writer)
    }

    /// Returns what recovery found and repaired when the log was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Returns a handle for readers, and for waiting until positions are durable.
    pub fn handle(&self) -> LogHandle {
        LogHandle::new(Arc::clone(&self.shared), self.options.retention, self.options.ack)
    }

    /// Returns the position in the source's binlog after the last whole transaction of the log. Returns
    /// `None` while the log has no segment.
    pub fn source_tail(&self) -> Option<SourceTail> {
        let active = self.active.as_ref()?;
        let header = active.header();
        let in_segment = |entry: &&LogEntry| entry.position.segment == header.segment;
        let last_transaction = self.last_transaction.as_ref().filter(in_segment).map(|entry| {
            TransactionSpan { source_start: entry.source_start(), source_end: entry.source_end }
        });
        Some(SourceTail {
            file: header.source_file.clone(),
            end: active.framing().source_position_whole(),
            source: header.source.clone(),
            last_transaction,
        })
    }

    /// Returns the GTIDs of all whole transactions in the log, including purged transactions. Returns `None`
    /// while the log has no segment.
    pub fn gtid_set(&self) -> Option<&GtidSet> {
        self.gtids.as_ref()
    }

    /// Returns the newest whole transaction, if it is in the newest segment.
    pub fn last_transaction(&self) -> Option<&LogEntry> {
        self.last_transaction.as_ref()
    }

    /// Returns whether the newest segment begins in the middle of the source's file and is empty, without
    /// even a format description. This is the state after a crash between the start of the segment and the
    /// first append.
    pub fn has_empty_partial_segment(&self) -> bool {
        self.active.as_ref().is_some_and(|active| {
            active.header().source_offset > FIRST_EVENT_OFFSET && active.whole_end() <= FIRST_EVENT_OFFSET
        })
    }

    /// Returns whether a transaction is incomplete.
    pub fn in_transaction(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.framing().in_transaction())
    }

    /// Checks that the log still accepts events. It accepts none after a failed sync, which may have run in
    /// the background.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub fn check(&self) -> Result<(), LogError> {
        self.shared.check()
    }

    /// Returns the number of bytes of whole transactions and events that were appended and are not durable
    /// yet.
    pub fn unsynced_bytes(&self) -> u64 {
        self.active
            .as_ref()
            .map_or(0, |active| active.whole_end().saturating_sub(self.durable_offset(active)))
    }

    /// Returns the number of unsynced bytes for which neither
    /// [`sync_in_background`](Self::sync_in_background) nor [`flush`](Self::flush) has requested a sync.
    pub fn unrequested_bytes(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| {
            active.whole_end().saturating_sub(self.durable_offset(active).max(self.requested_end))
        })
    }

    fn durable_offset(&self, active: &ActiveSegment) -> u64 {
        let durable = self.shared.durable().position;
        if durable.segment == active.header().segment { durable.offset } else { 0 }
    }

    /// Reads bytes of the newest transaction, from `offset` bytes after its start. The caller compares them
    /// with bytes that the source sends again.
    ///
    /// # Errors
    /// [`LogError::Sequence`] if the newest segment holds no transaction, or the transaction is shorter;
    /// [`LogError::Io`].
    pub fn read_last_transaction(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), LogError> {
        let path = self.shared.path();
        let (Some(active), Some(entry)) = (&self.active, &self.last_transaction) else {
            return Err(LogError::sequence(&path, "the newest segment has no transaction to compare with"));
        };
        if entry.position.segment != active.header().segment || offset + buffer.len() as u64 > entry.length {
            return Err(LogError::sequence(
                &path,
                "the caller requested bytes after the end of the last transaction",
            ));
        }
        active.read(&self.shared, entry.position.offset + offset, buffer)
    }

    /// Starts a new segment, a copy of `source_file`. Its first event has the offset `source_offset` in that
    /// file; 4 is the start of the file. Seals the current segment. If the source has crashed and left an
    /// incomplete transaction at the end of its file, removes this transaction.
    ///
    /// # Errors
    /// [`LogError::FlavourMismatch`]; [`LogError::DiskFull`] and [`LogError::Write`]. After the last two
    /// errors, the log accepts nothing more.
    pub fn start_segment(
        &mut self,
        source_file: &str,
        source_offset: u64,
        source: &SourceIdentity,
    ) -> Result<(), LogError> {
        self.shared.check()?;
        let gtids = self.gtids.clone().unwrap_or_else(|| GtidSet::empty(source.flavour));
        if gtids.flavour() != source.flavour {
            return Err(LogError::FlavourMismatch {
                path: self.shared.path(),
                found: gtids.flavour(),
                expected: source.flavour,
            });
        }
        self.rollback_partial()?;
        let result = self.roll_over(source_file, source_offset, source, gtids);
        self.guard(result)
    }

    fn roll_over(
        &mut self,
        source_file: &str,
        source_offset: u64,
        source: &SourceIdentity,
        gtids: GtidSet,
    ) -> Result<(), LogError> {
        let (mut segment, mut epoch) = (self.shared.first_segment_number(), 1);
        if let Some(active) = &mut self.active {
            active.seal(&self.shared, &self.options)?;
            let before = active.header();
            segment = before.segment + 1;
            epoch = before.epoch + u32::from(!before.source.same_server(source));
        }
        let header = Arc::new(SegmentHeader {
            segment,
            source_file: source_file.to_owned(),
            source_offset,
            source: source.clone(),
            epoch,
            gtids_before: gtids.to_string(),
            gtids_known: self.gtids_known,
        });
        let directory = &self.shared.directory;
        let (segment_name, index_name) = (segment_name(segment), index_name(segment));
        let fail = |action, name: &str| {
            let path = directory.path_of(name);
            move |error| LogError::write(action, path, error)
        };
        // Write the index before the segment's file, so that a segment always has a header.
        let index = directory.open(&index_name, OpenMode::CreateNew).map_err(fail("create", &index_name))?;
        let encoded = header.encode();
        index.write_at(&encoded, 0).map_err(fail("write", &index_name))?;
        index.sync().map_err(fail("fdatasync", &index_name))?;
        let file =
            directory.open(&segment_name, OpenMode::CreateNew).map_err(fail("create", &segment_name))?;
        let mut active = ActiveSegment::create(Arc::clone(&header), file);
        active.write_magic(&self.shared, &self.options, &BINLOG_MAGIC)?;
        directory.sync().map_err(fail("sync the directory of", &segment_name))?;
        self.shared.update_control(|control| control.active = Some((*header).clone()))?;
        self.gtids = Some(gtids.clone());
        self.last_transaction = None;
        self.active = Some(active);
        self.requested_end = 0;
        let start = TailStart {
            segment,
            index,
            index_bytes: encoded.len() as u64,
            entries: 0,
            end: FIRST_EVENT_OFFSET,
            gtids,
            gtids_known: self.gtids_known,
            last_transaction: None,
        };
        self.shared.begin_segment(header, start);
        Ok(())
    }

    /// Appends a chunk of an event without changing it. `first` and `last` say whether it is the first and
    /// the last chunk of the event. The first chunk begins with the header. It also holds at least
    /// [`PREFIX_BYTES`](tailwater_wire::transaction_boundary::TransactionTracker::PREFIX_BYTES) of the body,
    /// or the whole body if that is shorter. The caller must have verified the checksums.
    ///
    /// The bytes are not visible to readers and not durable yet. The writer holds at most
    /// [`LogOptions::buffer_bytes_max`] bytes and this chunk in memory.
    ///
    /// # Errors
    /// [`LogError::Event`] if the event is not valid at this point. The log then rolls back the event's
    /// transaction. [`LogError::DiskFull`] and [`LogError::Write`], after which the log accepts nothing more.
    /// [`LogError::Sequence`] if the caller has a defect.
    pub fn append(
        &mut self,
        header: &EventHeader,
        chunk: &[u8],
        first: bool,
        last: bool,
    ) -> Result<AppendedChunk, LogError> {
        self.shared.check()?;
        if first {
            self.begin_event(header, chunk)?;
        }
        let Some(active) = &mut self.active else {
            return Err(self.sequence("no segment was started"));
        };
        if let Err(reason) = active.count_chunk(chunk.len(), last) {
            return Err(self.sequence(&reason));
        }
        let written = active.append_chunk(&self.shared, &self.options, &mut self.flusher, chunk);
        let entry = if last { active.end_event() } else { None };
        let position = active.position();
        self.guard(written)?;
        let ends_transaction = entry.as_ref().is_some_and(LogEntry::is_transaction);
        if let Some(entry) = entry {
            self.end_entry(entry)?;
        }
        Ok(AppendedChunk { position, ends_transaction })
    }

    fn sequence(&self, reason: &str) -> LogError {
        LogError::sequence(self.shared.directory.path(), reason)
    }

    fn begin_event(&mut self, header: &EventHeader, chunk: &[u8]) -> Result<(), LogError> {
        if chunk.get(..EVENT_HEADER_BYTES) != Some(&header.to_bytes()) {
            return Err(self.sequence("the first chunk does not begin with the event's header"));
        }
        let Some(active) = &mut self.active else {
            return Err(self.sequence("no segment was started"));
        };
        let source_position = active.framing().source_position();
        let result = match active.begin_event(header, chunk) {
            Ok(FramingAction::CutTransaction) => {
                tracing::warn!(
                    source_file = active.header().source_file,
                    source_position,
                    "the source restarted inside a transaction; the log removes the incomplete transaction"
                );
                self.rollback_partial()?;
                match &mut self.active {
                    Some(active) => active.begin_event(header, chunk),
                    None => return Err(self.sequence("no segment was started")),
                }
            }
            other => other,
        };
        let checked = match result {
            Ok(_) => self.check_event(header, chunk),
            Err(source) => {
                let source_file =
                    self.active.as_ref().map_or("", |active| &active.header().source_file).to_owned();
                Err(LogError::Event { source_file, source_position, source })
            }
        };
        if checked.is_err() {
            self.rollback_partial()?;
        }
        checked
    }

    /// Refuses a format description event of the other flavour. Makes the log sync its index with every sync
    /// if events have no checksums. Adds the GTIDs that the event lists.
    fn check_event(&mut self, header: &EventHeader, chunk: &[u8]) -> Result<(), LogError> {
        let Some(active) = &self.active else { return Ok(()) };
        let Some(format) = active.framing().format() else { return Ok(()) };
        let flavour = active.header().source.flavour;
        if header.event_type == EventType::FORMAT_DESCRIPTION && format.flavour() != flavour {
            return Err(LogError::FlavourMismatch {
                path: self.shared.path(),
                found: flavour,
                expected: format.flavour(),
            });
        }
        if !format.has_checksums() {
            self.shared.sync_index_always();
        }
        self.learn_gtids_before(header, chunk, &format.clone())
    }

    /// At the start of a log, adds the GTIDs of all earlier transactions, which the source lists at the start
    /// of a binlog file.
    fn learn_gtids_before(
        &mut self,
        header: &EventHeader,
        chunk: &[u8],
        format: &FormatDescription,
    ) -> Result<(), LogError> {
        let (Some(active), Some(gtids)) = (&self.active, &self.gtids) else { return Ok(()) };
        if self.gtids_known || active.header().source_offset != FIRST_EVENT_OFFSET {
            return Ok(());
        }
        let learned = previous_gtids::parse(header, chunk, format)
            .and_then(|before| before.map(|before| Ok((gtids.union(&before)?, before))).transpose());
        match learned {
            Ok(Some((all, before))) => {
                self.shared.add_gtids(&before);
                self.gtids = Some(all);
                self.gtids_known = true;
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(source) => Err(LogError::Event {
                source_file: active.header().source_file.clone(),
                source_position: active.header().source_offset,
                source,
            }),
        }
    }

    fn end_entry(&mut self, entry: LogEntry) -> Result<(), LogError> {
        if let (Some(gtid), Some(gtids)) = (&entry.gtid, &mut self.gtids)
            && let Err(source) = gtids.insert(gtid)
        {
            let source_file =
                self.active.as_ref().map_or("", |active| &active.header().source_file).to_owned();
            let source_position = entry.source_start();
            self.rollback_partial()?;
            return Err(LogError::Event { source_file, source_position, source });
        }
        if let Some(active) = &mut self.active {
            active.commit_entries(entry.end().offset);
        }
        self.shared.add_pending(entry.clone());
        if entry.is_transaction() {
            self.last_transaction = Some(entry);
        }
        let unsynced = self.unsynced_bytes();
        if unsynced > self.options.unsynced_bytes_max {
            self.sync()?;
        } else if self.unrequested_bytes() >= self.options.background_sync_bytes {
            // Request the sync early, so that appending need not wait for it.
            self.sync_in_background()?;
        }
        Ok(())
    }

    /// Writes the buffered bytes of whole transactions to the file in one write, and returns their end. If
    /// events have checksums, a crash of this process does not lose these bytes. In [`AckMode::Received`] the
    /// flusher syncs them within [`LogOptions::sync_interval`]. The flusher syncs at once if
    /// [`LogOptions::background_sync_bytes`] are unsynced, or while a [prompt-sync
    /// guard](LogHandle::prompt_sync) exists.
    ///
    /// # Errors
    /// After [`LogError::DiskFull`] and [`LogError::Write`], the log accepts nothing more.
    pub fn flush(&mut self) -> Result<LogPosition, LogError> {
        let position = self.write_whole()?;
        let unsynced = self.unsynced_bytes();
        if self.options.ack == AckMode::Received && unsynced > 0 {
            let urgent = self.shared.has_prompt_sync_request() || !self.shared.is_kept_once_written();
            self.request_sync(urgent || unsynced >= self.options.background_sync_bytes)?;
            // If a prompt-sync request arrived after `urgent` was computed, but before this sync was pending,
            // it could not make this sync urgent. So make the sync urgent now.
            if !urgent && self.shared.has_prompt_sync_request() {
                self.shared.sync_queue.make_urgent();
            }
        }
        Ok(position)
    }

    fn write_whole(&mut self) -> Result<LogPosition, LogError> {
        self.shared.check()?;
        let Some(active) = &mut self.active else {
            return Ok(LogPosition::ZERO);
        };
        let written = active.write_whole(&self.shared, &self.options);
        let position = LogPosition { segment: active.header().segment, offset: active.whole_end() };
        let segment = active.header().segment;
        let end = active.readable_end();
        self.guard(written)?;
        self.shared.publish_written(segment, end);
        Ok(position)
    }

    fn request_sync(&mut self, urgent: bool) -> Result<(), LogError> {
        match &self.active {
            Some(active) => {
                let target = active.sync_target();
                self.requested_end = target.end;
                self.flusher.sync(target, urgent)
            }
            None => Ok(()),
        }
    }

    /// Makes every whole transaction durable: writes the buffer, runs one fdatasync in this thread, and
    /// publishes the position. When this method returns, these transactions may be acknowledged.
    ///
    /// # Errors
    /// After [`LogError::DiskFull`] and [`LogError::Write`], the log accepts nothing more.
    pub fn sync(&mut self) -> Result<LogPosition, LogError> {
        let position = self.write_whole()?;
        if self.unsynced_bytes() == 0 {
            return Ok(position);
        }
        let result = match &self.active {
            Some(active) => active.sync(&self.shared),
            None => Ok(()),
        };
        self.guard(result)?;
        Ok(position)
    }

    /// Makes the log ready for an ACK of everything that was appended so far. Usually calls
    /// [`sync`](Self::sync). In [`AckMode::Received`], only calls [`flush`](Self::flush) if written bytes
    /// survive a crash of this process.
    ///
    /// # Errors
    /// As [`LogWriter::sync`].
    pub fn sync_for_ack(&mut self) -> Result<LogPosition, LogError> {
        match self.options.ack {
            AckMode::Received if self.shared.is_kept_once_written() => self.flush(),
            _ => self.sync(),
        }
    }

    /// Does the same as [`sync`](Self::sync) in the flusher's thread, without waiting.
    /// [`LogHandle::subscribe`] reports when the sync is done.
    ///
    /// # Errors
    /// The same as of [`LogWriter::sync`]. If the sync in the flusher's thread fails, the next call reports
    /// the error.
    pub fn sync_in_background(&mut self) -> Result<LogPosition, LogError> {
        let position = self.write_whole()?;
        if self.unsynced_bytes() > 0 {
            self.request_sync(true)?;
        }
        Ok(position)
    }

    /// Removes everything that was appended after the last whole transaction. The capture calls this method
    /// if the connection breaks inside a transaction, because the source then sends the transaction again
    /// from its start.
    ///
    /// # Errors
    /// After [`LogError::Write`], the log accepts nothing more.
    pub fn rollback_partial(&mut self) -> Result<(), LogError> {
        self.shared.check()?;
        let result = match &mut self.active {
            Some(active) => active.rollback(&self.shared),
            None => Ok(()),
        };
        self.guard(result)
    }

    /// Makes everything durable and closes the log. The file of the newest segment gets its exact length.
    ///
    /// # Errors
    /// As [`LogWriter::sync`].
    pub fn close(mut self) -> Result<(), LogError> {
        self.rollback_partial()?;
        let result = match &mut self.active {
            Some(active) => active.close(&self.shared, &self.options),
            None => Ok(()),
        };
        self.guard(result)?;
        self.shared.close();
        Ok(())
    }

    /// Records an error that leaves the state of the disk unknown. After such an error the log accepts
    /// nothing more.
    fn guard<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result
            && error.poisons()
        {
            self.shared.poison(error);
        }
        result
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        if self.shared.durable().state == LogState::Open {
            self.shared.close();
        }
    }
}
