//! Parses the event in which a source states the GTIDs of all transactions before one of its binlog files.

use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MariadbGtidList, MysqlGtidSet};

/// Returns the set in a complete previous-GTIDs or GTID-list event, or `None` for any other event.
pub(crate) fn parse(
    header: &EventHeader,
    event: &[u8],
    format: &FormatDescription,
) -> Result<Option<GtidSet>, WireError> {
    if !matches!(header.event_type, EventType::PREVIOUS_GTIDS | EventType::MARIADB_GTID_LIST) {
        return Ok(None);
    }
    let end = (header.event_length as usize).saturating_sub(format.trailer_bytes(header));
    let Some(body) = event.get(EVENT_HEADER_BYTES..end) else {
        let needed = end.saturating_sub(event.len());
        return Err(WireError::Truncated { what: "GTID set of a binlog file", offset: event.len(), needed });
    };
    Ok(Some(match header.event_type {
        EventType::PREVIOUS_GTIDS => GtidSet::MySql(MysqlGtidSet::decode(body)?),
        _ => GtidSet::MariaDb(MariadbBinlogState::from_gtids(MariadbGtidList::decode(body)?.gtids)),
    }))
}
