//! The statistics of one transaction, collected from its events.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader, EventType, QueryEvent, RowsKind};
use tailwater_wire::event_printer::EventLocation;
use tailwater_wire::gtid::Gtid;

use crate::incremental_event_parser::RowsEventTotals;
use crate::statement_classifier::{self, StatementKind};
use crate::stats_report::{CompressionTotals, DdlStatement, RowCounts, TransactionSummary};
use crate::table_stats::{TableCounts, TableNumber, TableRegistry};

/// The maximum size in bytes to which a compressed statement is decompressed. A longer statement counts as
/// one that changes rows.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// The number of tables that a summary names.
const TABLES_SHOWN_MAX: usize = 5;

/// A transaction whose events are being read or were read.
#[derive(Debug, Clone)]
pub(crate) struct TransactionStats {
    pub(crate) gtid: Option<Gtid>,
    pub(crate) file: Arc<str>,
    pub(crate) offset: u64,
    pub(crate) server_id: u32,
    /// When the transaction committed on the server that wrote the binlog file, as its first event states
    /// (MySQL 8); otherwise 0.
    pub(crate) immediate_us: u64,
    /// When the transaction committed on the server that first executed it, as its first event states;
    /// otherwise 0.
    pub(crate) original_us: u64,
    /// When the first statement of the transaction started, and when the statement of its last event started,
    /// in seconds since 1970; 0 if unknown.
    pub(crate) first_seconds: u32,
    pub(crate) last_seconds: u32,
    /// When the transaction committed, adjusted to the order of all commits. Known after its last event.
    pub(crate) commit_us: u64,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
    pub(crate) rows: RowCounts,
    pub(crate) row_events: u64,
    pub(crate) statements: u64,
    pub(crate) ddl_statements: u64,
    /// The first DDL statement of the transaction.
    pub(crate) ddl: Option<DdlStatement>,
    pub(crate) compression: CompressionTotals,
    pub(crate) event_types: BTreeMap<u8, (u64, u64)>,
    pub(crate) xa_prepared: bool,
    /// Whether the last event is a statement, as in transactions on non-transactional tables.
    pub(crate) ended_by_statement: bool,
    pub(crate) rows_not_counted: bool,
    pub(crate) tables: HashMap<TableNumber, TableCounts>,
}

impl TransactionStats {
    pub(crate) fn new(gtid: Option<Gtid>, file: Arc<str>, offset: u64, server_id: u32) -> Self {
        Self {
            gtid,
            file,
            offset,
            server_id,
            immediate_us: 0,
            original_us: 0,
            first_seconds: 0,
            last_seconds: 0,
            commit_us: 0,
            bytes: 0,
            events: 0,
            rows: RowCounts::default(),
            row_events: 0,
            statements: 0,
            ddl_statements: 0,
            ddl: None,
            compression: CompressionTotals::default(),
            event_types: BTreeMap::new(),
            xa_prepared: false,
            ended_by_statement: false,
            rows_not_counted: false,
            tables: HashMap::new(),
        }
    }

    /// Counts one of the transaction's events in the binlog file.
    pub(crate) fn event(&mut self, header: &EventHeader) {
        let bytes = u64::from(header.event_length);
        self.bytes += bytes;
        self.events += 1;
        self.began(header.timestamp);
        self.last_seconds = header.timestamp;
        self.xa_prepared |= header.event_type == EventType::XA_PREPARE;
        self.ended_by_statement = header.event_type == EventType::QUERY;
        let of_type = self.event_types.entry(header.event_type.0).or_default();
        *of_type = (of_type.0 + 1, of_type.1 + bytes);
    }

    /// Counts a statement. `whole` means that its text is complete.
    pub(crate) fn query(
        &mut self,
        place: EventLocation<'_>,
        query: &QueryEvent<'_>,
        whole: bool,
    ) -> Result<(), WireError> {
        let text = match query.compressed {
            false => Cow::Borrowed(query.query),
            // A statement that is cut off is longer than any DDL, so count it as a statement that changes
            // rows.
            true if !whole => Cow::Borrowed(&b"INSERT"[..]),
            true => match query.statement(STATEMENT_BYTES_MAX) {
                Err(WireError::TooLarge { .. }) => Cow::Borrowed(&b"INSERT"[..]),
                text => text?,
            },
        };
        if query.compressed && whole {
            self.compression.events += 1;
            self.compression.event_bytes += query.query.len() as u64;
            self.compression.event_unpacked_bytes += text.len() as u64;
        }
        match statement_classifier::kind(&text) {
            StatementKind::Control => {}
            StatementKind::Data => self.statements += 1,
            StatementKind::Ddl => {
                self.ddl_statements += 1;
                self.ddl.get_or_insert_with(|| DdlStatement {
                    commit_us: 0,
                    gtid: self.gtid.as_ref().map(Gtid::to_string),
                    file: place.file.to_owned(),
                    offset: place.offset,
                    schema: String::from_utf8_lossy(query.database).into_owned(),
                    statement: statement_classifier::shown(&text),
                });
            }
        }
        Ok(())
    }

    /// Counts the result of a rows event.
    pub(crate) fn rows(&mut self, table: TableNumber, kind: RowsKind, read: &RowsEventTotals) {
        let mut rows = RowCounts::default();
        match kind {
            RowsKind::Write => rows.inserted = read.rows,
            RowsKind::Update | RowsKind::PartialUpdate => rows.updated = read.rows,
            RowsKind::Delete => rows.deleted = read.rows,
        }
        if let Some((packed, unpacked)) = read.compressed {
            self.compression.events += 1;
            self.compression.event_bytes += packed;
            self.compression.event_unpacked_bytes += unpacked;
        }
        self.row_events += 1;
        self.rows.add(&rows);
        let counts = TableCounts { rows, bytes: read.bytes + EVENT_HEADER_BYTES as u64 };
        self.tables.entry(table).or_default().add(&counts);
    }

    /// Records when the statement of an event started.
    pub(crate) fn began(&mut self, seconds: u32) {
        if seconds == 0 {
            return;
        }
        if self.first_seconds == 0 || seconds < self.first_seconds {
            self.first_seconds = seconds;
        }
    }

    /// The commit time by which transactions are selected. The log's index has the same time
    /// (`LogEntry::commit_time_us`).
    pub(crate) fn stated_us(&self) -> u64 {
        if self.original_us != 0 { self.original_us } else { u64::from(self.last_seconds) * 1_000_000 }
    }

    /// The commit time on the clock of the server that wrote the binlog file.
    pub(crate) fn clock_us(&self) -> u64 {
        if self.immediate_us != 0 { self.immediate_us } else { u64::from(self.last_seconds) * 1_000_000 }
    }

    /// The time from the start of the first statement to the commit, in microseconds.
    pub(crate) fn duration_us(&self) -> u64 {
        // In the binlog of a replica, only the original commit time comes from the same clock as the start of
        // the statements.
        let commit_us = if self.original_us != 0 { self.original_us } else { self.commit_us };
        match self.first_seconds {
            0 => 0,
            seconds => commit_us.saturating_sub(u64::from(seconds) * 1_000_000),
        }
    }

    pub(crate) fn summary(&self, tables: &TableRegistry) -> TransactionSummary {
        let mut changed: Vec<_> = self.tables.iter().collect();
        changed.sort_by_key(|(number, counts)| (std::cmp::Reverse(counts.bytes), **number));
        TransactionSummary {
            gtid: self.gtid.as_ref().map(Gtid::to_string),
            file: self.file.to_string(),
            offset: self.offset,
            server_id: self.server_id,
            begin_us: u64::from(self.first_seconds) * 1_000_000,
            commit_us: self.commit_us,
            seconds: self.duration_us() as f64 / 1e6,
            bytes: self.bytes,
            events: self.events,
            rows: self.rows,
            statements: self.statements,
            tables: changed
                .iter()
                .take(TABLES_SHOWN_MAX)
                .map(|(number, counts)| tables.share(**number, counts, 1))
                .collect(),
            tables_count: changed.len() as u64,
        }
    }
}
