//! The figures, as they are printed and as JSON has them. Field names are part of the program's interface.

use serde::Serialize;

/// Rows by what was done to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// Written.
    pub inserted: u64,
    /// Changed.
    pub updated: u64,
    /// Removed.
    pub deleted: u64,
}

impl RowCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.inserted + self.updated + self.deleted
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
    }
}

/// What was read, from where to where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BinlogRange {
    /// The file of the first event.
    pub first_file: String,
    /// Offset of the first event in it, in bytes.
    pub first_offset: u64,
    /// The file of the last event.
    pub last_file: String,
    /// Offset behind the last event in it, in bytes.
    pub end_offset: u64,
    /// How many files.
    pub files: u64,
    /// When the first transaction committed, in microseconds since 1970; 0 without any.
    pub first_commit_us: u64,
    /// When the last one did.
    pub last_commit_us: u64,
    /// Whether the binlog says when commits were to the microsecond (MySQL 8), or to the second (MariaDB): then a gap
    /// is known to about a second, and a duration is no more than a lower bound.
    pub exact_clock: bool,
}

/// How many transactions did what.
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
    /// Began and did not end in what was read.
    pub unfinished: u64,
    /// Hold row events whose rows could not be counted: fragments of huge events (MariaDB 12.3), or events in a
    /// compressed transaction that are too large to be unpacked.
    pub rows_not_counted: u64,
}

/// What was done to one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableShare {
    /// The database.
    pub schema: String,
    /// The table.
    pub table: String,
    /// Its rows.
    pub rows: RowCounts,
    /// The bytes of its events, unpacked.
    pub bytes: u64,
    /// How many transactions changed it.
    pub transactions: u64,
    /// Whether it has a primary key; `None` where the binlog does not tell (`binlog_row_metadata` is not `FULL`).
    pub primary_key: Option<bool>,
}

/// The tables that were changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableTotals {
    /// How many, of those that were told apart.
    pub count: u64,
    /// The hottest by bytes.
    pub by_bytes: Vec<TableShare>,
    /// The hottest by rows.
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
    /// The source's binlog file that it stands in.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The server that first executed it.
    pub server_id: u32,
    /// When its first statement began, in microseconds since 1970; 0 if unknown.
    pub begin_us: u64,
    /// When it committed, in microseconds since 1970.
    pub commit_us: u64,
    /// From the one to the other, in seconds.
    pub seconds: f64,
    /// Its size in the binlog.
    pub bytes: u64,
    /// Its events, those in a compressed payload among them.
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

/// A time in which nothing was committed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gap {
    /// The last commit before it, in microseconds since 1970.
    pub start_us: u64,
    /// The first commit behind it.
    pub end_us: u64,
    /// The length.
    pub seconds: f64,
    /// The biggest transaction that was being written when it began.
    pub during: TransactionSummary,
    /// The transaction whose commit ended it.
    pub next: TransactionSummary,
    /// Whether the server was started in it.
    pub restart: bool,
}

/// What was committed in a stretch of time.
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

/// The rate over time. Stretches without a commit are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// How long a bucket is, in seconds.
    pub bucket_seconds: u64,
    /// In the order of time.
    pub buckets: Vec<Bucket>,
}

/// Transactions of about one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The least size, a power of two; the greatest is below twice this.
    pub bytes_from: u64,
    /// How many.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one server was the first to execute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ServerShare {
    /// Its `server_id`.
    pub server_id: u32,
    /// Transactions.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was compressed.
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
    pub(super) fn add(&mut self, other: &Self) {
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
    /// The source's binlog file that it stands in.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The database it ran in; empty for none.
    pub schema: String,
    /// The front of it, without what may be a secret.
    pub statement: String,
}

/// How many events of a type there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EventTypeCount {
    /// As `SHOW BINLOG EVENTS` names it.
    pub event_type: String,
    /// How many, outside of compressed transactions.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BinlogReport {
    /// `mysql` or `mariadb`; empty if nothing was read.
    pub flavour: String,
    /// The version of the server that wrote the last file.
    pub server_version: String,
    /// From where to where.
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
    /// Transactions by what they did.
    pub kinds: TransactionKinds,
    /// The tables that were changed.
    pub tables: TableTotals,
    /// The biggest transactions by bytes.
    pub biggest: Vec<TransactionSummary>,
    /// The biggest by rows.
    pub most_rows: Vec<TransactionSummary>,
    /// Those that took longest from their first statement to their commit.
    pub longest: Vec<TransactionSummary>,
    /// The longest times without a commit.
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
