//! The statistics of a binlog, as they are printed and written as JSON. The field names are part of the
//! program's interface.

use serde::Serialize;

/// Numbers of changed rows, by kind of change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// The number of inserted rows.
    pub inserted: u64,
    /// The number of updated rows.
    pub updated: u64,
    /// The number of deleted rows.
    pub deleted: u64,
}

impl RowCounts {
    /// The number of all changed rows.
    pub fn total(&self) -> u64 {
        self.inserted + self.updated + self.deleted
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
    }
}

/// The range of the binlog that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BinlogRange {
    /// The file of the first event.
    pub first_file: String,
    /// The offset of the first event in `first_file`, in bytes.
    pub first_offset: u64,
    /// The file of the last event.
    pub last_file: String,
    /// The offset in `last_file` after the last event, in bytes.
    pub end_offset: u64,
    /// The number of files.
    pub files: u64,
    /// When the first transaction committed, in microseconds since 1970; 0 if there is no transaction.
    pub first_commit_us: u64,
    /// When the last transaction committed, in microseconds since 1970.
    pub last_commit_us: u64,
    /// Whether commit times in the binlog are in microseconds (MySQL 8) or in seconds (MariaDB). With
    /// seconds, the length of a gap is known only to about a second, and a duration is only a lower bound.
    pub exact_clock: bool,
}

/// The numbers of transactions of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TransactionKinds {
    /// Transactions with row events.
    pub with_rows: u64,
    /// Transactions with statements that change rows.
    pub with_statements: u64,
    /// Transactions with DDL.
    pub with_ddl: u64,
    /// Transactions that contain no row event, no statement that changes rows, and no DDL.
    pub empty: u64,
    /// Transactions that were prepared by XA.
    pub xa_prepared: u64,
    /// Transactions that changed a table whose engine cannot roll back.
    pub non_transactional: u64,
    /// Transactions without a GTID.
    pub anonymous: u64,
    /// Transactions that started but did not end in the range that was read.
    pub unfinished: u64,
    /// Transactions with row events whose rows could not be counted. These are fragments of huge events
    /// (MariaDB 12.3), or events in a compressed transaction that are too large to decompress.
    pub rows_not_counted: u64,
}

/// The changes to one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableShare {
    /// The database of the table.
    pub schema: String,
    /// The name of the table.
    pub table: String,
    /// The changed rows of the table.
    pub rows: RowCounts,
    /// The size of the table's events in bytes, decompressed.
    pub bytes: u64,
    /// The number of transactions that changed the table.
    pub transactions: u64,
    /// Whether the table has a primary key; `None` if the binlog does not contain this information
    /// (`binlog_row_metadata` is not `FULL`).
    pub primary_key: Option<bool>,
}

/// Totals of the tables that were changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableTotals {
    /// The number of tables that were counted separately.
    pub count: u64,
    /// The tables with the most bytes.
    pub by_bytes: Vec<TableShare>,
    /// The tables with the most rows.
    pub by_rows: Vec<TableShare>,
    /// The changed rows of all tables that are not in `by_bytes`.
    pub others_rows: RowCounts,
    /// The bytes of all tables that are not in `by_bytes`.
    pub others_bytes: u64,
}

/// What is reported about one transaction.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TransactionSummary {
    /// The transaction's GTID, if it has one.
    pub gtid: Option<String>,
    /// The source's binlog file that has the transaction's first event.
    pub file: String,
    /// The offset of the transaction in `file`, in bytes.
    pub offset: u64,
    /// The `server_id` of the server that first executed the transaction.
    pub server_id: u32,
    /// When the transaction's first statement started, in microseconds since 1970; 0 if unknown.
    pub begin_us: u64,
    /// When the transaction committed, in microseconds since 1970.
    pub commit_us: u64,
    /// The time from the first statement to the commit, in seconds.
    pub seconds: f64,
    /// The size of the transaction in the binlog, in bytes.
    pub bytes: u64,
    /// The number of the transaction's events, including the events in a compressed payload.
    pub events: u64,
    /// The rows that the transaction changed.
    pub rows: RowCounts,
    /// The number of the transaction's statements that change rows.
    pub statements: u64,
    /// The tables that the transaction changed most, ordered by bytes.
    pub tables: Vec<TableShare>,
    /// The number of tables that the transaction changed.
    pub tables_count: u64,
}

/// A period in which nothing was committed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gap {
    /// The time of the last commit before the gap, in microseconds since 1970.
    pub start_us: u64,
    /// The time of the first commit after the gap, in microseconds since 1970.
    pub end_us: u64,
    /// The length of the gap in seconds.
    pub seconds: f64,
    /// The biggest transaction that was being written when the gap started.
    pub during: TransactionSummary,
    /// The first transaction that committed after the gap.
    pub next: TransactionSummary,
    /// Whether the server was restarted during the gap.
    pub restart: bool,
}

/// The commits in one bucket of the timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// The start of the bucket, in microseconds since 1970.
    pub start_us: u64,
    /// The number of transactions.
    pub transactions: u64,
    /// The bytes of the bucket's transactions in the binlog.
    pub bytes: u64,
    /// The number of rows that the bucket's transactions changed.
    pub rows: u64,
}

/// The rate of commits over time. Buckets without a commit are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The length of a bucket in seconds.
    pub bucket_seconds: u64,
    /// The buckets in the order of time.
    pub buckets: Vec<Bucket>,
}

/// The transactions of about the same size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The minimum size of a transaction of this class in bytes, a power of two. Each transaction of the
    /// class has less than twice this size.
    pub bytes_from: u64,
    /// The number of transactions.
    pub transactions: u64,
    /// The bytes of these transactions.
    pub bytes: u64,
}

/// The transactions that one server executed first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ServerShare {
    /// The `server_id` of the server.
    pub server_id: u32,
    /// The number of transactions.
    pub transactions: u64,
    /// The bytes of these transactions.
    pub bytes: u64,
}

/// Compression in the binlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CompressionTotals {
    /// The number of compressed transactions (MySQL).
    pub payloads: u64,
    /// The size of their payloads, in bytes.
    pub payload_bytes: u64,
    /// The decompressed size of their payloads, in bytes.
    pub payload_unpacked_bytes: u64,
    /// The number of compressed events (MariaDB).
    pub events: u64,
    /// The size of their compressed parts, in bytes.
    pub event_bytes: u64,
    /// The decompressed size of these parts, in bytes.
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
    /// When the statement committed, in microseconds since 1970.
    pub commit_us: u64,
    /// The GTID of the statement, if it has one.
    pub gtid: Option<String>,
    /// The source's binlog file with the statement.
    pub file: String,
    /// The offset in this file, in bytes.
    pub offset: u64,
    /// The default database of the statement; empty for none.
    pub schema: String,
    /// The beginning of the statement's text, without possible secrets.
    pub statement: String,
}

/// Totals of the events of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EventTypeCount {
    /// The name of the event type in `SHOW BINLOG EVENTS`.
    pub event_type: String,
    /// The number of events outside of compressed transactions.
    pub events: u64,
    /// The bytes of these events.
    pub bytes: u64,
}

/// All statistics of a binlog.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BinlogReport {
    /// `mysql` or `mariadb`; empty if nothing was read.
    pub flavour: String,
    /// The version of the server that wrote the last file.
    pub server_version: String,
    /// The range of the binlog that was read.
    pub span: BinlogRange,
    /// The number of transactions.
    pub transactions: u64,
    /// The bytes of all transactions in the binlog.
    pub bytes: u64,
    /// The number of events in all transactions.
    pub events: u64,
    /// The bytes of events that are between transactions.
    pub other_bytes: u64,
    /// The changed rows of all tables.
    pub rows: RowCounts,
    /// The number of row events.
    pub row_events: u64,
    /// The number of statements that change rows.
    pub statements: u64,
    /// The number of statements that change the schema, accounts, or the server.
    pub ddl_statements: u64,
    /// The numbers of transactions of each kind.
    pub kinds: TransactionKinds,
    /// The totals of the tables that were changed.
    pub tables: TableTotals,
    /// The biggest transactions by bytes.
    pub biggest: Vec<TransactionSummary>,
    /// The biggest transactions by changed rows.
    pub most_rows: Vec<TransactionSummary>,
    /// The longest transactions, from first statement to commit.
    pub longest: Vec<TransactionSummary>,
    /// The longest periods without a commit.
    pub gaps: Vec<Gap>,
    /// The rate of commits over time.
    pub timeline: Timeline,
    /// The numbers of transactions, by size.
    pub sizes: Vec<SizeClass>,
    /// The transactions by the server that first executed them.
    pub servers: Vec<ServerShare>,
    /// The number of transactions of servers that are not in `servers`.
    pub other_servers_transactions: u64,
    /// Compressed and decompressed sizes.
    pub compression: CompressionTotals,
    /// The latest DDL statements, newest first.
    pub ddl: Vec<DdlStatement>,
    /// The numbers of events, by type.
    pub event_types: Vec<EventTypeCount>,
}
