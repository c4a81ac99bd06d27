//! Reads the columns, keys and partitions of a table.

use tailwater_session::{Connection, QueryResult, TextRow};
use tailwater_wire::Flavour;

use super::chunk_key::{ChunkKey, KeyColumn, KeyKind};
use crate::error::BulkError;
use tailwater_wire::sql_quote::string_literal;

/// The columns, keys and partitions of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// The database of the table.
    pub schema: String,
    /// The name of the table.
    pub table: String,
    /// The storage engine of the table, for instance InnoDB.
    pub engine: String,
    /// Whether the table has system versioning (MariaDB).
    pub versioned: bool,
    /// The columns in their order, without generated columns.
    pub columns: Vec<ColumnInfo>,
    /// The keys by which the table can be cut into chunks.
    pub keys: Vec<ChunkKey>,
    /// The partitions of the table; empty if it has none.
    pub partitions: Vec<String>,
    /// Estimated number of rows.
    pub rows_estimate: u64,
    /// Estimated size of the table on the server, in bytes.
    pub bytes_estimate: u64,
}

/// A column whose values are stored, not generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The name of the column.
    pub name: String,
    /// The type of the column without length and attributes, in lower case.
    pub data_type: String,
    /// The type as it is declared, with length and attributes.
    pub column_type: String,
    /// The character set of the column, for types that have one.
    pub charset: Option<String>,
    /// The collation of the column, for types that have one.
    pub collation: Option<String>,
    /// Whether the column may be NULL.
    pub nullable: bool,
}

impl TableInfo {
    /// Reads the description of a table; `None` if the table does not exist.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn read(
        connection: &mut Connection,
        schema: &str,
        table: &str,
    ) -> Result<Option<Self>, BulkError> {
        let of_table =
            format!("table_schema = {} AND table_name = {}", string_literal(schema), string_literal(table));
        let sql = format!(
            "SELECT engine, table_rows, data_length, table_type FROM information_schema.tables WHERE {of_table} AND table_type IN \
             ('BASE TABLE', 'SYSTEM VERSIONED')"
        );
        let answer = connection.query(&sql).await?;
        let Some(row) = answer.first() else { return Ok(None) };
        let (engine, rows_estimate, bytes_estimate) =
            (text(row, 0), row.get_u64(1).unwrap_or(0), row.get_u64(2).unwrap_or(0));
        let described = columns(connection, &of_table).await?;
        let keys = keys(connection, &of_table, &described).await?;
        // If a partition of MariaDB's history is selected by its name, the server also returns deleted rows,
        // so these partitions are left out.
        let sql = format!(
            "SELECT DISTINCT partition_name, partition_ordinal_position FROM information_schema.partitions WHERE \
             {of_table} AND partition_name IS NOT NULL AND partition_method <> 'SYSTEM_TIME' \
             ORDER BY partition_ordinal_position"
        );
        let partitions = connection.query(&sql).await?.rows.iter().map(|row| text(row, 0)).collect();
        let own = described.into_iter().filter(|column| !column.generated).map(|column| column.column);
        Ok(Some(Self {
            schema: schema.to_owned(),
            table: table.to_owned(),
            engine,
            versioned: row.get_str(3) == Some("SYSTEM VERSIONED"),
            columns: own.collect(),
            keys,
            partitions,
            rows_estimate,
            bytes_estimate,
        }))
    }

    /// Returns whether a consistent snapshot covers the table. A table whose engine is not transactional
    /// always shows its current rows.
    pub fn is_transactional(&self) -> bool {
        ["innodb", "rocksdb", "tokudb", "ndbcluster"].contains(&self.engine.to_lowercase().as_str())
    }

    /// Returns whether the table stores its own rows. Tables of some engines, such as MERGE and FEDERATED,
    /// show rows of other tables, on this server or on another server.
    pub fn keeps_rows(&self) -> bool {
        keeps_rows(&self.engine)
    }
}

/// Returns whether tables of an engine store their own rows. Some engines keep the rows in other tables of
/// the same server, in tables of another server, or in foreign files. Then a write or a TRUNCATE changes
/// those tables or files.
pub fn keeps_rows(engine: &str) -> bool {
    const ELSEWHERE: [&str; 7] = ["MRG_MyISAM", "FEDERATED", "CONNECT", "SPIDER", "OQGRAPH", "S3", "SPHINX"];
    !ELSEWHERE.iter().any(|name| name.eq_ignore_ascii_case(engine))
}

struct ColumnDescription {
    column: ColumnInfo,
    generated: bool,
}

async fn columns(connection: &mut Connection, of_table: &str) -> Result<Vec<ColumnDescription>, BulkError> {
    let sql = format!(
        "SELECT column_name, data_type, column_type, character_set_name, is_nullable, generation_expression, \
         collation_name FROM information_schema.columns WHERE {of_table} ORDER BY ordinal_position"
    );
    let described = |row: &TextRow| ColumnDescription {
        column: ColumnInfo {
            name: text(row, 0),
            data_type: text(row, 1).to_lowercase(),
            column_type: text(row, 2).to_lowercase(),
            charset: row.get_str(3).map(str::to_owned),
            collation: row.get_str(6).map(str::to_owned),
            nullable: row.get_str(4) != Some("NO"),
        },
        generated: row.get(5).is_some_and(|expression| !expression.is_empty()),
    };
    Ok(connection.query(&sql).await?.rows.iter().map(described).collect())
}

async fn keys(
    connection: &mut Connection,
    of_table: &str,
    columns: &[ColumnDescription],
) -> Result<Vec<ChunkKey>, BulkError> {
    // Indexes that the optimizer must not use are left out: with such a key, the server would sort the table
    // for each chunk.
    let usable = match connection.server().flavour {
        Flavour::MySql => "is_visible = 'YES'",
        Flavour::MariaDb => "ignored = 'NO'",
    };
    let sql = format!(
        "SELECT index_name, column_name, sub_part, index_type, collation FROM information_schema.statistics WHERE {of_table} AND \
         non_unique = 0 AND {usable} ORDER BY index_name, seq_in_index"
    );
    Ok(keys_of(&connection.query(&sql).await?, columns))
}

/// Returns the unique keys that the server can read in order, and that contain whole column values, not
/// prefixes.
fn keys_of(parts: &QueryResult, columns: &[ColumnDescription]) -> Vec<ChunkKey> {
    let mut keys: Vec<(ChunkKey, Option<&str>, bool)> = Vec::new();
    for part in &parts.rows {
        let (name, direction) = (text(part, 0), part.get_str(4));
        if keys.last().is_none_or(|(key, ..)| key.name != name) {
            keys.push((ChunkKey { name, columns: Vec::new() }, direction, true));
        }
        let Some((key, of_first, good)) = keys.last_mut() else { continue };
        let column = part.get_str(1).and_then(|name| key_column(name, columns));
        let column = column.map(|column| KeyColumn { descending: direction != *of_first, ..column });
        let whole = part.get(2).is_none() && part.get_str(3) == Some("BTREE");
        *good &= whole && column.is_some();
        key.columns.extend(column);
    }
    keys.into_iter().filter(|(.., good)| *good).map(|(key, ..)| key).collect()
}

fn key_column(name: &str, columns: &[ColumnDescription]) -> Option<KeyColumn> {
    let ColumnDescription { column, .. } =
        columns.iter().find(|described| described.column.name.eq_ignore_ascii_case(name))?;
    let kind = KeyKind::of(&column.data_type, column.charset.as_deref())?;
    Some(KeyColumn { name: column.name.clone(), kind, nullable: column.nullable, descending: false })
}

fn text(row: &TextRow, index: usize) -> String {
    row.get(index).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}
