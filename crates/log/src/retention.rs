//! Which old segments may go: those that are past the limits and that no reader needs.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::LogError;
use crate::options::Retention;
use crate::position::LogPosition;
use crate::progress::Shared;
use crate::segment::{index_name, segment_name};

/// A registered reader's position.
#[derive(Debug, Clone)]
pub(crate) struct WatermarkState {
    pub name: String,
    pub position: LogPosition,
}

/// Keeps the segments that a reader still needs from being purged, for as long as it lives.
#[derive(Debug)]
pub struct Watermark {
    shared: Arc<Shared>,
    id: u64,
}

/// What a purge did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    /// The segments dropped, oldest first.
    pub segments: Vec<u64>,
    /// The bytes freed, indexes included.
    pub bytes: u64,
    /// The reader whose position kept further segments from being dropped.
    pub held_by: Option<String>,
}

impl Watermark {
    pub(crate) fn register(shared: Arc<Shared>, name: &str, position: LogPosition) -> Self {
        let mut watermarks = shared.watermarks();
        let id = watermarks.keys().next_back().map_or(0, |last| last + 1);
        watermarks.insert(id, WatermarkState { name: name.to_owned(), position });
        drop(watermarks);
        Self { shared, id }
    }

    /// Everything before `position` is no longer needed. Never moves back.
    pub fn advance(&self, position: LogPosition) {
        if let Some(state) = self.shared.watermarks().get_mut(&self.id) {
            state.position = state.position.max(position);
        }
    }
}

impl Drop for Watermark {
    fn drop(&mut self) {
        self.shared.watermarks().remove(&self.id);
    }
}

/// Drops the oldest sealed segments that are past the limits.
pub(crate) fn purge(shared: &Shared, retention: Retention, now: SystemTime) -> Result<Purge, LogError> {
    let segments = shared.segments();
    let directory = shared.directory.as_ref();
    let mut bytes_left: u64 = 0;
    for (number, state) in &segments {
        bytes_left += match state.sealed {
            Some((length, _)) => length,
            None if *number == shared.durable().position.segment => shared.durable().position.offset,
            None => 0,
        };
    }
    let mut doomed = Vec::new();
    for (number, state) in &segments {
        // The newest is never dropped, even if it is sealed: the log's end is in it.
        let Some((length, _)) = state.sealed.filter(|_| Some(number) != segments.keys().next_back()) else {
            break;
        };
        let too_big = retention.bytes_max.is_some_and(|bytes_max| bytes_left > bytes_max);
        let sealed_at = directory.modified(&segment_name(*number));
        let age = sealed_at.ok().and_then(|sealed_at| now.duration_since(sealed_at).ok());
        let too_old = retention.time_max.is_some_and(|time_max| age.is_some_and(|age| age > time_max));
        if !too_big && !too_old {
            break;
        }
        doomed.push(*number);
        bytes_left -= length;
    }
    drop_segments(shared, &doomed)
}

/// Drops `doomed`, the oldest segments, up to the first that a reader needs.
fn drop_segments(shared: &Shared, doomed: &[u64]) -> Result<Purge, LogError> {
    let mut purge = Purge::default();
    let held = shared.watermarks().values().min_by_key(|state| state.position).cloned();
    for number in doomed {
        if let Some(reader) = held.as_ref().filter(|reader| reader.position.segment <= *number) {
            purge.held_by = Some(reader.name.clone());
            break;
        }
        purge.segments.push(*number);
    }
    let Some(last) = purge.segments.last() else { return Ok(purge) };
    // First it is written down that they are no part of the log: a crash from here on leaves files, not a gap.
    let directory = shared.directory.as_ref();
    let first_segment = last + 1;
    shared.update_control(|control| control.first_segment = first_segment)?;
    shared.forget_segments_before(first_segment);
    for number in &purge.segments {
        for name in [segment_name(*number), index_name(*number)] {
            let length = directory
                .open(&name, crate::storage::OpenMode::Read)
                .and_then(|file| file.length())
                .unwrap_or(0);
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
