//! Maps the columns of a source table to the columns of the target table, for SQL statements.

use tailwater_wire::row_event::table_map_column::CHARSET_BINARY;
use tailwater_wire::row_event::{ColumnType, TableMap};
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};
use tailwater_wire::{Flavour, event_printer::charset};

use crate::column_matching::{ColumnMismatch, TargetType};
use crate::target_table::{PeriodBound, TargetTable, UniqueIndex};

/// The target column for a source column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnTarget {
    /// Name of the target column, in backquotes.
    pub quoted: String,
    /// The source's character set, if it differs from the character set of the target.
    pub converted_from: Option<&'static str>,
    /// The character set of the target's column, if it is text.
    pub character_set: Option<String>,
    /// Whether the target stores JSON as text (MariaDB).
    pub json_text: bool,
    /// Whether the target has MySQL's JSON type and the source stores text.
    pub json_of_text: bool,
    /// Whether the target stores a positive zero instead of a negative zero.
    pub plain_zero: bool,
}

/// How the columns of a source table are written with SQL. Computed once for each table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlMapping {
    /// The source's table map. Details that the source did not log are taken from the target.
    pub(super) map: TableMap,
    /// Name of the target table, in backquotes.
    pub(super) quoted: String,
    /// The target column for each source column; `None` for generated columns.
    pub(super) places: Vec<Option<ColumnTarget>>,
    /// The keys of the target that identify a row, each as a list of source columns. The best key comes
    /// first.
    pub(super) keys: Vec<Vec<usize>>,
    /// The period columns, if both tables are system-versioned.
    pub(super) period: Option<RowPeriod>,
    /// Whether an INSERT sets the period columns.
    pub(super) writes_period: bool,
}

/// The period columns of a system-versioned table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowPeriod {
    /// The source column with the start of a row's period.
    pub start: usize,
    /// The source column with the end of a row's period.
    pub end: usize,
    /// The mapping for inserting history rows, which includes the period columns.
    pub history: Box<SqlMapping>,
}

/// Maps a source table to a target table. `columns` contains the target column for each source column.
///
/// # Errors
/// [`ColumnMismatch`] for the first column whose values do not fit.
pub(crate) fn mapping(
    logged: &TableMap,
    target: &TargetTable,
    columns: &[usize],
) -> Result<SqlMapping, ColumnMismatch> {
    let mut map = logged.clone();
    let mut places = Vec::with_capacity(map.columns.len());
    // The source column for each target column.
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
        // Details that the source did not log are assumed to be the same as on the target.
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
            quoted: quote_identifier(&own.name),
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
    let quoted = qualified_name(&target.schema, &target.table);
    let mut mapping = SqlMapping { map, quoted, places, keys, period: None, writes_period: false };
    mapping.period = row_period(&mapping, target, &sources)?;
    Ok(mapping)
}

/// Returns the period columns, if both tables have them. `sources` contains the source column for each target
/// column.
fn row_period(
    mapping: &SqlMapping,
    target: &TargetTable,
    sources: &[Option<usize>],
) -> Result<Option<RowPeriod>, ColumnMismatch> {
    let found = |bound: PeriodBound| {
        let column = target.columns.iter().position(|column| column.period == Some(bound))?;
        Some((*sources.get(column)?.as_ref()?, target.columns.get(column)?))
    };
    let (Some(start), Some(end)) = (found(PeriodBound::Start), found(PeriodBound::End)) else {
        return Ok(None);
    };
    let mut history = mapping.clone();
    history.writes_period = true;
    for (source, column) in [start, end] {
        let logged = mapping.map.columns.get(source).map(|column| column.column_type);
        if logged != Some(ColumnType::Timestamp { fraction: 6 }) {
            let reason = "a transaction-precise history cannot be written as SQL; give the target's table the same \
                          columns as the source's table, so that its rows are applied as row events, or exclude it \
                          with a filter";
            return Err(ColumnMismatch::at(&mapping.map, source, reason.to_owned()));
        }
        if let Some(place) = history.places.get_mut(source) {
            *place = Some(ColumnTarget {
                quoted: quote_identifier(&column.name),
                converted_from: None,
                character_set: None,
                json_text: false,
                json_of_text: false,
                plain_zero: false,
            });
        }
    }
    Ok(Some(RowPeriod { start: start.0, end: end.0, history: Box::new(history) }))
}
