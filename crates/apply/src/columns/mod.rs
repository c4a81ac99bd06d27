//! Columns of the source's tables and of the target's: which is which, and whether they are of the same kind.

pub mod column_type;
mod logged;
mod shape;

use tailwater_wire::rows::TableMap;

pub use self::column_type::TargetType;
pub use self::shape::same_shape;
use crate::target::{TargetColumn, TargetTable};

/// Why a column of the source has no place in the target's table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {reason}")]
pub struct ColumnMismatch {
    /// The source's column, or its number from 1 if the source did not log names.
    pub column: String,
    /// What does not fit, and what to do.
    pub reason: String,
}

impl ColumnMismatch {
    /// Of the column at `place`, from 0.
    pub(crate) fn at(map: &TableMap, place: usize, reason: String) -> Self {
        let name = map.columns.get(place).and_then(|column| column.name.clone());
        Self { column: name.unwrap_or_else(|| (place + 1).to_string()), reason }
    }
}

/// Which column of the target each of the source's is: by name where the log has names, else by place.
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
                "the target's table has no such column, it has {}; add it there, or leave the table out with a filter",
                target.columns.len()
            );
            mismatches.push(ColumnMismatch::at(map, place, reason));
            continue;
        };
        found.push(number);
    }
    if mismatches.is_empty() { Ok(found) } else { Err(mismatches) }
}

/// Names of columns are the same in either case.
fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.to_lowercase() == other.to_lowercase()
}
