//! Reads the columns and indexes of a replica's table from `information_schema`.

use tailwater_session::{Connection, QueryResult, SessionError, TextRow};
use tailwater_wire::Flavour;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::portable_literal;

use crate::table_indexes::{IndexedColumn, ReadableIndex, TableIndexes};

/// Column types that the binlog shows as strings, but that hold bytes.
const BYTE_TYPES: [&str; 5] = ["binary", "varbinary", "inet4", "inet6", "uuid"];

/// Prepares a session that reads definitions: it shows the generated invisible primary keys, which the binlog
/// contains.
pub(crate) async fn prepare(connection: &mut Connection) -> Result<(), SessionError> {
    if connection.server().has(ServerFeature::GeneratedInvisiblePrimaryKeys) {
        let shown = "SET SESSION show_gipk_in_create_table_and_information_schema = ON";
        connection.execute(shown).await?;
    }
    Ok(())
}

/// Reads a table. Returns `None` if the account sees no base table of this name, or its engine has no pages
/// in the buffer pool.
pub(crate) async fn read_table(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<Option<TableIndexes>, SessionError> {
    let flavour = connection.server().flavour;
    let of = format!(
        "WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        portable_literal(schema),
        portable_literal(table)
    );
    let found =
        connection.query(&format!("SELECT TABLE_ROWS, ENGINE FROM information_schema.TABLES {of}")).await?;
    let Some(row) = found.first().filter(|row| row.get_str(1) == Some("InnoDB")) else { return Ok(None) };
    let rows_estimate = row.get_u64(0).unwrap_or(0);
    let columns = connection
        .query(&format!(
            "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE FROM information_schema.COLUMNS {of} \
             ORDER BY ORDINAL_POSITION"
        ))
        .await?;
    // Each flavour hides an index from queries in its own way.
    let hidden = match flavour {
        Flavour::MySql => "IS_VISIBLE = 'NO'",
        Flavour::MariaDb if connection.server().version >= (10, 6, 0) => "IGNORED = 'YES'",
        Flavour::MariaDb => "0",
    };
    let parts = connection
        .query(&format!(
            "SELECT INDEX_NAME, COLUMN_NAME, NON_UNIQUE, INDEX_TYPE, {hidden} FROM information_schema.STATISTICS {of} \
             ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        ))
        .await?;
    Ok(Some(build(schema, table, rows_estimate, &columns, &parts)))
}

fn text(row: &TextRow, index: usize) -> &str {
    row.get_str(index).unwrap_or_default()
}

fn build(
    schema: &str,
    table: &str,
    rows_estimate: u64,
    columns: &QueryResult,
    parts: &QueryResult,
) -> TableIndexes {
    let mut built = TableIndexes {
        schema: schema.to_owned(),
        table: table.to_owned(),
        rows_estimate,
        ..TableIndexes::default()
    };
    let mut nullable = Vec::new();
    for row in &columns.rows {
        let column_type = text(row, 1).to_ascii_lowercase();
        let name = column_type.split(['(', ' ']).next().unwrap_or_default();
        built.columns.push(IndexedColumn {
            name: text(row, 0).to_owned(),
            is_unsigned: column_type.contains("unsigned"),
            character_set: row.get_str(2).filter(|_| !matches!(name, "enum" | "set")).map(str::to_owned),
            is_binary: BYTE_TYPES.contains(&name),
        });
        nullable.push(text(row, 3) == "YES");
    }
    // Each index with: whether it is unique, and whether a query can use it.
    let mut found: Vec<(ReadableIndex, bool, bool)> = Vec::new();
    for row in &parts.rows {
        let name = text(row, 0);
        if found.last().is_none_or(|(index, _, _)| index.name != name) {
            let usable = text(row, 3) == "BTREE" && text(row, 4) != "1";
            let index = ReadableIndex { name: name.to_owned(), columns: Vec::new() };
            found.push((index, text(row, 2) == "0", usable));
        }
        let column = built.columns.iter().position(|column| column.name == text(row, 1));
        if let Some((index, _, usable)) = found.last_mut() {
            match column {
                Some(column) => index.columns.push(column),
                // An expression: its values are not in the row image.
                None => *usable = false,
            }
        }
    }
    found.retain(|(_, _, usable)| *usable);
    let is_primary = |index: &ReadableIndex| index.name == "PRIMARY";
    let no_nulls = |index: &ReadableIndex| {
        index.columns.iter().all(|column| nullable.get(*column).is_some_and(|nullable| !nullable))
    };
    let row_index = found
        .iter()
        .position(|(index, _, _)| is_primary(index))
        .or_else(|| found.iter().position(|(index, unique, _)| *unique && no_nulls(index)));
    if let Some(position) = row_index {
        let row_index = found.remove(position);
        built.has_primary_key = is_primary(&row_index.0);
        built.has_row_index = true;
        found.insert(0, row_index);
    }
    built.indexes = found.into_iter().map(|(index, _, _)| index).collect();
    built
}
