//! TIME, DATETIME and TIMESTAMP columns in the layout from before MySQL 5.6. MariaDB keeps this layout for
//! tables that were created with `mysql56_temporal_format=OFF` or by a MariaDB before 10.0.
//!
//! On MariaDB these columns may have fractional digits, and the binlog does not contain the number of digits.
//! The length and the meaning of a value depend on that number, and several numbers give the same length. So
//! rows are decoded only if source and target declare the same number of digits. An operator can configure
//! that rows are decoded with the target's number instead, as in the servers' native replication.

use std::sync::Arc;

use tailwater_wire::Flavour;
use tailwater_wire::row_event::{BinlogColumn, ColumnType, TableMap};

use crate::column_matching::{ColumnMismatch, TargetType, target_columns};
use crate::source_table_columns::SourceColumn;
use crate::target_table::TargetTable;

/// Where the number of fractional digits of a MariaDB source's old temporal columns comes from.
#[derive(Debug, Clone)]
pub enum OldTimeDigits {
    /// The source must be read first ([`super::Decoded::NeedsSource`]).
    Unknown,
    /// The number comes from the source's table definition. The target must declare the same number of
    /// digits.
    Source(Arc<DeclaredColumns>),
    /// The number comes from the target's table definition, without a comparison with the source.
    Target,
}

/// The columns of a source table, as they were declared when the rows were logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredColumns {
    /// The columns that the table maps contain, in order.
    pub columns: Vec<SourceColumn>,
    /// Whether a later DDL statement rebuilt the table and kept the number of fractional digits. The table
    /// may now have the new layout.
    pub was_rebuilt: bool,
}

/// Returns whether a column has the old layout.
pub(crate) fn is_old(column: &BinlogColumn) -> bool {
    type_name(column.column_type).is_some()
}

/// Returns whether a table map has columns whose number of fractional digits is not in the log. On MySQL the
/// old layout has no fractional digits.
pub(super) fn lacks_digits(map: &TableMap) -> bool {
    map.flavour == Flavour::MariaDb && map.columns.iter().any(is_old)
}

/// Returns the name of a type with the old layout.
fn type_name(column_type: ColumnType) -> Option<&'static str> {
    match column_type {
        ColumnType::TimeOld { .. } => Some("time"),
        ColumnType::DateTimeOld { .. } => Some("datetime"),
        ColumnType::TimestampOld { .. } => Some("timestamp"),
        _ => None,
    }
}

fn with_digits(column_type: ColumnType, fraction: u8) -> ColumnType {
    match column_type {
        ColumnType::TimeOld { .. } => ColumnType::TimeOld { fraction },
        ColumnType::DateTimeOld { .. } => ColumnType::DateTimeOld { fraction },
        ColumnType::TimestampOld { .. } => ColumnType::TimestampOld { fraction },
        other => other,
    }
}

/// Sets the number of fractional digits of the columns with the old layout.
/// [`MappedTable::new`](crate::source_to_target_table::MappedTable::new) reports columns that the target does
/// not have.
///
/// # Errors
/// [`ColumnMismatch`] for the first column whose number of fractional digits is not certain.
pub(super) fn set_digits(
    map: &mut TableMap,
    target: &TargetTable,
    digits: &OldTimeDigits,
) -> Result<(), ColumnMismatch> {
    let Ok(places) = target_columns(map, target) else { return Ok(()) };
    for (index, place) in places.into_iter().enumerate() {
        let Some(name) = map.columns.get(index).and_then(|column| type_name(column.column_type)) else {
            continue;
        };
        let own = target.columns.get(place).map(TargetType::of).filter(|own| own.name == name);
        let own = own.map(|own| own.digits());
        let found = match digits {
            OldTimeDigits::Source(declared) => declared_digits(map, index, name, declared, own),
            OldTimeDigits::Target | OldTimeDigits::Unknown => Ok(own.unwrap_or(0)),
        };
        let found = found.map_err(|reason| ColumnMismatch::at(map, index, reason))?;
        if let Some(column) = map.columns.get_mut(index) {
            column.column_type = with_digits(column.column_type, found);
        }
    }
    Ok(())
}

/// Returns the number of fractional digits of the column at `index`, which was logged with type `name`. `own`
/// is the number of digits that the target declares, if the target's column has the same type.
fn declared_digits(
    map: &TableMap,
    index: usize,
    name: &str,
    declared: &DeclaredColumns,
    own: Option<u8>,
) -> Result<u8, String> {
    const LATER: &str = "the source's table was changed after these rows were logged, and its former number of fractional digits is \
                         not known; if the target's table still declares the former number, old_temporal_precision = \"target\" \
                         applies the rows";
    let logged = map.columns.len();
    let Some(theirs) = declared.columns.get(index).filter(|_| declared.columns.len() == logged) else {
        return Err(format!(
            "the log has {logged} columns and the source declares {}: {LATER}",
            declared.columns.len()
        ));
    };
    let logged_name = map.columns.get(index).and_then(|column| column.name.as_deref());
    if theirs.type_name != name
        || logged_name.is_some_and(|logged| !logged.eq_ignore_ascii_case(&theirs.name))
    {
        return Err(format!(
            "the log has a column of type {name} here and the source declares {} {}: {LATER}",
            theirs.name, theirs.type_name
        ));
    }
    if theirs.old_layout == Some(false) && !declared.was_rebuilt {
        return Err(format!(
            "the log has the temporal layout from before MySQL 5.6, and the source's column has it no longer: {LATER}"
        ));
    }
    match own {
        Some(own) if own != theirs.digits => Err(format!(
            "the source declares {} {name}({}) in the temporal layout from before MySQL 5.6, and the target {name}({own}). The binlog \
             does not contain the number of digits, so both must declare the same: give the target's column {} digits and start \
             the channel. (After ALTER TABLE ... FORCE on the source with mysql56_temporal_format=ON, the binlog contains it)",
            theirs.name, theirs.digits, theirs.digits,
        )),
        // The target's column has another type, so do not compare the numbers of digits.
        _ => Ok(theirs.digits),
    }
}

#[cfg(test)]
mod tests;
