//! Which old segments may go: those that are past the limits, that no reader needs, and that are archived if they are to be.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::archive::{self, Archive};
use crate::error::LogError;
use crate::index_file;
use crate::options::Retention;
use crate::position::LogPosition;
use crate::progress::Shared;
use crate::readers::PersistentReader;
use crate::segment::{index_name, segment_name};
use crate::storage::{Directory, OpenMode};

/// A reader that is away for longer than this holds up no purge by the configured limits; an operator's it does.
pub(crate) const READER_AWAY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// A registered reader's position.
#[derive(Debug, Clone)]
pub(crate) struct WatermarkState {
    pub name: String,
    pub position: LogPosition,
}

/// Keeps the segments that a reader still needs from being purged, for as long as it lives, and longer if the reader is
/// to be remembered.
#[derive(Debug)]
pub struct RetentionPin {
    shared: Arc<Shared>,
    id: u64,
    remembered: bool,
}

/// What an operator wants to be rid of. The newest segment always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeLimit {
    /// All segments before this one.
    To(u64),
    /// Those that were sealed before this moment.
    Before(SystemTime),
    /// The oldest, until all together are at most this many bytes.
    Bytes(u64),
}

/// What a purge did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    /// The segments dropped, oldest first.
    pub segments: Vec<u64>,
    /// The bytes freed, indexes included.
    pub bytes: u64,
    /// The reader whose position kept further segments from being dropped.
    pub held_by: Option<String>,
    /// The segment that was kept, and those behind it, because it is not archived yet.
    pub not_archived: Option<u64>,
}

impl RetentionPin {
    pub(crate) fn register(shared: Arc<Shared>, name: &str, position: LogPosition, remembered: bool) -> Self {
        let mut watermarks = shared.watermarks();
        let id = watermarks.keys().next_back().map_or(0, |last| last + 1);
        watermarks.insert(id, WatermarkState { name: name.to_owned(), position });
        drop(watermarks);
        if remembered {
            shared.note_reader(name, position, true);
        }
        Self { shared, id, remembered }
    }

    /// Everything before `position` is no longer needed. Never moves back. Where the reader is remembered this writes a
    /// small file, durably, every few seconds.
    pub fn advance(&self, position: LogPosition) {
        let moved = self.shared.watermarks().get_mut(&self.id).map(|state| {
            state.position = state.position.max(position);
            state.clone()
        });
        if let Some(state) = moved.filter(|_| self.remembered) {
            self.shared.note_reader(&state.name, state.position, false);
        }
    }
}

impl Drop for RetentionPin {
    fn drop(&mut self) {
        let state = self.shared.watermarks().remove(&self.id);
        if let Some(state) = state.filter(|_| self.remembered) {
            self.shared.note_reader(&state.name, state.position, true);
        }
    }
}

/// A sealed segment that is not the newest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub number: u64,
    pub bytes: u64,
    pub sealed_at: Option<SystemTime>,
}

/// What a purge chooses from.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Oldest first.
    pub candidates: Vec<Candidate>,
    pub bytes: u64,
    pub newest: u64,
    /// Who needs what.
    pub holders: Vec<WatermarkState>,
}

impl Inventory {
    /// The oldest segments, as long as `goes` says so of each and of the bytes that there are with it.
    fn oldest(&self, goes: impl Fn(&Candidate, u64) -> bool) -> Vec<Candidate> {
        let mut bytes_left = self.bytes;
        let going = self.candidates.iter().take_while(|candidate| {
            let goes = goes(candidate, bytes_left);
            bytes_left = bytes_left.saturating_sub(candidate.bytes);
            goes
        });
        going.copied().collect()
    }

    fn past_retention(&self, retention: Retention, now: SystemTime) -> Vec<Candidate> {
        self.oldest(|candidate, bytes_left| {
            let too_big = retention.bytes_max.is_some_and(|bytes_max| bytes_left > bytes_max);
            let age = candidate.sealed_at.and_then(|sealed_at| now.duration_since(sealed_at).ok());
            let too_old = retention.time_max.is_some_and(|time_max| age.is_some_and(|age| age > time_max));
            too_big || too_old
        })
    }

    fn past_limit(&self, limit: PurgeLimit) -> Vec<Candidate> {
        self.oldest(|candidate, bytes_left| match limit {
            PurgeLimit::To(segment) => candidate.number < segment,
            PurgeLimit::Before(time) => candidate.sealed_at.is_some_and(|sealed_at| sealed_at < time),
            PurgeLimit::Bytes(bytes_max) => bytes_left > bytes_max,
        })
    }

    /// Who needs a segment, if anybody.
    fn holder(&self, segment: u64) -> Option<&WatermarkState> {
        let needs = self.holders.iter().filter(|holder| holder.position.segment <= segment);
        needs.min_by_key(|holder| holder.position)
    }

    /// What may go of what is past a limit.
    fn free(
        &self,
        doomed: &[Candidate],
        mut is_archived: impl FnMut(u64) -> Result<bool, LogError>,
    ) -> Result<Purge, LogError> {
        let mut purge = Purge::default();
        for Candidate { number, bytes, .. } in doomed {
            if let Some(holder) = self.holder(*number) {
                purge.held_by = Some(holder.name.clone());
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

/// Drops the oldest sealed segments that are past the configured limits, as far as nobody needs them.
pub(crate) fn purge(shared: &Shared, retention: Retention, now: SystemTime) -> Result<Purge, LogError> {
    let mut inventory = inventory(shared);
    let archived = shared.archive.is_some();
    // From the archive, whoever comes back can read on.
    let holds = |reader: &PersistentReader| {
        !archived && now.duration_since(reader.seen).is_ok_and(|away| away <= READER_AWAY_MAX)
    };
    inventory.holders.extend(away(shared).into_iter().filter(holds).map(WatermarkState::from));
    let doomed = inventory.past_retention(retention, now);
    let mut is_archived = archived_now(shared.directory.as_ref(), shared.archive.as_ref());
    let purge = inventory.free(&doomed, |number| match is_archived(number) {
        Err(LogError::Archive { .. }) => Ok(false),
        archived => archived,
    })?;
    drop_segments(shared, purge)
}

/// Drops what an operator wants to be rid of, or nothing.
pub(crate) fn purge_by(shared: &Shared, limit: PurgeLimit) -> Result<Purge, LogError> {
    let mut inventory = inventory(shared);
    inventory.holders.extend(away(shared).into_iter().map(WatermarkState::from));
    let directory = shared.directory.as_ref();
    let plan = plan(directory, &inventory, limit, shared.archive.as_ref())?;
    refuse(directory, &inventory, &plan)?;
    drop_segments(shared, plan)
}

/// What would go of what an operator wants to be rid of.
pub(crate) fn plan(
    directory: &dyn Directory,
    inventory: &Inventory,
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
    inventory.free(&inventory.past_limit(limit), archived_now(directory, archive))
}

/// Refuses a plan that leaves out a part of what was wanted.
pub(crate) fn refuse(directory: &dyn Directory, inventory: &Inventory, plan: &Purge) -> Result<(), LogError> {
    let still_needed =
        |segment, reason| Err(LogError::StillNeeded { path: directory.path().to_owned(), segment, reason });
    if let Some(segment) = plan.not_archived {
        return still_needed(
            segment,
            "it is not archived yet: wait for that, or run `tailwater log archive`".into(),
        );
    }
    let held_by = |holder: &&WatermarkState| Some(&holder.name) == plan.held_by.as_ref();
    match inventory.holders.iter().filter(held_by).min_by_key(|holder| holder.position) {
        Some(WatermarkState { name, position }) => {
            let reason = format!(
                "{name} has read up to {position} and still needs it; wait for it, or forget it with `tailwater log \
                 purge --forget`"
            );
            still_needed(position.segment, reason)
        }
        None => Ok(()),
    }
}

fn inventory(shared: &Shared) -> Inventory {
    let segments = shared.segments();
    let durable = shared.durable().position;
    let newest = segments.keys().next_back().copied().unwrap_or_default();
    let mut inventory = Inventory { newest, ..Inventory::default() };
    for (number, state) in &segments {
        match state.sealed {
            Some((bytes, _)) => {
                inventory.bytes += bytes;
                // The newest is never dropped, even if it is sealed: the log's end is in it.
                if *number != newest {
                    let sealed_at = shared.directory.modified(&segment_name(*number)).ok();
                    inventory.candidates.push(Candidate { number: *number, bytes, sealed_at });
                }
            }
            None if *number == durable.segment => inventory.bytes += durable.offset,
            None => {}
        }
    }
    inventory.holders = shared.watermarks().values().cloned().collect();
    inventory
}

/// What there is to choose from in a log that nobody here writes to.
pub(crate) fn inventory_of(
    directory: &dyn Directory,
    numbers: impl IntoIterator<Item = u64>,
    readers: Vec<PersistentReader>,
) -> Result<Inventory, LogError> {
    let mut inventory = Inventory::default();
    for number in numbers {
        inventory.newest = number;
        if let Some(index) = index_file::read_sealed(directory, number)? {
            let sealed_at = directory.modified(&segment_name(number)).ok();
            inventory.bytes += index.length;
            inventory.candidates.push(Candidate { number, bytes: index.length, sealed_at });
        }
    }
    let newest = inventory.newest;
    inventory.candidates.retain(|candidate| candidate.number != newest);
    inventory.holders = readers.into_iter().map(WatermarkState::from).collect();
    Ok(inventory)
}

impl From<PersistentReader> for WatermarkState {
    fn from(reader: PersistentReader) -> Self {
        Self { name: reader.name, position: reader.position }
    }
}

/// The readers that are remembered and not here.
fn away(shared: &Shared) -> Vec<PersistentReader> {
    let mut readers = shared.readers().all();
    let watermarks = shared.watermarks();
    readers.retain(|reader| watermarks.values().all(|here| here.name != reader.name));
    readers
}

/// Whether a segment is in the archive, if there is one, as that is now: others archive, and remove from it, too.
fn archived_now<'a>(
    directory: &'a dyn Directory,
    archive: Option<&'a Archive>,
) -> impl FnMut(u64) -> Result<bool, LogError> + 'a {
    let mut asked = false;
    move |number| {
        let Some(archive) = archive else { return Ok(true) };
        let fail = |error| LogError::io("list", archive.url(), error);
        if !asked {
            archive.refresh().map_err(fail)?;
            asked = true;
        }
        if !archive.contains(number).map_err(fail)? {
            return Ok(false);
        }
        archive::confirm(directory, archive, number)?;
        Ok(true)
    }
}

/// Drops what may go, the oldest segments.
fn drop_segments(shared: &Shared, mut purge: Purge) -> Result<Purge, LogError> {
    let Some(last) = purge.segments.last() else { return Ok(purge) };
    purge.bytes = 0;
    // First it is written down that they are no part of the log: a crash from here on leaves files, not a gap.
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

    /// Segments 1 to 5 of 100 bytes, sealed a second apart, and 50 bytes of the newest.
    fn five() -> Inventory {
        let candidate = |number| Candidate {
            number,
            bytes: 100,
            sealed_at: Some(UNIX_EPOCH + Duration::from_secs(number)),
        };
        Inventory { candidates: (1..=5).map(candidate).collect(), bytes: 550, newest: 6, holders: Vec::new() }
    }

    fn numbers(candidates: &[Candidate]) -> Vec<u64> {
        candidates.iter().map(|candidate| candidate.number).collect()
    }

    #[test]
    fn a_limit_takes_the_oldest_and_no_more() {
        let past = |limit| numbers(&five().past_limit(limit));
        assert_eq!(past(PurgeLimit::To(3)), [1, 2]);
        assert_eq!(past(PurgeLimit::To(1)), [0; 0]);
        assert_eq!(past(PurgeLimit::To(6)), [1, 2, 3, 4, 5]);
        assert_eq!(past(PurgeLimit::Before(UNIX_EPOCH + Duration::from_secs(4))), [1, 2, 3]);
        assert_eq!(past(PurgeLimit::Bytes(300)), [1, 2, 3]);
        assert_eq!(past(PurgeLimit::Bytes(550)), [0; 0]);
        assert_eq!(past(PurgeLimit::Bytes(0)), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn readers_and_the_archive_hold_what_is_past_it() {
        let mut inventory = five();
        let doomed = inventory.past_limit(PurgeLimit::To(6));
        let free = inventory.free(&doomed, |number| Ok(number < 4)).unwrap();
        assert_eq!((free.segments, free.bytes, free.not_archived), (vec![1, 2, 3], 300, Some(4)));
        for (name, segment) in [("b", 4), ("a", 3)] {
            inventory
                .holders
                .push(WatermarkState { name: name.into(), position: LogPosition { segment, offset: 9 } });
        }
        let free = inventory.free(&doomed, |_| Ok(true)).unwrap();
        assert_eq!(
            (free.segments, free.held_by.as_deref(), free.not_archived),
            (vec![1, 2], Some("a"), None)
        );
    }
}
