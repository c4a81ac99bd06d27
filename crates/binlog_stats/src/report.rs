//! The report, as it is printed and as JSON. Field names are part of the program's interface.

use serde::Serialize;

/// Rows by kind of change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// Inserted rows.
    pub inserted: u64,
    /// Updated rows.
    pub updated: u64,
    /// Deleted rows.
    pub deleted: u64,
}

impl RowCounts {
    /// Sum of all three.
    pub fn total(&self) -> u64 {
        self.inserted + self.updated + self.deleted
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
    }
}

/// The range that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BinlogRange {
    /// The file of the first event.
    pub first_file: String,
    /// Offset of the first event in it, in bytes.
    pub first_offset: u64,
    /// The file of the last event.
    pub last_file: String,
    /// Offset after the last event in it, in bytes.
    pub end_offset: u64,
    /// Number of files.
    pub files: u64,
    /// When the first transaction committed, in microseconds since 1970; 0 without any.
    pub first_commit_us: u64,
    /// When the last one committed.
    pub last_commit_us: u64,
    /// Whether the binlog has commit times in microseconds (MySQL 8) or in seconds (MariaDB). With seconds, a
    /// gap is known to about a second, and a duration is only a lower bound.
    pub exact_clock: bool,
}

/// Number of transactions by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TransactionKinds {
    /// Changed rows by row events.
    pub with_rows: u64,
    /// Held statements that change rows.
    pub with_statements: u64,
    /// Held DDL.
    pub with_ddl: u64,
    /// Held none of these.
    pub empty: u64,
    /// Were prepared by XA.
    pub xa_prepared: u64,
    /// Changed rows of a table whose engine cannot roll them back.
    pub non_transactional: u64,
    /// Have no GTID.
    pub anonymous: u64,
    /// Started and did not end in the input.
    pub unfinished: u64,
    /// Have row events whose rows could not be counted: fragments of huge events (MariaDB 12.3), or events in
    /// a compressed transaction that are too large to unpack.
    pub rows_not_counted: u64,
}

/// Changes to one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableShare {
    /// The database.
    pub schema: String,
    /// The table's name.
    pub table: String,
    /// Its rows.
    pub rows: RowCounts,
    /// The bytes of its events, unpacked.
    pub bytes: u64,
    /// Number of transactions that changed it.
    pub transactions: u64,
    /// Whether it has a primary key; `None` where the binlog does not show it (`binlog_row_metadata` is not
    /// `FULL`).
    pub primary_key: Option<bool>,
}

/// The tables that were changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableTotals {
    /// Number of tables that were counted separately.
    pub count: u64,
    /// The tables with the most bytes.
    pub by_bytes: Vec<TableShare>,
    /// The tables with the most rows.
    pub by_rows: Vec<TableShare>,
    /// Rows of all tables that are not in `by_bytes`.
    pub others_rows: RowCounts,
    /// Bytes of all tables that are not in `by_bytes`.
    pub others_bytes: u64,
}

/// One transaction.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TransactionSummary {
    /// Its GTID, if it has one.
    pub gtid: Option<String>,
    /// The source's binlog file with its first event.
    pub file: String,
    /// Its offset in that file, in bytes.
    pub offset: u64,
    /// The server that first executed it.
    pub server_id: u32,
    /// When its first statement began, in microseconds since 1970; 0 if unknown.
    pub begin_us: u64,
    /// When it committed, in microseconds since 1970.
    pub commit_us: u64,
    /// Time between the two, in seconds.
    pub seconds: f64,
    /// Its size in the binlog, in bytes.
    pub bytes: u64,
    /// Its events, including those in a compressed payload.
    pub events: u64,
    /// Its rows.
    pub rows: RowCounts,
    /// Statements that change rows.
    pub statements: u64,
    /// The tables that it changed most, by bytes.
    pub tables: Vec<TableShare>,
    /// How many tables it changed.
    pub tables_count: u64,
}

/// A period without commits.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gap {
    /// The last commit before it, in microseconds since 1970.
    pub start_us: u64,
    /// The first commit after it.
    pub end_us: u64,
    /// Its length in seconds.
    pub seconds: f64,
    /// The biggest transaction that was being written when it began.
    pub during: TransactionSummary,
    /// The first transaction that committed after it.
    pub next: TransactionSummary,
    /// Whether the server was restarted in it.
    pub restart: bool,
}

/// The commits in one bucket of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Its beginning, in microseconds since 1970.
    pub start_us: u64,
    /// Transactions.
    pub transactions: u64,
    /// Their bytes in the binlog.
    pub bytes: u64,
    /// Their rows.
    pub rows: u64,
}

/// The rate over time. Buckets without a commit are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Length of a bucket, in seconds.
    pub bucket_seconds: u64,
    /// In the order of time.
    pub buckets: Vec<Bucket>,
}

/// Transactions of similar size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The smallest size, a power of two; the largest is below twice this.
    pub bytes_from: u64,
    /// How many.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Transactions that one server executed first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ServerShare {
    /// Its `server_id`.
    pub server_id: u32,
    /// Transactions.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Compression in the binlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CompressionTotals {
    /// Compressed transactions (MySQL).
    pub payloads: u64,
    /// Their payloads, in bytes.
    pub payload_bytes: u64,
    /// The same unpacked.
    pub payload_unpacked_bytes: u64,
    /// Compressed events (MariaDB).
    pub events: u64,
    /// Their compressed parts, in bytes.
    pub event_bytes: u64,
    /// The same unpacked.
    pub event_unpacked_bytes: u64,
}

impl CompressionTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.payloads += other.payloads;
        self.payload_bytes += other.payload_bytes;
        self.payload_unpacked_bytes += other.payload_unpacked_bytes;
        self.events += other.events;
        self.event_bytes += other.event_bytes;
        self.event_unpacked_bytes += other.event_unpacked_bytes;
    }
}

/// A statement that changed the schema, accounts, or the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DdlStatement {
    /// When it committed, in microseconds since 1970.
    pub commit_us: u64,
    /// Its GTID, if it has one.
    pub gtid: Option<String>,
    /// The source's binlog file.
    pub file: String,
    /// Its offset in that file, in bytes.
    pub offset: u64,
    /// The database it ran in; empty for none.
    pub schema: String,
    /// The beginning of its text, without possible secrets.
    pub statement: String,
}

/// Number of events of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EventTypeCount {
    /// Its name in `SHOW BINLOG EVENTS`.
    pub event_type: String,
    /// How many, outside of compressed transactions.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The whole report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BinlogReport {
    /// `mysql` or `mariadb`; empty if nothing was read.
    pub flavour: String,
    /// The version of the server that wrote the last file.
    pub server_version: String,
    /// The range that was read.
    pub span: BinlogRange,
    /// Transactions.
    pub transactions: u64,
    /// Their bytes in the binlog.
    pub bytes: u64,
    /// Their events.
    pub events: u64,
    /// Bytes of events between transactions.
    pub other_bytes: u64,
    /// Rows of all tables.
    pub rows: RowCounts,
    /// Row events.
    pub row_events: u64,
    /// Statements that change rows.
    pub statements: u64,
    /// Statements that change the schema, accounts, or the server.
    pub ddl_statements: u64,
    /// Transactions by kind.
    pub kinds: TransactionKinds,
    /// The tables that were changed.
    pub tables: TableTotals,
    /// The biggest transactions by bytes.
    pub biggest: Vec<TransactionSummary>,
    /// The biggest by rows.
    pub most_rows: Vec<TransactionSummary>,
    /// The longest transactions, from first statement to commit.
    pub longest: Vec<TransactionSummary>,
    /// The longest periods without a commit.
    pub gaps: Vec<Gap>,
    /// The rate over time.
    pub timeline: Timeline,
    /// Transactions by size.
    pub sizes: Vec<SizeClass>,
    /// Transactions by the server that first executed them.
    pub servers: Vec<ServerShare>,
    /// Transactions of servers that are not in `servers`.
    pub other_servers_transactions: u64,
    /// What was compressed.
    pub compression: CompressionTotals,
    /// The latest DDL, newest first.
    pub ddl: Vec<DdlStatement>,
    /// Events by type.
    pub event_types: Vec<EventTypeCount>,
}
