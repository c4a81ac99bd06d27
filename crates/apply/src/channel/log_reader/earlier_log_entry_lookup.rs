//! Reads log entries for the channel's reader.

use tailwater_log::{LogEntry, LogHandle, LogPosition, LogReader};
use tailwater_wire::binlog_event::EventType;

use crate::channel::target_gtid_queries::FIRST_EVENT_OFFSET;
use crate::error::ApplyError;

/// Returns the format description event for the events from `start` on, where the channel begins to read.
/// This event comes before the first transaction of the segment that contains `start`. Returns `None` if this
/// segment has no such event. Also returns `None` if `start` is not after the event, because the channel then
/// reads the event itself.
pub(super) fn format_description(log: &LogHandle, start: LogPosition) -> Result<Option<Vec<u8>>, ApplyError> {
    if start.offset <= FIRST_EVENT_OFFSET {
        return Ok(None);
    }
    let mut head = log.reader(LogPosition { offset: FIRST_EVENT_OFFSET, ..start })?;
    while let Some(entry) = head.try_next()?.filter(|entry| entry.position < start) {
        if entry.is_transaction() {
            return Ok(None);
        }
        let mut event = Vec::new();
        while let Some(header) = head.next_event()? {
            if header.event_type == EventType::FORMAT_DESCRIPTION {
                head.read_event(&mut event)?;
                return Ok(Some(event));
            }
        }
    }
    Ok(None)
}

/// Opens a new log reader that has just returned `entry`, so that the channel can read the events of that
/// entry a second time. The caller has [waited until the entry is
/// durable](super::ChannelReader::wait_until_durable).
///
/// # Errors
/// [`ApplyError::ProgressRecord`] if another entry is at that position; [`ApplyError::Log`].
pub(super) fn reopen(log: &LogHandle, entry: &LogEntry, channel: &str) -> Result<LogReader, ApplyError> {
    let mut reader = log.reader(entry.position)?;
    if reader.try_next()?.as_ref() == Some(entry) {
        return Ok(reader);
    }
    let reason = format!("the log entry at {} has changed since the channel first read it", entry.position);
    Err(ApplyError::ProgressRecord { channel: channel.to_owned(), reason })
}
