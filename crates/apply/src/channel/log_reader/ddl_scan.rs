//! Finds DDL statements in the log.

use tailwater_log::{EntryFlags, LogEntry, LogPosition, LogReader};
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{
    EVENT_HEADER_BYTES, EventBody, EventHeader, EventType, FormatDescription, strip_checksum,
};

use super::ddl_effect_on_fractional_seconds::LoggedDefinition;
use crate::error::ApplyError;

/// How many events of a transaction are checked for a DDL statement if MariaDB does not flag the transaction
/// as DDL. A DDL statement is the second event of its transaction, after the GTID.
const EVENTS_UNFLAGGED_MAX: usize = 2;
/// The longest DDL statement that is read, in bytes. A longer statement is treated as if it changed every
/// table.
const DEFINITION_BYTES_MAX: u32 = 64 << 20;

/// The DDL statements in a part of the log.
#[derive(Debug)]
pub(super) struct DefinitionScan {
    /// Start of this part of the log; `to` is its end.
    pub(super) from: LogPosition,
    pub(super) to: LogPosition,
    pub(super) format: FormatDescription,
    pub(super) found: Vec<(LogPosition, String, LoggedDefinition)>,
}

/// Returns the DDL statements in the log entry that `log` has just returned. If the entry contains a format
/// description event, stores this event format in `format`.
pub(super) fn definitions_of(
    log: &mut LogReader,
    entry: &LogEntry,
    format: &mut FormatDescription,
) -> Result<Vec<LoggedDefinition>, ApplyError> {
    let malformed =
        |error: WireError| ApplyError::Event { gtid: String::new(), position: entry.position, error };
    let is_flagged = entry.flags.contains(EntryFlags::DDL);
    let (mut definitions, mut event, mut events) = (Vec::new(), Vec::new(), 0);
    while let Some(header) = log.next_event()? {
        events += 1;
        match header.event_type {
            EventType::FORMAT_DESCRIPTION => {
                event.clear();
                log.read_event(&mut event)?;
                let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
                *format = FormatDescription::parse(body).map_err(malformed)?;
            }
            EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED
                if header.event_length > DEFINITION_BYTES_MAX =>
            {
                // The statement is too long to parse, so assume that it changes every table.
                definitions.extend(is_flagged.then(|| LoggedDefinition::of(b"CREATE", b"")).flatten());
            }
            EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED => {
                event.clear();
                log.read_event(&mut event)?;
                definitions.extend(definition_of(&header, &event, format).map_err(malformed)?);
            }
            _ => {}
        }
        if entry.is_transaction() && !is_flagged && events >= EVENTS_UNFLAGGED_MAX {
            break;
        }
    }
    Ok(definitions)
}

fn definition_of(
    header: &EventHeader,
    event: &[u8],
    format: &FormatDescription,
) -> Result<Option<LoggedDefinition>, WireError> {
    let event = if format.has_checksums() { strip_checksum(event)? } else { event };
    let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
    match EventBody::parse(header, body, format)? {
        EventBody::Query(query) => {
            Ok(LoggedDefinition::of(&query.statement(DEFINITION_BYTES_MAX as usize)?, query.database))
        }
        _ => Ok(None),
    }
}
