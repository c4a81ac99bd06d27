//! The grammar of MariaDB's event groups, as its replicas read it (`slave.cc`, `rpl_parallel.cc`).

use super::{Meaning, Phase, Prefix, SourceDependency, TransactionStart, starts_with};
use crate::WireError;
use crate::event::{EventType, MariadbGtidEvent, QueryEvent, compressed, rows_end_statement, rows_layout};
use crate::gtid::Gtid;

/// The longest text that makes a difference: `XA ROLLBACK`, and one more byte to see that `ROLLBACK` ends.
const QUERY_FRONT_BYTES: usize = 12;

pub(super) fn meaning(event: &Prefix<'_>) -> Result<Meaning, WireError> {
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
            let (front, length) = compressed::decompress_front::<QUERY_FRONT_BYTES>(query.query)?;
            query_meaning(&front[..length])
        }
        EventType::TABLE_MAP | EventType::MARIADB_ANNOTATE_ROWS => Meaning::StatementPart,
        // The server makes fragments of row events only inside transactions, where they end nothing.
        EventType::MARIADB_PARTIAL_ROW_DATA => Meaning::StatementPart,
        event_type if rows_layout(event_type).is_some() => {
            match rows_end_statement(event_type, event.body, event.format)? {
                true => Meaning::InBlock,
                false => Meaning::StatementPart,
            }
        }
        _ => return event.unknown_meaning(),
    })
}

fn open(event: &MariadbGtidEvent<'_>) -> Meaning {
    let standalone = event.has(MariadbGtidEvent::FLAG_STANDALONE);
    let start = TransactionStart {
        gtid: Some(Gtid::MariaDb(event.gtid)),
        dependency: event.commit_id.map_or(SourceDependency::None, SourceDependency::CommitGroup),
        commit_time_us: None,
        transaction_bytes: None,
        standalone,
        ddl: event.has(MariadbGtidEvent::FLAG_DDL),
    };
    Meaning::Open { start, phase: if standalone { Phase::Standalone } else { Phase::Block } }
}

fn query_meaning(query: &[u8]) -> Meaning {
    // The server writes these itself, so they are always in this form; `ROLLBACK TO` a savepoint is longer.
    let ends = query == b"COMMIT"
        || query == b"ROLLBACK"
        || starts_with(query, "XA COMMIT")
        || starts_with(query, "XA ROLLBACK");
    if ends { Meaning::CloseBlock } else { Meaning::Statement }
}
