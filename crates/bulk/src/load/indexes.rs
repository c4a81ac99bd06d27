//! Secondary indexes that are made when all rows of a table are there: sorted once instead of kept in order row by row.
//!
//! Which ones there are is the target's own word: they stand in its `SHOW CREATE TABLE` line by line, and are noted on the
//! target before they are dropped, so that a load that is gone on with makes them all the same. A UNIQUE key is checked
//! when it is made: rows that are no longer unique end the load.

use std::collections::HashSet;

use tailwater_session::{Connection, SessionError};

use super::contents::TableFiles;
use super::load_record::Record;
use super::run::LoadOptions;
use super::target_session;
use crate::error::{BulkError, ResumeHint};
use crate::schema::TableName;
use crate::sql::{literal, qualified, quoted};

/// Whether indexes are made behind the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeferIndexes {
    /// Of tables that are large enough for it to pay.
    #[default]
    Auto,
    /// Of all tables.
    Always,
    /// Of none.
    Never,
}

/// From here on it pays: to drop and make indexes takes as long as some thousand rows.
const ROWS_MIN: u64 = 50_000;
/// The same where the rows are not counted.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// What the server sorts in for one table's indexes, on each connection that makes some. It divides it among its threads, and what
/// leaves the processor's caches is sorted at a greater price than that of another merge.
const SORT_BYTES: u64 = 16 << 20;

/// What servers say of a key that is there.
const DUPLICATE_KEY_NAME: u16 = 1061;

impl DeferIndexes {
    /// Whether indexes of a table that gets so many rows, if that is known, in so many bytes, wait.
    pub fn wants(self, rows: Option<u64>, bytes: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => rows.map_or(bytes >= FILE_BYTES_MIN, |rows| rows >= ROWS_MIN),
        }
    }

    /// Whether indexes of a table of a dump wait.
    pub(crate) fn wants_table(self, table: &TableFiles) -> bool {
        let rows = table.chunks.iter().map(|chunk| chunk.rows).sum();
        self.wants(rows, table.chunks.iter().map(|chunk| chunk.file_bytes).sum())
    }
}

/// A secondary key as a definition has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key<'a> {
    name: String,
    /// All of its line, but for the comma.
    definition: &'a str,
    /// The first column; `None` for an expression.
    first: Option<String>,
    /// Whether it is of a kind that can be made later at no other price.
    plain: bool,
}

/// The name behind its opening backquote, and what comes behind its end.
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

/// The secondary keys of a definition as servers print it: each on a line of its own.
fn keys(definition: &str) -> Vec<Key<'_>> {
    const KINDS: [(&str, bool); 5] = [
        ("KEY ", true),
        ("UNIQUE KEY ", true),
        ("FULLTEXT KEY ", false),
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
        // MariaDB keeps these in a hidden column, and makes them by copying the table.
        let plain = plain && !definition.contains("USING HASH");
        keys.push(Key { name: key, definition, first, plain });
    }
    keys
}

/// Which keys of a table wait: those behind the last that must not, so that all keep their order. Columns of foreign keys
/// need theirs, on either side, and so does the one that counts by itself.
fn waiting<'a>(definition: &'a str, needed: &HashSet<String>) -> Vec<Key<'a>> {
    let is_clustered = definition.lines().any(|line| line.starts_with("  PRIMARY KEY "));
    // Its rows of the past make every change of the table one of their own.
    if !is_clustered
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
    let is_needed = |key: &Key<'_>| {
        !key.plain
            || key
                .first
                .as_ref()
                .is_some_and(|first| needed.contains(first) || counter.as_ref() == Some(first))
    };
    let behind = keys.iter().rposition(is_needed).map_or(0, |last| last + 1);
    keys.split_off(behind)
}

/// Drops the indexes that can wait from a table without rows, and notes them on the target.
///
/// # Errors
/// [`BulkError::Session`]
pub(crate) async fn drop_waiting(
    connection: &mut Connection,
    record: &Record,
    table: &TableName,
) -> Result<(), BulkError> {
    let Some(definition) = definition(connection, table).await? else { return Ok(()) };
    let needed = foreign_columns(connection, table).await?;
    let waiting = waiting(&definition, &needed);
    if waiting.is_empty() {
        return Ok(());
    }
    let definitions: Vec<_> = waiting.iter().map(|key| key.definition).collect();
    record.note_indexes(connection, table, &definitions.join("\n")).await?;
    let drops: Vec<_> = waiting.iter().map(|key| format!("DROP KEY {}", quoted(&key.name))).collect();
    let sql = format!("ALTER TABLE {} {}", qualified(&table.schema, &table.name), drops.join(", "));
    connection.execute(&sql).await?;
    Ok(())
}

/// Makes the indexes that a table waits for, and forgets that it does. However long it takes, on a connection of its own: who
/// gave up waiting would leave the server at work.
///
/// # Errors
/// [`BulkError::IndexesRejected`] if the target cannot make them; [`BulkError::Session`].
pub(crate) async fn make_waiting(
    connection: &mut Connection,
    record: &Record,
    table: &TableName,
    options: &LoadOptions,
) -> Result<(), BulkError> {
    let Some(waiting) = record.indexes(connection, table).await? else { return Ok(()) };
    let there = definition(connection, table).await?.unwrap_or_default();
    let there: HashSet<_> = keys(&there).into_iter().map(|key| key.name).collect();
    // What was printed in a table's definition reads back as a table's definition.
    let lines: String = waiting.lines().map(|line| format!("  {line}\n")).collect();
    let missing: Vec<_> = keys(&lines).into_iter().filter(|key| !there.contains(&key.name)).collect();
    if !missing.is_empty() {
        let mut patient = target_session::connect_patient(options).await?;
        give_room(&mut patient).await?;
        let adds: Vec<_> = missing.iter().map(|key| format!("ADD {}", key.definition)).collect();
        let sql = format!("ALTER TABLE {} {}", qualified(&table.schema, &table.name), adds.join(", "));
        match patient.execute(&sql).await {
            Ok(_) => {}
            Err(SessionError::Server { error, .. }) if error.number == DUPLICATE_KEY_NAME => {}
            Err(SessionError::Server { error, .. }) => {
                return Err(BulkError::IndexesRejected {
                    table: table.to_string(),
                    error: Box::new(error),
                    go_on: ResumeHint::Resume,
                });
            }
            Err(error) => return Err(error.into()),
        }
        // The other connection was idle for long, maybe for longer than a firewall remembers it.
        record.forget_indexes(&mut patient, table).await?;
        patient.close().await;
        return Ok(());
    }
    record.forget_indexes(connection, table).await
}

/// Gives MySQL room to sort in, of which it has 1 MiB by default: with less it merges more often. MariaDB's has one size for all.
async fn give_room(connection: &mut Connection) -> Result<(), BulkError> {
    let shown = connection.query("SHOW SESSION VARIABLES LIKE 'innodb_ddl_buffer_size'").await?;
    if shown.first().and_then(|row| row.get_u64(1)).is_some_and(|bytes| bytes < SORT_BYTES) {
        connection.execute(&format!("SET SESSION innodb_ddl_buffer_size = {SORT_BYTES}")).await?;
    }
    Ok(())
}

/// A table's definition as the target prints it; `None` unless it is an InnoDB table.
async fn definition(connection: &mut Connection, table: &TableName) -> Result<Option<String>, BulkError> {
    let sql = format!("SHOW CREATE TABLE {}", qualified(&table.schema, &table.name));
    let shown = connection.query(&sql).await?;
    let text = shown.first().and_then(|row| row.get_str(1));
    Ok(text.filter(|text| text.contains("\n) ENGINE=InnoDB")).map(str::to_owned))
}

/// The columns of a table that foreign keys, its own or others', are made of.
async fn foreign_columns(
    connection: &mut Connection,
    table: &TableName,
) -> Result<HashSet<String>, BulkError> {
    let (schema, name) = (literal(&table.schema), literal(&table.name));
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
        waiting(definition, &needed).into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn keys_wait_behind_the_last_that_is_needed() {
        assert_eq!(names(TABLE, &[]), ["u`1", "f", "e", "k, 2"]);
        assert_eq!(names(TABLE, &["other"]), ["e", "k, 2"]);
        assert_eq!(names(TABLE, &["a`b"]), Vec::<String>::new());
        let waiting = waiting(TABLE, &HashSet::new());
        assert_eq!(waiting[3].definition, "KEY `k, 2` (`a``b`,`id`) USING BTREE COMMENT 'a, b'");
    }

    #[test]
    fn a_counter_keeps_its_key_and_a_table_without_primary_key_all() {
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
    fn it_pays_for_large_tables_only() {
        assert!(!DeferIndexes::Auto.wants(Some(ROWS_MIN - 1), u64::MAX));
        assert!(DeferIndexes::Auto.wants(None, FILE_BYTES_MIN));
        assert!(DeferIndexes::Always.wants(Some(0), 0) && !DeferIndexes::Never.wants(None, u64::MAX));
    }
}
