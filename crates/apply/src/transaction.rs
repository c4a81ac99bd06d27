//! A transaction of the source, decoded once: scheduler, writers and prefetch look at the same one.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use smallvec::SmallVec;
use tailwater_log::LogPosition;
use tailwater_wire::WireError;
use tailwater_wire::event::{IntVar, RandSeeds, RowsKind};
use tailwater_wire::gtid::Gtid;
use tailwater_wire::rows::TableMap;
use tailwater_wire::transaction::SourceDependency;

use crate::columns::{ColumnMismatch, same_shape, target_columns};
use crate::error::ApplyError;
use crate::sql::{self, SqlMapping};
use crate::target::TargetTable;
use crate::writeset::{Access, Writeset};

/// A range of the log, between two entries' boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogSpan {
    /// Where it begins.
    pub start: LogPosition,
    /// Where it ends; may be the beginning of the next segment's.
    pub end: LogPosition,
}

/// Spans that follow each other as one: of transactions that were neighbours in the log.
pub fn joined(spans: impl Iterator<Item = LogSpan>) -> impl Iterator<Item = LogSpan> {
    let mut spans = spans.peekable();
    std::iter::from_fn(move || {
        let mut whole = spans.next()?;
        while let Some(next) = spans.next_if(|next| next.start == whole.end) {
            whole.end = next.end;
        }
        Some(whole)
    })
}

/// A transaction of the source.
#[derive(Debug)]
pub struct Transaction {
    /// Where it stands in the log, from the end of the transaction before it.
    pub span: LogSpan,
    /// Of a completed XA transaction, what prepared it.
    pub prepared: Option<XaPrepareEntry>,
    /// Its GTID.
    pub gtid: Option<Gtid>,
    /// When it committed on its source, in microseconds since 1970; 0 if unknown.
    pub commit_time_us: u64,
    /// The source's word on what it depends on.
    pub dependency: SourceDependency,
    /// What it does.
    pub content: TransactionContent,
    /// What it touches.
    pub writeset: Writeset,
    /// What it holds in memory, in bytes.
    pub memory_bytes: usize,
}

/// What prepared an XA transaction that another completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XaPrepareEntry {
    /// Where it stands in the log.
    pub span: LogSpan,
    /// Its GTID.
    pub gtid: Option<Gtid>,
}

impl Transaction {
    /// One that does nothing.
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

    /// The places in the log that are done when it is.
    pub fn spans(&self) -> impl Iterator<Item = LogSpan> {
        std::iter::once(self.span).chain(self.prepared.as_ref().map(|prepared| prepared.span))
    }

    /// Its GTID for people; where it stands in the log, if it has none.
    pub fn gtid_text(&self) -> String {
        match &self.gtid {
            Some(gtid) => gtid.to_string(),
            None => format!("at {}", self.span.start),
        }
    }

    /// The error that an event of it is malformed.
    pub fn event_error(&self, error: WireError) -> ApplyError {
        ApplyError::Event { gtid: self.gtid_text(), position: self.span.start, error }
    }
}

/// What a transaction does.
#[derive(Debug)]
pub enum TransactionContent {
    /// Changes rows, in this order; or nothing at all, because all of it was filtered.
    Rows(Vec<RowChanges>),
    /// Runs statements, perhaps between row changes.
    Steps(Vec<ApplyStep>),
    /// Prepares an XA transaction: nothing is done until it is completed.
    XaPrepare {
        /// As `XA COMMIT` takes it.
        xid: Vec<u8>,
    },
    /// Commits an XA transaction that was prepared before.
    XaCommit {
        /// As `XA COMMIT` takes it.
        xid: Vec<u8>,
    },
    /// Rolls an XA transaction back.
    XaRollback {
        /// As `XA ROLLBACK` takes it.
        xid: Vec<u8>,
    },
    /// Too large to be held: it is read from the log while it is written.
    Streamed {
        /// Its length in the log.
        bytes: u64,
    },
}

/// A part of a [`TransactionContent::Steps`].
#[derive(Debug)]
pub enum ApplyStep {
    /// Changes rows.
    Rows(RowChanges),
    /// Runs a statement.
    Statement(Statement),
}

/// A table as the source logged it, and as the target has it.
#[derive(Debug)]
pub struct MappedTable {
    /// As the source logged it.
    pub map: TableMap,
    /// The body of the table map event, without checksum.
    pub body: Bytes,
    /// The target's table, under its name there.
    pub target: Arc<TargetTable>,
    /// Which column of the target each of the source's is.
    pub columns: Vec<usize>,
    /// Whether the target takes the source's row images as they are. Otherwise rows go by SQL.
    pub same_shape: bool,
    /// Once rows have gone by SQL.
    sql: OnceLock<Result<SqlMapping, ColumnMismatch>>,
}

impl MappedTable {
    /// Finds the columns of a table map in a table of the target. `body` is the body of the map's event. Columns of the temporal
    /// layout of before MySQL 5.6 have to have their digits, see [`crate::decode::OldTimeDigits`].
    ///
    /// # Errors
    /// The columns that the target does not have.
    pub fn new(map: TableMap, body: Bytes, target: Arc<TargetTable>) -> Result<Self, Vec<ColumnMismatch>> {
        let columns = target_columns(&map, &target)?;
        let same_shape = same_shape(&map, &target, &columns);
        Ok(Self { map, body, target, columns, same_shape, sql: OnceLock::new() })
    }

    /// Where its columns go by SQL.
    ///
    /// # Errors
    /// The first column that does not fit.
    pub fn sql_mapping(&self) -> Result<&SqlMapping, &ColumnMismatch> {
        self.sql.get_or_init(|| sql::mapping(&self.map, &self.target, &self.columns)).as_ref()
    }
}

/// Where rows stand. Most events have one, and what one thread allocates for each and another frees takes more time than to
/// find the row.
pub type RowPlaces = SmallVec<[RowPlace; 1]>;

/// What rows touch: often the primary key of one, or the old and the new one.
pub type Accesses = SmallVec<[Access; 2]>;

/// The rows of one event.
#[derive(Debug)]
pub struct RowChanges {
    /// The table.
    pub table: Arc<MappedTable>,
    /// What is done to its rows. `PartialUpdate` after images hold JSON diffs.
    pub kind: RowsKind,
    /// The event's flags: see [`tailwater_wire::event::RowsEvent`].
    pub flags: u16,
    /// Seconds since 1970: the time that the statement saw.
    pub timestamp: u32,
    /// The `server_id` in the event's header.
    pub server_id: u32,
    /// The columns in the before image, or in the only one.
    pub columns_present: Bytes,
    /// The columns in the after image of an update.
    pub columns_present_after: Bytes,
    /// All images, one behind the other, decompressed.
    pub images: Bytes,
    /// The rows, in order.
    pub rows: RowPlaces,
    /// What all rows touch.
    pub accesses: Accesses,
}

/// Where a row stands in its [`RowChanges`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// Where in `images` its only or before image begins.
    pub start: u32,
    /// Where the after image of an update begins; otherwise as `end`.
    pub middle: u32,
    /// Where it ends.
    pub end: u32,
    /// Which of `accesses` are its: from here to where the next row's begin.
    pub accesses_start: u32,
}

impl RowChanges {
    /// The bytes in `images` of row `index`: of its before or only image, and of its after image, which is empty but for
    /// updates.
    pub fn images_of(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let row = self.rows.get(index)?;
        let (start, middle, end) = (row.start as usize, row.middle as usize, row.end as usize);
        Some((self.images.get(start..middle)?, self.images.get(middle..end)?))
    }

    /// What row `index` touches.
    pub fn accesses_of(&self, index: usize) -> &[Access] {
        let start = |row: &RowPlace| row.accesses_start as usize;
        let Some(row) = self.rows.get(index) else { return &[] };
        let end = self.rows.get(index + 1).map_or(self.accesses.len(), start);
        self.accesses.get(Range { start: start(row), end }).unwrap_or(&[])
    }
}

/// A statement and the session it ran in.
#[derive(Debug, Clone)]
pub struct Statement {
    /// Its text, in the character set that its session spoke.
    pub text: Bytes,
    /// The default database.
    pub database: Bytes,
    /// The variables of its session, as the query event has them: [`tailwater_wire::event::StatusVars`].
    pub status_vars: Bytes,
    /// The thread that ran it, for temporary tables.
    pub thread_id: u32,
    /// The error with which it ended on the source; 0 for none.
    pub error_code: u16,
    /// The event's header flags.
    pub flags: u16,
    /// Seconds since 1970.
    pub timestamp: u32,
    /// The `server_id` in the event's header.
    pub server_id: u32,
    /// The version of the server that ran it first (MySQL), as in 80400 for 8.4.0, if that is logged.
    pub original_version: Option<u32>,
    /// Values for the next statement, in front of it.
    pub variables: Vec<StatementVariable>,
    /// Whether it is part of a transaction, as what changes rows is and what goes back to a savepoint, rather than commits
    /// by itself.
    pub dml: bool,
}

impl Statement {
    /// `LOG_EVENT_SUPPRESS_USE_F` in the event's header: it makes, changes or drops a database, and is logged as if it had run
    /// in that one.
    const FLAG_SUPPRESS_USE: u16 = 0x0008;

    /// Whether it has to run in its database.
    pub fn uses_database(&self) -> bool {
        !self.database.is_empty() && self.flags & Self::FLAG_SUPPRESS_USE == 0
    }
}

/// What an event in front of a statement sets for it.
#[derive(Debug, Clone)]
pub enum StatementVariable {
    /// `INSERT_ID`, `LAST_INSERT_ID`.
    Int(IntVar),
    /// `RAND_SEED1`, `RAND_SEED2`.
    Rand(RandSeeds),
    /// A user variable: the event's body, without checksum.
    User(Bytes),
}
