//! Maps a table of the source to a table of the target.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tailwater_wire::row_event::TableMap;

use crate::column_matching::{ColumnMismatch, same_shape, target_columns};
use crate::dml_statement::{self, SqlMapping};
use crate::target_table::TargetTable;

/// A table as the source logs it, mapped to a table of the target.
#[derive(Debug)]
pub struct MappedTable {
    /// The source's table map event.
    pub map: TableMap,
    /// The body of the table map event, without the checksum.
    pub body: Bytes,
    /// The target's table, which may have another name because of the filters.
    pub target: Arc<TargetTable>,
    /// For each source column, the index of its target column.
    pub columns: Vec<usize>,
    /// Whether the target accepts the source's row images unchanged. If not, rows are written as SQL.
    pub same_shape: bool,
    /// How to write rows as SQL. Computed when a row is first written as SQL.
    sql: OnceLock<Result<SqlMapping, ColumnMismatch>>,
}

impl MappedTable {
    /// Maps the columns of a table map to a table of the target. `body` is the body of the table map event.
    /// For columns with the temporal layout from before MySQL 5.6, the caller must first set the number of
    /// fractional digits: see [`crate::transaction_decoder::OldTimeDigits`].
    ///
    /// # Errors
    /// The columns that the target does not have.
    pub fn new(map: TableMap, body: Bytes, target: Arc<TargetTable>) -> Result<Self, Vec<ColumnMismatch>> {
        let columns = target_columns(&map, &target)?;
        let same_shape = same_shape(&map, &target, &columns);
        Ok(Self { map, body, target, columns, same_shape, sql: OnceLock::new() })
    }

    /// Returns the mapping for writing rows as SQL.
    ///
    /// # Errors
    /// The first column whose values the target's column cannot hold.
    pub fn sql_mapping(&self) -> Result<&SqlMapping, &ColumnMismatch> {
        self.sql.get_or_init(|| dml_statement::mapping(&self.map, &self.target, &self.columns)).as_ref()
    }
}
