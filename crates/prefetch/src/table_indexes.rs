//! The columns and indexes of a replica's table, as far as the prefetch needs them.

use tailwater_wire::row_event::TableMap;
use tailwater_wire::row_event::table_map_column::CHARSET_BINARY;

/// The definition of a table on the replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableIndexes {
    /// Database name.
    pub schema: String,
    /// Table name.
    pub table: String,
    /// The columns in order, as table maps list them.
    pub columns: Vec<IndexedColumn>,
    /// The indexes that a query can use by equality. The index that holds the rows comes first, if there is
    /// one.
    pub indexes: Vec<ReadableIndex>,
    /// Whether the first index holds the rows: the primary key, or the first unique index without a column
    /// that can be NULL.
    pub has_row_index: bool,
    /// Whether the first index is the primary key, whose columns InnoDB appends to each other index.
    pub has_primary_key: bool,
    /// The estimated number of rows.
    pub rows_estimate: u64,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexedColumn {
    /// Column name.
    pub name: String,
    /// Whether a numeric column is unsigned.
    pub is_unsigned: bool,
    /// The character set of a text column; `None` for other columns.
    pub character_set: Option<String>,
    /// Whether the column holds bytes: BINARY, VARBINARY, and the types that the binlog shows as such.
    pub is_binary: bool,
}

/// An index whose entries can be found by equality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadableIndex {
    /// Index name.
    pub name: String,
    /// The columns of the index as positions in [`TableIndexes::columns`].
    pub columns: Vec<usize>,
}

impl TableIndexes {
    /// Whether rows of the table map have the columns of this definition. The binlog of MariaDB contains no
    /// names by default, so that only the number of columns can be compared.
    pub fn fits(&self, map: &TableMap) -> bool {
        self.columns.len() == map.columns.len()
            && self.columns.iter().zip(&map.columns).all(|(column, logged)| {
                logged.name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(&column.name))
            })
    }

    /// Adds to a table map what the binlog may lack: which columns are unsigned, and which hold bytes.
    pub fn complete(&self, map: &mut TableMap) {
        for (column, logged) in self.columns.iter().zip(&mut map.columns) {
            logged.unsigned.get_or_insert(column.is_unsigned);
            if column.is_binary {
                logged.collation = Some(CHARSET_BINARY);
            }
        }
    }
}
