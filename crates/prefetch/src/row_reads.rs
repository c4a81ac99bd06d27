//! The index entries that row changes touch, and the queries that read their pages.
//!
//! An applier reads the row by its key, and changes each index whose values change: it looks for the old
//! entry and for the place of the new one. So both images of a row are read by the row's index. The other
//! indexes are read by their values, forced with `FORCE INDEX`; of an update only those that change. InnoDB
//! appends the primary key to each entry of a secondary index, so the query names its columns too. It then
//! reads one entry, however many rows have the same indexed values.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::event_printer::sql_literal::{LiteralUse, put_value};
use tailwater_wire::row_event::{BinlogValue, Image, ImageCell, RowChangeIter, TableMap};
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

use crate::change_decoder::{EVENT_BYTES_MAX, LoggedRows};
use crate::table_indexes::{ReadableIndex, TableIndexes};

/// Text values are cut to this many bytes in a condition. Indexes have at most 3072 bytes.
const VALUE_BYTES_MAX: usize = 3072;

/// An index entry to read.
#[derive(Debug, Clone)]
pub struct EntryRead {
    /// The table.
    pub table: Arc<TableIndexes>,
    /// The position of the index in [`TableIndexes::indexes`].
    pub index: usize,
    /// The condition that selects the entry.
    pub condition: String,
    /// A hash of table, index and condition.
    pub hash: u64,
}

/// The entries that the rows of one event touch.
#[derive(Debug, Default)]
pub struct PlannedRows {
    /// The entries, without those that are the same.
    pub entries: Vec<EntryRead>,
    /// The number of changed rows.
    pub rows: u64,
    /// How many keys were left out because a part of them is NULL.
    pub null_keys: u64,
    /// How many keys were left out because an image does not hold all their columns, or a value has no
    /// literal.
    pub unknown_keys: u64,
}

/// Plans the reads for a rows event. `table` is the definition that fits the event's table map.
///
/// # Errors
/// [`WireError`] if the event is malformed.
pub fn plan_rows(logged: &LoggedRows, table: &Arc<TableIndexes>) -> Result<PlannedRows, WireError> {
    let mut map = TableMap::clone(&logged.map);
    table.complete(&mut map);
    let event = logged.event()?;
    let images = event.images(EVENT_BYTES_MAX)?;
    let mut planner = RowPlanner { table, planned: PlannedRows::default() };
    for row in RowChangeIter::new(&map, &event, &images)? {
        let row = row?;
        planner.planned.rows += 1;
        match (event.kind, row.before, row.after) {
            (RowsKind::Update | RowsKind::PartialUpdate, Some(before), Some(after)) => {
                planner.update(&map, &before, &after)?;
            }
            (_, before, after) => {
                for image in before.iter().chain(&after) {
                    planner.image(&map, image)?;
                }
            }
        }
    }
    Ok(planner.planned)
}

/// Counts the rows of an event, without reads.
///
/// # Errors
/// [`WireError`] if the event is malformed.
pub fn count_rows(logged: &LoggedRows) -> Result<u64, WireError> {
    let event = logged.event()?;
    let images = event.images(EVENT_BYTES_MAX)?;
    let mut rows = 0;
    for row in RowChangeIter::new(&logged.map, &event, &images)? {
        row?;
        rows += 1;
    }
    Ok(rows)
}

struct RowPlanner<'t> {
    table: &'t Arc<TableIndexes>,
    planned: PlannedRows,
}

impl RowPlanner<'_> {
    /// All entries of an inserted or deleted row.
    fn image(&mut self, map: &TableMap, image: &Image<'_>) -> Result<(), WireError> {
        let cells = cells_of(map, image)?;
        for index in 0..self.table.indexes.len() {
            self.entry(map, index, &cells, &cells)?;
        }
        Ok(())
    }

    /// The entries of an updated row: the row itself, and the old and new entry of each index that changes.
    fn update(&mut self, map: &TableMap, before: &Image<'_>, after: &Image<'_>) -> Result<(), WireError> {
        let old = cells_of(map, before)?;
        // With a minimal image, the after image holds only the changed columns. The others are as before.
        let new: Vec<Option<ImageCell<'_>>> =
            cells_of(map, after)?.into_iter().zip(&old).map(|(new, old)| new.or(*old)).collect();
        let changed = |index: &ReadableIndex| {
            index.columns.iter().any(|column| match (old.get(*column), new.get(*column)) {
                (Some(Some(old)), Some(Some(new))) => old.raw != new.raw || new.partial,
                _ => true,
            })
        };
        let table = Arc::clone(self.table);
        let row_moves = table.has_row_index && table.indexes.first().is_some_and(changed);
        for (position, index) in table.indexes.iter().enumerate() {
            let is_row = position == 0 && table.has_row_index;
            let changes = changed(index) || row_moves;
            if is_row || changes {
                self.entry(map, position, &old, &old)?;
            }
            if changes {
                self.entry(map, position, &new, &new)?;
            }
        }
        Ok(())
    }

    /// Adds the entry of an index. `row` has the values of the primary key.
    fn entry(
        &mut self,
        map: &TableMap,
        position: usize,
        cells: &[Option<ImageCell<'_>>],
        row: &[Option<ImageCell<'_>>],
    ) -> Result<(), WireError> {
        let table = self.table;
        let Some(index) = table.indexes.get(position) else { return Ok(()) };
        let mut condition = String::new();
        for column in &index.columns {
            match self.put_equality(map, *column, cells, &mut condition)? {
                KeyPartText::Written => {}
                KeyPartText::Null => {
                    self.planned.null_keys += 1;
                    return Ok(());
                }
                KeyPartText::Unknown => {
                    self.planned.unknown_keys += 1;
                    return Ok(());
                }
            }
        }
        if position > 0 && table.has_primary_key {
            let length = condition.len();
            for column in table.indexes[0].columns.iter().filter(|column| !index.columns.contains(column)) {
                // Without the row's key, the query still reads entries with these values.
                if !matches!(self.put_equality(map, *column, row, &mut condition)?, KeyPartText::Written) {
                    condition.truncate(length);
                    break;
                }
            }
        }
        let hash = hash_of(table, position, condition.as_bytes());
        if !self.planned.entries.iter().rev().take(4).any(|entry| entry.hash == hash) {
            self.planned.entries.push(EntryRead {
                table: Arc::clone(table),
                index: position,
                condition,
                hash,
            });
        }
        Ok(())
    }

    /// Appends `column = value`.
    fn put_equality(
        &self,
        map: &TableMap,
        column: usize,
        cells: &[Option<ImageCell<'_>>],
        out: &mut String,
    ) -> Result<KeyPartText, WireError> {
        let (Some(Some(cell)), Some(definition)) = (cells.get(column), self.table.columns.get(column)) else {
            return Ok(KeyPartText::Unknown);
        };
        if cell.raw.is_none() {
            return Ok(KeyPartText::Null);
        }
        let Some(literal) = literal(map, cell, definition.character_set.as_deref())? else {
            return Ok(KeyPartText::Unknown);
        };
        if !out.is_empty() {
            out.push_str(" AND ");
        }
        out.push_str(&quote_identifier(&definition.name));
        out.push('=');
        out.push_str(&literal);
        Ok(KeyPartText::Written)
    }
}

enum KeyPartText {
    Written,
    Null,
    Unknown,
}

/// The cells of an image by column; `None` for columns that the image does not hold.
fn cells_of<'a>(map: &TableMap, image: &Image<'a>) -> Result<Vec<Option<ImageCell<'a>>>, WireError> {
    let mut cells = vec![None; map.columns.len()];
    for cell in image.cells() {
        let cell = cell?;
        if let Some(place) = cells.get_mut(cell.index) {
            *place = Some(cell);
        }
    }
    Ok(cells)
}

/// Returns the value as a literal that is compared by the rules of the column's index; `None` if there is no
/// such literal.
fn literal(
    map: &TableMap,
    cell: &ImageCell<'_>,
    character_set: Option<&str>,
) -> Result<Option<String>, WireError> {
    let Some(column) = map.columns.get(cell.index) else { return Ok(None) };
    let mut text = Vec::new();
    match cell.value(&map.columns)? {
        BinlogValue::Json(_)
        | BinlogValue::JsonDiff(_)
        | BinlogValue::Geometry(_)
        | BinlogValue::Vector(_) => {
            return Ok(None);
        }
        BinlogValue::Bytes(bytes) if bytes.len() > VALUE_BYTES_MAX => return Ok(None),
        BinlogValue::Bytes(_) | BinlogValue::Compressed(_) if character_set.is_some() => {
            text.extend_from_slice(format!("_{} ", character_set.unwrap_or_default()).as_bytes());
        }
        _ => {}
    }
    match put_value(&mut text, map, column, cell, None, LiteralUse::Compared) {
        Ok(()) => Ok(String::from_utf8(text).ok()),
        // A value without an exact literal, such as a number that is not finite.
        Err(_) => Ok(None),
    }
}

fn hash_of(table: &TableIndexes, index: usize, condition: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(table.schema.as_bytes());
    hasher.write_u8(0);
    hasher.write(table.table.as_bytes());
    hasher.write_usize(index);
    hasher.write(condition);
    hasher.finish()
}

/// Returns the query that reads `entries`, which must be of one index of one table.
///
/// It counts rows, so that the server sends only one number. The forced index has all columns of the
/// condition, so the server reads no other pages.
pub fn entry_query(entries: &[EntryRead]) -> Option<String> {
    let first = entries.first()?;
    let index = first.table.indexes.get(first.index)?;
    let mut sql = format!(
        "SELECT COUNT(*) FROM {} FORCE INDEX ({}) WHERE ",
        qualified_name(&first.table.schema, &first.table.table),
        quote_identifier(&index.name)
    );
    for (position, entry) in entries.iter().enumerate() {
        if position > 0 {
            sql.push_str(" OR ");
        }
        match entries.len() {
            1 => sql.push_str(&entry.condition),
            _ => {
                sql.push('(');
                sql.push_str(&entry.condition);
                sql.push(')');
            }
        }
    }
    Some(sql)
}
