//! Computes the row changes that undo transactions, from the before images in the transactions themselves.
//! Also computes the row changes that reapply transactions on a server that may already have them.
//!
//! Both kinds of changes write whole rows by key over the existing rows. [`IdempotentSession`] ignores the
//! delete of a missing row, and a write replaces an existing row. An update therefore becomes a delete and a
//! write.
//!
//! The result is then the same, whichever of the changes the server already has. The only condition is that
//! the server's rows are in the state of some moment between the first change and the last. The last write of
//! each row gives it its final state. A write may delete another row that has the same unique value. The
//! deleted row had that value at another moment, and a later change writes it again.
//!
//! [`IdempotentSession`]: tailwater_apply::channel::IdempotentSession

use bytes::{Bytes, BytesMut};
use smallvec::smallvec;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{RowsEvent, RowsKind};
use tailwater_wire::row_event::Image;
use tailwater_wire::sql_redaction::{SHOWN_BYTES_MAX, public_statement};

use crate::error::RejoinError;
use tailwater_apply::source_transaction::{
    Accesses, ApplyStep, MappedTable, RowChanges, RowPlace, RowPlaces, Transaction, TransactionContent,
};

/// How the rows in the server's storage engine relate to its binlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineState {
    /// The rows match the binlog, because both were made durable at each commit.
    MatchesBinlog,
    /// The rows may be older than the binlog, because the engine may have lost its last commits.
    Uncertain,
}

/// Returns the changes that undo a transaction: the inverse of its changes, with the newest first.
///
/// # Errors
/// [`RejoinError::Irreversible`] for changes without before images: DDL, statements, row images that are not
/// full, cascades of foreign keys, partial XA transactions. Also returned for a table without a key, if the
/// server may have lost some of the table's rows.
pub fn inverse(transaction: &Transaction, kept: EngineState) -> Result<Vec<RowChanges>, RejoinError> {
    let mut undone = Vec::new();
    for changes in rows_of(transaction)?.iter().rev() {
        check_images(transaction, changes)?;
        check_cascades(transaction, changes)?;
        check_key(transaction, changes, kept)?;
        match changes.kind {
            RowsKind::Write => undone.push(backwards(changes, RowsKind::Delete)?),
            RowsKind::Delete => undone.push(backwards(changes, RowsKind::Write)?),
            RowsKind::Update if has_key(&changes.table) => {
                for index in (0..changes.rows.len()).rev() {
                    undone.push(one(changes, index, RowsKind::Delete, InverseSide::After)?);
                    undone.push(one(changes, index, RowsKind::Write, InverseSide::Before)?);
                }
            }
            // Without a key, the update remains an update: if it became a delete and a write, it could create
            // a row that the server does not have.
            RowsKind::Update => undone.push(backwards(changes, RowsKind::Update)?),
            RowsKind::PartialUpdate => {
                return Err(irreversible(
                    transaction,
                    "JSON values are logged as partial updates (PARTIAL_JSON)",
                ));
            }
        }
    }
    Ok(undone)
}

/// Returns the changes that reapply a transaction on a server that has all, some or none of it.
///
/// # Errors
/// [`RejoinError::Irreversible`] for changes that are not idempotent.
pub fn reapply(transaction: &Transaction) -> Result<Vec<RowChanges>, RejoinError> {
    let mut done = Vec::new();
    for changes in rows_of(transaction)? {
        check_images(transaction, changes)?;
        check_key(transaction, changes, EngineState::Uncertain)?;
        match changes.kind {
            RowsKind::Write | RowsKind::Delete => {
                for index in 0..changes.rows.len() {
                    let written = one(changes, index, changes.kind, InverseSide::Before)?;
                    // A delete keeps its foreign key flags, because the rows that it deletes by cascade are
                    // not in the binlog.
                    let flags = if changes.kind == RowsKind::Delete { changes.flags } else { written.flags };
                    done.push(RowChanges { flags, ..written });
                }
            }
            RowsKind::Update => {
                for index in 0..changes.rows.len() {
                    done.push(one(changes, index, RowsKind::Delete, InverseSide::Before)?);
                    done.push(one(changes, index, RowsKind::Write, InverseSide::After)?);
                }
            }
            RowsKind::PartialUpdate => {
                return Err(irreversible(
                    transaction,
                    "JSON values are logged as partial updates (PARTIAL_JSON)",
                ));
            }
        }
    }
    Ok(done)
}

fn rows_of(transaction: &Transaction) -> Result<&[RowChanges], RejoinError> {
    let refused = |reason: &str| Err(irreversible(transaction, reason));
    match &transaction.content {
        TransactionContent::Rows(changes) => Ok(changes),
        TransactionContent::Steps(steps) => {
            let statement = steps.iter().find_map(|step| match step {
                ApplyStep::Statement(statement) => Some(public_statement(&statement.text, SHOWN_BYTES_MAX)),
                ApplyStep::Rows(_) => None,
            });
            let statement = statement.unwrap_or_default();
            refused(&format!(
                "the transaction contains a statement, for which the binlog has no before image: {statement}"
            ))
        }
        TransactionContent::XaPrepare { .. }
        | TransactionContent::XaCommit { .. }
        | TransactionContent::XaRollback { .. } => refused("the transaction is part of an XA transaction"),
        TransactionContent::Streamed { bytes } => {
            refused(&format!("the transaction is too large: {bytes} bytes"))
        }
    }
}

/// Checks that all columns were logged, except generated columns.
fn check_images(transaction: &Transaction, changes: &RowChanges) -> Result<(), RejoinError> {
    let table = &changes.table;
    let bitmaps = match changes.kind {
        RowsKind::Update | RowsKind::PartialUpdate => {
            vec![&changes.columns_present, &changes.columns_present_after]
        }
        RowsKind::Write | RowsKind::Delete => vec![&changes.columns_present],
    };
    for index in 0..table.map.columns.len() {
        let column = table.columns.get(index).and_then(|index| table.target.columns.get(*index));
        let lacks = |bitmap: &&Bytes| bitmap.get(index / 8).is_none_or(|byte| byte >> (index % 8) & 1 == 0);
        if bitmaps.iter().any(lacks) && column.is_none_or(|column| !column.generated) {
            let name = column.map_or("?", |column| column.name.as_str());
            return Err(irreversible(
                transaction,
                &format!(
                    "table {}: the rows were logged without column {name}; binlog_row_image was not FULL",
                    name_of(table)
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses changes whose foreign keys may cascade. The binlog contains the cascaded changes only if a flag of
/// the event says so.
fn check_cascades(transaction: &Transaction, changes: &RowChanges) -> Result<(), RejoinError> {
    let table = &changes.table;
    let unseen = !table.target.cascades.is_empty()
        && changes.flags & (RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS | RowsEvent::FLAG_SQL_FOREIGN_KEYS) == 0;
    let touches = match changes.kind {
        RowsKind::Write => false,
        RowsKind::Delete => true,
        RowsKind::Update | RowsKind::PartialUpdate => moves_parents(changes).map_err(RejoinError::rows)?,
    };
    if unseen && touches {
        return Err(irreversible(
            transaction,
            &format!(
                "table {}: foreign keys cascade from rows that it deleted or changed, and the changes of the child \
                 rows are not logged",
                name_of(table)
            ),
        ));
    }
    Ok(())
}

/// Whether an update changes a column that foreign keys reference.
fn moves_parents(changes: &RowChanges) -> Result<bool, WireError> {
    let table = &changes.table;
    let pointed = |index: usize| {
        let column = table.columns.get(index);
        column
            .is_some_and(|column| table.target.children.iter().any(|key| key.parent_columns.contains(column)))
    };
    for index in 0..changes.rows.len() {
        let (before, after) = images_of(changes, index)?;
        let before = Image::parse(&table.map, &changes.columns_present, false, before)?;
        let after = Image::parse(&table.map, &changes.columns_present_after, false, after)?;
        for (before, after) in before.cells().zip(after.cells()) {
            let (before, after) = (before?, after?);
            if before.raw != after.raw && pointed(before.index) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn check_key(transaction: &Transaction, changes: &RowChanges, kept: EngineState) -> Result<(), RejoinError> {
    if kept == EngineState::Uncertain && !has_key(&changes.table) {
        return Err(irreversible(
            transaction,
            &format!(
                "table {} has no primary key, nor a unique one without NULL: the server may have lost some of its \
                 newest commits (innodb_flush_log_at_trx_commit and sync_binlog are not 1), and without a key it \
                 is unknown whether a row exists",
                name_of(&changes.table)
            ),
        ));
    }
    Ok(())
}

/// Whether a primary key, or a unique key without NULL values, identifies each row of the table.
fn has_key(table: &MappedTable) -> bool {
    let target = &table.target;
    let never_null = |column: usize| target.columns.get(column).is_some_and(|column| !column.nullable);
    target.has_primary_key
        || target.unique.iter().any(|index| {
            let mut parts = index.parts.iter();
            !index.opaque && parts.all(|part| part.prefix.is_none() && never_null(part.column))
        })
}

/// Which of a row's two images a change uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InverseSide {
    /// The before image of an update, or the only image of a write or delete.
    Before,
    After,
}

/// Converts one row of an event to a change of another kind. An event may change a row twice, so each row of
/// the event becomes its own change. The batch planner later joins these changes into groups. Foreign key
/// checks are off while the rows are written, because the final rows satisfy the foreign keys again.
fn one(
    changes: &RowChanges,
    index: usize,
    kind: RowsKind,
    side: InverseSide,
) -> Result<RowChanges, RejoinError> {
    let (before, after) = images_of(changes, index).map_err(RejoinError::rows)?;
    let (image, present) = match side {
        InverseSide::Before => (before, &changes.columns_present),
        InverseSide::After => (after, &changes.columns_present_after),
    };
    let images = changes.images.slice_ref(image);
    let end = length_of(images.len())?;
    let rows = smallvec![RowPlace { start: 0, middle: end, end, accesses_start: 0 }];
    let accesses = changes.accesses_of(index).into();
    Ok(made(changes, kind, (present, present), images, rows, accesses))
}

/// Converts all rows of an event, in reverse order, to changes of another kind. The two images of an update
/// are exchanged.
fn backwards(changes: &RowChanges, kind: RowsKind) -> Result<RowChanges, RejoinError> {
    let mut images = BytesMut::with_capacity(changes.images.len());
    let (mut rows, mut accesses) = (RowPlaces::with_capacity(changes.rows.len()), Accesses::new());
    for index in (0..changes.rows.len()).rev() {
        let (before, after) = images_of(changes, index).map_err(RejoinError::rows)?;
        let (first, second) = if kind == RowsKind::Update { (after, before) } else { (before, after) };
        let start = images.len();
        images.extend_from_slice(first);
        images.extend_from_slice(second);
        rows.push(RowPlace {
            start: length_of(start)?,
            middle: length_of(start + first.len())?,
            end: length_of(images.len())?,
            accesses_start: length_of(accesses.len())?,
        });
        accesses.extend_from_slice(changes.accesses_of(index));
    }
    let present = match kind {
        RowsKind::Update => (&changes.columns_present_after, &changes.columns_present),
        _ => (&changes.columns_present, &changes.columns_present),
    };
    Ok(made(changes, kind, present, images.freeze(), rows, accesses))
}

fn length_of(length: usize) -> Result<u32, RejoinError> {
    let size_max = u64::from(u32::MAX);
    u32::try_from(length).map_err(|_| {
        RejoinError::rows(WireError::TooLarge { what: "rows event", size: length as u64, size_max })
    })
}

fn made(
    from: &RowChanges,
    kind: RowsKind,
    (present, present_after): (&Bytes, &Bytes),
    images: Bytes,
    rows: RowPlaces,
    accesses: Accesses,
) -> RowChanges {
    RowChanges {
        table: from.table.clone(),
        kind,
        flags: from.flags | RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS,
        timestamp: from.timestamp,
        server_id: from.server_id,
        columns_present: present.clone(),
        columns_present_after: present_after.clone(),
        images,
        rows,
        accesses,
    }
}

fn images_of(changes: &RowChanges, index: usize) -> Result<(&[u8], &[u8]), WireError> {
    let missing = || WireError::malformed("rows event", "a row is not at its recorded offset");
    changes.images_of(index).ok_or_else(missing)
}

fn name_of(table: &MappedTable) -> String {
    format!("{}.{}", table.target.schema, table.target.table)
}

fn irreversible(transaction: &Transaction, reason: &str) -> RejoinError {
    RejoinError::Irreversible { gtid: transaction.gtid_text(), reason: reason.to_owned() }
}
