//! TIME, DATETIME and TIMESTAMP columns in the layout of before MySQL 5.6, which MariaDB keeps for tables that were made under
//! `mysql56_temporal_format=OFF` or by a MariaDB before 10.0. They may have a fraction, and the binlog does not say so.
//!
//! Where the target's column has the old layout too, its precision is taken for the source's, as the servers' own replication does.
//! Where it has the new one, its precision is a guess: rows are taken only if no other reading of them is possible, with some of
//! these columns without a fraction. So no row is read wrongly where the source's precision is the target's, or none.

use tailwater_wire::event::RowsEvent;
use tailwater_wire::rows::{Column, ColumnType, Rows, TableMap, Value};

use crate::columns::TargetType;
use crate::target::TargetTable;

/// With more columns whose precision is a guess, there would be too many readings.
const GUESSED_MAX: usize = 8;

/// Whether a column has the old layout.
pub(crate) fn is_old(column: &Column) -> bool {
    matches!(
        column.column_type,
        ColumnType::TimeOld { .. } | ColumnType::DateTimeOld { .. } | ColumnType::TimestampOld { .. }
    )
}

fn with_fraction(column_type: ColumnType, fraction: u8) -> ColumnType {
    match column_type {
        ColumnType::TimeOld { .. } => ColumnType::TimeOld { fraction },
        ColumnType::DateTimeOld { .. } => ColumnType::DateTimeOld { fraction },
        ColumnType::TimestampOld { .. } => ColumnType::TimestampOld { fraction },
        other => other,
    }
}

/// Gives columns of the old layout the precision of the target's; returns those for which that is a guess.
pub(crate) fn take_precision(map: &mut TableMap, target: &TargetTable, columns: &[usize]) -> Vec<usize> {
    let mut guessed = Vec::new();
    for (index, (column, own)) in map.columns.iter_mut().zip(columns).enumerate() {
        let Some(own) = target.columns.get(*own).map(TargetType::of) else { continue };
        let name = match column.column_type {
            ColumnType::TimeOld { .. } => "time",
            ColumnType::DateTimeOld { .. } => "datetime",
            ColumnType::TimestampOld { .. } => "timestamp",
            _ => continue,
        };
        let fraction = own.numbers.first().and_then(|digits| u8::try_from(*digits).ok()).unwrap_or(0);
        if own.name != name || fraction == 0 || fraction > 6 {
            continue;
        }
        column.column_type = with_fraction(column.column_type, fraction);
        if !own.old_layout {
            guessed.push(index);
        }
    }
    guessed
}

/// Why the rows of an event are not to be read with the precision of all `guessed` columns as it is in `map`; `None` if they can be
/// read in that way only. Readings that give the same values are one.
pub(super) fn unsure(
    map: &TableMap,
    guessed: &[usize],
    event: &RowsEvent<'_>,
    images: &[u8],
) -> Option<&'static str> {
    const SEVERAL: &str = "it can be read in several ways";
    if guessed.len() > GUESSED_MAX {
        return Some(SEVERAL);
    }
    let Some(reading) = read(map, event, images) else {
        return Some("with as many digits as the target's column has for fractions, it cannot be read");
    };
    let mut other = map.clone();
    let is_only = (1u32..1 << guessed.len()).all(|without| {
        for (bit, index) in guessed.iter().enumerate() {
            let (Some(column), Some(own)) = (other.columns.get_mut(*index), map.columns.get(*index)) else {
                return false;
            };
            column.column_type = match without >> bit & 1 {
                0 => own.column_type,
                _ => with_fraction(own.column_type, 0),
            };
        }
        read(&other, event, images).is_none_or(|other| other == reading)
    });
    (!is_only).then_some(SEVERAL)
}

/// The column, its bytes, and its value if it has the old layout.
type Reading<'a> = (usize, Option<&'a [u8]>, Option<Value<'a>>);

/// All cells of `images`, if those are rows of a table, to their last byte, with times that can be.
fn read<'a>(map: &'a TableMap, event: &RowsEvent<'a>, images: &'a [u8]) -> Option<Vec<Reading<'a>>> {
    let mut cells = Vec::new();
    for row in Rows::new(map, event, images).ok()? {
        let row = row.ok()?;
        for image in [row.before, row.after].into_iter().flatten() {
            for cell in image.cells() {
                let cell = cell.ok()?;
                let is_old = map.columns.get(cell.index).is_some_and(is_old);
                cells.push(match is_old {
                    true => (cell.index, None, Some(cell.value(&map.columns).ok()?)),
                    false => (cell.index, cell.raw, None),
                });
            }
        }
    }
    Some(cells)
}
