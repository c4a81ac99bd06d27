//! Writes rows of a system-versioned MariaDB table as SQL.
//!
//! The source logs each row with its period. It logs a DELETE as an update that ends the period. After an
//! UPDATE, it logs an insert of the history row. Native replication stores these images unchanged. SQL cannot
//! store them unchanged: no statement sets the period of a current row, and every UPDATE creates a history
//! row itself. Each statement therefore runs with the source's time (`SET STATEMENT timestamp`). The target
//! then computes the same periods and creates the same history rows, so the channel leaves out the logged
//! history rows.
//!
//! There are two exceptions:
//! - A history row that the source inserted itself (`system_versioning_insert_history`, MariaDB 10.11) is
//!   inserted with its period.
//! - `DELETE HISTORY` is logged row by row, but the statement itself cannot select single rows. So the
//!   channel runs a `DELETE HISTORY` on the target, up to the time of the newest logged row.
//!
//! Source in MariaDB: `TABLE::delete_row` and `TABLE::vers_update_fields` in `table.cc`,
//! `vers_insert_history_row` in `sql_insert.cc`.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::event_printer::PrintError;
use tailwater_wire::row_event::{BinlogValue, Image};

use super::row_image_bytes::RowImageBytes;
use super::source_to_target_columns::{RowPeriod, SqlMapping};
use crate::batch::{PlannedRow, RowGroup, RowImage};

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

/// Rows of a group that the same kind of statement writes.
#[derive(Debug)]
pub enum SqlPart<'g, 'a> {
    /// Rows of a group that one kind of statement writes.
    Rows {
        /// The rows, as a part of the group.
        group: Cow<'g, RowGroup<'a>>,
        /// How the columns of the rows are written.
        mapping: &'g SqlMapping,
        /// The text before the statement: `SET STATEMENT ... FOR `, or empty.
        prefix: String,
    },
    /// A complete statement. The number of rows that it changes is not checked.
    Statement(Vec<u8>),
}

/// What the target does with a logged row. Times are in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowAction {
    /// Inserts the row; the time is `None` if the source did not log it.
    Insert {
        at: Option<u64>,
    },
    InsertHistory,
    Update {
        at: Option<u64>,
    },
    Delete {
        at: Option<u64>,
    },
    /// Deletes the history rows that ended before this time.
    DeleteHistory {
        before: u64,
    },
    /// Does nothing: an update on the target creates this history row.
    LeaveOut,
}

/// The history rows that the statements written so far create on the target. The log contains these rows too,
/// at later positions.
#[derive(Debug, Default)]
pub(super) struct GeneratedHistory {
    counts: FxHashMap<Vec<u8>, u32>,
}

impl GeneratedHistory {
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    fn add(&mut self, identity: Vec<u8>) {
        *self.counts.entry(identity).or_default() += 1;
    }

    /// Returns whether the statements written so far create the history row with this identity. If so,
    /// reduces the number of such rows by one.
    fn take(&mut self, identity: &[u8]) -> bool {
        let Some(count) = self.counts.get_mut(identity) else { return false };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(identity);
        }
        true
    }

    /// Splits a group into sequences of rows that need the same kind of statement and the same time.
    pub fn parts<'g, 'a>(
        &mut self,
        group: &'g RowGroup<'a>,
        mapping: &'g SqlMapping,
        period: &'g RowPeriod,
    ) -> Result<Vec<SqlPart<'g, 'a>>, PrintError> {
        let actions: Vec<RowAction> = group
            .rows
            .iter()
            .map(|row| self.action(group, mapping, period, row))
            .collect::<Result<_, PrintError>>()?;
        let mut parts = Vec::new();
        let mut rows = group.rows.as_slice();
        for run in actions.chunk_by(|one, other| one.may_join(*other)) {
            let (of_run, rest) = rows.split_at(run.len().min(rows.len()));
            rows = rest;
            parts.extend(part(group, mapping, period, run, of_run));
        }
        Ok(parts)
    }

    fn action(
        &mut self,
        group: &RowGroup<'_>,
        mapping: &SqlMapping,
        period: &RowPeriod,
        row: &PlannedRow<'_>,
    ) -> Result<RowAction, PrintError> {
        let images = RowImageBytes::of(row);
        let image = Image::parse(&mapping.map, &group.columns_present, false, &images.image)?;
        let (start, end) = (time_of(&image, period.start)?, time_of(&image, period.end)?);
        let history_end = end.filter(|end| !is_endless(*end));
        Ok(match (group.kind, history_end) {
            (RowsKind::Write, Some(end)) => match self.take(&identity(mapping, &image, end)?) {
                true => RowAction::LeaveOut,
                false => RowAction::InsertHistory,
            },
            (RowsKind::Write, None) => RowAction::Insert { at: start },
            (RowsKind::Update | RowsKind::PartialUpdate, None) => {
                let after = Image::parse(&mapping.map, &group.columns_present_after, false, &images.after)?;
                let (after_start, after_end) = (time_of(&after, period.start)?, time_of(&after, period.end)?);
                if let Some(deleted) = after_end.filter(|end| !is_endless(*end)) {
                    return Ok(RowAction::Delete { at: Some(deleted) });
                }
                // The servers create no history row if its period is empty or negative.
                if let Some(after_start) =
                    after_start.filter(|after| start.is_none_or(|start| start < *after))
                {
                    self.add(identity(mapping, &image, after_start)?);
                }
                RowAction::Update { at: after_start }
            }
            // The source created no history row: it deleted the row at a time before the row's start, or
            // deleted two versions at the same time. A delete one microsecond before the row's start has the
            // same effect.
            (RowsKind::Delete, None) => RowAction::Delete { at: start.map(|start| start.saturating_sub(1)) },
            (RowsKind::Delete, Some(_)) if group.table.target.partitioned => {
                return Err(not_exact(
                    mapping,
                    "the source ran DELETE HISTORY, and does not log which partitions it selected; run the statement \
                     on the target, and leave the transaction out with `channel skip`",
                ));
            }
            (RowsKind::Delete, Some(end)) => RowAction::DeleteHistory { before: end + 1 },
            (RowsKind::Update | RowsKind::PartialUpdate, Some(_)) => {
                return Err(not_exact(
                    mapping,
                    "the source updated a history row; give the target's table the same columns as the source's table",
                ));
            }
        })
    }
}

impl RowAction {
    fn may_join(self, other: Self) -> bool {
        match (self, other) {
            (Self::DeleteHistory { .. }, Self::DeleteHistory { .. }) => true,
            _ => self == other,
        }
    }
}

/// Returns the part for consecutive rows with the same action; `None` if the target need not do anything.
fn part<'g, 'a>(
    group: &'g RowGroup<'a>,
    mapping: &'g SqlMapping,
    period: &'g RowPeriod,
    actions: &[RowAction],
    rows: &[PlannedRow<'a>],
) -> Option<SqlPart<'g, 'a>> {
    let of = |kind| RowGroup { kind, rows: rows.to_vec(), ..group.clone() };
    Some(match *actions.first()? {
        RowAction::LeaveOut => return None,
        RowAction::Insert { at } | RowAction::Update { at } => {
            SqlPart::Rows { group: Cow::Owned(of(group.kind)), mapping, prefix: at_time(at) }
        }
        RowAction::InsertHistory => SqlPart::Rows {
            group: Cow::Owned(of(RowsKind::Write)),
            mapping: &period.history,
            prefix: "SET STATEMENT system_versioning_insert_history=1 FOR ".to_owned(),
        },
        RowAction::Delete { at } => {
            let before = |row: &PlannedRow<'a>| PlannedRow { after: RowImage::default(), ..*row };
            let rows = rows.iter().map(before).collect();
            let columns_present_after = group.columns_present.clone();
            let deleted = RowGroup { rows, columns_present_after, ..of(RowsKind::Delete) };
            SqlPart::Rows { group: Cow::Owned(deleted), mapping, prefix: at_time(at) }
        }
        RowAction::DeleteHistory { .. } => {
            let times = actions.iter().filter_map(|action| match action {
                RowAction::DeleteHistory { before } => Some(*before),
                _ => None,
            });
            let before = times.max()?;
            let (seconds, micros) = (before / SECOND_US, before % SECOND_US);
            let text = format!(
                "DELETE HISTORY FROM {} BEFORE SYSTEM_TIME FROM_UNIXTIME({seconds}.{micros:06})",
                mapping.quoted
            );
            SqlPart::Statement(text.into_bytes())
        }
    })
}

/// Returns the text that makes a statement run at this time.
fn at_time(time: Option<u64>) -> String {
    let Some(time) = time else { return String::new() };
    // The server converts the number to a double and truncates it to microseconds. The additional digit 3
    // makes sure that a rounding error does not give the previous microsecond.
    format!("SET STATEMENT timestamp={}.{:06}3 FOR ", time / SECOND_US, time % SECOND_US)
}

/// Returns the time in a TIMESTAMP(6) column; `None` if the image does not contain the column.
fn time_of(image: &Image<'_>, column: usize) -> Result<Option<u64>, WireError> {
    let Some(cell) = image.cell(column)? else { return Ok(None) };
    Ok(match cell.value(&image.table().columns)? {
        BinlogValue::Timestamp(time) => Some(u64::from(time.seconds) * SECOND_US + u64::from(time.micros)),
        _ => None,
    })
}

/// Returns whether a period ends at the last moment of the type, as for current rows: in 2038, or in 2106
/// from MariaDB 11.5 on.
fn is_endless(end: u64) -> bool {
    const LAST: [u64; 2] = [i32::MAX as u64, u32::MAX as u64];
    end % SECOND_US == SECOND_US - 1 && LAST.contains(&(end / SECOND_US))
}

/// Returns bytes that identify a history row, both from the update that creates it and from the logged
/// history row: the table, the end of the period, and the old key if both images contain it.
fn identity(mapping: &SqlMapping, old: &Image<'_>, end: u64) -> Result<Vec<u8>, WireError> {
    let mut identity = mapping.quoted.clone().into_bytes();
    identity.extend_from_slice(&end.to_be_bytes());
    for column in mapping.keys.first().into_iter().flatten() {
        if let Some(cell) = old.cell(*column)? {
            identity.extend_from_slice(cell.raw.unwrap_or_default());
        }
    }
    Ok(identity)
}

fn not_exact(mapping: &SqlMapping, reason: &str) -> PrintError {
    PrintError::NotExact { what: format!("a history row of {}", mapping.quoted), reason: reason.to_owned() }
}
