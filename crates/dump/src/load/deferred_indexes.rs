//! Creates the secondary indexes of a table after all its rows. The server then sorts each index once, and
//! does not update it with every row.
//!
//! The list of indexes comes from `SHOW CREATE TABLE` on the target. The indexes are recorded on the target
//! before they are dropped, so that a resumed load can create them. A UNIQUE key is checked when it is
//! created: duplicate rows end the load.

use std::collections::HashSet;

use tailwater_session::{Connection, SessionError};

use super::dump_contents::TableFiles;
use super::load_options::LoadOptions;
use super::load_progress_table::LoadRecord;
use super::target_session;
use tailwater_tables::error::{BulkError, ResumeHint};
use tailwater_tables::schema::TableName;
use tailwater_tables::schema::index_definitions::{deferrable, has_document_ids, keys};
use tailwater_wire::sql_quote::{qualified_name, quote_identifier, string_literal};

/// For which tables to create the indexes after the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeferIndexes {
    /// Only for large tables.
    #[default]
    Auto,
    /// For all tables.
    Always,
    /// For no table.
    Never,
}

/// Minimum number of rows of a large table. Dropping and creating indexes takes as long as loading some
/// thousand rows.
const ROWS_MIN: u64 = 50_000;
/// Minimum size in bytes of a large table whose number of rows is unknown.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// Size in bytes of the sort buffer, on each connection that creates the indexes of a table. The server
/// divides the buffer among its threads. A buffer larger than the processor's caches costs more than an
/// additional merge pass.
const SORT_BYTES: u64 = 16 << 20;

/// Server error for an index that exists already.
const DUPLICATE_KEY_NAME: u16 = 1061;

impl DeferIndexes {
    /// Returns whether to defer the indexes of a table with this number of rows, if it is known, and this
    /// size in bytes.
    pub fn wants(self, rows: Option<u64>, bytes: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => rows.map_or(bytes >= FILE_BYTES_MIN, |rows| rows >= ROWS_MIN),
        }
    }

    /// Returns whether to defer the indexes of a table of a dump.
    pub(crate) fn wants_table(self, table: &TableFiles) -> bool {
        let rows = table.chunks.iter().map(|chunk| chunk.rows).sum();
        self.wants(rows, table.chunks.iter().map(|chunk| chunk.file_bytes).sum())
    }
}

/// Drops indexes of a table that has no rows yet, and records them on the target. With `is_wanted`, drops all
/// indexes that can be created after the rows. Otherwise drops only the full-text indexes of a table whose
/// rows have document identifiers.
///
/// # Errors
/// [`BulkError::Session`]
pub(crate) async fn drop_deferred(
    connection: &mut Connection,
    record: &LoadRecord,
    table: &TableName,
    is_wanted: bool,
) -> Result<(), BulkError> {
    let Some(definition) = definition(connection, table).await? else { return Ok(()) };
    if !is_wanted && !has_document_ids(&definition) {
        return Ok(());
    }
    let needed = foreign_columns(connection, table).await?;
    let waiting = deferrable(&definition, &needed, is_wanted);
    if waiting.is_empty() {
        return Ok(());
    }
    let definitions: Vec<_> = waiting.iter().map(|key| key.definition).collect();
    record.record_indexes(connection, table, &definitions.join("\n")).await?;
    let drops: Vec<_> =
        waiting.iter().map(|key| format!("DROP KEY {}", quote_identifier(&key.name))).collect();
    let sql = format!("ALTER TABLE {} {}", qualified_name(&table.schema, &table.name), drops.join(", "));
    connection.execute(&sql).await?;
    Ok(())
}

/// Creates the deferred indexes of a table and deletes their record. It uses a new connection without a time
/// limit: after a time-out, the server would continue to create the index.
///
/// # Errors
/// [`BulkError::IndexesRejected`] if the target cannot create them; [`BulkError::Session`].
pub(crate) async fn create_deferred(
    connection: &mut Connection,
    record: &LoadRecord,
    table: &TableName,
    options: &LoadOptions,
) -> Result<(), BulkError> {
    let Some(waiting) = record.indexes(connection, table).await? else { return Ok(()) };
    let existing = definition(connection, table).await?.unwrap_or_default();
    let existing: HashSet<_> = keys(&existing).into_iter().map(|key| key.name).collect();
    // The index lines are recorded without their indentation. The indentation is added here, so that the
    // lines have the format of a table definition.
    let lines: String = waiting.lines().map(|line| format!("  {line}\n")).collect();
    let missing: Vec<_> = keys(&lines).into_iter().filter(|key| !existing.contains(&key.name)).collect();
    if !missing.is_empty() {
        let mut unlimited = target_session::connect_without_timeout(options).await?;
        enlarge_sort_buffer(&mut unlimited).await?;
        let adds: Vec<_> = missing.iter().map(|key| format!("ADD {}", key.definition)).collect();
        let sql = format!("ALTER TABLE {} {}", qualified_name(&table.schema, &table.name), adds.join(", "));
        match unlimited.execute(&sql).await {
            Ok(_) => {}
            Err(SessionError::Server { error, .. }) if error.number == DUPLICATE_KEY_NAME => {}
            Err(SessionError::Server { error, .. }) => {
                return Err(BulkError::IndexesRejected {
                    table: table.to_string(),
                    error: Box::new(error),
                    hint: ResumeHint::Resume,
                });
            }
            Err(error) => return Err(error.into()),
        }
        // The new connection is used, because the old one was idle for so long that a firewall may have
        // dropped it.
        record.delete_indexes(&mut unlimited, table).await?;
        unlimited.close().await;
        return Ok(());
    }
    record.delete_indexes(connection, table).await
}

/// Enlarges MySQL's sort buffer for indexes. The default of 1 MiB needs more merge passes. MariaDB's buffer
/// has a fixed size.
async fn enlarge_sort_buffer(connection: &mut Connection) -> Result<(), BulkError> {
    let shown = connection.query("SHOW SESSION VARIABLES LIKE 'innodb_ddl_buffer_size'").await?;
    if shown.first().and_then(|row| row.get_u64(1)).is_some_and(|bytes| bytes < SORT_BYTES) {
        connection.execute(&format!("SET SESSION innodb_ddl_buffer_size = {SORT_BYTES}")).await?;
    }
    Ok(())
}

/// Returns the table definition as the target prints it; `None` if the table is not an InnoDB table.
async fn definition(connection: &mut Connection, table: &TableName) -> Result<Option<String>, BulkError> {
    let sql = format!("SHOW CREATE TABLE {}", qualified_name(&table.schema, &table.name));
    let shown = connection.query(&sql).await?;
    let text = shown.first().and_then(|row| row.get_str(1));
    Ok(text.filter(|text| text.contains("\n) ENGINE=InnoDB")).map(str::to_owned))
}

/// Returns the columns of a table that are part of foreign keys, of this table or of other tables.
async fn foreign_columns(
    connection: &mut Connection,
    table: &TableName,
) -> Result<HashSet<String>, BulkError> {
    let (schema, name) = (string_literal(&table.schema), string_literal(&table.name));
    let sql = format!(
        "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = {schema} AND table_name = {name} \
         AND referenced_table_name IS NOT NULL UNION SELECT referenced_column_name FROM \
         information_schema.key_column_usage WHERE referenced_table_schema = {schema} AND referenced_table_name = {name}"
    );
    let answer = connection.query(&sql).await?;
    Ok(answer.rows.iter().filter_map(|row| row.get_str(0)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_tables_defer_indexes() {
        assert!(!DeferIndexes::Auto.wants(Some(ROWS_MIN - 1), u64::MAX));
        assert!(DeferIndexes::Auto.wants(None, FILE_BYTES_MIN));
        assert!(DeferIndexes::Always.wants(Some(0), 0) && !DeferIndexes::Never.wants(None, u64::MAX));
    }
}
