//! What is durable: the state that the writer, the flusher and the readers share.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use tailwater_wire::gtid::GtidSet;
use tokio::sync::watch;

use crate::archive::Archive;
use crate::archive::overlay::ArchivedDirectory;
use crate::control::Control;
use crate::error::LogError;
use crate::flusher::Queue;
use crate::index::{Record, SegmentHeader};
use crate::position::{LogEntry, LogPosition};
use crate::readers::Readers;
use crate::retention::WatermarkState;
use crate::segment::{index_name, segment_name};
use crate::storage::{Directory, File, blocking};

/// How far the log is durable, and whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableState {
    /// Every byte before it is on stable storage; readers go no further. Always between two entries.
    pub position: LogPosition,
    /// Whether it can still move.
    pub state: LogState,
}

/// Whether a log goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogState {
    /// A writer has it open.
    Open,
    /// The writer closed it.
    Closed,
    /// A write or an fdatasync failed: nothing more becomes durable.
    Poisoned,
}

/// A segment as the log knows it.
#[derive(Debug, Clone)]
pub(crate) struct SegmentState {
    /// What the index begins with.
    pub header: Arc<SegmentHeader>,
    /// Its length and its number of entries, once it is sealed.
    pub sealed: Option<(u64, u64)>,
}

/// The state that the writer, the flusher and the readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub directory: Arc<dyn Directory>,
    /// The same for readers, with the archive behind it if there is one.
    pub reading: Arc<dyn Directory>,
    pub archive: Option<Archive>,
    durable: watch::Sender<DurableState>,
    /// Up to where whole entries stand in their file, for readers that run ahead of what is durable. Also changes, to the same, when
    /// the log's state does.
    written: watch::Sender<LogPosition>,
    tail: Mutex<Tail>,
    segments: Mutex<BTreeMap<u64, SegmentState>>,
    poison: OnceLock<String>,
    /// Of what is written to the newest segment, a crash of the process leaves only what is in the index.
    unchecked: AtomicBool,
    /// How many want what is written to be durable soon.
    prompt_sync_requests: AtomicUsize,
    /// What the flusher's thread is to do.
    pub(crate) flushes: Arc<Queue>,
    /// Held from an fdatasync until what came of it is known to all: the system tells a failure once, to one of two threads.
    syncing: Mutex<()>,
    control: Mutex<Control>,
    watermarks: Mutex<BTreeMap<u64, WatermarkState>>,
    readers: Mutex<Readers>,
}

/// What stands at the place of a reader that runs ahead.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// An entry that is durable: it is in the index.
    Durable,
    /// One that stands in its file, and up to where that can be read.
    Entry(LogEntry, u64),
    /// Nothing that is whole and written.
    Nothing,
}

/// The newest segment's index, and the entries that wait for their bytes to be durable.
#[derive(Debug, Default)]
struct Tail {
    segment: u64,
    index: Option<Arc<dyn File>>,
    index_bytes: u64,
    entries: u64,
    /// The index is synced with every group: see [`Shared::sync_index_always`].
    sync_index: bool,
    pending: VecDeque<LogEntry>,
    encoded: Vec<u8>,
    gtids: Option<GtidSet>,
    last_transaction: Option<LogEntry>,
}

/// Everything that opening found out about the newest segment.
#[derive(Debug)]
pub(crate) struct TailStart {
    pub segment: u64,
    pub index: Arc<dyn File>,
    pub index_bytes: u64,
    pub entries: u64,
    pub end: u64,
    pub gtids: GtidSet,
    pub gtids_known: bool,
    pub last_transaction: Option<LogEntry>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below leaves its state half changed where it could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        directory: Arc<dyn Directory>,
        control: Control,
        segments: BTreeMap<u64, SegmentState>,
        archive: Option<Archive>,
    ) -> Self {
        let reading: Arc<dyn Directory> = match &archive {
            Some(archive) => Arc::new(ArchivedDirectory::new(Some(Arc::clone(&directory)), archive.clone())),
            None => Arc::clone(&directory),
        };
        let readers = Readers::read(directory.as_ref()).unwrap_or_else(|error| {
            tracing::warn!(code = error.code(), "readers that are away are not remembered: {error}");
            Readers::default()
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
            unchecked: AtomicBool::new(false),
            prompt_sync_requests: AtomicUsize::new(0),
            flushes: Arc::default(),
            syncing: Mutex::default(),
            control: Mutex::new(control),
            watermarks: Mutex::default(),
            readers: Mutex::new(readers),
        }
    }

    pub(crate) fn durable(&self) -> DurableState {
        *self.durable.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.durable.subscribe()
    }

    /// Whether what is written survives a crash of the process before it is durable.
    pub(crate) fn is_kept_once_written(&self) -> bool {
        !self.unchecked.load(Ordering::Acquire)
    }

    /// One more, or one less, wants what is written to be durable soon.
    pub(crate) fn begin_prompt_sync(&self) {
        self.prompt_sync_requests.fetch_add(1, Ordering::SeqCst);
        self.flushes.make_urgent();
    }

    /// Counts one active prompt-sync request less.
    pub(crate) fn end_prompt_sync(&self) {
        self.prompt_sync_requests.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody does.
    pub(crate) fn has_prompt_sync_request(&self) -> bool {
        self.prompt_sync_requests.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn subscribe_written(&self) -> watch::Receiver<LogPosition> {
        self.written.subscribe()
    }

    /// The GTIDs of everything durable.
    pub(crate) fn gtids(&self) -> Option<GtidSet> {
        lock(&self.tail).gtids.clone()
    }

    /// The newest durable transaction of the newest segment.
    pub(crate) fn last_transaction(&self) -> Option<LogEntry> {
        lock(&self.tail).last_transaction.clone()
    }

    pub(crate) fn segments(&self) -> BTreeMap<u64, SegmentState> {
        lock(&self.segments).clone()
    }

    pub(crate) fn newest_header(&self) -> Option<Arc<SegmentHeader>> {
        lock(&self.segments).last_key_value().map(|(_, state)| Arc::clone(&state.header))
    }

    pub(crate) fn watermarks(&self) -> MutexGuard<'_, BTreeMap<u64, WatermarkState>> {
        lock(&self.watermarks)
    }

    pub(crate) fn readers(&self) -> MutexGuard<'_, Readers> {
        lock(&self.readers)
    }

    /// Remembers where a reader is, durably `at_once` or soon.
    pub(crate) fn note_reader(&self, name: &str, position: LogPosition, at_once: bool) {
        let mut readers = self.readers();
        if !readers.note(name, position, SystemTime::now()) {
            tracing::warn!(reader = name, "too many readers are remembered for one more");
        }
        // Nothing that was captured is at stake, so the log goes on.
        if let Err(error) = readers.write(self.directory.as_ref(), at_once) {
            tracing::warn!(
                reader = name,
                code = error.code(),
                "a reader's position is not remembered: {error}"
            );
        }
    }

    /// The number of the oldest segment, or of the first to come.
    pub(crate) fn first_segment_number(&self) -> u64 {
        lock(&self.control).first_segment
    }

    /// Changes the control file, durably.
    pub(crate) fn update_control(&self, change: impl FnOnce(&mut Control)) -> Result<(), LogError> {
        let mut control = lock(&self.control);
        let mut changed = control.clone();
        change(&mut changed);
        changed.write(self.directory.as_ref())?;
        *control = changed;
        Ok(())
    }

    pub(crate) fn forget_segments_before(&self, first: u64) {
        let mut segments = lock(&self.segments);
        let kept = segments.split_off(&first);
        let forgotten = std::mem::replace(&mut *segments, kept);
        if let Some(archive) = &self.archive {
            forgotten.into_iter().for_each(|(number, state)| archive.remember(number, state));
        }
    }

    /// Makes `start` the newest segment: all of it up to `start.end` is durable.
    pub(crate) fn begin_segment(&self, header: Arc<SegmentHeader>, start: TailStart) {
        lock(&self.segments).insert(start.segment, SegmentState { header, sealed: None });
        let mut tail = lock(&self.tail);
        tail.segment = start.segment;
        tail.index = Some(start.index);
        tail.index_bytes = start.index_bytes;
        tail.entries = start.entries;
        tail.sync_index = false;
        self.unchecked.store(false, Ordering::Release);
        tail.pending.clear();
        tail.gtids = Some(start.gtids);
        tail.last_transaction = start.last_transaction;
        let position = LogPosition { segment: start.segment, offset: start.end };
        // Under the tail's lock, so that positions are published in their order.
        self.durable.send_modify(|durable| durable.position = position);
        self.raise_written(position);
    }

    /// Takes an entry whose bytes are not durable yet.
    pub(crate) fn add_pending(&self, entry: LogEntry) {
        lock(&self.tail).pending.push_back(entry);
    }

    /// Everything of `segment` up to `end` stands in its file: lets readers see it that run ahead.
    pub(crate) fn publish_written(&self, segment: u64, end: u64) {
        let tail = lock(&self.tail);
        if tail.segment == segment {
            self.raise_written(LogPosition { segment, offset: end });
        }
    }

    /// Under the tail's lock, as segments begin.
    fn raise_written(&self, position: LogPosition) {
        self.written.send_if_modified(|written| {
            let raised = *written < position;
            *written = position.max(*written);
            raised
        });
    }

    /// The entry at `position` if it stands in its file and is not durable yet, and up to where the file can be read.
    pub(crate) fn written_entry(&self, position: LogPosition) -> Ahead {
        let tail = lock(&self.tail);
        // Entries that become durable leave the queue under the same lock.
        let durable = self.durable();
        if durable.position > position {
            return Ahead::Durable;
        }
        if durable.state != LogState::Open {
            // It will not be durable; and what a failed write or fdatasync has left there, nobody knows.
            return Ahead::Nothing;
        }
        let written = *self.written.borrow();
        let at = tail.pending.binary_search_by_key(&position, |entry| entry.position);
        match at.ok().and_then(|at| tail.pending.get(at)).filter(|entry| entry.end() <= written) {
            Some(entry) => Ahead::Entry(entry.clone(), written.offset),
            None => Ahead::Nothing,
        }
    }

    /// Makes what is written of `segment` durable, and visible up to `end`. A failure poisons the log.
    pub(crate) fn sync(&self, segment: u64, file: &dyn File, end: u64) -> Result<(), LogError> {
        // Also where it is another thread that has begun an fdatasync.
        blocking(|| self.sync_alone(segment, file, end))
    }

    fn sync_alone(&self, segment: u64, file: &dyn File, end: u64) -> Result<(), LogError> {
        let _alone = lock(&self.syncing);
        self.check()?;
        let path = || self.directory.path_of(&segment_name(segment));
        let result = file.sync().map_err(|error| LogError::write("fdatasync", path(), error));
        let result = result.and_then(|()| self.complete(segment, end));
        if let Err(error) = &result
            && error.poisons()
        {
            self.poison(error);
        }
        result
    }

    /// Everything of `segment` up to `end` is on stable storage: indexes it and lets readers see it.
    ///
    /// The index comes first, so that a reader finds there whatever is durable.
    fn complete(&self, segment: u64, end: u64) -> Result<(), LogError> {
        self.check()?;
        let mut tail = lock(&self.tail);
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
            Record::encode_entry(entry, &mut tail.encoded);
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
                // The writer has inserted it into its own set before, so it fits.
                let _ = gtids.insert(gtid);
            }
            if entry.is_transaction() {
                tail.last_transaction = Some(entry);
            }
        }
        self.durable.send_modify(|durable| durable.position = position);
        self.raise_written(position);
        Ok(())
    }

    /// Adds to the set what the log need not hold, because it was before the log's beginning.
    pub(crate) fn add_gtids(&self, before: &GtidSet) {
        let mut tail = lock(&self.tail);
        // Of one flavour, as the writer has found out.
        if let Some(Ok(gtids)) = tail.gtids.as_ref().map(|gtids| gtids.union(before)) {
            tail.gtids = Some(gtids);
        }
    }

    /// Ends the newest segment's index with its seal, durably.
    pub(crate) fn seal(&self, segment: u64, length: u64) -> Result<(), LogError> {
        let mut tail = lock(&self.tail);
        let path = || self.directory.path_of(&index_name(segment));
        if let Some(index) = &tail.index {
            let mut bytes = Vec::new();
            Record::encode_seal(length, tail.entries, &mut bytes);
            index
                .write_at(&bytes, tail.index_bytes)
                .map_err(|error| LogError::write("append to", path(), error))?;
            index.sync().map_err(|error| LogError::write("fdatasync", path(), error))?;
            tail.index_bytes += bytes.len() as u64;
        }
        if let Some(state) = lock(&self.segments).get_mut(&segment) {
            state.sealed = Some((length, tail.entries));
        }
        Ok(())
    }

    /// From here on the newest segment's index is durable before anything is published. Events without checksums need
    /// that: only the index can tell what of them was durable.
    pub(crate) fn sync_index_always(&self) {
        lock(&self.tail).sync_index = true;
        self.unchecked.store(true, Ordering::Release);
    }

    /// Makes the newest segment's index durable as far as it is written.
    pub(crate) fn sync_index(&self) -> Result<(), LogError> {
        let (index, segment) = {
            let tail = lock(&self.tail);
            (tail.index.clone(), tail.segment)
        };
        match index {
            Some(index) => index.sync().map_err(|error| {
                LogError::write("fdatasync", self.directory.path_of(&index_name(segment)), error)
            }),
            None => Ok(()),
        }
    }

    /// Remembers the first failure; nothing is published after it.
    pub(crate) fn poison(&self, error: &LogError) {
        if self.poison.set(format!("{}: {error}", error.code())).is_ok() {
            tracing::error!(code = error.code(), "the log stops: {error}");
        }
        self.durable.send_modify(|durable| durable.state = LogState::Poisoned);
        self.written.send_modify(|_| ());
    }

    /// The writer is gone in good order.
    pub(crate) fn close(&self) {
        self.durable.send_modify(|durable| {
            if durable.state == LogState::Open {
                durable.state = LogState::Closed;
            }
        });
        self.written.send_modify(|_| ());
    }

    /// [`LogError::Poisoned`] after any failure.
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
