//! The one that appends.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use tailwater_wire::event::header::BINLOG_MAGIC;
use tailwater_wire::event::{EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription};
use tailwater_wire::gtid::GtidSet;

use crate::active_segment::ActiveSegment;
use crate::error::LogError;
use crate::flusher::Flusher;
use crate::framing::Before;
use crate::index::SegmentHeader;
use crate::options::{AckMode, LogOptions};
use crate::position::{LogEntry, LogPosition, SourceIdentity, SourceTail, TransactionSpan};
use crate::progress::{LogState, Shared, TailStart};
use crate::recovery::{self, Recovered, RecoveryReport};
use crate::segment::{FIRST_EVENT_OFFSET, index_name, segment_name};
use crate::storage::{Directory, OpenMode, RealDirectory};
use crate::{LogHandle, gtid_before};

/// What an appended chunk completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Behind the chunk. Not durable, and not visible before its transaction is whole.
    pub position: LogPosition,
    /// The chunk was the last of a transaction.
    pub ends_transaction: bool,
}

/// The only writer of a log. All methods do file I/O in the thread that calls them; where they [wait](crate::blocking) for it, a
/// runtime's other tasks go on elsewhere.
///
/// A commit group is: [`append`](Self::append) for every chunk at hand, one [`sync_for_ack`](Self::sync_for_ack), and then the ACKs.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    options: LogOptions,
    recovery: RecoveryReport,
    active: Option<ActiveSegment>,
    /// Every whole transaction appended, durable or not, and all before it.
    gtids: Option<GtidSet>,
    /// Whether `gtids` holds all that was before the log's beginning too.
    gtids_known: bool,
    last_transaction: Option<LogEntry>,
    /// Up to where the flusher was asked to sync the newest segment.
    requested_end: u64,
    // Fields are dropped in this order: the thread ends before the lock is given up.
    flusher: Flusher,
    _lock: Box<dyn Any + Send + Sync>,
}

impl LogWriter {
    /// Opens the log in `directory`, creating the directory if there is none, and repairs what a crash left.
    ///
    /// # Errors
    /// [`LogError::Locked`] if somebody else writes to it; [`LogError::Corrupt`] if bytes that were durable are not what
    /// they were (nothing is changed then); [`LogError::FormatVersion`]; [`LogError::Io`].
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
        let Recovered { control, segments, tail, recovery } = recovery::recover(&directory)?;
        recovery.tell(directory.path());
        let shared = Arc::new(Shared::new(directory, control, segments, options.archive.clone()));
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

    /// What opening the log found and repaired.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// For readers, and for whoever wants to know what is durable.
    pub fn handle(&self) -> LogHandle {
        LogHandle::new(Arc::clone(&self.shared), self.options.retention, self.options.ack)
    }

    /// Where the log ends in the source's binlog, whole transactions only; `None` while it has no segment.
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

    /// Every whole transaction in the log, purged ones included; `None` while it has no segment.
    pub fn gtid_set(&self) -> Option<&GtidSet> {
        self.gtids.as_ref()
    }

    /// The newest whole transaction, if it lies in the newest segment.
    pub fn last_transaction(&self) -> Option<&LogEntry> {
        self.last_transaction.as_ref()
    }

    /// Whether the newest segment begins in the middle of the source's file and holds nothing, not even a format description: a crash
    /// came between its beginning and the first that was appended.
    pub fn has_empty_partial_segment(&self) -> bool {
        self.active.as_ref().is_some_and(|active| {
            active.header().source_offset > FIRST_EVENT_OFFSET && active.whole_end() <= FIRST_EVENT_OFFSET
        })
    }

    /// Whether a transaction was opened and has not ended.
    pub fn in_transaction(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.framing().in_transaction())
    }

    /// Whether the log still takes anything: a sync in the background may have failed.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub fn check(&self) -> Result<(), LogError> {
        self.shared.check()
    }

    /// Bytes of whole transactions and events that were appended and are not durable yet.
    pub fn unsynced_bytes(&self) -> u64 {
        self.active
            .as_ref()
            .map_or(0, |active| active.whole_end().saturating_sub(self.durable_offset(active)))
    }

    /// Those of them that the other thread was not asked to sync yet, by [`sync_in_background`](Self::sync_in_background) or
    /// [`flush`](Self::flush).
    pub fn unrequested_bytes(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| {
            active.whole_end().saturating_sub(self.durable_offset(active).max(self.requested_end))
        })
    }

    fn durable_offset(&self, active: &ActiveSegment) -> u64 {
        let durable = self.shared.durable().position;
        if durable.segment == active.header().segment { durable.offset } else { 0 }
    }

    /// Reads bytes of the newest transaction, from `offset` behind its start, to compare them with what a source sends
    /// again.
    ///
    /// # Errors
    /// [`LogError::Sequence`] if there is none in the newest segment, or it is shorter; [`LogError::Io`].
    pub fn read_last_transaction(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), LogError> {
        let path = self.shared.path();
        let (Some(active), Some(entry)) = (&self.active, &self.last_transaction) else {
            return Err(LogError::sequence(&path, "there is no last transaction to compare with"));
        };
        if entry.position.segment != active.header().segment || offset + buffer.len() as u64 > entry.length {
            return Err(LogError::sequence(&path, "bytes beyond the last transaction were to be compared"));
        }
        active.read(&self.shared, entry.position.offset + offset, buffer)
    }

    /// Begins a new segment that mirrors `source_file`, whose first event stands at `source_offset` there (4 is the
    /// file's first). Seals the present segment, cutting a transaction that was not completed: a source that crashed
    /// leaves the like at the end of its file.
    ///
    /// # Errors
    /// [`LogError::FlavourMismatch`]; [`LogError::DiskFull`] and [`LogError::Write`], which poison the log.
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
        // The index first: a segment is never without its header.
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

    /// Appends a chunk of an event, verbatim. `first` and `last` say whether it is the event's first and last; the first
    /// one begins with the header's bytes and holds at least
    /// [`PREFIX_BYTES`](tailwater_wire::transaction::TransactionTracker::PREFIX_BYTES) of the body, or all of it.
    /// Checksums are the caller's to verify.
    ///
    /// The bytes are neither visible nor durable yet; at most [`LogOptions::buffer_bytes_max`] of them, and this chunk,
    /// stay in memory.
    ///
    /// # Errors
    /// [`LogError::Event`] if the event cannot stand here: the transaction it belongs to is rolled back.
    /// [`LogError::DiskFull`] and [`LogError::Write`], which poison the log. [`LogError::Sequence`] for a caller's defect.
    pub fn append(
        &mut self,
        header: &EventHeader,
        chunk: &[u8],
        first: bool,
        last: bool,
    ) -> Result<Appended, LogError> {
        self.shared.check()?;
        if first {
            self.begin_event(header, chunk)?;
        }
        let Some(active) = &mut self.active else {
            return Err(self.sequence("no segment was begun"));
        };
        if let Err(reason) = active.count_chunk(chunk.len(), last) {
            return Err(self.sequence(&reason));
        }
        let written = active.take(&self.shared, &self.options, &mut self.flusher, chunk);
        let entry = if last { active.end_event() } else { None };
        let position = active.position();
        self.guard(written)?;
        let ends_transaction = entry.as_ref().is_some_and(LogEntry::is_transaction);
        if let Some(entry) = entry {
            self.end_entry(entry)?;
        }
        Ok(Appended { position, ends_transaction })
    }

    fn sequence(&self, reason: &str) -> LogError {
        LogError::sequence(self.shared.directory.path(), reason)
    }

    fn begin_event(&mut self, header: &EventHeader, chunk: &[u8]) -> Result<(), LogError> {
        if chunk.get(..EVENT_HEADER_BYTES) != Some(&header.to_bytes()) {
            return Err(self.sequence("a first chunk does not begin with the event's header"));
        }
        let Some(active) = &mut self.active else {
            return Err(self.sequence("no segment was begun"));
        };
        let source_position = active.framing().source_position();
        let result = match active.begin_event(header, chunk) {
            Ok(Before::CutTransaction) => {
                tracing::warn!(
                    source_file = active.header().source_file,
                    source_position,
                    "the source restarted in the midst of a transaction, which is cut"
                );
                self.rollback_partial()?;
                match &mut self.active {
                    Some(active) => active.begin_event(header, chunk),
                    None => return Err(self.sequence("no segment was begun")),
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

    /// What the log itself learns from events that say something of the whole log.
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

    /// At the beginning of a log, the source's own statement of what its file was preceded by.
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
        let learned = gtid_before::parse(header, chunk, format)
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
            active.keep(entry.end().offset);
        }
        self.shared.add_pending(entry.clone());
        if entry.is_transaction() {
            self.last_transaction = Some(entry);
        }
        let unsynced = self.unsynced_bytes();
        if unsynced > self.options.unsynced_bytes_max {
            self.sync()?;
        } else if self.unrequested_bytes() >= self.options.background_sync_bytes {
            // In good time, so that appending need not wait.
            self.sync_in_background()?;
        }
        Ok(())
    }

    /// Writes what is buffered of whole transactions to the file, in one write, and gives the end of it: a crash of this
    /// process does not lose it, if events have checksums. In [`AckMode::Received`] an fdatasync follows within
    /// [`LogOptions::sync_interval`] from another thread; at once where [`LogOptions::background_sync_bytes`] wait for it, or
    /// somebody [hurries](LogHandle::prompt_sync).
    ///
    /// # Errors
    /// [`LogError::DiskFull`] and [`LogError::Write`], which poison the log.
    pub fn flush(&mut self) -> Result<LogPosition, LogError> {
        let position = self.write_whole()?;
        let unsynced = self.unsynced_bytes();
        if self.options.ack == AckMode::Received && unsynced > 0 {
            let urgent = self.shared.has_prompt_sync_request() || !self.shared.is_kept_once_written();
            self.request_sync(urgent || unsynced >= self.options.background_sync_bytes)?;
            // Who has come meanwhile may not have found it.
            if !urgent && self.shared.has_prompt_sync_request() {
                self.shared.flushes.make_urgent();
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

    /// Makes every whole transaction durable: writes what is buffered, does one fdatasync in this thread, and lets
    /// readers see it. When it returns, those transactions may be acknowledged.
    ///
    /// # Errors
    /// [`LogError::DiskFull`] and [`LogError::Write`], which poison the log.
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

    /// Does what an ACK needs: [`sync`](Self::sync), or, in [`AckMode::Received`], [`flush`](Self::flush) where that keeps it over a
    /// crash of this process.
    ///
    /// # Errors
    /// As [`LogWriter::sync`].
    pub fn sync_for_ack(&mut self) -> Result<LogPosition, LogError> {
        match self.options.ack {
            AckMode::Received if self.shared.is_kept_once_written() => self.flush(),
            _ => self.sync(),
        }
    }

    /// Does the same as [`sync`](Self::sync) without waiting, in another thread: watch [`LogHandle::subscribe`].
    ///
    /// # Errors
    /// As [`LogWriter::sync`]; a failure in the other thread shows at the next call.
    pub fn sync_in_background(&mut self) -> Result<LogPosition, LogError> {
        let position = self.write_whole()?;
        if self.unsynced_bytes() > 0 {
            self.request_sync(true)?;
        }
        Ok(position)
    }

    /// Cuts what was appended behind the last whole transaction: the link broke in the midst of one, which will come
    /// again from its beginning.
    ///
    /// # Errors
    /// [`LogError::Write`], which poisons the log.
    pub fn rollback_partial(&mut self) -> Result<(), LogError> {
        self.shared.check()?;
        let result = match &mut self.active {
            Some(active) => active.rollback(&self.shared),
            None => Ok(()),
        };
        self.guard(result)
    }

    /// Makes everything durable and ends in good order: the newest segment gets its exact length.
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

    /// Lets a failure that makes the disk's state unknown poison the log.
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
