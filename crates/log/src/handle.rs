//! The log for readers and tools: [`LogHandle`] in the writer's process, [`LogDir`] from any other process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::watch;

use crate::archive::overlay::ArchivedDirectory;
use crate::archive::{self, Archive, ArchiveExpiry, ArchiveOptions, ArchiveProgress, ArchiveReport};
use crate::control_file::{self, ControlFile};
use crate::error::LogError;
use crate::index::SegmentHeader;
use crate::index_file::{self, IndexReader};
use crate::options::{AckMode, Retention};
use crate::persistent_readers::{PersistentReader, PersistentReaders};
use crate::position::{LogEntry, LogPosition, SourceIdentity};
use crate::reader::{LogReader, ReadLimit};
use crate::retention::{self, Purge, PurgeLimit, RetentionPin};
use crate::segment::{index_name, parse_segment_name, segment_name};
use crate::shared_state::{DurableState, LogShared, LogState, SegmentState};
use crate::storage::{Directory, RealDirectory};
use crate::tail_recovery;
use tailwater_wire::event::FIRST_EVENT_OFFSET;

/// A segment, as `tailwater log ls` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its number, from 1.
    pub number: u64,
    /// Path of its file.
    pub path: PathBuf,
    /// The source's binlog file that it mirrors.
    pub source_file: String,
    /// Offset in that file of its first event. With 4 the segment mirrors the file from its start, byte for
    /// byte.
    pub source_offset: u64,
    /// The server that it came from.
    pub source: SourceIdentity,
    /// 1 for the first source, and one more each time the capture moved to another server.
    pub epoch: u32,
    /// Durable bytes.
    pub bytes: u64,
    /// The segment is complete and does not grow any more.
    pub sealed: bool,
    /// Every transaction of the log before it, in the flavour's notation.
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

/// A segment whose index is complete.
fn sealed_state(directory: &dyn Directory, number: u64) -> Result<Option<SegmentState>, LogError> {
    let index = index_file::read_sealed(directory, number)?;
    Ok(index.map(|index| SegmentState {
        header: Arc::new(index.header),
        sealed: Some((index.length, index.entries)),
    }))
}

/// Numbers of the local segments and of the archived segments directly before them. Archived segments before
/// a gap are left out.
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

/// [`LogError::Purged`] if a segment is no longer part of the log and not archived.
pub(crate) fn if_purged(directory: &dyn Directory, segment: u64) -> Result<(), LogError> {
    let first = match ControlFile::read(directory)? {
        // Do not query the archive for segments that were not purged: it may be out of reach.
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

/// While this exists, written bytes are synced at once: see [`LogHandle::prompt_sync`].
#[derive(Debug)]
pub struct PromptSyncGuard(Arc<LogShared>);

impl Drop for PromptSyncGuard {
    fn drop(&mut self) {
        self.0.end_prompt_sync();
    }
}

/// The log for readers in the writer's process. Cheap to clone; outlives the writer.
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

    /// The log's directory.
    pub fn path(&self) -> PathBuf {
        self.shared.path()
    }

    /// The server that the newest segment came from; `None` while there is no segment.
    pub fn source(&self) -> Option<SourceIdentity> {
        self.shared.newest_header().map(|header| header.source.clone())
    }

    /// How far the log is durable.
    pub fn durable(&self) -> DurableState {
        self.shared.durable()
    }

    /// The same, to wait for changes.
    pub fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.shared.subscribe()
    }

    /// Waits until everything before `position` is durable. Returns false if the writer closed the log first.
    /// Requests a prompt sync meanwhile.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_durable(&self, position: LogPosition) -> Result<bool, LogError> {
        let is_done =
            |durable: &DurableState| durable.position >= position || durable.state != LogState::Open;
        if !is_done(&self.durable()) {
            let mut durable = self.subscribe();
            let _prompt_sync = self.prompt_sync();
            // The sender lives as long as `self`, so this cannot fail.
            let _ = durable.wait_for(is_done).await;
        }
        match self.durable().position >= position {
            true => Ok(true),
            false => self.shared.check().map(|()| false),
        }
    }

    /// Waits until everything written so far is durable, so that it can be read and named. Returns false if
    /// the writer closed the log first.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_written_is_durable(&self) -> Result<bool, LogError> {
        let written = *self.shared.subscribe_written().borrow();
        self.wait_until_durable(written).await
    }

    /// Makes written bytes durable at once for as long as the guard exists, also in [`AckMode::Received`].
    /// For consumers that forward durable bytes as they appear.
    pub fn prompt_sync(&self) -> PromptSyncGuard {
        self.shared.begin_prompt_sync();
        PromptSyncGuard(Arc::clone(&self.shared))
    }

    /// Whether everything before `position` is as safe as an ACK promises: durable or, in
    /// [`AckMode::Received`], written to its file. Events without checksums must be durable, because after a
    /// crash of this process nothing could tell which of them are whole.
    pub fn is_acknowledged(&self, position: LogPosition) -> bool {
        let durable = self.durable();
        let enough = self.ack == AckMode::Received && self.shared.is_kept_once_written();
        let written = enough && durable.state == LogState::Open;
        durable.position >= position || written && *self.shared.subscribe_written().borrow() >= position
    }

    /// Waits until [`LogHandle::is_acknowledged`] holds. Returns false if the writer closed the log first.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_acknowledged(&self, position: LogPosition) -> Result<bool, LogError> {
        let mut written = self.shared.subscribe_written();
        loop {
            if self.ack == AckMode::Durable || !self.shared.is_kept_once_written() {
                return self.wait_until_durable(position).await;
            }
            // This channel also changes when the log's state does.
            written.borrow_and_update();
            if self.is_acknowledged(position) {
                return Ok(true);
            }
            if self.durable().state != LogState::Open {
                return self.shared.check().map(|()| false);
            }
            // The sender lives as long as `self`, so this cannot fail.
            let _ = written.changed().await;
        }
    }

    /// Every durable transaction, and all before the log's beginning; `None` while the log is empty.
    pub fn gtid_set(&self) -> Option<GtidSet> {
        self.shared.gtids()
    }

    /// The newest durable transaction, if it is in the newest segment.
    pub fn last_transaction(&self) -> Option<LogEntry> {
        self.shared.last_transaction()
    }

    /// The segments, oldest first. Segments that were purged locally and archived come first. Queries the
    /// archive for those that it does not know yet; on failure the archived segments are left out.
    pub fn segments(&self) -> Vec<SegmentSummary> {
        let end = self.shared.durable().position.offset;
        let segments = self.shared.segments();
        let first = segments.keys().next().copied().unwrap_or_else(|| self.shared.first_segment_number());
        let archived = self.archived_segments(first).unwrap_or_else(|error| {
            tracing::warn!(log = %self.path().display(), code = error.code(), "archived segments are left out: {error}");
            Vec::new()
        });
        let reading = self.shared.reading.as_ref();
        let archived = archived.iter().map(|state| summary(reading, state, end));
        let local = segments.values().map(|state| summary(self.shared.directory.as_ref(), state, end));
        archived.chain(local).collect()
    }

    /// The archived segments that lead up to the first local one.
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
                            "an archived segment must end with a seal, and this one does not",
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

    /// The newest segment; `None` while there is none.
    pub fn newest_segment(&self) -> Option<SegmentSummary> {
        let end = self.shared.durable().position.offset;
        let segments = self.shared.segments();
        let newest = segments.values().next_back();
        newest.map(|state| summary(self.shared.directory.as_ref(), state, end))
    }

    /// Every transaction before a segment, including those before the log. `None` where nothing states what
    /// came before the log, because it began in the middle of a source's file.
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
        tail_recovery::gtids_before(self.shared.reading.as_ref(), &state.header)
    }

    /// Every transaction that no local segment holds: the purged ones and those before the log. `None` where
    /// nothing states what came before the log. Does not query the archive.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtids_purged_or_before(&self) -> Result<Option<GtidSet>, LogError> {
        // If the log began in the middle of a file, the start of the next file states the transactions before
        // it.
        const SEGMENTS_ASKED_MAX: usize = 3;
        for state in self.shared.segments().values().take(SEGMENTS_ASKED_MAX) {
            let before = tail_recovery::gtids_before(self.shared.directory.as_ref(), &state.header)?;
            if before.is_some() {
                return Ok(before);
            }
        }
        Ok(None)
    }

    /// A reader that starts at `from`, which must lie between two entries; [`LogPosition::ZERO`] is the log's
    /// oldest entry.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let limit = ReadLimit::Durable(Arc::clone(&self.shared), self.shared.subscribe());
        LogReader::open(Arc::clone(&self.shared.reading), limit, from)
    }

    /// Like [`LogHandle::reader`], but also returns entries that are written and not durable yet. A crash of
    /// the machine may take those away again. For readers that use the time until the entry is
    /// [durable](Self::subscribe), and act on it only then.
    ///
    /// # Errors
    /// As [`LogHandle::reader`].
    pub fn reader_up_to_written(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let limit = ReadLimit::Written(Arc::clone(&self.shared), self.shared.subscribe_written());
        LogReader::open(Arc::clone(&self.shared.reading), limit, from)
    }

    /// Keeps everything from `position` on from being purged, for as long as the pin exists. `name` is shown
    /// to the operator when the pin holds up a purge.
    pub fn register_reader(&self, name: &str, position: LogPosition) -> RetentionPin {
        RetentionPin::register(Arc::clone(&self.shared), name, position, false)
    }

    /// Like [`LogHandle::register_reader`], and remembers the reader after the pin is dropped. An operator's
    /// purge is refused while an absent reader still needs the segments, even if no process has the log open.
    /// A purge by [`LogOptions::retention`] keeps them for a week, unless they are archived. Registering
    /// again under the same name moves its position.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn register_persistent_reader(&self, name: &str, position: LogPosition) -> RetentionPin {
        RetentionPin::register(Arc::clone(&self.shared), name, position, true)
    }

    /// The persistent readers, whether connected or not.
    pub fn persistent_readers(&self) -> Vec<PersistentReader> {
        self.shared.readers().all()
    }

    /// Forgets a persistent reader that will not return. Returns whether it was known.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]: the reader may still be remembered after a restart.
    pub fn forget_reader(&self, name: &str) -> Result<bool, LogError> {
        let mut readers = self.shared.readers();
        let known = readers.forget(name);
        readers.write(self.shared.directory.as_ref(), true)?;
        Ok(known)
    }

    /// Drops the oldest sealed segments beyond the limits of [`LogOptions::retention`]. Keeps every segment
    /// that a registered reader needs or that must be archived first, and always the newest.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Write`]; [`LogError::ArchiveDiffers`] if another log is archived under
    /// this log's name. An archive that does not answer is no error: its segments count as not archived.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn purge(&self, now: SystemTime) -> Result<Purge, LogError> {
        retention::purge(&self.shared, self.retention, now)
    }

    /// Drops everything beyond an operator's limit, or nothing; never the newest segment.
    ///
    /// # Errors
    /// [`LogError::StillNeeded`], with the reader's name, if a reader needs a part of it, or if a part must
    /// be archived first; [`LogError::NoSuchPosition`] for a segment after the newest; [`LogError::Archive`],
    /// [`LogError::ArchiveDiffers`]; [`LogError::Io`], [`LogError::Write`].
    pub fn purge_by(&self, limit: PurgeLimit) -> Result<Purge, LogError> {
        retention::purge_by(&self.shared, limit)
    }

    /// Drops all segments before `segment`: see [`Self::purge_by`].
    ///
    /// # Errors
    /// As [`Self::purge_by`].
    pub fn purge_to(&self, segment: u64) -> Result<Purge, LogError> {
        self.purge_by(PurgeLimit::To(segment))
    }
}

/// A log opened for reading only, possibly while another process writes to it. Its end is where its index
/// ends.
#[derive(Debug, Clone)]
pub struct LogDir {
    directory: Arc<dyn Directory>,
    /// The local part of the log; `None` if all of it is archived.
    local: Option<Arc<dyn Directory>>,
}

impl LogDir {
    /// Opens the log of one source. Nothing is locked or changed. A directory that has segments but no
    /// control file, such as one rescued by an operator, is read too, with a warning.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the directory holds no log; [`LogError::FormatVersion`]; [`LogError::Corrupt`];
    /// [`LogError::Io`].
    pub fn open_read_only(directory: &Path) -> Result<Self, LogError> {
        Self::open_on(Arc::new(RealDirectory::new(directory)))
    }

    /// Opens the log of one source together with its archive. Purged segments are read from the archive, and
    /// all segments if `directory` holds no log.
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
    /// [`LogError::NoLog`] if nothing is archived; [`LogError::Archive`].
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
            // Rescued segments can still be read. Only a writer must know where the log begins.
            let path = log.directory.path().display();
            tracing::warn!(
                "{path} has segments and no control.json, which states where the log begins: all segments are read, among them any that \
                 an interrupted purge has left. Nothing can write to the log until control.json is put back from a copy"
            );
        }
        Ok(log)
    }

    pub(crate) fn directory(&self) -> &dyn Directory {
        self.directory.as_ref()
    }

    /// Whether the log has a local directory, not only an archive.
    pub(crate) fn has_directory(&self) -> bool {
        self.local.is_some()
    }

    /// Numbers of the existing segments, oldest first.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, LogError> {
        Ok(segment_numbers(self.directory.as_ref())?.into_iter().collect())
    }

    /// The log's directory or, if there is none, the archive's URL.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Archives every local sealed segment that is not in `archive` yet, oldest first. Safe while another
    /// process writes, and at any interruption: a segment counts as archived once it was uploaded, read back,
    /// and compared with the local one.
    ///
    /// # Errors
    /// [`LogError::Archive`] if the store failed for longer than [`ArchiveOptions::retry_max`];
    /// [`LogError::ArchiveDiffers`] if it returns something else, or holds another log's segments;
    /// [`LogError::Corrupt`], [`LogError::Io`]. Segments archived before the error stay archived.
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

    /// Removes from `archive` the segments that were archived longer than `time_max` ago, are no longer held
    /// locally, and that no persistent reader needs.
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

    /// What a purge would drop if no process has the log open. With an archive, only archived segments.
    ///
    /// # Errors
    /// As [`LogHandle::purge_by`], except [`LogError::Write`].
    pub fn plan_purge(&self, limit: PurgeLimit, archive: Option<&Archive>) -> Result<Purge, LogError> {
        let Some(local) = self.local.as_deref() else { return Ok(Purge::default()) };
        let readers = PersistentReaders::read(local)?.all();
        let inventory = retention::inventory_of(local, segment_numbers(local)?, readers)?;
        let plan = retention::plan(local, &inventory, limit, archive)?;
        retention::check_complete(local, &inventory, &plan)?;
        Ok(plan)
    }

    /// The persistent readers.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::FormatVersion`], [`LogError::Io`].
    pub fn persistent_readers(&self) -> Result<Vec<PersistentReader>, LogError> {
        match &self.local {
            Some(local) => Ok(PersistentReaders::read(local.as_ref())?.all()),
            None => Ok(Vec::new()),
        }
    }

    /// The segments, oldest first.
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
                    // It was purged while this loop ran.
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

    /// Offset in a segment where its index ends.
    pub(crate) fn indexed_end(&self, number: u64) -> Result<u64, LogError> {
        Ok(match IndexReader::open(self.directory.as_ref(), number)? {
            Ok((_, mut reader)) => index_file::read_front(&mut reader, FIRST_EVENT_OFFSET, |_| Ok(()))?.end,
            Err(_) => FIRST_EVENT_OFFSET,
        })
    }

    /// Every durable transaction, and all before the log's beginning; `None` while the log is empty.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtid_set(&self) -> Result<Option<GtidSet>, LogError> {
        let Some(number) = self.numbers()?.pop() else { return Ok(None) };
        let header = self.header(number)?;
        tail_recovery::gtids_up_to(self.directory.as_ref(), &header).map(Some)
    }

    /// Finds a transaction; `None` if it is not in the log. Usually reads the index of one segment.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn find(&self, gtid: &Gtid) -> Result<Option<LogEntry>, LogError> {
        for number in self.numbers()?.into_iter().rev() {
            let header = self.header(number)?;
            let before =
                tail_recovery::parse_gtids_before(&header, &self.directory.path_of(&index_name(number)))?;
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
        index_file::read_or_derive_header(directory, number, control.as_ref(), &BTreeMap::new())
            .or_else(|error| if_purged(directory, number).and(Err(error)))
    }

    /// A reader that starts at `from`, which must lie between two entries; [`LogPosition::ZERO`] is the log's
    /// oldest entry. It never waits: [`LogReader::try_next`] returns `None` at the current end, and new
    /// entries later.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        LogReader::open(Arc::clone(&self.directory), ReadLimit::Indexed, from)
    }
}
