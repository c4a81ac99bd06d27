//! A transaction of the source. It is decoded once, and then shared by the scheduler and the workers.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{IntVar, RandSeeds, RowsKind};
use tailwater_wire::gtid::Gtid;
use tailwater_wire::transaction_boundary::SourceDependency;

use crate::error::ApplyError;
pub use crate::log_position_range::LogSpan;
pub use crate::source_to_target_table::MappedTable;
use crate::writeset::{Access, Writeset};

/// A transaction of the source.
#[derive(Debug)]
pub struct Transaction {
    /// The transaction's range of the log. It starts at the end of the previous transaction.
    pub span: LogSpan,
    /// For a completed XA transaction: the log entry that prepared it.
    pub prepared: Option<XaPrepareEntry>,
    /// The GTID of the transaction, if the source assigned one.
    pub gtid: Option<Gtid>,
    /// Commit time on the source, in microseconds since 1970; 0 if unknown.
    pub commit_time_us: u64,
    /// The dependency information for parallel apply that the source logged.
    pub dependency: SourceDependency,
    /// The changes that the transaction makes.
    pub content: TransactionContent,
    /// The keys that the transaction reads or writes.
    pub writeset: Writeset,
    /// The memory that the transaction occupies, in bytes.
    pub memory_bytes: usize,
}

/// The log entry that prepared an XA transaction. Another entry commits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XaPrepareEntry {
    /// The entry's range of the log.
    pub span: LogSpan,
    /// The entry's GTID, if it has one.
    pub gtid: Option<Gtid>,
}

impl Transaction {
    /// Returns a transaction without changes.
    pub fn empty(span: LogSpan, gtid: Option<Gtid>, commit_time_us: u64) -> Self {
        Self {
            span,
            prepared: None,
            gtid,
            commit_time_us,
            dependency: SourceDependency::None,
            content: TransactionContent::Rows(Vec::new()),
            writeset: Writeset::default(),
            memory_bytes: size_of::<Self>(),
        }
    }

    /// Returns the log spans that count as applied when this transaction commits.
    pub fn spans(&self) -> impl Iterator<Item = LogSpan> {
        std::iter::once(self.span).chain(self.prepared.as_ref().map(|prepared| prepared.span))
    }

    /// Returns the GTID as text, or the log position if the transaction has no GTID.
    pub fn gtid_text(&self) -> String {
        match &self.gtid {
            Some(gtid) => gtid.to_string(),
            None => format!("at {}", self.span.start),
        }
    }

    /// Returns the error for a malformed event of this transaction.
    pub fn event_error(&self, error: WireError) -> ApplyError {
        ApplyError::Event { gtid: self.gtid_text(), position: self.span.start, error }
    }
}

/// The changes of a transaction.
#[derive(Debug)]
pub enum TransactionContent {
    /// Row changes, in log order. Empty if the filters excluded all of them.
    Rows(Vec<RowChanges>),
    /// Statements in log order, possibly mixed with row changes.
    Steps(Vec<ApplyStep>),
    /// Prepares an XA transaction. Nothing is applied until another entry completes it.
    XaPrepare {
        /// The XID of the prepared transaction, in the syntax of `XA COMMIT`.
        xid: Vec<u8>,
    },
    /// Commits a prepared XA transaction.
    XaCommit {
        /// The XID of the transaction to commit, in the syntax of `XA COMMIT`.
        xid: Vec<u8>,
    },
    /// Rolls back a prepared XA transaction.
    XaRollback {
        /// The XID of the transaction to roll back, in the syntax of `XA ROLLBACK`.
        xid: Vec<u8>,
    },
    /// A transaction that is too large for memory: the worker reads it from the log while it applies it.
    Streamed {
        /// Length of the transaction in the log, in bytes.
        bytes: u64,
    },
}

/// One step of [`TransactionContent::Steps`].
#[derive(Debug)]
pub enum ApplyStep {
    /// The rows of one rows event.
    Rows(RowChanges),
    /// A statement to execute on the target.
    Statement(Statement),
}

/// The positions of rows in an event. A single row, which is the usual case, needs no heap allocation.
/// Another thread would have to free this memory, which would cost more time than finding the row.
pub type RowPlaces = SmallVec<[RowPlace; 1]>;

/// The key accesses of a row. Up to two accesses need no heap allocation. Usually these are one primary key,
/// or its old and its new value.
pub type Accesses = SmallVec<[Access; 2]>;

/// The changed rows of one rows event.
#[derive(Debug)]
pub struct RowChanges {
    /// The source's table with the target's table.
    pub table: Arc<MappedTable>,
    /// The kind of change. After images of `PartialUpdate` contain JSON diffs.
    pub kind: RowsKind,
    /// The flags of the rows event: see [`tailwater_wire::binlog_event::RowsEvent`].
    pub flags: u16,
    /// The current time (`NOW()`) of the statement on the source, in seconds since 1970.
    pub timestamp: u32,
    /// The `server_id` of the server that first wrote the event.
    pub server_id: u32,
    /// Bitmap of the columns in the before image, or in the only image.
    pub columns_present: Bytes,
    /// Bitmap of the columns in the after image of an update.
    pub columns_present_after: Bytes,
    /// The images of all rows, concatenated and decompressed.
    pub images: Bytes,
    /// The positions of the rows in `images`, in order.
    pub rows: RowPlaces,
    /// The key accesses of all rows, for the writeset.
    pub accesses: Accesses,
}

/// The position of a row's images in its [`RowChanges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// Offset in `images` of the before image, or of the only image.
    pub start: u32,
    /// Offset of the after image of an update. For other changes, equal to `end`.
    pub middle: u32,
    /// Offset of the end of the row.
    pub end: u32,
    /// Index of the row's first entry in `accesses`. The row's entries end where the entries of the next row
    /// start.
    pub accesses_start: u32,
}

impl RowChanges {
    /// Returns the before (or only) image and the after image of row `index`. The after image is empty except
    /// for updates.
    pub fn images_of(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let row = self.rows.get(index)?;
        let (start, middle, end) = (row.start as usize, row.middle as usize, row.end as usize);
        Some((self.images.get(start..middle)?, self.images.get(middle..end)?))
    }

    /// Returns the key accesses of row `index`.
    pub fn accesses_of(&self, index: usize) -> &[Access] {
        let start = |row: &RowPlace| row.accesses_start as usize;
        let Some(row) = self.rows.get(index) else { return &[] };
        let end = self.rows.get(index + 1).map_or(self.accesses.len(), start);
        self.accesses.get(Range { start: start(row), end }).unwrap_or(&[])
    }
}

/// A statement, with the session state in which the source ran it.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The text, in the character set of the statement's session.
    pub text: Bytes,
    /// The default database of the statement's session.
    pub database: Bytes,
    /// The session variables in the format of the query event: [`tailwater_wire::binlog_event::StatusVars`].
    pub status_vars: Bytes,
    /// The thread ID on the source; it identifies temporary tables.
    pub thread_id: u32,
    /// The error number with which the statement ended on the source; 0 if it succeeded.
    pub error_code: u16,
    /// The header flags of the query event.
    pub flags: u16,
    /// Time of the event, in seconds since 1970.
    pub timestamp: u32,
    /// The `server_id` of the server that first ran the statement.
    pub server_id: u32,
    /// Version of the server that first ran the statement, if logged (MySQL only). 80400 means 8.4.0.
    pub original_version: Option<u32>,
    /// Values, such as user variables, that the events before the statement set for it.
    pub variables: Vec<StatementVariable>,
    /// Whether the statement is part of a transaction, like row changes and `ROLLBACK TO SAVEPOINT`. If not,
    /// it commits implicitly.
    pub dml: bool,
}

impl Statement {
    /// The header flag `LOG_EVENT_SUPPRESS_USE_F`. The statement creates, alters or drops a database, and the
    /// event names that database as the default database.
    const FLAG_SUPPRESS_USE: u16 = 0x0008;

    /// Returns whether the statement needs its default database.
    pub fn uses_database(&self) -> bool {
        !self.database.is_empty() && self.flags & Self::FLAG_SUPPRESS_USE == 0
    }
}

/// A value for a statement, from an event before it.
#[derive(Debug, Clone)]
pub enum StatementVariable {
    /// A value of `INSERT_ID` or `LAST_INSERT_ID`, from an Intvar event.
    Int(IntVar),
    /// The values of `RAND_SEED1` and `RAND_SEED2`, from a Rand event.
    Rand(RandSeeds),
    /// A user variable: the body of the User_var event, without checksum.
    User(Bytes),
}
