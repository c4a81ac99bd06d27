//! Creates secondary indexes after all rows of a table: sorted once instead of maintained row by row.
//!
//! The target decides which indexes there are: they are the lines of its `SHOW CREATE TABLE`. They are
//! recorded on the target before they are dropped, so that a resumed load creates them as well. A UNIQUE key
//! is checked when it is created: duplicate rows end the load.

use std::collections::HashSet;

use tailwater_session::{Connection, SessionError};

use super::contents::TableFiles;
use super::load_record::LoadRecord;
use super::run::LoadOptions;
use super::target_session;
use tailwater_tables::error::{BulkError, ResumeHint};
use tailwater_tables::schema::TableName;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier, string_literal};

/// Whether to create indexes after the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeferIndexes {
    /// For tables that are large enough.
    #[default]
    Auto,
    /// For all tables.
    Always,
    /// For no table.
    Never,
}

/// Minimum number of rows: dropping and creating indexes takes as long as loading some thousand rows.
const ROWS_MIN: u64 = 50_000;
/// Minimum size if the number of rows is unknown.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// Sort buffer for the indexes of one table, on each connection that creates some. The server divides it
/// among its threads. A buffer beyond the processor's caches costs more than an additional merge pass.
const SORT_BYTES: u64 = 16 << 20;

/// The column with which a table gives InnoDB's full-text index the document identifiers itself. While there is such an index, InnoDB
/// refuses rows that do not come in the order of their identifiers (error 182, `row_insert_for_mysql` in `row0mysql.cc`); rows of
/// a dump come in the order of their primary key.
pub(crate) const DOCUMENT_ID: &str = "FTS_DOC_ID";

/// How the line of a full-text key begins.
const FULLTEXT: &str = "FULLTEXT KEY ";

fn has_document_ids(definition: &str) -> bool {
    definition
        .lines()
        .any(|line| line.strip_prefix("  ").and_then(name).is_some_and(|(name, _)| name == DOCUMENT_ID))
}

/// Server error for an existing key.
const DUPLICATE_KEY_NAME: u16 = 1061;

impl DeferIndexes {
    /// Whether to defer the indexes of a table with this number of rows, if it is known, and this size.
    pub fn wants(self, rows: Option<u64>, bytes: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => rows.map_or(bytes >= FILE_BYTES_MIN, |rows| rows >= ROWS_MIN),
        }
    }

    /// Whether to defer the indexes of a table of a dump.
    pub(crate) fn wants_table(self, table: &TableFiles) -> bool {
        let rows = table.chunks.iter().map(|chunk| chunk.rows).sum();
        self.wants(rows, table.chunks.iter().map(|chunk| chunk.file_bytes).sum())
    }
}

/// A secondary key of a table definition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IndexDefinition<'a> {
    name: String,
    /// Its line without the comma.
    definition: &'a str,
    /// The first column; `None` for an expression.
    first: Option<String>,
    /// Whether it can be created later at the same cost.
    plain: bool,
}

/// The name after its opening backquote, and the text after its closing one.
fn name(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('`')?;
    let mut name = String::new();
    loop {
        let end = rest.find('`')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('`') {
            Some(behind) => {
                name.push('`');
                rest = behind;
            }
            None => return Some((name, rest)),
        }
    }
}

/// The secondary keys of a definition as servers print it, one per line.
fn keys(definition: &str) -> Vec<IndexDefinition<'_>> {
    const KINDS: [(&str, bool); 5] = [
        ("KEY ", true),
        ("UNIQUE KEY ", true),
        (FULLTEXT, false),
        ("SPATIAL KEY ", false),
        ("VECTOR KEY ", false),
    ];
    let mut keys = Vec::new();
    for line in definition.lines() {
        let Some(line) = line.strip_prefix("  ") else { continue };
        let kind = KINDS.iter().find_map(|(kind, plain)| Some((line.strip_prefix(kind)?, *plain)));
        let Some((named, plain)) = kind else { continue };
        let Some((key, rest)) = name(named) else { continue };
        let first = rest.strip_prefix(" (").and_then(name).map(|(column, _)| column);
        let definition = line.strip_suffix(',').unwrap_or(line);
        // MariaDB stores such keys in a hidden column, and copies the table to create them.
        let plain = plain && !definition.contains("USING HASH");
        keys.push(IndexDefinition { name: key, definition, first, plain });
    }
    keys
}

/// Which keys of a table are created after its rows: those after the last that has to be there before, so that all keep their
/// order. Columns of foreign keys need theirs, on either side, and so does an AUTO_INCREMENT column. If the rows carry document
/// identifiers ([`DOCUMENT_ID`]), full-text keys are always among them; unless `is_wanted`, no others are.
fn waiting<'a>(definition: &'a str, needed: &HashSet<String>, is_wanted: bool) -> Vec<IndexDefinition<'a>> {
    let late_fulltext = has_document_ids(definition);
    let mut waiting = waiting_keys(definition, needed, late_fulltext);
    if !is_wanted {
        waiting.retain(|key| late_fulltext && key.definition.starts_with(FULLTEXT));
    }
    waiting
}

fn waiting_keys<'a>(
    definition: &'a str,
    needed: &HashSet<String>,
    late_fulltext: bool,
) -> Vec<IndexDefinition<'a>> {
    let is_clustered = definition.lines().any(|line| line.starts_with("  PRIMARY KEY "));
    // With system versioning, history rows turn every ALTER TABLE into a change of its own.
    if !(is_clustered || late_fulltext)
        || definition.contains("WITH SYSTEM VERSIONING")
        || definition.contains("WITHOUT OVERLAPS")
    {
        return Vec::new();
    }
    let counter = definition
        .lines()
        .filter(|line| line.contains(" AUTO_INCREMENT"))
        .find_map(|line| Some(name(line.strip_prefix("  ")?)?.0));
    let mut keys = keys(definition);
    let is_needed = |key: &IndexDefinition<'_>| {
        !(key.plain || late_fulltext && key.definition.starts_with(FULLTEXT))
            || key
                .first
                .as_ref()
                .is_some_and(|first| needed.contains(first) || counter.as_ref() == Some(first))
    };
    let behind = keys.iter().rposition(is_needed).map_or(0, |last| last + 1);
    keys.split_off(behind)
}

/// Drops the indexes that are created after the rows from a table that has none yet, and records them on the target: if `is_wanted`,
/// all that can be; else only full-text keys of a table whose rows carry document identifiers.
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
    let waiting = waiting(&definition, &needed, is_wanted);
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

/// Creates the deferred indexes of a table and deletes their record. It uses its own connection without a
/// time limit, since the server would continue to work after a time-out.
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
    let there = definition(connection, table).await?.unwrap_or_default();
    let there: HashSet<_> = keys(&there).into_iter().map(|key| key.name).collect();
    // The recorded lines have the format of a table definition.
    let lines: String = waiting.lines().map(|line| format!("  {line}\n")).collect();
    let missing: Vec<_> = keys(&lines).into_iter().filter(|key| !there.contains(&key.name)).collect();
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
        // The other connection was idle for long, possibly longer than a firewall tracks it.
        record.delete_indexes(&mut unlimited, table).await?;
        unlimited.close().await;
        return Ok(());
    }
    record.delete_indexes(connection, table).await
}

/// Enlarges MySQL's sort buffer, which is 1 MiB by default; a smaller one needs more merge passes. MariaDB's
/// has a fixed size.
async fn enlarge_sort_buffer(connection: &mut Connection) -> Result<(), BulkError> {
    let shown = connection.query("SHOW SESSION VARIABLES LIKE 'innodb_ddl_buffer_size'").await?;
    if shown.first().and_then(|row| row.get_u64(1)).is_some_and(|bytes| bytes < SORT_BYTES) {
        connection.execute(&format!("SET SESSION innodb_ddl_buffer_size = {SORT_BYTES}")).await?;
    }
    Ok(())
}

/// The table definition as the target prints it; `None` unless it is an InnoDB table.
async fn definition(connection: &mut Connection, table: &TableName) -> Result<Option<String>, BulkError> {
    let sql = format!("SHOW CREATE TABLE {}", qualified_name(&table.schema, &table.name));
    let shown = connection.query(&sql).await?;
    let text = shown.first().and_then(|row| row.get_str(1));
    Ok(text.filter(|text| text.contains("\n) ENGINE=InnoDB")).map(str::to_owned))
}

/// The columns of a table that are part of foreign keys, its own or of other tables.
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

    const TABLE: &str = "CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  `a``b` int COMMENT '  KEY `no` (`a`)',\n  \
                         PRIMARY KEY (`id`),\n  UNIQUE KEY `u``1` (`a``b`),\n  KEY `f` (`other`),\n  \
                         KEY `e` ((`id` + 1)),\n  KEY `k, 2` (`a``b`,`id`) USING BTREE COMMENT 'a, b',\n  \
                         CONSTRAINT `c` FOREIGN KEY (`other`) REFERENCES `o` (`id`)\n) ENGINE=InnoDB";

    fn names(definition: &str, needed: &[&str]) -> Vec<String> {
        let needed = needed.iter().map(|name| (*name).to_owned()).collect();
        waiting(definition, &needed, true).into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn keys_after_the_last_needed_one_are_deferred() {
        assert_eq!(names(TABLE, &[]), ["u`1", "f", "e", "k, 2"]);
        assert_eq!(names(TABLE, &["other"]), ["e", "k, 2"]);
        assert_eq!(names(TABLE, &["a`b"]), Vec::<String>::new());
        let waiting = waiting(TABLE, &HashSet::new(), true);
        assert_eq!(waiting[3].definition, "KEY `k, 2` (`a``b`,`id`) USING BTREE COMMENT 'a, b'");
    }

    #[test]
    fn auto_increment_columns_and_tables_without_primary_key_keep_their_keys() {
        let counted =
            TABLE.replace("`id` int NOT NULL AUTO_INCREMENT", "`other` int NOT NULL AUTO_INCREMENT");
        assert_eq!(names(&counted, &[]), ["e", "k, 2"]);
        assert_eq!(names(&TABLE.replace("PRIMARY KEY", "UNIQUE KEY `p`"), &[]), Vec::<String>::new());
        let fulltext = TABLE.replace("  KEY `k, 2`", "  FULLTEXT KEY `k, 2`");
        assert_eq!(names(&fulltext, &[]), Vec::<String>::new());
        assert_eq!(
            names(&TABLE.replace("ENGINE", "WITH SYSTEM VERSIONING ENGINE"), &[]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn fulltext_keys_wait_for_rows_with_document_identifiers() {
        let unwanted = |definition: &str| -> Vec<_> {
            waiting(definition, &HashSet::new(), false).into_iter().map(|key| key.name).collect()
        };
        let fulltext = TABLE.replace("  KEY `k, 2`", "  FULLTEXT KEY `k, 2`");
        assert_eq!(unwanted(&fulltext), Vec::<String>::new());
        let identified =
            fulltext.replace("  `a``b` int", "  `FTS_DOC_ID` bigint unsigned NOT NULL,\n  `a``b` int");
        assert_eq!(unwanted(&identified), ["k, 2"]);
        assert_eq!(names(&identified, &[]), ["u`1", "f", "e", "k, 2"]);
        let without_primary = identified.replace("PRIMARY KEY", "UNIQUE KEY `p`");
        assert_eq!(unwanted(&without_primary), ["k, 2"]);
    }

    #[test]
    fn only_large_tables_defer_indexes() {
        assert!(!DeferIndexes::Auto.wants(Some(ROWS_MIN - 1), u64::MAX));
        assert!(DeferIndexes::Auto.wants(None, FILE_BYTES_MIN));
        assert!(DeferIndexes::Always.wants(Some(0), 0) && !DeferIndexes::Never.wants(None, u64::MAX));
    }
}
