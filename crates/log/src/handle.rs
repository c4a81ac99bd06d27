//! The log as seen by those who do not write to it, in the writer's process and beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::watch;

use crate::control::Control;
use crate::error::LogError;
use crate::index::SegmentHeader;
use crate::index_file::{self, IndexReader};
use crate::options::Retention;
use crate::position::{Entry, LogPosition, SourceIdentity};
use crate::progress::{Durable, SegmentState, Shared};
use crate::reader::{Bound, LogReader};
use crate::retention::{self, Purge, Watermark};
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

/// [`LogError::Purged`] if a segment that could not be read is no part of the log any more.
pub(crate) fn if_purged(directory: &dyn Directory, segment: u64) -> Result<(), LogError> {
    match Control::read(directory)? {
        Some(Control { first_segment: first, .. }) if segment < first => {
            Err(LogError::Purged { path: directory.path().to_owned(), segment, first })
        }
        _ => Ok(()),
    }
}

/// The log for readers in the writer's process. Cheap to clone; outlives the writer.
#[derive(Debug, Clone)]
pub struct LogHandle {
    shared: Arc<Shared>,
    retention: Retention,
}

impl LogHandle {
    pub(crate) fn new(shared: Arc<Shared>, retention: Retention) -> Self {
        Self { shared, retention }
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
    pub fn durable(&self) -> Durable {
        self.shared.durable()
    }

    /// The same, to wait for changes of.
    pub fn subscribe(&self) -> watch::Receiver<Durable> {
        self.shared.subscribe()
    }

    /// Every durable transaction, and all before the log's beginning; `None` while the log is empty.
    pub fn gtid_set(&self) -> Option<GtidSet> {
        self.shared.gtids()
    }

    /// The newest durable transaction, if it lies in the newest segment.
    pub fn last_transaction(&self) -> Option<Entry> {
        self.shared.last_transaction()
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentSummary> {
        let end = self.shared.durable().position.offset;
        let segments = self.shared.segments();
        segments.values().map(|state| summary(self.shared.directory.as_ref(), state, end)).collect()
    }

    /// Every transaction before a segment, those before the log included; `None` where nothing says what was before the
    /// log, because it began in the middle of a source's file.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::Corrupt`], [`LogError::Io`].
    pub fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, LogError> {
        let segments = self.shared.segments();
        let Some(state) = segments.get(&segment) else {
            let first = self.shared.first_segment_number();
            return Err(LogError::Purged { path: self.path(), segment, first });
        };
        tail_recovery::gtids_before(self.shared.directory.as_ref(), &state.header)
    }

    /// A reader from `from` on, which must lie between two entries; [`LogPosition::ZERO`] is the log's oldest entry.
    ///
    /// # Errors
    /// [`LogError::Purged`], [`LogError::NoSuchPosition`], [`LogError::Io`].
    pub fn reader(&self, from: LogPosition) -> Result<LogReader, LogError> {
        let bound = Bound::Live(Arc::clone(&self.shared), self.shared.subscribe());
        LogReader::open(Arc::clone(&self.shared.directory), bound, from)
    }

    /// Keeps everything from `position` on from being purged for as long as the watermark lives. `name` is shown to the
    /// operator when that holds a purge up.
    pub fn register_reader(&self, name: &str, position: LogPosition) -> Watermark {
        Watermark::register(Arc::clone(&self.shared), name, position)
    }

    /// Drops the oldest sealed segments that are past the limits of [`LogOptions::retention`], but none that a
    /// registered reader needs, and never the newest.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Write`].
    ///
    /// [`LogOptions::retention`]: crate::LogOptions::retention
    pub fn purge(&self, now: SystemTime) -> Result<Purge, LogError> {
        retention::purge(&self.shared, self.retention, now)
    }
}

/// A log opened for reading only, beside whoever writes to it. Sees what its index says is durable.
#[derive(Debug, Clone)]
pub struct LogDir {
    directory: Arc<dyn Directory>,
}

impl LogDir {
    /// Opens the log of one source. Nothing is locked or changed.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the directory holds none; [`LogError::FormatVersion`]; [`LogError::Corrupt`];
    /// [`LogError::Io`].
    pub fn open_read_only(directory: &Path) -> Result<Self, LogError> {
        Self::open_on(Arc::new(RealDirectory::new(directory)))
    }

    pub(crate) fn open_on(directory: Arc<dyn Directory>) -> Result<Self, LogError> {
        let log = Self { directory };
        let known = Control::read(log.directory.as_ref());
        if !matches!(known, Ok(Some(_))) && log.numbers().unwrap_or_default().is_empty() {
            known?;
            return Err(LogError::NoLog { path: log.directory.path().to_owned() });
        }
        known?;
        Ok(log)
    }

    pub(crate) fn directory(&self) -> &dyn Directory {
        self.directory.as_ref()
    }

    /// Numbers of the segments there are, oldest first.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, LogError> {
        let names =
            self.directory.list().map_err(|error| LogError::io("list", self.directory.path(), error))?;
        let first = Control::read(self.directory.as_ref())?.map_or(1, |control| control.first_segment);
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        numbers.retain(|number| *number >= first);
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The segments, oldest first.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if an index cannot be read, [`LogError::Io`].
    pub fn segments(&self) -> Result<Vec<SegmentSummary>, LogError> {
        let mut summaries = Vec::new();
        for number in self.numbers()? {
            let state = match index_file::read_sealed(self.directory.as_ref(), number)? {
                Some(index) => SegmentState {
                    header: Arc::new(index.header),
                    sealed: Some((index.length, index.entries)),
                },
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
    pub fn find(&self, gtid: &Gtid) -> Result<Option<Entry>, LogError> {
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
