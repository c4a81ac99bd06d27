//! The grammar of MariaDB's event groups, as MariaDB's replicas parse them (`slave.cc`, `rpl_parallel.cc`).

use super::{EventMeaning, Prefix, SourceDependency, TransactionPhase, TransactionStart, starts_with};
use crate::WireError;
use crate::binlog_event::{
    EventType, MariadbGtidEvent, QueryEvent, compressed_event, rows_end_statement, rows_layout,
};
use crate::gtid::Gtid;

/// The number of bytes of a statement that the tracker examines. They are enough for `XA ROLLBACK` and one
/// more byte, which shows where the word ends.
const QUERY_FRONT_BYTES: usize = 12;

pub(super) fn meaning(event: &Prefix<'_>) -> Result<EventMeaning, WireError> {
    if let Some(meaning) = event.common_meaning() {
        return Ok(meaning);
    }
    Ok(match event.header.event_type {
        EventType::MARIADB_GTID => open(&MariadbGtidEvent::parse(event.header, event.body, event.format)?),
        EventType::QUERY => {
            let query = QueryEvent::parse(EventType::QUERY, event.body, event.format)?;
            query_meaning(query.query)
        }
        EventType::MARIADB_QUERY_COMPRESSED => {
            let query = QueryEvent::parse(EventType::MARIADB_QUERY_COMPRESSED, event.body, event.format)?;
            let (front, length) = compressed_event::decompress_front::<QUERY_FRONT_BYTES>(query.query)?;
            query_meaning(&front[..length])
        }
        EventType::TABLE_MAP | EventType::MARIADB_ANNOTATE_ROWS => EventMeaning::StatementPart,
        // The server writes fragments of row events only inside transactions. A fragment never ends a
        // transaction.
        EventType::MARIADB_PARTIAL_ROW_DATA => EventMeaning::StatementPart,
        event_type if rows_layout(event_type).is_some() => {
            match rows_end_statement(event_type, event.body, event.format)? {
                true => EventMeaning::InBlock,
                false => EventMeaning::StatementPart,
            }
        }
        _ => return event.unknown_meaning(),
    })
}

fn open(event: &MariadbGtidEvent<'_>) -> EventMeaning {
    let standalone = event.has(MariadbGtidEvent::FLAG_STANDALONE);
    let start = TransactionStart {
        gtid: Some(Gtid::MariaDb(event.gtid)),
        dependency: event.commit_id.map_or(SourceDependency::None, SourceDependency::CommitGroup),
        commit_time_us: None,
        transaction_bytes: None,
        standalone,
        ddl: event.has(MariadbGtidEvent::FLAG_DDL),
    };
    EventMeaning::Open {
        start,
        phase: if standalone { TransactionPhase::Standalone } else { TransactionPhase::Block },
    }
}

fn query_meaning(query: &[u8]) -> EventMeaning {
    // The server generates these statements, so they always have exactly this form. `ROLLBACK TO` a savepoint
    // is a longer statement.
    let ends = query == b"COMMIT"
        || query == b"ROLLBACK"
        || starts_with(query, "XA COMMIT")
        || starts_with(query, "XA ROLLBACK");
    if ends { EventMeaning::CloseBlock } else { EventMeaning::Statement }
}
