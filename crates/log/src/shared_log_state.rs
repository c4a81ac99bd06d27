//! The state that the writer, the flusher and the readers share. Its most important part is the durable
//! position.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tailwater_wire::gtid::GtidSet;
use tokio::sync::watch;

use crate::archive::Archive;
use crate::archive::archive_backed_directory::ArchivedDirectory;
use crate::control_file::ControlFile;
use crate::error::LogError;
use crate::log_metrics::SyncDurationCounters;
use crate::log_options::Retention;
use crate::log_position::{LogEntry, LogPosition, ReaderPlace};
use crate::purge_policy::ReaderPin;
use crate::segment_files::{index_name, segment_name};
use crate::segment_index::{IndexRecord, SegmentHeader};
use crate::storage::{Directory, LogFile, blocking};
use crate::stored_reader_positions::PersistentReaders;
use crate::sync_thread::SyncQueue;

/// The position up to which the log is durable, and whether this position can still advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableState {
    /// Every byte before this position is durable, and readers read no further. The position is always
    /// between two entries.
    pub position: LogPosition,
    /// Whether the position can still advance.
    pub state: LogState,
}

/// Whether a log is in use, closed or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogState {
    /// A writer has the log open.
    Open,
    /// The writer closed the log.
    Closed,
    /// A write or an fdatasync failed. Nothing more becomes durable.
    Poisoned,
}

/// The part of the shared state that belongs to one segment.
#[derive(Debug, Clone)]
pub(crate) struct SegmentState {
    /// The header in the index of the segment.
    pub header: Arc<SegmentHeader>,
    /// The length and the number of entries of the segment, if it is sealed.
    pub sealed: Option<(u64, u64)>,
}

/// The state that the writer, the flusher and the readers share.
#[derive(Debug)]
pub(crate) struct LogShared {
    pub directory: Arc<dyn Directory>,
    /// The directory as readers see it. If there is an archive, it includes the archived segments.
    pub reading: Arc<dyn Directory>,
    pub archive: Option<Archive>,
    durable: watch::Sender<DurableState>,
    /// The end of the whole entries that are written to the file. Readers of written entries use it. Its
    /// receivers are also notified when the state of the log changes.
    written: watch::Sender<LogPosition>,
    tail: Mutex<IndexTail>,
    pub(crate) segments: Mutex<BTreeMap<u64, SegmentState>>,
    poison: OnceLock<String>,
    /// Whether the newest segment has events without checksums. Of such a segment, recovery after a crash
    /// keeps only the events that are in the index.
    needs_synced_index: AtomicBool,
    /// The number of active prompt-sync requests.
    prompt_sync_requests: AtomicUsize,
    /// The requests to the flusher thread.
    pub(crate) sync_queue: Arc<SyncQueue>,
    /// Locked from the start of an fdatasync until its result is published. If two threads called fdatasync
    /// at once, the kernel would report a failure to only one of them.
    syncing: Mutex<()>,
    /// How long each fdatasync of a segment took.
    pub(crate) sync_durations: SyncDurationCounters,
    control: Mutex<ControlFile>,
    /// The retention that the last call of [`LogHandle::set_retention`] set; `None` before the first call.
    ///
    /// [`LogHandle::set_retention`]: crate::LogHandle::set_retention
    retention: Mutex<Option<Retention>>,
    pins: Mutex<BTreeMap<u64, ReaderPin>>,
    readers: Mutex<PersistentReaders>,
}

/// The state of the next entry, for a reader of written entries.
#[derive(Debug)]
pub(crate) enum WrittenEntry {
    /// The entry is durable, so it is in the index.
    Durable,
    /// The entry is written to the file. The second field is the offset up to which the file can be read.
    Entry(LogEntry, u64),
    /// No whole entry is written at this position.
    None,
}

/// The index of the newest segment, and the entries whose bytes are not durable yet.
#[derive(Debug, Default)]
struct IndexTail {
    segment: u64,
    index: Option<Arc<dyn LogFile>>,
    index_bytes: u64,
    entries: u64,
    /// Whether the index is synced with every commit group: see [`LogShared::sync_index_always`].
    sync_index: bool,
    pending: VecDeque<LogEntry>,
    encoded: Vec<u8>,
    gtids: Option<GtidSet>,
    last_transaction: Option<LogEntry>,
}

/// The newest segment in the state in which recovery found it when the log was opened.
#[derive(Debug)]
pub(crate) struct TailStart {
    pub segment: u64,
    pub index: Arc<dyn LogFile>,
    pub index_bytes: u64,
    pub entries: u64,
    pub end: u64,
    pub gtids: GtidSet,
    pub gtids_known: bool,
    pub last_transaction: Option<LogEntry>,
}

impl LogShared {
    /// The retention that was set last; `None` if it was never set.
    pub(crate) fn retention(&self) -> Option<Retention> {
        *self.retention.lock()
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        *self.retention.lock() = Some(retention);
    }

    pub(crate) fn new(
        directory: Arc<dyn Directory>,
        control: ControlFile,
        segments: BTreeMap<u64, SegmentState>,
        archive: Option<Archive>,
    ) -> Self {
        let reading: Arc<dyn Directory> = match &archive {
            Some(archive) => Arc::new(ArchivedDirectory::new(Some(Arc::clone(&directory)), archive.clone())),
            None => Arc::clone(&directory),
        };
        let readers = PersistentReaders::read(directory.as_ref()).unwrap_or_else(|error| {
            tracing::warn!(
                code = error.code(),
                "cannot read the persistent readers; a purge may drop segments that they need: {error}"
            );
            PersistentReaders::default()
        });
        let durable = DurableState { position: LogPosition::ZERO, state: LogState::Open };
        Self {
            directory,
            reading,
            archive,
            durable: watch::Sender::new(durable),
            written: watch::Sender::new(LogPosition::ZERO),
            tail: Mutex::default(),
            segments: Mutex::new(segments),
            poison: OnceLock::new(),
            needs_synced_index: AtomicBool::new(false),
            prompt_sync_requests: AtomicUsize::new(0),
            sync_queue: Arc::default(),
            syncing: Mutex::default(),
            sync_durations: SyncDurationCounters::default(),
            control: Mutex::new(control),
            retention: Mutex::new(None),
            pins: Mutex::default(),
            readers: Mutex::new(readers),
        }
    }

    pub(crate) fn durable(&self) -> DurableState {
        *self.durable.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.durable.subscribe()
    }

    /// Returns whether bytes that are written but not durable yet survive a crash of the process.
    pub(crate) fn is_kept_once_written(&self) -> bool {
        !self.needs_synced_index.load(Ordering::Acquire)
    }

    /// Adds a prompt-sync request, and makes a pending sync urgent.
    pub(crate) fn begin_prompt_sync(&self) {
        self.prompt_sync_requests.fetch_add(1, Ordering::SeqCst);
        self.sync_queue.make_urgent();
    }

    /// Removes a prompt-sync request.
    pub(crate) fn end_prompt_sync(&self) {
        self.prompt_sync_requests.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether there is a prompt-sync request.
    pub(crate) fn has_prompt_sync_request(&self) -> bool {
        self.prompt_sync_requests.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn subscribe_written(&self) -> watch::Receiver<LogPosition> {
        self.written.subscribe()
    }

    /// Returns the GTIDs of all durable transactions.
    pub(crate) fn gtids(&self) -> Option<GtidSet> {
        self.tail.lock().gtids.clone()
    }

    /// Returns the newest durable transaction of the newest segment.
    pub(crate) fn last_transaction(&self) -> Option<LogEntry> {
        self.tail.lock().last_transaction.clone()
    }

    pub(crate) fn segments(&self) -> BTreeMap<u64, SegmentState> {
        self.segments.lock().clone()
    }

    pub(crate) fn newest_header(&self) -> Option<Arc<SegmentHeader>> {
        self.segments.lock().last_key_value().map(|(_, state)| Arc::clone(&state.header))
    }

    pub(crate) fn pins(&self) -> MutexGuard<'_, BTreeMap<u64, ReaderPin>> {
        self.pins.lock()
    }

    pub(crate) fn readers(&self) -> MutexGuard<'_, PersistentReaders> {
        self.readers.lock()
    }

    /// Records the position of a persistent reader. Writes it to disk now if `at_once` is true, otherwise
    /// soon.
    pub(crate) fn record_reader(&self, name: &str, position: LogPosition, at_once: bool) {
        let mut readers = self.readers();
        if !readers.record(name, position, SystemTime::now()) {
            tracing::warn!(
                reader = name,
                "too many readers have a stored position, so the position of this reader is not stored; a purge may remove segments that it needs"
            );
        }
        // This failure does not endanger captured data, so the log continues.
        if let Err(error) = readers.write(self.directory.as_ref(), at_once) {
            tracing::warn!(reader = name, code = error.code(), "cannot record a reader's position: {error}");
        }
    }

    /// Returns the number of the oldest segment. If there is no segment, returns the number that the first
    /// segment will have.
    pub(crate) fn first_segment_number(&self) -> u64 {
        self.control.lock().first_segment
    }

    /// Changes the control file durably.
    pub(crate) fn update_control(&self, change: impl FnOnce(&mut ControlFile)) -> Result<(), LogError> {
        let mut control = self.control.lock();
        let mut changed = control.clone();
        change(&mut changed);
        changed.write(self.directory.as_ref())?;
        *control = changed;
        Ok(())
    }

    pub(crate) fn forget_segments_before(&self, first: u64) {
        let mut segments = self.segments.lock();
        let kept = segments.split_off(&first);
        let forgotten = std::mem::replace(&mut *segments, kept);
        if let Some(archive) = &self.archive {
            forgotten.into_iter().for_each(|(number, state)| archive.remember(number, state));
        }
    }

    /// Makes `start` the newest segment. Everything up to `start.end` is durable.
    pub(crate) fn begin_segment(&self, header: Arc<SegmentHeader>, start: TailStart) {
        self.segments.lock().insert(start.segment, SegmentState { header, sealed: None });
        let mut tail = self.tail.lock();
        tail.segment = start.segment;
        tail.index = Some(start.index);
        tail.index_bytes = start.index_bytes;
        tail.entries = start.entries;
        tail.sync_index = false;
        self.needs_synced_index.store(false, Ordering::Release);
        tail.pending.clear();
        tail.gtids = Some(start.gtids);
        tail.last_transaction = start.last_transaction;
        let position = LogPosition { segment: start.segment, offset: start.end };
        // Publish the position while `tail` is locked, so that all positions are published in order.
        self.durable.send_modify(|durable| durable.position = position);
        self.advance_written(position);
    }

    /// Returns the end of the durable entries, for a reader that starts there. Returns `None` while the log
    /// is empty or starts a new segment.
    pub(crate) fn durable_place(&self) -> Option<ReaderPlace> {
        let tail = self.tail.lock();
        let sealed = self.segments.lock().get(&tail.segment)?.sealed.is_some();
        // Durable entries are published while `tail` is locked, so the two values belong together.
        let place = ReaderPlace { position: self.durable().position, index_offset: tail.index_bytes };
        (!sealed && place.position.segment == tail.segment).then_some(place)
    }

    /// Adds an entry whose bytes are not durable yet.
    pub(crate) fn add_pending(&self, entry: LogEntry) {
        self.tail.lock().pending.push_back(entry);
    }

    /// Publishes that all entries of `segment` up to `end` are written, for readers of written entries.
    pub(crate) fn publish_written(&self, segment: u64, end: u64) {
        let tail = self.tail.lock();
        if tail.segment == segment {
            self.advance_written(LogPosition { segment, offset: end });
        }
    }

    /// Moves the written position forward. The caller must hold the lock of `tail`.
    fn advance_written(&self, position: LogPosition) {
        self.written.send_if_modified(|written| {
            let raised = *written < position;
            *written = position.max(*written);
            raised
        });
    }

    /// Returns the entry at `position` if it is written but not durable yet, with the end of the readable
    /// bytes.
    pub(crate) fn written_entry(&self, position: LogPosition) -> WrittenEntry {
        let tail = self.tail.lock();
        // `tail` stays locked here, and durable entries leave `tail.pending` only while it is locked. So no
        // entry becomes durable and leaves the queue between the checks below.
        let durable = self.durable();
        if durable.position > position {
            return WrittenEntry::Durable;
        }
        if durable.state != LogState::Open {
            // This entry will never become durable. After a failed write or fdatasync, the content of the
            // file is unknown.
            return WrittenEntry::None;
        }
        let written = *self.written.borrow();
        let at = tail.pending.binary_search_by_key(&position, |entry| entry.position);
        match at.ok().and_then(|at| tail.pending.get(at)).filter(|entry| entry.end() <= written) {
            Some(entry) => WrittenEntry::Entry(entry.clone(), written.offset),
            None => WrittenEntry::None,
        }
    }

    /// Makes the written bytes of `segment` durable, and publishes them up to `end`. After a failure the log
    /// accepts nothing more.
    pub(crate) fn sync(&self, segment: u64, file: &dyn LogFile, end: u64) -> Result<(), LogError> {
        // The call waits for the disk. If another thread is running an fdatasync, the call first waits for
        // that thread.
        blocking(|| self.sync_exclusively(segment, file, end))
    }

    fn sync_exclusively(&self, segment: u64, file: &dyn LogFile, end: u64) -> Result<(), LogError> {
        let _exclusive = self.syncing.lock();
        self.check()?;
        let path = || self.directory.path_of(&segment_name(segment));
        let started = Instant::now();
        let result = file.sync().map_err(|error| LogError::write("fdatasync", path(), error));
        self.sync_durations.add(started.elapsed());
        let result = result.and_then(|()| self.complete(segment, end));
        if let Err(error) = &result
            && error.poisons()
        {
            self.poison(error);
        }
        result
    }

    /// Records that everything of `segment` up to `end` is durable: writes the index entries, then publishes
    /// the position.
    ///
    /// The index is written before the position is published. So it holds every durable entry that a reader
    /// looks for.
    fn complete(&self, segment: u64, end: u64) -> Result<(), LogError> {
        self.check()?;
        let mut tail = self.tail.lock();
        let tail = &mut *tail;
        if tail.segment != segment {
            return Ok(());
        }
        let Some(index) = &tail.index else {
            return Ok(());
        };
        let count = tail.pending.iter().take_while(|entry| entry.end().offset <= end).count();
        let Some(last) = count.checked_sub(1).and_then(|last| tail.pending.get(last)) else {
            return Ok(());
        };
        let position = last.end();
        tail.encoded.clear();
        for entry in tail.pending.iter().take(count) {
            IndexRecord::encode_entry(entry, &mut tail.encoded);
        }
        index.write_at(&tail.encoded, tail.index_bytes).map_err(|error| {
            LogError::write("append to", self.directory.path_of(&index_name(segment)), error)
        })?;
        if tail.sync_index {
            index.sync().map_err(|error| {
                LogError::write("fdatasync", self.directory.path_of(&index_name(segment)), error)
            })?;
        }
        tail.index_bytes += tail.encoded.len() as u64;
        tail.entries += count as u64;
        for entry in tail.pending.drain(..count) {
            if let (Some(gtid), Some(gtids)) = (&entry.gtid, &mut tail.gtids) {
                // The writer has already inserted this GTID into its own set, so this insertion cannot fail.
                let _ = gtids.insert(gtid);
            }
            if entry.is_transaction() {
                tail.last_transaction = Some(entry);
            }
        }
        self.durable.send_modify(|durable| durable.position = position);
        self.advance_written(position);
        Ok(())
    }

    /// Adds the transactions from before the start of the log to the GTID set of the log.
    pub(crate) fn add_gtids(&self, before: &GtidSet) {
        let mut tail = self.tail.lock();
        // The writer has checked that both sets have the same flavour.
        if let Some(Ok(gtids)) = tail.gtids.as_ref().map(|gtids| gtids.union(before)) {
            tail.gtids = Some(gtids);
        }
    }

    /// Writes the seal, the last record of the newest segment's index, durably.
    pub(crate) fn seal(&self, segment: u64, length: u64) -> Result<(), LogError> {
        let mut tail = self.tail.lock();
        let path = || self.directory.path_of(&index_name(segment));
        if let Some(index) = &tail.index {
            let mut bytes = Vec::new();
            IndexRecord::encode_seal(length, tail.entries, &mut bytes);
            index
                .write_at(&bytes, tail.index_bytes)
                .map_err(|error| LogError::write("append to", path(), error))?;
            index.sync().map_err(|error| LogError::write("fdatasync", path(), error))?;
            tail.index_bytes += bytes.len() as u64;
        }
        if let Some(state) = self.segments.lock().get_mut(&segment) {
            state.sealed = Some((length, tail.entries));
        }
        Ok(())
    }

    /// From this call on, the log makes the index of the newest segment durable before it publishes a
    /// position. Events without checksums need this: after a crash, only the index shows which of these
    /// events were durable.
    pub(crate) fn sync_index_always(&self) {
        self.tail.lock().sync_index = true;
        self.needs_synced_index.store(true, Ordering::Release);
    }

    /// Makes the written part of the newest segment's index durable.
    pub(crate) fn sync_index(&self) -> Result<(), LogError> {
        let (index, segment) = {
            let tail = self.tail.lock();
            (tail.index.clone(), tail.segment)
        };
        match index {
            Some(index) => index.sync().map_err(|error| {
                LogError::write("fdatasync", self.directory.path_of(&index_name(segment)), error)
            }),
            None => Ok(()),
        }
    }

    /// Records the first failure. No position is published after it.
    pub(crate) fn poison(&self, error: &LogError) {
        if self.poison.set(format!("{}: {error}", error.code())).is_ok() {
            tracing::error!(
                code = error.code(),
                "the log accepts nothing more after this failure; fix the cause and restart: {error}"
            );
        }
        self.durable.send_modify(|durable| durable.state = LogState::Poisoned);
        self.written.send_modify(|_| ());
    }

    /// Records that the writer has closed the log.
    pub(crate) fn close(&self) {
        self.durable.send_modify(|durable| {
            if durable.state == LogState::Open {
                durable.state = LogState::Closed;
            }
        });
        self.written.send_modify(|_| ());
    }

    /// Returns [`LogError::Poisoned`] if a failure was recorded.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(LogError::Poisoned { path: self.path(), reason: reason.clone() }),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}
