//! The archived segments of a source. The store's own list of objects is the only list of archived segments,
//! so there is no second list that could contradict it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::archive_backed_directory::ArchivedFile;
use super::object_store::{ArchiveFailure, ArchiveObject, ArchiveStore, RangedRead, StoredObject};
use super::seekable_zstd::SeekableReader;
use crate::error::LogError;
use crate::segment_files::{index_name, parse_index_name, parse_segment_name, segment_name};
use crate::shared_log_state::SegmentState;
use crate::storage::LogFile;

/// The suffix of the object name of a segment.
const COMPRESSED_SUFFIX: &str = ".zst";

/// For this long after a failed request to the store, further requests fail without being sent.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// The archived segments of one source. A clone is cheap, and clones share their state.
///
/// A segment is archived if both its objects exist: the segment and its index. The index is stored last,
/// after the segment was read back. So an interrupted upload never counts as archived.
#[derive(Debug, Clone)]
pub struct Archive {
    inner: Arc<ArchiveShared>,
}

#[derive(Debug)]
struct ArchiveShared {
    store: Arc<dyn ArchiveStore>,
    source: String,
    known: Mutex<ArchiveContents>,
}

/// What this process knows about the objects in the store.
#[derive(Debug, Default)]
struct ArchiveContents {
    listed: bool,
    segments: BTreeMap<u64, ArchivedSegment>,
    /// The segments that have no index object, because their upload or their removal was interrupted.
    incomplete: BTreeSet<u64>,
    /// The last segment for which the store was listed because the segment directly before it was not known
    /// to be archived. For the same segment, the store is not listed again.
    searched_before: u64,
    failed: Option<(Instant, ErrorKind, String)>,
}

/// An archived segment.
#[derive(Debug, Clone)]
struct ArchivedSegment {
    compressed_bytes: u64,
    index_bytes: u64,
    archived_at: SystemTime,
    /// Whether this process uploaded the segment, or compared it with the local segment.
    confirmed: bool,
    /// The header and the last record (the seal) of the segment's index, if this process has read them.
    state: Option<SegmentState>,
}

/// What [`LogDir::expire_archive`](crate::LogDir::expire_archive) removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveExpiry {
    /// The removed segments, oldest first.
    pub segments: Vec<u64>,
    /// The total size in bytes of the removed objects.
    pub bytes: u64,
}

impl Archive {
    /// Creates the catalogue of the segments of `source` in `store`. It sends no request yet.
    pub fn new(store: Arc<dyn ArchiveStore>, source: &str) -> Self {
        let inner = ArchiveShared { store, source: source.to_owned(), known: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the names of the sources that have archived segments in a store.
    ///
    /// # Errors
    /// [`LogError::Archive`].
    pub fn sources(store: &dyn ArchiveStore) -> Result<Vec<String>, LogError> {
        let objects = store.list("").map_err(|error| LogError::io("list", store.url(), error))?;
        let indexes = objects.iter().filter_map(|object| object.name.split_once('/'));
        let sources: BTreeSet<&str> =
            indexes.filter(|(_, file)| parse_index_name(file).is_some()).map(|(source, _)| source).collect();
        Ok(sources.into_iter().map(str::to_owned).collect())
    }

    /// Returns the name of the source.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Returns the location of the source's objects, for messages.
    pub fn url(&self) -> PathBuf {
        // The type is a path because error messages name files as paths. No code opens this path.
        PathBuf::from(format!("{}/{}", self.inner.store.url().trim_end_matches('/'), self.inner.source))
    }

    pub(super) fn store(&self) -> &dyn ArchiveStore {
        self.inner.store.as_ref()
    }

    /// Returns the name of the object that holds a segment.
    pub(super) fn segment_object(&self, number: u64) -> String {
        format!("{}/{}{COMPRESSED_SUFFIX}", self.inner.source, segment_name(number))
    }

    /// Returns the name of the object that holds an index.
    pub(super) fn index_object(&self, number: u64) -> String {
        format!("{}/{}", self.inner.source, index_name(number))
    }

    /// Returns the location of the object for a file of the log, for messages. Returns `None` for files that
    /// are never archived.
    pub(super) fn path_of(&self, name: &str) -> Option<PathBuf> {
        match (parse_segment_name(name), parse_index_name(name)) {
            (Some(_), _) => Some(self.url().join(format!("{name}{COMPRESSED_SUFFIX}"))),
            (None, Some(_)) => Some(self.url().join(name)),
            (None, None) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ArchiveContents> {
        self.inner.known.lock()
    }

    /// Returns the known objects of the store. If the store has not been listed yet, lists it first.
    fn known(&self) -> io::Result<MutexGuard<'_, ArchiveContents>> {
        if !self.lock().listed {
            self.refresh_unless_failing()?;
        }
        Ok(self.lock())
    }

    /// Lists the store. If a request failed less than [`FAILURE_PAUSE`] ago, returns the error of that
    /// request instead.
    fn refresh_unless_failing(&self) -> io::Result<()> {
        match &self.lock().failed {
            Some((at, kind, reason)) if at.elapsed() < FAILURE_PAUSE => {
                return Err(ArchiveFailure::error(*kind, reason.clone()));
            }
            _ => {}
        }
        self.refresh()
    }

    /// Lists the objects of the store again.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        let listed = self.inner.store.list(&self.inner.source);
        let mut known = self.lock();
        match listed {
            Ok(objects) => {
                known.update(&self.inner.source, &objects);
                Ok(())
            }
            Err(error) => {
                known.failed = Some((Instant::now(), error.kind(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Returns the archived segments, oldest first.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        Ok(self.known()?.segments.keys().copied().collect())
    }

    /// Returns the first segment of the archived segments that come directly before `before` and have no gap.
    /// Returns `None` if the segment directly before `before` is not archived.
    pub(crate) fn leading_to(&self, before: u64) -> io::Result<Option<u64>> {
        let is_new = |known: &ArchiveContents| {
            before > 1 && known.searched_before != before && !known.segments.contains_key(&(before - 1))
        };
        if is_new(&*self.known()?) {
            // Another process has purged segments since the last listing. Segments are archived before they
            // are purged, so list the store again.
            self.refresh_unless_failing()?;
            self.lock().searched_before = before;
        }
        let known = self.known()?;
        let run = known.segments.range(..before).rev().zip((1..before).rev());
        Ok(run
            .take_while(|((number, _), expected)| *number == expected)
            .last()
            .map(|((number, _), _)| *number))
    }

    /// Returns the segments before `before` that are missing although older segments are archived.
    pub(crate) fn missing_before(&self, before: u64) -> io::Result<Vec<u64>> {
        const MISSING_REPORTED_MAX: usize = 1_000;
        let known = self.known()?;
        let Some(oldest) = known.segments.keys().next().copied() else { return Ok(Vec::new()) };
        let missing = (oldest..before).filter(|number| !known.segments.contains_key(number));
        Ok(missing.take(MISSING_REPORTED_MAX).collect())
    }

    pub(crate) fn contains(&self, number: u64) -> io::Result<bool> {
        Ok(self.known()?.segments.contains_key(&number))
    }

    fn entry(&self, number: u64) -> io::Result<ArchivedSegment> {
        let known = self.known()?;
        known.segments.get(&number).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Opens the content of an archived segment.
    pub(crate) fn open_segment(&self, number: u64) -> io::Result<Arc<dyn LogFile>> {
        let entry = self.entry(number)?;
        let object = self.object(self.segment_object(number), entry.compressed_bytes);
        Ok(Arc::new(ArchivedFile(SeekableReader::open(Arc::new(object))?)))
    }

    /// Opens the index of an archived segment.
    pub(crate) fn open_index(&self, number: u64) -> io::Result<Arc<dyn LogFile>> {
        let entry = self.entry(number)?;
        Ok(Arc::new(ArchivedFile(self.object(self.index_object(number), entry.index_bytes))))
    }

    pub(super) fn object(&self, name: String, bytes: u64) -> StoredObject {
        StoredObject::new(Arc::clone(&self.inner.store), name, bytes)
    }

    /// Opens an object that was just stored. It queries the store for its length.
    pub(super) fn fresh_object(&self, name: &str) -> io::Result<Arc<dyn RangedRead>> {
        let bytes = self.inner.store.length(name)?;
        Ok(Arc::new(self.object(name.to_owned(), bytes)))
    }

    pub(crate) fn archived_at(&self, number: u64) -> io::Result<SystemTime> {
        Ok(self.entry(number)?.archived_at)
    }

    /// Returns whether the segment is archived and is known to be a segment of this log.
    pub(crate) fn is_confirmed(&self, number: u64) -> io::Result<bool> {
        Ok(self.known()?.segments.get(&number).is_some_and(|entry| entry.confirmed))
    }

    /// Records that an archived segment is a segment of this log, because this process uploaded it or
    /// compared it with the local segment.
    pub(super) fn confirm(&self, number: u64, bytes: Option<(u64, u64)>) {
        let mut known = self.lock();
        known.incomplete.remove(&number);
        match (known.segments.get_mut(&number), bytes) {
            (Some(entry), None) => entry.confirmed = true,
            (_, Some((compressed_bytes, index_bytes))) => {
                let archived_at = SystemTime::now();
                let entry = ArchivedSegment {
                    compressed_bytes,
                    index_bytes,
                    archived_at,
                    confirmed: true,
                    state: None,
                };
                known.segments.insert(number, entry);
            }
            (None, None) => {}
        }
    }

    /// Returns the header and the seal of an archived segment's index, if they were read before.
    pub(crate) fn state(&self, number: u64) -> Option<SegmentState> {
        self.lock().segments.get(&number)?.state.clone()
    }

    pub(crate) fn remember(&self, number: u64, state: SegmentState) {
        if let Some(entry) = self.lock().segments.get_mut(&number) {
            entry.state = Some(state);
        }
    }

    /// Removes the oldest segments that were archived before the time `before`. It removes only segments
    /// before `keep_from`, the oldest segment that is in the local directory or that a reader needs.
    ///
    /// # Errors
    /// [`LogError::Archive`].
    pub(crate) fn expire(&self, keep_from: u64, before: SystemTime) -> Result<ArchiveExpiry, LogError> {
        let fail = |action| move |error| LogError::io(action, self.url(), error);
        let is_old = |known: &ArchiveContents| {
            known.segments.range(..keep_from).next().is_some_and(|(_, entry)| entry.archived_at < before)
        };
        if !is_old(&*self.known().map_err(fail("list"))?) {
            return Ok(ArchiveExpiry::default());
        }
        self.refresh().map_err(fail("list"))?;
        let (old_segments, incomplete): (Vec<(u64, ArchivedSegment)>, Vec<u64>) = {
            let known = self.known().map_err(fail("list"))?;
            let old = known.segments.range(..keep_from).take_while(|(_, entry)| entry.archived_at < before);
            let incomplete = known.incomplete.range(..keep_from);
            (old.map(|(number, entry)| (*number, entry.clone())).collect(), incomplete.copied().collect())
        };
        // These objects were left by an interrupted removal. They do not come from an upload, because no
        // process uploads segments that the log does not hold any more.
        for number in incomplete {
            self.inner.store.delete(&self.segment_object(number)).map_err(fail("delete from"))?;
        }
        let mut dropped = ArchiveExpiry::default();
        for (number, entry) in old_segments {
            // Delete the index first: without its index, the segment does not count as archived.
            for name in [self.index_object(number), self.segment_object(number)] {
                self.inner.store.delete(&name).map_err(fail("delete from"))?;
            }
            self.lock().segments.remove(&number);
            dropped.segments.push(number);
            dropped.bytes += entry.compressed_bytes + entry.index_bytes;
        }
        Ok(dropped)
    }
}

impl ArchiveContents {
    /// Updates the state from a listing of the store. Keeps what this process already knows about unchanged
    /// objects.
    fn update(&mut self, source: &str, objects: &[ArchiveObject]) {
        let mut compressed = BTreeMap::new();
        let mut indexes = BTreeMap::new();
        for object in objects {
            let Some(file) = object.name.strip_prefix(source).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            if let Some(number) = parse_index_name(file) {
                indexes.insert(number, object);
            } else if let Some(number) = file.strip_suffix(COMPRESSED_SUFFIX).and_then(parse_segment_name) {
                compressed.insert(number, object);
            }
        }
        let before = std::mem::take(&mut self.segments);
        self.incomplete = compressed.keys().filter(|number| !indexes.contains_key(number)).copied().collect();
        for (number, index) in indexes {
            let Some(segment) = compressed.get(&number) else { continue };
            let mut entry = ArchivedSegment {
                compressed_bytes: segment.bytes,
                index_bytes: index.bytes,
                archived_at: index.modified,
                confirmed: false,
                state: None,
            };
            let same = |known: &&ArchivedSegment| {
                (known.compressed_bytes, known.index_bytes) == (entry.compressed_bytes, entry.index_bytes)
            };
            if let Some(known) = before.get(&number).filter(same) {
                entry.confirmed = known.confirmed;
                entry.state = known.state.clone();
            }
            self.segments.insert(number, entry);
        }
        self.listed = true;
        self.failed = None;
    }
}
