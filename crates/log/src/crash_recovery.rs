//! Opens a log after a crash: truncates the torn end of the newest segment, and does not change durable
//! bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tailwater_wire::binlog_event::event_header::BINLOG_MAGIC;

use crate::atomic_json_file;
use crate::control_file::{self, ControlFile};
use crate::error::LogError;
use crate::index_entry_builder::Framing;
use crate::log_position::LogPosition;
use crate::newest_segment_recovery;
use crate::segment_files::{index_name, parse_index_name, parse_segment_name, segment_name};
use crate::segment_index::SegmentHeader;
use crate::segment_index_reader;
use crate::shared_log_state::{SegmentState, TailStart};
use crate::storage::{Directory, LogFile, OpenMode};
use crate::stored_reader_positions;
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// What recovery found and repaired when the log was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The number of segments.
    pub segments: u64,
    /// The position after the last whole transaction, where the log continues.
    pub end: Option<LogPosition>,
    /// The torn end of the newest segment, which recovery removed.
    pub cut: Option<TailTruncation>,
    /// The number of whole transactions and events after the end of the index. Recovery kept them and added
    /// them to the index.
    pub entries_recovered: u64,
    /// The segments whose missing or damaged index recovery has rebuilt.
    pub indexes_rebuilt: Vec<u64>,
    /// The files of an interrupted purge or segment start that recovery has removed.
    pub leftovers_removed: Vec<String>,
}

impl RecoveryReport {
    /// Logs the repairs for the operator.
    pub(crate) fn log_repairs(&self, path: &Path) {
        if let Some(TailTruncation { position, bytes, reason }) = &self.cut {
            tracing::warn!(log = %path.display(), %position, bytes, "truncated the torn end of the log; the capture requests the removed events again: {reason}");
        }
        if self.entries_recovered > 0 {
            tracing::info!(log = %path.display(), entries = self.entries_recovered, "added whole transactions that were missing at the end of the index");
        }
        if !self.indexes_rebuilt.is_empty() {
            tracing::warn!(log = %path.display(), segments = ?self.indexes_rebuilt, "rebuilt missing or damaged indexes");
        }
        if !self.leftovers_removed.is_empty() {
            tracing::info!(log = %path.display(), files = ?self.leftovers_removed, "removed files that an interrupted purge or segment start had left");
        }
    }
}

/// The torn end of a log, which recovery removed. These events were never acknowledged as durable, and the
/// capture requests them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailTruncation {
    /// The new end of the log.
    pub position: LogPosition,
    /// The number of bytes up to the last byte that was not zero.
    pub bytes: u64,
    /// What was wrong with the bytes.
    pub reason: String,
}

/// A log that was opened and repaired.
#[derive(Debug)]
pub(crate) struct OpenedLog {
    pub control: ControlFile,
    pub segments: BTreeMap<u64, SegmentState>,
    pub tail: Option<RecoveredTail>,
    pub recovery: RecoveryReport,
}

/// The newest segment, ready for appending.
#[derive(Debug)]
pub(crate) struct RecoveredTail {
    pub header: Arc<SegmentHeader>,
    pub file: Arc<dyn LogFile>,
    pub framing: Framing,
    pub start: TailStart,
}

/// Reads and repairs the log in `directory`.
///
/// The function checks everything that it must read before it writes anything.
pub(crate) fn recover(directory: &Arc<dyn Directory>) -> Result<OpenedLog, LogError> {
    let names = directory.list().map_err(|error| LogError::io("list", directory.path(), error))?;
    let mut recovery = RecoveryReport::default();
    let mut control = match ControlFile::read(directory.as_ref())? {
        Some(control) => control,
        None => {
            control_file::check_not_missing(
                directory.as_ref(),
                names.iter().any(|name| parse_segment_name(name).is_some()),
            )?;
            let control = ControlFile::new();
            control.write(directory.as_ref())?;
            control
        }
    };
    let mut numbers: BTreeSet<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    numbers = numbers.split_off(&control.first_segment);
    if let Some(newest) = numbers.last().copied()
        && is_unfinished_creation(directory.as_ref(), newest)?
    {
        numbers.remove(&newest);
    }
    check_continuity(directory.as_ref(), &control, &numbers)?;

    let mut segments = BTreeMap::new();
    let mut tail = None;
    let newest = numbers.last().copied();
    for number in &numbers {
        if Some(*number) == newest {
            let recovered =
                newest_segment_recovery::recover(directory, *number, &control, &segments, &mut recovery)?;
            tail = Some(recovered);
        } else {
            let state = sealed_segment(directory, *number, &segments, &mut recovery)?;
            segments.insert(*number, state);
        }
    }
    remove_leftovers(directory.as_ref(), &names, &numbers, &mut recovery)?;
    if let Some(tail) = &tail
        && control.active.as_ref() != Some(&*tail.header)
    {
        control.active = Some((*tail.header).clone());
        control.write(directory.as_ref())?;
    }
    recovery.segments = numbers.len() as u64;
    recovery.end =
        tail.as_ref().map(|tail| LogPosition { segment: tail.start.segment, offset: tail.start.end });
    Ok(OpenedLog { control, segments, tail, recovery })
}

/// Returns whether a crash interrupted the creation of a segment before its first event.
fn is_unfinished_creation(directory: &dyn Directory, number: u64) -> Result<bool, LogError> {
    let name = segment_name(number);
    let path = directory.path_of(&name);
    let file = directory.open(&name, OpenMode::Read).map_err(|error| LogError::io("open", &path, error))?;
    let mut magic = [0; BINLOG_MAGIC.len()];
    let filled = file.read_full_at(&mut magic, 0).map_err(|error| LogError::io("read", &path, error))?;
    // A failed write may have written only some of the magic bytes.
    let written = magic.iter().zip(&BINLOG_MAGIC).take_while(|(found, expected)| found == expected).count();
    let has_magic =
        filled == magic.len() && (written == magic.len() || magic[written..].iter().any(|byte| *byte != 0));
    // The magic bytes become durable before the first entry. So if the segment has entries, missing magic
    // bytes are damage.
    Ok(!has_magic && !segment_index_reader::has_entries(directory, number)?)
}

fn check_continuity(
    directory: &dyn Directory,
    control: &ControlFile,
    numbers: &BTreeSet<u64>,
) -> Result<(), LogError> {
    let newest_known = control.active.as_ref().map(|header| header.segment);
    let last = numbers.last().copied().max(newest_known);
    let Some(last) = last else { return Ok(()) };
    match (control.first_segment..=last).find(|number| !numbers.contains(number)) {
        Some(missing) => Err(LogError::corrupt(
            directory.path_of(&segment_name(missing)),
            0,
            format!(
                "the segment is missing, although the log holds segments {} to {last}",
                control.first_segment
            ),
        )),
        None => Ok(()),
    }
}

/// Checks a complete segment: its length must be the length that its index states.
fn sealed_segment(
    directory: &Arc<dyn Directory>,
    number: u64,
    segments: &BTreeMap<u64, SegmentState>,
    recovery: &mut RecoveryReport,
) -> Result<SegmentState, LogError> {
    let name = segment_name(number);
    let path = directory.path_of(&name);
    let file = directory.open(&name, OpenMode::Read).map_err(|error| LogError::io("open", &path, error))?;
    let length = file.length().map_err(|error| LogError::io("read", &path, error))?;
    if let Some(index) = segment_index_reader::read_sealed(directory.as_ref(), number)? {
        if index.length != length {
            let reason = format!("the file has {length} bytes, but its index states {}", index.length);
            return Err(LogError::corrupt(path, length.min(index.length), reason));
        }
        return Ok(SegmentState { header: Arc::new(index.header), sealed: Some((length, index.entries)) });
    }
    let header = segment_index_reader::read_or_derive_header(directory.as_ref(), number, None, segments)?;
    let entries = newest_segment_recovery::rebuild_sealed_index(directory, number, &header, length)?;
    recovery.indexes_rebuilt.push(number);
    Ok(SegmentState { header: Arc::new(header), sealed: Some((length, entries)) })
}

fn remove_leftovers(
    directory: &dyn Directory,
    names: &[String],
    numbers: &BTreeSet<u64>,
    recovery: &mut RecoveryReport,
) -> Result<(), LogError> {
    for name in names {
        let number = parse_segment_name(name).or_else(|| parse_index_name(name));
        let stale = match number {
            Some(number) => !numbers.contains(&number),
            None => atomic_json_file::replaced_by(name)
                .is_some_and(|name| [control_file::NAME, stored_reader_positions::NAME].contains(&name)),
        };
        if !stale {
            continue;
        }
        match directory.remove(name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LogError::io("remove", directory.path_of(name), error));
            }
            _ => recovery.leftovers_removed.push(name.clone()),
        }
    }
    if !recovery.leftovers_removed.is_empty() {
        directory.sync().map_err(|error| LogError::io("sync", directory.path(), error))?;
    }
    Ok(())
}

/// Checks the magic bytes of a segment.
pub(crate) fn check_magic(
    directory: &dyn Directory,
    number: u64,
    file: &dyn LogFile,
) -> Result<(), LogError> {
    let path = directory.path_of(&segment_name(number));
    let mut magic = [0; FIRST_EVENT_OFFSET as usize];
    file.read_full_at(&mut magic, 0).map_err(|error| LogError::io("read", &path, error))?;
    match magic == BINLOG_MAGIC {
        true => Ok(()),
        false => {
            Err(LogError::corrupt(path, 0, "the segment does not begin with the magic bytes of a binlog"))
        }
    }
}

/// Opens the index of a segment for writing, and creates it if it does not exist.
pub(crate) fn open_index(directory: &dyn Directory, number: u64) -> Result<Arc<dyn LogFile>, LogError> {
    let name = index_name(number);
    let path = directory.path_of(&name);
    match directory.open(&name, OpenMode::ReadWrite) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let file = directory
                .open(&name, OpenMode::CreateNew)
                .map_err(|error| LogError::write("create", &path, error))?;
            directory.sync().map_err(|error| LogError::write("sync the directory of", &path, error))?;
            Ok(file)
        }
        Err(error) => Err(LogError::io("open", path, error)),
    }
}
