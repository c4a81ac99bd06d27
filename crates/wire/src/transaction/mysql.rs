//! The grammar of MySQL's transactions, as its replicas read it (`trx_boundary_parser.cpp`).

use super::{Meaning, Phase, Prefix, SourceDependency, TransactionStart, starts_with};
use crate::WireError;
use crate::event::{EventType, GtidEvent, QueryEvent, rows_layout};
use crate::gtid::Gtid;

pub(super) fn meaning(event: &Prefix<'_>) -> Result<Meaning, WireError> {
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
        EventType::TRANSACTION_PAYLOAD => Meaning::Whole,
        // Statements of a row log, shown before its table maps.
        EventType::ROWS_QUERY => Meaning::StatementPart,
        EventType::TABLE_MAP | EventType::VIEW_CHANGE => Meaning::InBlock,
        EventType::TRANSACTION_CONTEXT => Meaning::Anywhere,
        event_type if rows_layout(event_type).is_some() => Meaning::InBlock,
        _ => return event.unknown_meaning(),
    })
}

fn open(event: GtidEvent) -> Meaning {
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
    Meaning::Open { start, phase: Phase::Opened }
}

fn query_meaning(query: &[u8]) -> Meaning {
    if query == b"BEGIN" || query.starts_with(b"XA START") {
        Meaning::OpenBlock
    } else if query.eq_ignore_ascii_case(b"COMMIT")
        || (starts_with(query, "ROLLBACK") && !starts_with(query, "ROLLBACK TO "))
        || starts_with(query, "XA ROLLBACK")
    {
        Meaning::Close
    } else {
        Meaning::Statement
    }
}
