//! Which column of a source's table goes into which of the target's.

use tailwater_wire::rows::column::CHARSET_BINARY;
use tailwater_wire::rows::{ColumnType, TableMap};
use tailwater_wire::{Flavour, print::charset};

use crate::columns::{ColumnMismatch, TargetType};
use crate::target::{TargetTable, UniqueIndex};

/// Where a source's column goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnTarget {
    /// The target's column, in backticks.
    pub quoted: String,
    /// The character set that its text is converted from, where that is not the target's.
    pub converted_from: Option<&'static str>,
    /// The character set of the target's column.
    pub character_set: Option<String>,
    /// Whether it holds JSON as text.
    pub json_text: bool,
    /// Whether it holds JSON as MySQL does, and the source as text.
    pub json_of_text: bool,
    /// Whether it holds a zero that is not negative instead of one that is.
    pub plain_zero: bool,
}

/// Where a source's columns go, decided once per table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlMapping {
    /// The source's table, with what it did not log of its columns taken from the target's.
    pub(super) map: TableMap,
    /// The target's name, in backticks.
    pub(super) quoted: String,
    /// For each of the source's columns; `None` for those that nobody can write to.
    pub(super) places: Vec<Option<ColumnTarget>>,
    /// The target's keys that find a row, by the source's columns, the best first.
    pub(super) keys: Vec<Vec<usize>>,
}

/// Maps a source's table to a target's, whose `columns` the source's are.
///
/// # Errors
/// [`ColumnMismatch`] for the first column that does not fit.
pub(crate) fn mapping(
    logged: &TableMap,
    target: &TargetTable,
    columns: &[usize],
) -> Result<SqlMapping, ColumnMismatch> {
    let mut map = logged.clone();
    let mut places = Vec::with_capacity(map.columns.len());
    // By the target's columns: the source's.
    let mut sources = vec![None; target.columns.len()];
    for (index, (column, found)) in map.columns.iter_mut().zip(columns).enumerate() {
        let own = target.columns.get(*found);
        let Some(own) = own.filter(|_| !matches!(column.column_type, ColumnType::TypedArray { .. })) else {
            places.push(None);
            continue;
        };
        if let Some(source) = sources.get_mut(*found) {
            *source = Some(index);
        }
        if own.generated {
            places.push(None);
            continue;
        }
        let own_type = TargetType::of(own);
        // What the source did not log is taken to be as it is here.
        let unsigned = column.unsigned.unwrap_or(own_type.unsigned);
        if let Some(reason) = own_type.refuses(column, unsigned, target.flavour) {
            return Err(ColumnMismatch::at(logged, index, reason));
        }
        if column.column_type.has_signedness() {
            column.unsigned = Some(unsigned);
        }
        let binary = matches!(own_type.name.as_str(), "binary" | "uuid" | "inet4" | "inet6");
        if column.collation.is_none() && binary {
            column.collation = Some(CHARSET_BINARY);
        }
        let from = column.collation.filter(|collation| *collation != CHARSET_BINARY);
        let from = from.and_then(charset::character_set);
        let converted_from = from.filter(|from| own_type.character_set.as_deref() != Some(*from));
        let json_text = matches!(column.column_type, ColumnType::Json { .. })
            && (target.flavour == Flavour::MariaDb || own_type.name != "json");
        places.push(Some(ColumnTarget {
            quoted: quote(&own.name),
            converted_from,
            json_text,
            json_of_text: target.flavour == Flavour::MySql
                && own_type.name == "json"
                && !matches!(column.column_type, ColumnType::Json { .. }),
            plain_zero: target.flavour == Flavour::MariaDb,
            character_set: own_type.character_set,
        }));
    }
    let finds = |index: &&UniqueIndex| {
        !index.opaque
            && !index.parts.is_empty()
            && index.parts.iter().all(|part| {
                part.prefix.is_none()
                    && target.columns.get(part.column).is_some_and(|column| {
                        !column.generated && (!column.nullable || index.name == "PRIMARY")
                    })
            })
    };
    let by_source = |index: &UniqueIndex| -> Option<Vec<usize>> {
        index.parts.iter().map(|part| sources.get(part.column).copied().flatten()).collect()
    };
    let keys = target.unique.iter().filter(finds).filter_map(by_source).collect();
    let quoted = format!("{}.{}", quote(&target.schema), quote(&target.table));
    Ok(SqlMapping { map, quoted, places, keys })
}

fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
