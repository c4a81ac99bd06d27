//! The grammar of MySQL's transactions, as MySQL's replicas parse them (`trx_boundary_parser.cpp`).

use super::{EventMeaning, Prefix, SourceDependency, TransactionPhase, TransactionStart, starts_with};
use crate::WireError;
use crate::binlog_event::{EventType, GtidEvent, QueryEvent, rows_layout};
use crate::gtid::Gtid;

pub(super) fn meaning(event: &Prefix<'_>) -> Result<EventMeaning, WireError> {
    if let Some(meaning) = event.common_meaning() {
        return Ok(meaning);
    }
    Ok(match event.header.event_type {
        EventType::GTID => open(GtidEvent::parse(event.body, false)?),
        EventType::ANONYMOUS_GTID => open(GtidEvent::parse(event.body, true)?),
        EventType::GTID_TAGGED => open(GtidEvent::parse_tagged(event.body)?),
        EventType::QUERY => {
            let query = QueryEvent::parse(EventType::QUERY, event.body, event.format)?;
            query_meaning(query.query)
        }
        EventType::TRANSACTION_PAYLOAD => EventMeaning::Whole,
        // This event holds the text of the statement that caused the row events. It comes before the table
        // maps.
        EventType::ROWS_QUERY => EventMeaning::StatementPart,
        EventType::TABLE_MAP | EventType::VIEW_CHANGE => EventMeaning::InBlock,
        EventType::TRANSACTION_CONTEXT => EventMeaning::Anywhere,
        event_type if rows_layout(event_type).is_some() => EventMeaning::InBlock,
        _ => return event.unknown_meaning(),
    })
}

fn open(event: GtidEvent) -> EventMeaning {
    let dependency = match event.logical_clock {
        Some(clock) => SourceDependency::Logical {
            last_committed: clock.last_committed,
            sequence_number: clock.sequence_number,
        },
        None => SourceDependency::None,
    };
    let start = TransactionStart {
        gtid: event.gtid.map(Gtid::MySql),
        dependency,
        commit_time_us: event.original_commit_time_us,
        transaction_bytes: event.transaction_bytes.filter(|bytes| *bytes != 0),
        standalone: false,
        ddl: false,
    };
    EventMeaning::Open { start, phase: TransactionPhase::Opened }
}

fn query_meaning(query: &[u8]) -> EventMeaning {
    if query == b"BEGIN" || query.starts_with(b"XA START") {
        EventMeaning::OpenBlock
    } else if query.eq_ignore_ascii_case(b"COMMIT")
        || (starts_with(query, "ROLLBACK") && !starts_with(query, "ROLLBACK TO "))
        || starts_with(query, "XA ROLLBACK")
    {
        EventMeaning::Close
    } else {
        EventMeaning::Statement
    }
}
