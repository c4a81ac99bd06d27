//! Matches the columns of source tables to the columns of the target, and compares their types.

pub mod column_type_parser;
mod row_event_compatibility;
mod table_map_type;

use tailwater_wire::row_event::TableMap;

pub use self::column_type_parser::TargetType;
pub use self::row_event_compatibility::same_shape;
use crate::target_table::{TargetColumn, TargetTable};

/// Why a source column cannot be written to the target's table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {reason}")]
pub struct ColumnMismatch {
    /// Name of the source column. If the source did not log names, its number, from 1.
    pub column: String,
    /// Why the values do not fit, and what to do.
    pub reason: String,
}

impl ColumnMismatch {
    /// Returns a mismatch of the column at index `place`, from 0.
    pub(crate) fn at(map: &TableMap, place: usize, reason: String) -> Self {
        let name = map.columns.get(place).and_then(|column| column.name.clone());
        Self { column: name.unwrap_or_else(|| (place + 1).to_string()), reason }
    }
}

/// Returns the index of the target column for each source column. Columns are matched by name if the log has
/// names, otherwise by position.
///
/// # Errors
/// The columns that the target does not have.
pub fn target_columns(map: &TableMap, target: &TargetTable) -> Result<Vec<usize>, Vec<ColumnMismatch>> {
    let mut found = Vec::with_capacity(map.columns.len());
    let mut mismatches = Vec::new();
    for (place, column) in map.columns.iter().enumerate() {
        let number = match &column.name {
            Some(name) => {
                let same = |of_target: &TargetColumn| same_name(name, &of_target.name);
                target.columns.iter().position(same)
            }
            None => Some(place).filter(|place| *place < target.columns.len()),
        };
        let Some(number) = number else {
            let reason = format!(
                "the target's table has no such column, it has {}; add it there, or exclude the table with a filter",
                target.columns.len()
            );
            mismatches.push(ColumnMismatch::at(map, place, reason));
            continue;
        };
        found.push(number);
    }
    if mismatches.is_empty() { Ok(found) } else { Err(mismatches) }
}

/// Returns whether two column names are equal. Column names are case-insensitive.
fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.to_lowercase() == other.to_lowercase()
}
