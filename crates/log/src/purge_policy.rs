//! Chooses the old segments to purge: those that exceed the limits, that no reader needs, and that are
//! archived if there is an archive.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::archive::{self, Archive};
use crate::error::LogError;
use crate::log_options::Retention;
use crate::log_position::LogPosition;
use crate::segment_files::{index_name, segment_name};
use crate::segment_index_reader;
use crate::shared_log_state::LogShared;
use crate::storage::{Directory, OpenMode};
use crate::stored_reader_positions::PersistentReader;

/// A reader that is disconnected for longer than this does not prevent a purge by the configured limits any
/// more. It still prevents a purge by an operator.
pub(crate) const READER_AWAY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The name and the position of a reader.
#[derive(Debug, Clone)]
pub(crate) struct ReaderPin {
    pub name: String,
    pub position: LogPosition,
}

/// Prevents the purge of the segments that a reader still needs, as long as this value exists. For a
/// persistent reader, the stored position prevents a purge even after this value is dropped.
#[derive(Debug)]
pub struct RetentionPin {
    shared: Arc<LogShared>,
    id: u64,
    remembered: bool,
}

/// An operator's limit for a purge. The newest segment is never purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeLimit {
    /// Purge all segments before the segment with this number.
    To(u64),
    /// Purge the segments that were sealed before this time.
    Before(SystemTime),
    /// Purge the oldest segments until all segments together have at most this many bytes.
    Bytes(u64),
}

/// The result of a purge, or of planning one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    /// The purged segments, oldest first.
    pub segments: Vec<u64>,
    /// The freed bytes, indexes included.
    pub bytes: u64,
    /// The reader that needs the next segment. The purge stopped there.
    pub pinned_by: Option<String>,
    /// The first segment that was kept because it is not archived yet. All later segments were kept too.
    pub not_archived: Option<u64>,
}

impl RetentionPin {
    pub(crate) fn register(
        shared: Arc<LogShared>,
        name: &str,
        position: LogPosition,
        remembered: bool,
    ) -> Self {
        let mut pins = shared.pins();
        let id = pins.keys().next_back().map_or(0, |last| last + 1);
        pins.insert(id, ReaderPin { name: name.to_owned(), position });
        drop(pins);
        if remembered {
            shared.record_reader(name, position, true);
        }
        Self { shared, id, remembered }
    }

    /// Records that the reader needs nothing before `position`. The recorded position never moves back. For a
    /// persistent reader, this method writes a small file durably, at most every few seconds.
    pub fn advance(&self, position: LogPosition) {
        let moved = self.shared.pins().get_mut(&self.id).map(|state| {
            state.position = state.position.max(position);
            state.clone()
        });
        if let Some(state) = moved.filter(|_| self.remembered) {
            self.shared.record_reader(&state.name, state.position, false);
        }
    }
}

impl Drop for RetentionPin {
    fn drop(&mut self) {
        let state = self.shared.pins().remove(&self.id);
        if let Some(state) = state.filter(|_| self.remembered) {
            self.shared.record_reader(&state.name, state.position, true);
        }
    }
}

/// A sealed segment that is not the newest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PurgeCandidate {
    pub number: u64,
    pub bytes: u64,
    pub sealed_at: Option<SystemTime>,
}

/// The segments and readers of a log, from which a purge chooses.
#[derive(Debug, Default)]
pub(crate) struct SegmentInventory {
    /// The segments, oldest first.
    pub candidates: Vec<PurgeCandidate>,
    pub bytes: u64,
    pub newest: u64,
    /// The positions of the readers.
    pub pins: Vec<ReaderPin>,
}

impl SegmentInventory {
    /// Returns the oldest segments up to the first for which `is_past_limit` returns false. The arguments of
    /// `is_past_limit` are a segment, and the number of bytes of this and all later segments.
    fn oldest(&self, is_past_limit: impl Fn(&PurgeCandidate, u64) -> bool) -> Vec<PurgeCandidate> {
        let mut bytes_left = self.bytes;
        let past_limit = self.candidates.iter().take_while(|candidate| {
            let is_past_limit = is_past_limit(candidate, bytes_left);
            bytes_left = bytes_left.saturating_sub(candidate.bytes);
            is_past_limit
        });
        past_limit.copied().collect()
    }

    fn past_retention(&self, retention: Retention, now: SystemTime) -> Vec<PurgeCandidate> {
        self.oldest(|candidate, bytes_left| {
            let too_big = retention.bytes_max.is_some_and(|bytes_max| bytes_left > bytes_max);
            let age = candidate.sealed_at.and_then(|sealed_at| now.duration_since(sealed_at).ok());
            let too_old = retention.time_max.is_some_and(|time_max| age.is_some_and(|age| age > time_max));
            too_big || too_old
        })
    }

    fn past_limit(&self, limit: PurgeLimit) -> Vec<PurgeCandidate> {
        self.oldest(|candidate, bytes_left| match limit {
            PurgeLimit::To(segment) => candidate.number < segment,
            PurgeLimit::Before(time) => candidate.sealed_at.is_some_and(|sealed_at| sealed_at < time),
            PurgeLimit::Bytes(bytes_max) => bytes_left > bytes_max,
        })
    }

    /// Returns a reader that needs the segment. `None` if no reader needs it.
    fn pin(&self, segment: u64) -> Option<&ReaderPin> {
        let needs = self.pins.iter().filter(|pin| pin.position.segment <= segment);
        needs.min_by_key(|pin| pin.position)
    }

    /// Returns the segments of `past_limit` that may be purged.
    fn purgeable(
        &self,
        past_limit: &[PurgeCandidate],
        mut is_archived: impl FnMut(u64) -> Result<bool, LogError>,
    ) -> Result<Purge, LogError> {
        let mut purge = Purge::default();
        for PurgeCandidate { number, bytes, .. } in past_limit {
            if let Some(pin) = self.pin(*number) {
                purge.pinned_by = Some(pin.name.clone());
                break;
            }
            if !is_archived(*number)? {
                purge.not_archived = Some(*number);
                break;
            }
            purge.segments.push(*number);
            purge.bytes += bytes;
        }
        Ok(purge)
    }
}

/// Purges the oldest sealed segments that exceed the configured limits and that no reader needs.
pub(crate) fn purge(shared: &LogShared, retention: Retention, now: SystemTime) -> Result<Purge, LogError> {
    let mut inventory = inventory(shared);
    let archived = shared.archive.is_some();
    // With an archive, a disconnected reader does not prevent a purge, because the reader can read the
    // segments from the archive.
    let holds = |reader: &PersistentReader| {
        !archived && now.duration_since(reader.seen).is_ok_and(|away| away <= READER_AWAY_MAX)
    };
    inventory.pins.extend(absent_readers(shared).into_iter().filter(holds).map(ReaderPin::from));
    let past_limit = inventory.past_retention(retention, now);
    let mut is_archived = archive_lookup(shared.directory.as_ref(), shared.archive.as_ref());
    let purge = inventory.purgeable(&past_limit, |number| match is_archived(number) {
        Err(LogError::Archive { .. }) => Ok(false),
        archived => archived,
    })?;
    drop_segments(shared, purge)
}

/// Purges either all segments that exceed an operator's limit, or none.
pub(crate) fn purge_by(shared: &LogShared, limit: PurgeLimit) -> Result<Purge, LogError> {
    let mut inventory = inventory(shared);
    inventory.pins.extend(absent_readers(shared).into_iter().map(ReaderPin::from));
    let directory = shared.directory.as_ref();
    let plan = plan(directory, &inventory, limit, shared.archive.as_ref())?;
    check_complete(directory, &inventory, &plan)?;
    drop_segments(shared, plan)
}

/// Returns what a purge with an operator's limit would remove.
pub(crate) fn plan(
    directory: &dyn Directory,
    inventory: &SegmentInventory,
    limit: PurgeLimit,
    archive: Option<&Archive>,
) -> Result<Purge, LogError> {
    if let PurgeLimit::To(segment) = limit
        && segment > inventory.newest
    {
        return Err(LogError::NoSuchPosition {
            path: directory.path().to_owned(),
            segment,
            offset: 0,
            reason: format!("the newest segment is {}", inventory.newest),
        });
    }
    inventory.purgeable(&inventory.past_limit(limit), archive_lookup(directory, archive))
}

/// Returns an error if the plan keeps some of the segments that the operator's limit covers.
pub(crate) fn check_complete(
    directory: &dyn Directory,
    inventory: &SegmentInventory,
    plan: &Purge,
) -> Result<(), LogError> {
    let still_needed =
        |segment, reason| Err(LogError::StillNeeded { path: directory.path().to_owned(), segment, reason });
    if let Some(segment) = plan.not_archived {
        return still_needed(
            segment,
            "the segment is not archived yet: wait until it is archived, or run `tailwater log archive`"
                .into(),
        );
    }
    let is_pinning = |pin: &&ReaderPin| Some(&pin.name) == plan.pinned_by.as_ref();
    match inventory.pins.iter().filter(is_pinning).min_by_key(|pin| pin.position) {
        Some(ReaderPin { name, position }) => {
            let reason = format!(
                "{name} has read up to {position} and still needs it; wait for it, or forget it with `tailwater log \
                 purge --forget`"
            );
            still_needed(position.segment, reason)
        }
        None => Ok(()),
    }
}

fn inventory(shared: &LogShared) -> SegmentInventory {
    let segments = shared.segments();
    let durable = shared.durable().position;
    let newest = segments.keys().next_back().copied().unwrap_or_default();
    let mut inventory = SegmentInventory { newest, ..SegmentInventory::default() };
    for (number, state) in &segments {
        match state.sealed {
            Some((bytes, _)) => {
                inventory.bytes += bytes;
                // The newest segment is never purged, even if it is sealed, because the log ends there.
                if *number != newest {
                    let sealed_at = shared.directory.modified(&segment_name(*number)).ok();
                    inventory.candidates.push(PurgeCandidate { number: *number, bytes, sealed_at });
                }
            }
            None if *number == durable.segment => inventory.bytes += durable.offset,
            None => {}
        }
    }
    inventory.pins = shared.pins().values().cloned().collect();
    inventory
}

/// Returns the inventory of a log to which another process may write.
pub(crate) fn inventory_of(
    directory: &dyn Directory,
    numbers: impl IntoIterator<Item = u64>,
    readers: Vec<PersistentReader>,
) -> Result<SegmentInventory, LogError> {
    let mut inventory = SegmentInventory::default();
    for number in numbers {
        inventory.newest = number;
        if let Some(index) = segment_index_reader::read_sealed(directory, number)? {
            let sealed_at = directory.modified(&segment_name(number)).ok();
            inventory.bytes += index.length;
            inventory.candidates.push(PurgeCandidate { number, bytes: index.length, sealed_at });
        }
    }
    let newest = inventory.newest;
    inventory.candidates.retain(|candidate| candidate.number != newest);
    inventory.pins = readers.into_iter().map(ReaderPin::from).collect();
    Ok(inventory)
}

impl From<PersistentReader> for ReaderPin {
    fn from(reader: PersistentReader) -> Self {
        Self { name: reader.name, position: reader.position }
    }
}

/// Returns the persistent readers that are not connected.
fn absent_readers(shared: &LogShared) -> Vec<PersistentReader> {
    let mut readers = shared.readers().all();
    let pins = shared.pins();
    readers.retain(|reader| pins.values().all(|here| here.name != reader.name));
    readers
}

/// Returns a function that checks whether a segment is in the archive now. It queries the archive, because
/// other processes archive and remove segments too. Without an archive, it returns true for every segment.
fn archive_lookup<'a>(
    directory: &'a dyn Directory,
    archive: Option<&'a Archive>,
) -> impl FnMut(u64) -> Result<bool, LogError> + 'a {
    let mut refreshed = false;
    move |number| {
        let Some(archive) = archive else { return Ok(true) };
        let fail = |error| LogError::io("list", archive.url(), error);
        if !refreshed {
            archive.refresh().map_err(fail)?;
            refreshed = true;
        }
        if !archive.contains(number).map_err(fail)? {
            return Ok(false);
        }
        archive::confirm(directory, archive, number)?;
        Ok(true)
    }
}

/// Removes the oldest segments, as planned.
fn drop_segments(shared: &LogShared, mut purge: Purge) -> Result<Purge, LogError> {
    let Some(last) = purge.segments.last() else { return Ok(purge) };
    purge.bytes = 0;
    // First record in the control file that the segments do not belong to the log any more. Then a crash
    // leaves only unused files, and not a gap in the log.
    let directory = shared.directory.as_ref();
    let first_segment = last + 1;
    shared.update_control(|control| control.first_segment = first_segment)?;
    shared.forget_segments_before(first_segment);
    for number in &purge.segments {
        for name in [segment_name(*number), index_name(*number)] {
            let length = directory.open(&name, OpenMode::Read).and_then(|file| file.length()).unwrap_or(0);
            match directory.remove(&name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", directory.path_of(&name), error));
                }
                _ => purge.bytes += length,
            }
        }
        tracing::info!(segment = number, "purged a segment");
    }
    directory.sync().map_err(|error| LogError::io("sync", directory.path(), error))?;
    Ok(purge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    /// An inventory of five sealed segments of 100 bytes each, sealed one second apart, and a newest segment
    /// of 50 bytes.
    fn five_segments() -> SegmentInventory {
        let candidate = |number| PurgeCandidate {
            number,
            bytes: 100,
            sealed_at: Some(UNIX_EPOCH + Duration::from_secs(number)),
        };
        SegmentInventory {
            candidates: (1..=5).map(candidate).collect(),
            bytes: 550,
            newest: 6,
            pins: Vec::new(),
        }
    }

    fn numbers(candidates: &[PurgeCandidate]) -> Vec<u64> {
        candidates.iter().map(|candidate| candidate.number).collect()
    }

    #[test]
    fn a_limit_selects_only_the_oldest_segments() {
        let past = |limit| numbers(&five_segments().past_limit(limit));
        assert_eq!(past(PurgeLimit::To(3)), [1, 2]);
        assert_eq!(past(PurgeLimit::To(1)), [0; 0]);
        assert_eq!(past(PurgeLimit::To(6)), [1, 2, 3, 4, 5]);
        assert_eq!(past(PurgeLimit::Before(UNIX_EPOCH + Duration::from_secs(4))), [1, 2, 3]);
        assert_eq!(past(PurgeLimit::Bytes(300)), [1, 2, 3]);
        assert_eq!(past(PurgeLimit::Bytes(550)), [0; 0]);
        assert_eq!(past(PurgeLimit::Bytes(0)), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn readers_and_the_archive_keep_segments_past_the_limit() {
        let mut inventory = five_segments();
        let past_limit = inventory.past_limit(PurgeLimit::To(6));
        let purge = inventory.purgeable(&past_limit, |number| Ok(number < 4)).unwrap();
        assert_eq!((purge.segments, purge.bytes, purge.not_archived), (vec![1, 2, 3], 300, Some(4)));
        for (name, segment) in [("b", 4), ("a", 3)] {
            inventory
                .pins
                .push(ReaderPin { name: name.into(), position: LogPosition { segment, offset: 9 } });
        }
        let purge = inventory.purgeable(&past_limit, |_| Ok(true)).unwrap();
        assert_eq!(
            (purge.segments, purge.pinned_by.as_deref(), purge.not_archived),
            (vec![1, 2], Some("a"), None)
        );
    }
}
