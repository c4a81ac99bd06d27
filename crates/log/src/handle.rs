//! The log as seen by those who do not write to it, in the writer's process and beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::watch;

use crate::archive::overlay::ArchivedDirectory;
use crate::archive::{self, Archive, ArchiveExpiry, ArchiveOptions, ArchiveProgress, ArchiveReport};
use crate::control::{self, Control};
use crate::error::LogError;
use crate::index::SegmentHeader;
use crate::index_file::{self, IndexReader};
use crate::options::{AckMode, Retention};
use crate::position::{LogEntry, LogPosition, SourceIdentity};
use crate::progress::{DurableState, LogState, SegmentState, Shared};
use crate::reader::{Bound, LogReader};
use crate::readers::{PersistentReader, Readers};
use crate::retention::{self, Purge, PurgeLimit, RetentionPin};
use crate::segment::{FIRST_EVENT_OFFSET, index_name, parse_segment_name, segment_name};
use crate::storage::{Directory, RealDirectory};
use crate::tail_recovery;

/// A segment, as `tailwater log ls` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its number, from 1.
    pub number: u64,
    /// Its file.
    pub path: PathBuf,
    /// The source's binlog file that it mirrors.
    pub source_file: String,
    /// Offset in that file of its first event; at 4 the segment mirrors the file from its start, byte for byte.
    pub source_offset: u64,
    /// Which server that is.
    pub source: SourceIdentity,
    /// 1, and one more each time that the log went on from another server.
    pub epoch: u32,
    /// Durable bytes.
    pub bytes: u64,
    /// Nothing is added to it any more.
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

/// Numbers of the segments there are, archived ones that lead up to the others included.
pub(crate) fn segment_numbers(directory: &dyn Directory) -> Result<BTreeSet<u64>, LogError> {
    let list = |error| LogError::io("list", directory.path(), error);
    let first = match Control::read(directory)? {
        Some(Control { first_segment: first, .. }) => {
            directory.archived_before(first).map_err(list)?.unwrap_or(first)
        }
        None => 1,
    };
    let names = directory.list().map_err(list)?;
    Ok(names.iter().filter_map(|name| parse_segment_name(name)).filter(|number| *number >= first).collect())
}

/// [`LogError::Purged`] if a segment is no part of the log any more, and is not archived.
pub(crate) fn if_purged(directory: &dyn Directory, segment: u64) -> Result<(), LogError> {
    let first = match Control::read(directory)? {
        // The archive is not asked for what was not purged: it may be out of reach.
        Some(Control { first_segment: first, .. }) if segment >= first => return Ok(()),
        Some(Control { first_segment: first, .. }) => {
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

/// While it lives, what is written is made durable at once: [`LogHandle::prompt_sync`].
#[derive(Debug)]
pub struct PromptSyncGuard(Arc<Shared>);

impl Drop for PromptSyncGuard {
    fn drop(&mut self) {
        self.0.end_prompt_sync();
    }
}

/// The log for readers in the writer's process. Cheap to clone; outlives the writer.
#[derive(Debug, Clone)]
pub struct LogHandle {
    shared: Arc<Shared>,
    retention: Retention,
    ack: AckMode,
}

impl LogHandle {
    pub(crate) fn new(shared: Arc<Shared>, retention: Retention, ack: AckMode) -> Self {
        Self { shared, retention, ack }
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Its directory.
    pub fn path(&self) -> PathBuf {
        self.shared.path()
    }

    /// The server that the newest segment came from; `None` while there is none.
    pub fn source(&self) -> Option<SourceIdentity> {
        self.shared.newest_header().map(|header| header.source.clone())
    }

    /// How far the log is durable.
    pub fn durable(&self) -> DurableState {
        self.shared.durable()
    }

    /// The same, to wait for changes of.
    pub fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.shared.subscribe()
    }

    /// Waits until everything before `position` is durable; false if the writer has gone, and it will not be. What was written and waits
    /// for its sync waits no longer.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_durable(&self, position: LogPosition) -> Result<bool, LogError> {
        let ended = |durable: &DurableState| durable.position >= position || durable.state != LogState::Open;
        if !ended(&self.durable()) {
            let mut durable = self.subscribe();
            let _prompt_sync = self.prompt_sync();
            // The sender lives as long as this.
            let _ = durable.wait_for(ended).await;
        }
        match self.durable().position >= position {
            true => Ok(true),
            false => self.shared.check().map(|()| false),
        }
    }

    /// Waits until all that is written by now is durable, and so can be read and named; false if the writer has gone before.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_written_is_durable(&self) -> Result<bool, LogError> {
        let written = *self.shared.subscribe_written().borrow();
        self.wait_until_durable(written).await
    }

    /// Has what is written made durable at once for as long as the answer lives, also in [`AckMode::Received`]: for those who pass on what
    /// is durable as it comes.
    pub fn prompt_sync(&self) -> PromptSyncGuard {
        self.shared.begin_prompt_sync();
        PromptSyncGuard(Arc::clone(&self.shared))
    }

    /// Whether everything before `position` is in the log as surely as an ACK promises: durable, or, in [`AckMode::Received`],
    /// written to its file. Where events have no checksums that is not enough: nothing could tell after a crash of this process which of
    /// them are whole.
    pub fn is_acknowledged(&self, position: LogPosition) -> bool {
        let durable = self.durable();
        let enough = self.ack == AckMode::Received && self.shared.is_kept_once_written();
        let written = enough && durable.state == LogState::Open;
        durable.position >= position || written && *self.shared.subscribe_written().borrow() >= position
    }

    /// Waits until that is so; false if the writer has gone, and it will not be.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub async fn wait_until_acknowledged(&self, position: LogPosition) -> Result<bool, LogError> {
        let mut written = self.shared.subscribe_written();
        loop {
            if self.ack == AckMode::Durable || !self.shared.is_kept_once_written() {
                return self.wait_until_durable(position).await;
            }
            // Changes also when the log's state does.
            written.borrow_and_update();
            if self.is_acknowledged(position) {
                return Ok(true);
            }
            if self.durable().state != LogState::Open {
                return self.shared.check().map(|()| false);
            }
            // The sender lives as long as this.
            let _ = written.changed().await;
        }
    }

    /// Every durable transaction, and all before the log's beginning; `None` while the log is empty.
    pub fn gtid_set(&self) -> Option<GtidSet> {
        self.shared.gtids()
    }

    /// The newest durable transaction, if it lies in the newest segment.
    pub fn last_transaction(&self) -> Option<LogEntry> {
        self.shared.last_transaction()
    }

    /// The segments, oldest first, and before them those that were purged here and are archived. Asks the archive, if
    /// there is one, for what it does not know of them yet; archived ones are left out if that fails.
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

    /// The archived segments that lead up to the first that is here.
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
                        LogError::corrupt(path, 0, "it has no seal, as an archived segment must")
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

    /// Every transaction before a segment, those before the log included; `None` where nothing says what was before the
    /// log, because it began in the middle of a source's file.
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

    /// Every transaction that no segment in the log's folder holds: those that were purged, and those before the log.
    /// `None` where nothing says what was before the log. The archive is not asked.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtids_purged_or_before(&self) -> Result<Option<GtidSet>, LogError> {
        // A log that began in the middle of a file is told by the start of the next one.
        const SEGMENTS_ASKED_MAX: usize = 3;
        for state in self.shared.segments().values().take(SEGMENTS_ASKED_MAX) {
            let before = tail_recovery::gtids_before(self.shared.directory.as_ref(), &state.header)?;
            if before.is_some() {
                return Ok(before);
            }
        }
        Ok(None)
    }

    /// A reader from `from` on, which must lie between two entries; [`LogPosition::ZERO`] is the log's oldest entry.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let bound = Bound::Live(Arc::clone(&self.shared), self.shared.subscribe());
        LogReader::open(Arc::clone(&self.shared.reading), bound, from)
    }

    /// The same, which also gives what stands in its file and is not durable yet: a crash of the machine may take that away
    /// again. For those who wait until it is [durable](Self::subscribe) before anything comes of it, and have used the time.
    ///
    /// # Errors
    /// As [`LogHandle::reader`].
    pub fn reader_up_to_written(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let bound = Bound::Ahead(Arc::clone(&self.shared), self.shared.subscribe_written());
        LogReader::open(Arc::clone(&self.shared.reading), bound, from)
    }

    /// Keeps everything from `position` on from being purged for as long as the watermark lives. `name` is shown to the
    /// operator when that holds a purge up.
    pub fn register_reader(&self, name: &str, position: LogPosition) -> RetentionPin {
        RetentionPin::register(Arc::clone(&self.shared), name, position, false)
    }

    /// The same, and remembers the reader beyond that: an operator's purge is refused for its sake while it is away, and
    /// while nobody has the log open; a purge by [`LogOptions::retention`] leaves it what it needs for a week, unless
    /// that is archived. Registering it again under its name says where it is now.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn register_persistent_reader(&self, name: &str, position: LogPosition) -> RetentionPin {
        RetentionPin::register(Arc::clone(&self.shared), name, position, true)
    }

    /// The readers that are remembered, whether they are here or not.
    pub fn persistent_readers(&self) -> Vec<PersistentReader> {
        self.shared.readers().all()
    }

    /// Forgets a reader that will not come back; whether it was remembered.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]: it may still be remembered after a restart.
    pub fn forget_reader(&self, name: &str) -> Result<bool, LogError> {
        let mut readers = self.shared.readers();
        let known = readers.forget(name);
        readers.write(self.shared.directory.as_ref(), true)?;
        Ok(known)
    }

    /// Drops the oldest sealed segments that are past the limits of [`LogOptions::retention`], but none that a
    /// registered reader needs, none that is not archived if it is to be, and never the newest.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Write`]; [`LogError::ArchiveDiffers`] if another log is archived under this one's
    /// name. An archive that does not answer is no error: its segments count as not archived.
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn purge(&self, now: SystemTime) -> Result<Purge, LogError> {
        retention::purge(&self.shared, self.retention, now)
    }

    /// Drops what an operator wants to be rid of, all of it or nothing; never the newest segment.
    ///
    /// # Errors
    /// [`LogError::StillNeeded`], with the reader's name, if a reader needs a part of it or it is not archived and is to
    /// be; [`LogError::NoSuchPosition`] for a segment behind the newest; [`LogError::Archive`],
    /// [`LogError::ArchiveDiffers`]; [`LogError::Io`], [`LogError::Write`].
    pub fn purge_by(&self, limit: PurgeLimit) -> Result<Purge, LogError> {
        retention::purge_by(&self.shared, limit)
    }

    /// Drops all segments before `segment`: see [`Self::purge_by`].
    ///
    /// # Errors
    /// As there.
    pub fn purge_to(&self, segment: u64) -> Result<Purge, LogError> {
        self.purge_by(PurgeLimit::To(segment))
    }
}

/// A log opened for reading only, beside whoever writes to it. Sees what its index says is durable.
#[derive(Debug, Clone)]
pub struct LogDir {
    directory: Arc<dyn Directory>,
    /// What of it is here; `None` if all is archived.
    local: Option<Arc<dyn Directory>>,
}

impl LogDir {
    /// Opens the log of one source. Nothing is locked or changed. A directory that has segments and no control file, as an operator may
    /// have rescued them, is read, too, with a warning.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the directory holds none; [`LogError::FormatVersion`]; [`LogError::Corrupt`];
    /// [`LogError::Io`].
    pub fn open_read_only(directory: &Path) -> Result<Self, LogError> {
        Self::open_on(Arc::new(RealDirectory::new(directory)))
    }

    /// Opens the log of one source with its archive behind it: segments that were purged are read from there, all of
    /// them if there is no log in `directory`.
    ///
    /// # Errors
    /// As [`LogDir::open_read_only`], and [`LogError::Archive`]. [`LogError::NoLog`] if the archive has none either.
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

    /// Opens what is archived of a source.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if nothing is; [`LogError::Archive`].
    pub fn open_archive(archive: &Archive) -> Result<Self, LogError> {
        let log = Self { directory: Arc::new(ArchivedDirectory::new(None, archive.clone())), local: None };
        match log.numbers()?.is_empty() {
            true => Err(LogError::NoLog { path: archive.url() }),
            false => Ok(log),
        }
    }

    pub(crate) fn open_on(directory: Arc<dyn Directory>) -> Result<Self, LogError> {
        let log = Self { local: Some(Arc::clone(&directory)), directory };
        let known = Control::read(log.directory.as_ref());
        if !matches!(known, Ok(Some(_))) && log.numbers().unwrap_or_default().is_empty() {
            known?;
            return Err(LogError::NoLog { path: log.directory.path().to_owned() });
        }
        if known?.is_none() {
            // Rescued segments are read all the same. Only a writer must know where the log begins.
            let path = log.directory.path().display();
            tracing::warn!(
                "{path} has segments and no control.json, which says where the log begins: all segments are read, among them any that \
                 an interrupted purge has left. Nothing can write to the log until control.json is put back from a copy"
            );
        }
        Ok(log)
    }

    pub(crate) fn directory(&self) -> &dyn Directory {
        self.directory.as_ref()
    }

    /// Whether it is not of the archive alone.
    pub(crate) fn has_directory(&self) -> bool {
        self.local.is_some()
    }

    /// Numbers of the segments there are, oldest first.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, LogError> {
        Ok(segment_numbers(self.directory.as_ref())?.into_iter().collect())
    }

    /// Where the log is: its directory, or, if there is none, its archive.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Archives every sealed segment that is here and not in `archive` yet, oldest first. May be done beside a writer,
    /// and be interrupted at any time: a segment is archived when it was put, read back, and compared with the one here.
    ///
    /// # Errors
    /// [`LogError::Archive`] if the store failed for longer than [`ArchiveOptions::retry_max`];
    /// [`LogError::ArchiveDiffers`] if it gives back something else, or holds another log's segments;
    /// [`LogError::Corrupt`], [`LogError::Io`]. What was archived before the error stays.
    pub fn archive_sealed(
        &self,
        archive: &Archive,
        options: ArchiveOptions,
        mut progress: impl FnMut(ArchiveProgress),
    ) -> Result<ArchiveReport, LogError> {
        match &self.local {
            Some(local) => {
                if Control::read(local.as_ref())?.is_none() {
                    control::refuse_lost(local.as_ref(), !segment_numbers(local.as_ref())?.is_empty())?;
                }
                archive::archive_sealed(local.as_ref(), archive, options, &mut progress)
            }
            None => Ok(ArchiveReport::default()),
        }
    }

    /// Removes from `archive` segments that were archived longer than `time_max` ago, that are no longer here, and that
    /// no remembered reader needs.
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
        let readers = Readers::read(local)?.all();
        let keep_from = readers.iter().map(|reader| reader.position.segment).fold(first, u64::min);
        archive.drop_old(keep_from, before)
    }

    /// What a purge would drop, if nobody has the log open. With an archive, only what is in it.
    ///
    /// # Errors
    /// As [`LogHandle::purge_by`], which does it, but for [`LogError::Write`].
    pub fn plan_purge(&self, limit: PurgeLimit, archive: Option<&Archive>) -> Result<Purge, LogError> {
        let Some(local) = self.local.as_deref() else { return Ok(Purge::default()) };
        let readers = Readers::read(local)?.all();
        let inventory = retention::inventory_of(local, segment_numbers(local)?, readers)?;
        let plan = retention::plan(local, &inventory, limit, archive)?;
        retention::refuse(local, &inventory, &plan)?;
        Ok(plan)
    }

    /// The readers that are remembered.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::FormatVersion`], [`LogError::Io`].
    pub fn persistent_readers(&self) -> Result<Vec<PersistentReader>, LogError> {
        match &self.local {
            Some(local) => Ok(Readers::read(local.as_ref())?.all()),
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
                    // It went while this looked.
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

    /// Where the index of a segment ends.
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

    /// Where a transaction stands; `None` if it is not in the log. Reads the index of one segment, as a rule.
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
        let control = Control::read(directory)?;
        index_file::read_or_derive_header(directory, number, control.as_ref(), &BTreeMap::new())
            .or_else(|error| if_purged(directory, number).and(Err(error)))
    }

    /// A reader from `from` on, which must lie between two entries; [`LogPosition::ZERO`] is the log's oldest entry.
    /// It does not wait for what is to come: [`LogReader::try_next`] gives `None` at the present end, and more later.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        LogReader::open(Arc::clone(&self.directory), Bound::Indexed, from)
    }
}
