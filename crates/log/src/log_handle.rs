//! Access to a log for readers and tools: [`LogHandle`] in the process of the writer, [`LogDir`] in any other
//! process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::watch;

use crate::archive::archive_backed_directory::ArchivedDirectory;
use crate::archive::{self, Archive, ArchiveExpiry, ArchiveOptions, ArchiveProgress, ArchiveReport};
use crate::control_file::{self, ControlFile};
use crate::error::LogError;
use crate::log_metrics::LogFigures;
use crate::log_options::{AckMode, Retention};
use crate::log_position::{LogEntry, LogPosition, SourceIdentity};
use crate::log_reader::{LogReader, ReadLimit};
use crate::newest_segment_recovery;
use crate::purge_policy::{self, Purge, PurgeLimit, RetentionPin};
use crate::segment_files::{index_name, parse_segment_name, segment_name};
use crate::segment_index::SegmentHeader;
use crate::segment_index_reader::{self, IndexReader};
use crate::shared_log_state::{DurableState, LogShared, LogState, SegmentState};
use crate::storage::{Directory, RealDirectory};
use crate::stored_reader_positions::{PersistentReader, PersistentReaders};
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// The properties of a segment that `tailwater log ls` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// The number of the segment, from 1.
    pub number: u64,
    /// The path of its file.
    pub path: PathBuf,
    /// The source's binlog file of which the segment is a copy.
    pub source_file: String,
    /// The offset in `source_file` of the segment's first event. If it is 4, the segment is a copy of the
    /// whole file, byte for byte.
    pub source_offset: u64,
    /// The server that the events came from.
    pub source: SourceIdentity,
    /// The number of the server that the events came from: 1 for the first, and 1 more after each change of
    /// the server.
    pub epoch: u32,
    /// The number of durable bytes.
    pub bytes: u64,
    /// Whether the segment is complete and will not grow.
    pub sealed: bool,
    /// The GTIDs of all transactions of the log before the segment, in the notation of the flavour.
    pub gtids_before: String,
}

fn summary(directory: &dyn Directory, state: &SegmentState, end: u64) -> SegmentSummary {
    let header = &state.header;
    SegmentSummary {
        number: header.segment,
        path: directory.path_of(&segment_name(header.segment)),
        source_file: header.source_file.clone(),
        source_offset: header.source_offset,
        source: header.source.clone(),
        epoch: header.epoch,
        bytes: state.sealed.map_or(end, |(length, _)| length),
        sealed: state.sealed.is_some(),
        gtids_before: header.gtids_before.clone(),
    }
}

/// Returns the state of a segment. `None` if its index is not complete.
fn sealed_state(directory: &dyn Directory, number: u64) -> Result<Option<SegmentState>, LogError> {
    let index = segment_index_reader::read_sealed(directory, number)?;
    Ok(index.map(|index| SegmentState {
        header: Arc::new(index.header),
        sealed: Some((index.length, index.entries)),
    }))
}

/// Returns the numbers of the local segments, and of the archived segments directly before them. If an
/// archived segment is missing, older ones are left out.
pub(crate) fn segment_numbers(directory: &dyn Directory) -> Result<BTreeSet<u64>, LogError> {
    let list = |error| LogError::io("list", directory.path(), error);
    let first = match ControlFile::read(directory)? {
        Some(ControlFile { first_segment: first, .. }) => {
            directory.archived_before(first).map_err(list)?.unwrap_or(first)
        }
        None => 1,
    };
    let names = directory.list().map_err(list)?;
    Ok(names.iter().filter_map(|name| parse_segment_name(name)).filter(|number| *number >= first).collect())
}

/// Returns [`LogError::Purged`] if a segment is not part of the log any more and is not archived.
pub(crate) fn if_purged(directory: &dyn Directory, segment: u64) -> Result<(), LogError> {
    let first = match ControlFile::read(directory)? {
        // Do not query the archive for a segment that was not purged, because the archive may be unreachable.
        Some(ControlFile { first_segment: first, .. }) if segment >= first => return Ok(()),
        Some(ControlFile { first_segment: first, .. }) => {
            let archived = directory.archived_before(first);
            archived.map_err(|error| LogError::io("list", directory.path(), error))?.unwrap_or(first)
        }
        None => segment_numbers(directory)?.first().copied().unwrap_or_default(),
    };
    match segment < first {
        true => Err(LogError::Purged { path: directory.path().to_owned(), segment, first }),
        false => Ok(()),
    }
}

/// While a value of this type exists, the log syncs written bytes at once: see [`LogHandle::prompt_sync`].
#[derive(Debug)]
pub struct PromptSyncGuard(Arc<LogShared>);

impl Drop for PromptSyncGuard {
    fn drop(&mut self) {
        self.0.end_prompt_sync();
    }
}

/// The log for readers in the process of the writer. Cheap to clone. A handle can still be used after the
/// writer has been dropped.
#[derive(Debug, Clone)]
pub struct LogHandle {
    shared: Arc<LogShared>,
    retention: Retention,
    ack: AckMode,
}

impl LogHandle {
    pub(crate) fn new(shared: Arc<LogShared>, retention: Retention, ack: AckMode) -> Self {
        Self { shared, retention, ack }
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<LogShared> {
        Arc::clone(&self.shared)
    }

    /// Returns the directory of the log.
    pub fn path(&self) -> PathBuf {
        self.shared.path()
    }

    /// Returns the server that the newest segment came from, or `None` if there is no segment.
    pub fn source(&self) -> Option<SourceIdentity> {
        self.shared.newest_header().map(|header| header.source.clone())
    }

    /// Returns up to which position the log is durable.
    pub fn durable(&self) -> DurableState {
        self.shared.durable()
    }

    /// Returns a channel that holds the durable state and reports its changes.
    pub fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.shared.subscribe()
    }

    /// Waits until everything before `position` is durable. Returns false if the writer closed the log first.
    /// While this call waits, the log syncs written bytes at once.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_durable(&self, position: LogPosition) -> Result<bool, LogError> {
        let is_done =
            |durable: &DurableState| durable.position >= position || durable.state != LogState::Open;
        if !is_done(&self.durable()) {
            let mut durable = self.subscribe();
            let _prompt_sync = self.prompt_sync();
            // The sender exists as long as `self`, so this cannot fail.
            let _ = durable.wait_for(is_done).await;
        }
        match self.durable().position >= position {
            true => Ok(true),
            false => self.shared.check().map(|()| false),
        }
    }

    /// Waits until everything that is written so far is durable, so that readers can read it and report its
    /// position. Returns false if the writer closed the log first.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_written_is_durable(&self) -> Result<bool, LogError> {
        let written = *self.shared.subscribe_written().borrow();
        self.wait_until_durable(written).await
    }

    /// Returns a guard for a reader that must forward durable bytes without delay. While the guard exists,
    /// the log syncs written bytes at once, even in [`AckMode::Received`].
    pub fn prompt_sync(&self) -> PromptSyncGuard {
        self.shared.begin_prompt_sync();
        PromptSyncGuard(Arc::clone(&self.shared))
    }

    /// Returns whether everything before `position` is as safe as an ACK promises: durable or, in
    /// [`AckMode::Received`], written to its file. Events without checksums must be durable: after a crash of
    /// this process, recovery could not find out which of these events are complete.
    pub fn is_acknowledged(&self, position: LogPosition) -> bool {
        let durable = self.durable();
        let enough = self.ack == AckMode::Received && self.shared.is_kept_once_written();
        let written = enough && durable.state == LogState::Open;
        durable.position >= position || written && *self.shared.subscribe_written().borrow() >= position
    }

    /// Waits until [`LogHandle::is_acknowledged`] returns true. Returns false if the writer closed the log
    /// first.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_acknowledged(&self, position: LogPosition) -> Result<bool, LogError> {
        let mut written = self.shared.subscribe_written();
        loop {
            if self.ack == AckMode::Durable || !self.shared.is_kept_once_written() {
                return self.wait_until_durable(position).await;
            }
            // Mark the written position as seen. The wait after the checks ends when the written position or
            // the log's state changes.
            written.borrow_and_update();
            if self.is_acknowledged(position) {
                return Ok(true);
            }
            if self.durable().state != LogState::Open {
                return self.shared.check().map(|()| false);
            }
            // The sender exists as long as `self`, so this cannot fail.
            let _ = written.changed().await;
        }
    }

    /// Returns the GTIDs of all durable transactions, and of all transactions before the start of the log.
    /// Returns `None` while the log is empty.
    pub fn gtid_set(&self) -> Option<GtidSet> {
        self.shared.gtids()
    }

    /// Returns the newest durable transaction, if it is in the newest segment.
    pub fn last_transaction(&self) -> Option<LogEntry> {
        self.shared.last_transaction()
    }

    /// Returns the segments, oldest first, with archived segments that were purged locally. Queries the
    /// archive for segments that this process does not know yet. If the query fails, logs a warning and
    /// leaves out the archived segments.
    pub fn segments(&self) -> Vec<SegmentSummary> {
        let end = self.shared.durable().position.offset;
        let segments = self.shared.segments();
        let first = segments.keys().next().copied().unwrap_or_else(|| self.shared.first_segment_number());
        let archived = self.archived_segments(first).unwrap_or_else(|error| {
            tracing::warn!(log = %self.path().display(), code = error.code(), "cannot list the archived segments; only local segments are listed: {error}");
            Vec::new()
        });
        let reading = self.shared.reading.as_ref();
        let archived = archived.iter().map(|state| summary(reading, state, end));
        let local = segments.values().map(|state| summary(self.shared.directory.as_ref(), state, end));
        archived.chain(local).collect()
    }

    /// Returns the archived segments that directly precede the local segment `first`.
    fn archived_segments(&self, first: u64) -> Result<Vec<SegmentState>, LogError> {
        let Some(archive) = &self.shared.archive else { return Ok(Vec::new()) };
        let oldest = archive.leading_to(first).map_err(|error| LogError::io("list", archive.url(), error))?;
        let mut states = Vec::new();
        for number in oldest.unwrap_or(first)..first {
            let state = match archive.state(number) {
                Some(state) => state,
                None => {
                    let state = sealed_state(self.shared.reading.as_ref(), number)?.ok_or_else(|| {
                        let path = archive.url().join(index_name(number));
                        LogError::corrupt(
                            path,
                            0,
                            "the index of this archived segment has no seal at its end",
                        )
                    })?;
                    archive.remember(number, state.clone());
                    state
                }
            };
            states.push(state);
        }
        Ok(states)
    }

    /// Returns the newest segment, or `None` if there is none.
    pub fn newest_segment(&self) -> Option<SegmentSummary> {
        let end = self.shared.durable().position.offset;
        let segments = self.shared.segments();
        let newest = segments.values().next_back();
        newest.map(|state| summary(self.shared.directory.as_ref(), state, end))
    }

    /// Returns the GTIDs of all transactions before a segment, including those before the start of the log.
    /// Returns `None` if the log began in the middle of a source's file and contains no list of the earlier
    /// GTIDs.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, LogError> {
        let segments = self.shared.segments();
        let first = segments.keys().next().copied().unwrap_or_else(|| self.shared.first_segment_number());
        let state = match segments.get(&segment) {
            Some(state) => state.clone(),
            None => {
                let archived = self.archived_segments(first)?;
                let oldest = archived.first().map_or(first, |state| state.header.segment);
                let state = archived.into_iter().find(|state| state.header.segment == segment);
                state.ok_or_else(|| LogError::Purged { path: self.path(), segment, first: oldest })?
            }
        };
        newest_segment_recovery::gtids_before(self.shared.reading.as_ref(), &state.header)
    }

    /// Returns the GTIDs of all transactions that no local segment holds: the purged transactions and those
    /// before the start of the log. Returns `None` if the log contains no list of the GTIDs before its start.
    /// Does not query the archive.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtids_purged_or_before(&self) -> Result<Option<GtidSet>, LogError> {
        // If the log began in the middle of a file, look at the next files: a file starts with the GTIDs of
        // all earlier transactions.
        const SEGMENTS_ASKED_MAX: usize = 3;
        for state in self.shared.segments().values().take(SEGMENTS_ASKED_MAX) {
            let before =
                newest_segment_recovery::gtids_before(self.shared.directory.as_ref(), &state.header)?;
            if before.is_some() {
                return Ok(before);
            }
        }
        Ok(None)
    }

    /// Returns a reader that starts at `from`, which must lie between two entries. [`LogPosition::ZERO`]
    /// starts at the oldest entry of the log.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let limit = ReadLimit::Durable(Arc::clone(&self.shared), self.shared.subscribe());
        LogReader::open(Arc::clone(&self.shared.reading), limit, from)
    }

    /// Returns a reader of durable entries that starts at their current end. In contrast to
    /// [`LogHandle::reader`], it need not read the index up to there. Returns `None` while the log is empty
    /// or starts a new segment.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Corrupt`].
    pub fn reader_at_durable_end(&self) -> Result<Option<LogReader>, LogError> {
        let Some(place) = self.shared.durable_place() else { return Ok(None) };
        let start = LogPosition { segment: place.position.segment, offset: FIRST_EVENT_OFFSET };
        let mut reader = self.reader(start)?;
        Ok(reader.move_forward(place).then_some(reader))
    }

    /// Returns a reader like [`LogHandle::reader`] that also returns entries that are written but not durable
    /// yet. After a crash of the machine, such entries may be missing. The reader can prepare its work
    /// early, but must act on an entry only when the entry is [durable](Self::subscribe).
    ///
    /// # Errors
    /// The same as of [`LogHandle::reader`].
    pub fn reader_up_to_written(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let limit = ReadLimit::Written(Arc::clone(&self.shared), self.shared.subscribe_written());
        LogReader::open(Arc::clone(&self.shared.reading), limit, from)
    }

    /// Registers a reader that needs everything from `position` on. As long as the returned pin exists, a
    /// purge keeps the segments that the reader needs. Messages about a refused purge show `name`.
    pub fn register_reader(&self, name: &str, position: LogPosition) -> RetentionPin {
        RetentionPin::register(Arc::clone(&self.shared), name, position, false)
    }

    /// Does the same as [`LogHandle::register_reader`], but the position of the reader stays stored after the
    /// pin is dropped. An operator's purge is refused while a disconnected reader needs the segments, even if
    /// no process has the log open. A purge by [`LogOptions::retention`] keeps the segments of a disconnected
    /// reader for a week, unless they are archived. To move the position, register the reader again under the
    /// same name.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn register_persistent_reader(&self, name: &str, position: LogPosition) -> RetentionPin {
        RetentionPin::register(Arc::clone(&self.shared), name, position, true)
    }

    /// Returns the persistent readers, including readers that are not connected.
    pub fn persistent_readers(&self) -> Vec<PersistentReader> {
        self.shared.readers().all()
    }

    /// Returns figures for monitoring. It reads no file.
    pub fn figures(&self) -> LogFigures {
        self.shared.figures()
    }

    /// Removes a persistent reader that will not connect again. Returns whether there was such a reader.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]. After such an error and a restart, the reader may exist
    /// again.
    pub fn forget_reader(&self, name: &str) -> Result<bool, LogError> {
        let mut readers = self.shared.readers();
        let known = readers.forget(name);
        readers.write(self.shared.directory.as_ref(), true)?;
        Ok(known)
    }

    /// Sets the limits of [`LogHandle::purge`], in place of [`LogOptions::retention`], for all handles of
    /// this log in this process.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn set_retention(&self, retention: Retention) {
        self.shared.set_retention(retention);
    }

    /// Purges the oldest sealed segments that exceed the limits of [`LogOptions::retention`]. Keeps every
    /// segment that a registered reader needs or that must be archived first. Always keeps the newest
    /// segment.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Write`]; [`LogError::ArchiveDiffers`] if another log is archived under
    /// this log's name. If the archive does not answer, this is not an error: the segments then count as not
    /// archived.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn purge(&self, now: SystemTime) -> Result<Purge, LogError> {
        let retention = self.shared.retention().unwrap_or(self.retention);
        purge_policy::purge(&self.shared, retention, now)
    }

    /// Purges either all segments that exceed an operator's limit, or none. Never purges the newest segment.
    ///
    /// # Errors
    /// [`LogError::StillNeeded`] if a reader needs one of the segments (with the name of the reader), or if a
    /// segment must be archived first; [`LogError::NoSuchPosition`] for a segment after the newest;
    /// [`LogError::Archive`], [`LogError::ArchiveDiffers`]; [`LogError::Io`], [`LogError::Write`].
    pub fn purge_by(&self, limit: PurgeLimit) -> Result<Purge, LogError> {
        purge_policy::purge_by(&self.shared, limit)
    }

    /// Purges all segments before `segment`: see [`Self::purge_by`].
    ///
    /// # Errors
    /// As [`Self::purge_by`].
    pub fn purge_to(&self, segment: u64) -> Result<Purge, LogError> {
        self.purge_by(PurgeLimit::To(segment))
    }
}

/// A log that is opened only for reading, possibly while another process writes to it. Readers see the log up
/// to the end of its index.
#[derive(Debug, Clone)]
pub struct LogDir {
    directory: Arc<dyn Directory>,
    /// The local part of the log; `None` if the whole log is in the archive.
    local: Option<Arc<dyn Directory>>,
}

impl LogDir {
    /// Opens the log of one source without locking or changing anything. If the directory has segments but no
    /// control file, logs a warning and opens the log. This happens if an operator has rescued only the
    /// segments.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the directory holds no log; [`LogError::FormatVersion`]; [`LogError::Corrupt`];
    /// [`LogError::Io`].
    pub fn open_read_only(directory: &Path) -> Result<Self, LogError> {
        Self::open_on(Arc::new(RealDirectory::new(directory)))
    }

    /// Opens the log of one source together with its archive. Purged segments are read from the archive. If
    /// `directory` holds no log, all segments are read from the archive.
    ///
    /// # Errors
    /// As [`LogDir::open_read_only`], and [`LogError::Archive`]. [`LogError::NoLog`] if the archive is empty
    /// too.
    pub fn open_with_archive(directory: &Path, archive: &Archive) -> Result<Self, LogError> {
        match Self::open_read_only(directory) {
            Ok(Self { directory: local, .. }) => {
                let directory = ArchivedDirectory::new(Some(Arc::clone(&local)), archive.clone());
                Ok(Self { directory: Arc::new(directory), local: Some(local) })
            }
            Err(LogError::NoLog { .. }) => Self::open_archive(archive),
            Err(error) => Err(error),
        }
    }

    /// Opens the archived segments of a source.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the archive holds no segment of the source; [`LogError::Archive`].
    pub fn open_archive(archive: &Archive) -> Result<Self, LogError> {
        let log = Self { directory: Arc::new(ArchivedDirectory::new(None, archive.clone())), local: None };
        match log.numbers()?.is_empty() {
            true => Err(LogError::NoLog { path: archive.url() }),
            false => Ok(log),
        }
    }

    pub(crate) fn open_on(directory: Arc<dyn Directory>) -> Result<Self, LogError> {
        let log = Self { local: Some(Arc::clone(&directory)), directory };
        let known = ControlFile::read(log.directory.as_ref());
        if !matches!(known, Ok(Some(_))) && log.numbers().unwrap_or_default().is_empty() {
            known?;
            return Err(LogError::NoLog { path: log.directory.path().to_owned() });
        }
        if known?.is_none() {
            // Readers can read rescued segments without a control file. Only a writer must know which segment
            // is the first one of the log.
            let path = log.directory.path().display();
            tracing::warn!(
                "{path} has segments but no control.json, which states the first segment of the log. So all \
                 segments are read, even segments that an interrupted purge has left. No process can write to \
                 the log until you restore control.json from a copy"
            );
        }
        Ok(log)
    }

    pub(crate) fn directory(&self) -> &dyn Directory {
        self.directory.as_ref()
    }

    /// Returns whether the log has a local directory, and not only an archive.
    pub(crate) fn has_directory(&self) -> bool {
        self.local.is_some()
    }

    /// Returns the numbers of the existing segments, oldest first.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, LogError> {
        Ok(segment_numbers(self.directory.as_ref())?.into_iter().collect())
    }

    /// Returns the directory of the log or, if there is none, the URL of the archive.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Archives every sealed local segment that is not in `archive` yet, oldest first. Another process may
    /// write to the log at the same time. The call may be interrupted at any time. A segment counts as
    /// archived only after it was uploaded, read back, and compared with the local segment.
    ///
    /// # Errors
    /// [`LogError::Archive`] if the store failed for longer than [`ArchiveOptions::retry_max`];
    /// [`LogError::ArchiveDiffers`] if the store returns other bytes, or holds segments of another log;
    /// [`LogError::Corrupt`], [`LogError::Io`]. Segments that were archived before the error are complete.
    pub fn archive_sealed(
        &self,
        archive: &Archive,
        options: ArchiveOptions,
        mut progress: impl FnMut(ArchiveProgress),
    ) -> Result<ArchiveReport, LogError> {
        match &self.local {
            Some(local) => {
                if ControlFile::read(local.as_ref())?.is_none() {
                    control_file::check_not_missing(
                        local.as_ref(),
                        !segment_numbers(local.as_ref())?.is_empty(),
                    )?;
                }
                archive::archive_sealed(local.as_ref(), archive, options, &mut progress)
            }
            None => Ok(ArchiveReport::default()),
        }
    }

    /// Removes old segments from `archive`: those that were archived longer than `time_max` ago, that the
    /// local directory does not contain any more, and that no persistent reader needs.
    ///
    /// # Errors
    /// [`LogError::Archive`]; [`LogError::Corrupt`], [`LogError::Io`].
    pub fn expire_archive(
        &self,
        archive: &Archive,
        time_max: Duration,
        now: SystemTime,
    ) -> Result<ArchiveExpiry, LogError> {
        let (Some(local), Some(before)) = (self.local.as_deref(), now.checked_sub(time_max)) else {
            return Ok(ArchiveExpiry::default());
        };
        let Some(first) = segment_numbers(local)?.first().copied() else {
            return Ok(ArchiveExpiry::default());
        };
        let readers = PersistentReaders::read(local)?.all();
        let keep_from = readers.iter().map(|reader| reader.position.segment).fold(first, u64::min);
        archive.expire(keep_from, before)
    }

    /// Returns what a purge would remove. Must be called only while no process has the log open. With an
    /// archive, returns only archived segments.
    ///
    /// # Errors
    /// As [`LogHandle::purge_by`], except [`LogError::Write`].
    pub fn plan_purge(&self, limit: PurgeLimit, archive: Option<&Archive>) -> Result<Purge, LogError> {
        let Some(local) = self.local.as_deref() else { return Ok(Purge::default()) };
        let readers = PersistentReaders::read(local)?.all();
        let inventory = purge_policy::inventory_of(local, segment_numbers(local)?, readers)?;
        let plan = purge_policy::plan(local, &inventory, limit, archive)?;
        purge_policy::check_complete(local, &inventory, &plan)?;
        Ok(plan)
    }

    /// Returns the persistent readers.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::FormatVersion`], [`LogError::Io`].
    pub fn persistent_readers(&self) -> Result<Vec<PersistentReader>, LogError> {
        match &self.local {
            Some(local) => Ok(PersistentReaders::read(local.as_ref())?.all()),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the segments, oldest first.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if an index cannot be read, [`LogError::Io`].
    pub fn segments(&self) -> Result<Vec<SegmentSummary>, LogError> {
        let mut summaries = Vec::new();
        for number in self.numbers()? {
            let state = match sealed_state(self.directory.as_ref(), number)? {
                Some(state) => state,
                None => match self.header(number) {
                    Ok(header) => SegmentState { header: Arc::new(header), sealed: None },
                    // The segment was purged while this loop ran.
                    Err(LogError::Purged { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            let end = match state.sealed {
                Some((length, _)) => length,
                None => self.indexed_end(number)?,
            };
            summaries.push(summary(self.directory.as_ref(), &state, end));
        }
        Ok(summaries)
    }

    /// Returns the offset in a segment up to which its index has entries.
    pub(crate) fn indexed_end(&self, number: u64) -> Result<u64, LogError> {
        Ok(match IndexReader::open(self.directory.as_ref(), number)? {
            Ok((_, mut reader)) => {
                segment_index_reader::read_front(&mut reader, FIRST_EVENT_OFFSET, |_| Ok(()))?.end
            }
            Err(_) => FIRST_EVENT_OFFSET,
        })
    }

    /// Returns the GTIDs of all durable transactions, and of all transactions before the start of the log.
    /// Returns `None` while the log is empty.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtid_set(&self) -> Result<Option<GtidSet>, LogError> {
        let Some(number) = self.numbers()?.pop() else { return Ok(None) };
        let header = self.header(number)?;
        newest_segment_recovery::gtids_up_to(self.directory.as_ref(), &header).map(Some)
    }

    /// Finds a transaction. Returns `None` if it is not in the log. Usually this reads the index of only one
    /// segment.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn find(&self, gtid: &Gtid) -> Result<Option<LogEntry>, LogError> {
        for number in self.numbers()?.into_iter().rev() {
            let header = self.header(number)?;
            let before = newest_segment_recovery::parse_gtids_before(
                &header,
                &self.directory.path_of(&index_name(number)),
            )?;
            if before.contains(gtid) {
                continue;
            }
            let mut reader = self.reader(LogPosition { segment: number, offset: FIRST_EVENT_OFFSET })?;
            while let Some(entry) = reader.try_next()? {
                if entry.position.segment != number {
                    break;
                }
                if entry.gtid.as_ref() == Some(gtid) {
                    return Ok(Some(entry));
                }
            }
        }
        Ok(None)
    }

    fn header(&self, number: u64) -> Result<SegmentHeader, LogError> {
        let directory = self.directory.as_ref();
        let control = ControlFile::read(directory)?;
        segment_index_reader::read_or_derive_header(directory, number, control.as_ref(), &BTreeMap::new())
            .or_else(|error| if_purged(directory, number).and(Err(error)))
    }

    /// Returns a reader that starts at `from`, which must lie between two entries. [`LogPosition::ZERO`]
    /// starts at the oldest entry of the log. The reader never waits: [`LogReader::try_next`] returns `None`
    /// at the current end of the log. A later call returns new entries.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        LogReader::open(Arc::clone(&self.directory), ReadLimit::Indexed, from)
    }
}
