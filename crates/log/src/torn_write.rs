//! Distinguishes a torn write at the end of a log from damage.
//!
//! A power cut that tears a write leaves some sectors in their old state. After the end of a log, this state
//! is all zeros. The writer ends its writes between transactions or at page boundaries. So a torn event
//! contains at least one sector of zeros, or its first sector is zero from the start of the event on. A write
//! that failed, or whose process was killed, may end at any byte, but only zeros follow it. Bit rot leaves
//! neither of these patterns.

use std::path::Path;

use tailwater_wire::binlog_event::checksum::compute_checksum;
use tailwater_wire::binlog_event::{CHECKSUM_BYTES, EVENT_HEADER_BYTES, EventHeader, verify_checksum};

use crate::error::LogError;
use crate::segment_files::BadEvent;
use crate::storage::LogFile;

/// The smallest unit that a disk writes atomically, in bytes.
const SECTOR_BYTES: u64 = 512;

const BLOCK_BYTES: u64 = 64 << 10;

/// The maximum number of bytes of a torn event that are searched for complete events.
const SEARCH_BYTES_MAX: u64 = 4 << 20;

/// The kind of bytes after the last valid event of a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TornTail {
    /// Only zeros: nothing was written there.
    Unwritten,
    /// The remains of unsynced writes after a power cut.
    Torn {
        /// The number of bytes up to the last byte that is not zero.
        bytes: u64,
    },
    /// Damage: the bytes are not the result of a torn write.
    Damaged,
}

/// Classifies the bytes from a damaged or incomplete event to the end of the file. `shift` is the event's
/// offset in the source's file minus its offset in the segment.
pub(crate) fn classify_tail(
    file: &dyn LogFile,
    path: &Path,
    bad: &BadEvent,
    file_end: u64,
    shift: u64,
    checksums: bool,
) -> Result<TornTail, LogError> {
    let Some(data_end) = data_end(file, path, bad.offset, file_end)? else {
        return Ok(TornTail::Unwritten);
    };
    let torn = TornTail::Torn { bytes: data_end - bad.offset };
    let header_end = bad.offset + EVENT_HEADER_BYTES as u64;
    if data_end <= header_end || has_lost_sector(file, path, bad.offset, header_end, file_end)? {
        return Ok(torn);
    }
    // From here on the header is complete. It equals the header that the source wrote, unless bits have
    // changed.
    let Some(header) = &bad.header else { return Ok(TornTail::Damaged) };
    let event_end = bad.offset + u64::from(header.event_length);
    if header.end_log_pos != 0 && header.end_log_pos != event_end.wrapping_add(shift) as u32 {
        return Ok(TornTail::Damaged);
    }
    let incomplete = event_end > file_end
        || has_lost_sector(file, path, bad.offset, event_end, file_end)?
        || was_cut_short(file, path, bad.offset, event_end, data_end)?;
    if !incomplete {
        return Ok(TornTail::Damaged);
    }
    // If a changed bit makes the length in the header too big, the event seems to contain the events after
    // it.
    match checksums && contains_event(file, path, bad.offset, event_end.min(data_end), shift)? {
        true => Ok(TornTail::Damaged),
        false => Ok(torn),
    }
}

/// Returns the offset after the last byte of `start..end` that is not zero.
pub(crate) fn data_end(
    file: &dyn LogFile,
    path: &Path,
    start: u64,
    end: u64,
) -> Result<Option<u64>, LogError> {
    let mut block_end = end;
    while block_end > start {
        let block_start = block_end.saturating_sub(BLOCK_BYTES).max(start);
        let bytes = read(file, path, block_start, block_end)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            return Ok(Some(block_start + last as u64 + 1));
        }
        block_end = block_start;
    }
    Ok(None)
}

/// Returns whether one of the sectors that overlap `start..end` is all zeros. In the first sector, only the
/// bytes from `start` on count.
fn has_lost_sector(
    file: &dyn LogFile,
    path: &Path,
    start: u64,
    end: u64,
    file_end: u64,
) -> Result<bool, LogError> {
    let end = end.min(file_end);
    let mut at = start;
    while at < end {
        let block_end =
            ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end.next_multiple_of(SECTOR_BYTES)).min(file_end);
        let bytes = read(file, path, at, block_end)?;
        let first = (SECTOR_BYTES - at % SECTOR_BYTES).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at(first);
        let mut sectors = std::iter::once(first).chain(rest.chunks(SECTOR_BYTES as usize));
        if sectors.any(|sector| !sector.is_empty() && sector.iter().all(|byte| *byte == 0)) {
            return Ok(true);
        }
        at = block_end;
    }
    Ok(false)
}

/// Returns whether the last bytes of the event are missing and only zeros follow. A failed or interrupted
/// write may end at any byte.
fn was_cut_short(
    file: &dyn LogFile,
    path: &Path,
    start: u64,
    end: u64,
    data_end: u64,
) -> Result<bool, LogError> {
    match end.checked_sub(data_end) {
        None | Some(0) => Ok(false),
        // The zeros begin in the event's checksum. If the checksum bytes before the zeros are right, the
        // write ended early. A completely written event may also have a checksum that ends in zeros by
        // chance. If such an event is damaged, the other bytes of its checksum do not match.
        Some(missing) if missing < CHECKSUM_BYTES as u64 && end - start <= SEARCH_BYTES_MAX => {
            let event = read(file, path, start, end)?;
            let Some(checked) = event.len().checked_sub(CHECKSUM_BYTES) else { return Ok(false) };
            let (checked, stored) = event.split_at(checked);
            let present = CHECKSUM_BYTES - missing as usize;
            Ok(compute_checksum(checked).to_le_bytes()[..present] == stored[..present])
        }
        Some(_) => Ok(true),
    }
}

/// Returns whether a complete event with a valid checksum begins inside `start..end`, after `start`.
fn contains_event(
    file: &dyn LogFile,
    path: &Path,
    start: u64,
    end: u64,
    shift: u64,
) -> Result<bool, LogError> {
    let end = end.min(start + SEARCH_BYTES_MAX);
    let bytes = read(file, path, start, end)?;
    for at in 1..bytes.len().saturating_sub(EVENT_HEADER_BYTES) {
        let Ok(header) = EventHeader::parse(&bytes[at..]) else { continue };
        let Some(event) = bytes.get(at..at + header.event_length as usize) else { continue };
        let source_end = (start + (at + event.len()) as u64).wrapping_add(shift) as u32;
        let in_place = header.end_log_pos == 0 || header.end_log_pos == source_end;
        if header.event_type.name().is_some() && in_place && verify_checksum(event).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read(file: &dyn LogFile, path: &Path, start: u64, end: u64) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; end.saturating_sub(start) as usize];
    let filled = file.read_full_at(&mut bytes, start).map_err(|error| LogError::io("read", path, error))?;
    bytes.truncate(filled);
    Ok(bytes)
}
